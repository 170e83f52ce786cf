package keystore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Values of ssl.client.auth.
const (
	AuthNone      = "none"      // no certificate is asked for
	AuthRequested = "requested" // one that is shown must be good
	AuthRequired  = "required"  // nobody connects without one
)

// Settings say where key material comes from and what TLS may be. They are comparable.
type Settings struct {
	// Chain and Key are PEM texts: the certificate with those that lead to its authority, and its private key.
	Chain, Key string
	// ChainFile and KeyFile are PEM files with the same, used when Chain is empty. One file may hold both.
	ChainFile, KeyFile string
	// Authorities is a PEM text of the certificates that peers' ones must lead to, AuthoritiesFile a PEM file of them. With
	// neither, the authorities of the operating system are trusted.
	Authorities, AuthoritiesFile string
	// ClientAuth is what a server asks of its clients: AuthNone (also empty), AuthRequested or AuthRequired.
	ClientAuth string
	// AnyHost lets a server's certificate name any host.
	AnyHost bool

	min, max uint16 // TLS versions; 0 for those that Go takes
	suites   string // cipher suites of TLS 1.2, joined by commas; empty for Go's
}

// keysWithoutPEM are keys of Java's own formats: with PEM they mean nothing, and a set one shows a misunderstanding.
var keysWithoutPEM = []string{"ssl.keystore.password", "ssl.truststore.password"}

const howToConvert = `; tidemark reads PEM: convert a key store with "keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12" and "openssl pkcs12 -in NEW.p12 -nodes -out NEW.pem", then name NEW.pem and set the type to PEM`

// Parse reads Kafka's keys ssl.*; get tells what is set for one. The error names the key and what would be right.
func Parse(get func(name string) (value string, set bool)) (Settings, error) {
	value := func(name string) string {
		v, _ := get(name)
		return v
	}
	for _, name := range []string{"ssl.keystore.type", "ssl.truststore.type"} {
		if kind, set := get(name); set && !strings.EqualFold(kind, "PEM") {
			return Settings{}, fmt.Errorf("%s=%s is not supported%s", name, kind, howToConvert)
		}
	}
	for _, name := range keysWithoutPEM {
		if value(name) != "" {
			return Settings{}, fmt.Errorf("%s is set, and PEM has no password of that kind; leave it out", name)
		}
	}
	if value("ssl.key.password") != "" {
		return Settings{}, errors.New(`ssl.key.password is set, and encrypted private keys are not supported; write the key without a password ("openssl pkey -in OLD -out NEW") into a file that only the broker's user can read`)
	}
	s := Settings{
		Chain: value("ssl.keystore.certificate.chain"), Key: value("ssl.keystore.key"),
		ChainFile: value("ssl.keystore.location"), KeyFile: value("ssl.keystore.location"),
		Authorities: value("ssl.truststore.certificates"), AuthoritiesFile: value("ssl.truststore.location"),
		ClientAuth: value("ssl.client.auth"),
	}
	switch {
	case (s.Chain == "") != (s.Key == ""):
		return Settings{}, errors.New("ssl.keystore.certificate.chain and ssl.keystore.key go together; set both or neither")
	case s.Chain != "" && s.ChainFile != "":
		return Settings{}, errors.New("ssl.keystore.location and ssl.keystore.certificate.chain are both set; one of them can count")
	case s.Authorities != "" && s.AuthoritiesFile != "":
		return Settings{}, errors.New("ssl.truststore.location and ssl.truststore.certificates are both set; one of them can count")
	}
	if algorithm, set := get("ssl.endpoint.identification.algorithm"); set {
		s.AnyHost = algorithm == ""
		if algorithm != "" && !strings.EqualFold(algorithm, "https") {
			return Settings{}, fmt.Errorf("ssl.endpoint.identification.algorithm=%s: want https, or nothing for any host", algorithm)
		}
	}
	var err error
	if s.min, s.max, err = parseProtocols(value("ssl.enabled.protocols")); err != nil {
		return Settings{}, err
	}
	s.suites, err = parseSuites(value("ssl.cipher.suites"))
	return s, err
}

// parseProtocols reads a list of TLS versions as Java writes them.
func parseProtocols(text string) (lowest, highest uint16, err error) {
	for _, name := range splitList(text) {
		version := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}[name]
		if version == 0 {
			return 0, 0, fmt.Errorf("ssl.enabled.protocols=%s: %s is not supported; want TLSv1.2, TLSv1.3 or both", text, name)
		}
		if lowest == 0 {
			lowest = version
		}
		lowest, highest = min(lowest, version), max(highest, version)
	}
	return lowest, highest, nil
}

// parseSuites checks a list of cipher suites and keeps those that can be chosen: those of TLS 1.3 are always on.
func parseSuites(text string) (string, error) {
	var chosen []string
	for _, name := range splitList(text) {
		i := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return "", fmt.Errorf("ssl.cipher.suites: %s is not supported; leave the key out for all safe ones", name)
		}
		if slices.Contains(tls.CipherSuites()[i].SupportedVersions, tls.VersionTLS12) {
			chosen = append(chosen, name)
		}
	}
	return strings.Join(chosen, ","), nil
}

func (s *Settings) cipherSuites() []uint16 {
	var ids []uint16
	for _, suite := range tls.CipherSuites() {
		if slices.Contains(splitList(s.suites), suite.Name) {
			ids = append(ids, suite.ID)
		}
	}
	return ids
}

// splitList splits at commas, without what is empty.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func (s *Settings) clientAuth() tls.ClientAuthType {
	switch s.ClientAuth {
	case AuthRequired:
		return tls.RequireAndVerifyClientCert
	case AuthRequested:
		return tls.VerifyClientCertIfGiven
	default:
		return tls.NoClientCert
	}
}
