package keystore

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/keystore/keystoretest"
)

func get(settings map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := settings[name]
		return value, set
	}
}

// open makes a Store of settings.
func open(t *testing.T, settings map[string]string) *Store {
	t.Helper()
	s, err := Open(func() (Settings, error) { return Parse(get(settings)) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shake lets a client and a server agree, and returns what the client has seen and what the server thinks of it.
func shake(t *testing.T, client, server *tls.Config) (seen tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // a pipe hangs when both sides write
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		socket, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		conn := tls.Server(socket, server)
		if err = conn.HandshakeContext(t.Context()); err == nil {
			_, err = conn.Write([]byte("x"))
		}
		_ = socket.Close()
		done <- err
	}()
	ours, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn := tls.Client(ours, client)
	clientErr = conn.HandshakeContext(t.Context())
	if clientErr == nil {
		_, clientErr = io.ReadFull(conn, make([]byte, 1)) // a server's refusal of a certificate comes after the handshake
	}
	_ = ours.Close()
	return conn.ConnectionState(), clientErr, <-done
}

// Every way to write key material that Kafka has for PEM is read, the private key of the file of the certificate too.
func TestMaterialIsRead(t *testing.T) {
	authority := keystoretest.NewAuthority(t)
	chain, key := authority.Issue("broker")
	blanks := strings.NewReplacer("\n", " ")
	dir := t.TempDir()
	for name, settings := range map[string]map[string]string{
		"file":         {"ssl.keystore.location": keystoretest.Write(t, dir, "both.pem", "Bag Attributes\n"+key+chain)},
		"file, typed":  {"ssl.keystore.location": filepath.Join(dir, "both.pem"), "ssl.keystore.type": "PEM"},
		"text":         {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key, "ssl.keystore.type": "pem"},
		"text, 1 line": {"ssl.keystore.certificate.chain": blanks.Replace(chain), "ssl.keystore.key": blanks.Replace(key)},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, settings)
			trusting := open(t, map[string]string{"ssl.truststore.certificates": blanks.Replace(authority.PEM)})
			seen, err, served := shake(t, trusting.Client("localhost"), s.Server())
			if err != nil || served != nil {
				t.Fatal(err, served)
			}
			if name := seen.PeerCertificates[0].Subject.CommonName; name != "broker" {
				t.Errorf("the server is %q", name)
			}
		})
	}
}

// What cannot be used is refused with the key or file and what would be right.
func TestMaterialIsRefused(t *testing.T) {
	authority := keystoretest.NewAuthority(t)
	chain, key := authority.Issue("broker")
	_, other := authority.Issue("other")
	dir := t.TempDir()
	file := func(name, text string) map[string]string {
		return map[string]string{"ssl.keystore.location": keystoretest.Write(t, dir, name, text)}
	}
	for _, test := range []struct {
		settings map[string]string
		want     string
	}{
		{map[string]string{"ssl.keystore.type": "JKS"}, "ssl.keystore.type=JKS is not supported; tidemark reads PEM"},
		{map[string]string{"ssl.truststore.type": "PKCS12"}, "ssl.truststore.type=PKCS12 is not supported; tidemark reads PEM"},
		{map[string]string{"ssl.keystore.password": "x"}, "ssl.keystore.password is set"},
		{map[string]string{"ssl.key.password": "x"}, "encrypted private keys are not supported"},
		{map[string]string{"ssl.keystore.key": key}, "go together"},
		{map[string]string{"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain, "ssl.keystore.location": "f"}, "both set"},
		{map[string]string{"ssl.truststore.certificates": "x", "ssl.truststore.location": "f"}, "both set"},
		{map[string]string{"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not supported; want TLSv1.2, TLSv1.3 or both"},
		{map[string]string{"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_SHA"}, "TLS_RSA_WITH_RC4_128_SHA is not supported"},
		{map[string]string{"ssl.endpoint.identification.algorithm": "ldap"}, "want https"},
		{map[string]string{}, "there is no certificate: set ssl.keystore.location"},
		{map[string]string{"ssl.keystore.location": filepath.Join(dir, "none")}, "none: no such file"},
		{file("a.jks", "\xfe\xed\xfe\xed\x00\x00"), "a.jks: it is a JKS key store; tidemark reads PEM"},
		{file("a.p12", "\x30\x82\x00\x00"), "a.p12: it is a PKCS12 key store"},
		{file("chain", chain), "chain: there is no private key"},
		{file("key", key), "key: there is no certificate"},
		{file("mixed", chain+other), "mixed: certificate and private key"},
		{file("large", strings.Repeat("x", fileBytesMax+1)), "large has 1048577 bytes"},
		{file("secret", chain+strings.ReplaceAll(key, "PRIVATE", "ENCRYPTED PRIVATE")), "secret: the private key is encrypted"},
		{file("torn", strings.Replace(chain, "END CERTIFICATE", "END KEY", 1)+key), "BEGIN CERTIFICATE is followed by END KEY"},
		{
			map[string]string{"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain, "ssl.client.auth": "required"},
			"ssl.client.auth=required needs the authorities",
		},
		{
			map[string]string{"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain, "ssl.truststore.certificates": key},
			"ssl.truststore.certificates: there is no certificate",
		},
	} {
		settings, err := Parse(get(test.settings))
		if err == nil {
			err = Check(settings)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.settings, err, test.want)
		}
	}
}

// Clients without a certificate, or with one that another authority signed, are let in as ssl.client.auth says; a server is
// believed only under its name and by its authority; both sides' ssl.enabled.protocols count.
func TestWhoIsLetIn(t *testing.T) {
	ours, theirs := keystoretest.NewAuthority(t), keystoretest.NewAuthority(t)
	side := func(by *keystoretest.Authority, more map[string]string) map[string]string {
		settings := map[string]string{"ssl.truststore.certificates": ours.PEM}
		if by != nil {
			settings["ssl.keystore.certificate.chain"], settings["ssl.keystore.key"] = by.Issue("side")
		}
		for k, v := range more {
			settings[k] = v
		}
		return settings
	}
	only12 := map[string]string{"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}
	for _, test := range []struct {
		name           string
		client, server map[string]string
		host           string
		want           string // in either side's error; empty for an agreement
	}{
		{"nothing asked", side(nil, nil), side(ours, nil), "localhost", ""},
		{"no certificate", side(nil, nil), side(ours, map[string]string{"ssl.client.auth": "required"}), "localhost", "client didn't provide a certificate"},
		{"certificate", side(ours, nil), side(ours, map[string]string{"ssl.client.auth": "required"}), "localhost", ""},
		{"stranger", side(theirs, nil), side(ours, map[string]string{"ssl.client.auth": "required"}), "localhost", "unknown authority"},
		{"requested, none", side(nil, nil), side(ours, map[string]string{"ssl.client.auth": "requested"}), "localhost", ""},
		{"requested, stranger", side(theirs, nil), side(ours, map[string]string{"ssl.client.auth": "requested"}), "localhost", "unknown authority"},
		{"other server", side(nil, nil), side(theirs, nil), "localhost", "unknown authority"},
		{"other host", side(nil, nil), side(ours, nil), "elsewhere", "not elsewhere"},
		{"any host", side(nil, map[string]string{"ssl.endpoint.identification.algorithm": ""}), side(ours, nil), "elsewhere", ""},
		{"any host, other server", side(nil, map[string]string{"ssl.endpoint.identification.algorithm": ""}), side(theirs, nil), "elsewhere", "unknown authority"},
		{"versions", side(nil, only12), side(ours, only12), "localhost", ""},
		{"other versions", side(nil, only12), side(ours, map[string]string{"ssl.enabled.protocols": "TLSv1.3"}), "localhost", "unsupported versions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen, err, served := shake(t, open(t, test.client).Client(test.host), open(t, test.server).Server())
			err = errors.Join(err, served)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			case test.name == "versions" && (seen.Version != tls.VersionTLS12 || seen.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384):
				t.Errorf("version %x, suite %x", seen.Version, seen.CipherSuite)
			}
		})
	}
}

// A certificate may be renewed in its file, by another file that takes its name, or by a setting; what cannot be used
// leaves the former one in force, and is logged once.
func TestMaterialFollowsItsSources(t *testing.T) {
	authority := keystoretest.NewAuthority(t)
	dir := t.TempDir()
	write := func(name, subject string) string {
		chain, key := authority.Issue(subject)
		return keystoretest.Write(t, dir, name, chain+key)
	}
	settings := map[string]string{"ssl.keystore.location": write("a.pem", "first"), "ssl.truststore.certificates": authority.PEM}
	var log bytes.Buffer
	s, err := Open(func() (Settings, error) { return Parse(get(settings)) }, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server, client := s.Server(), open(t, map[string]string{"ssl.truststore.certificates": authority.PEM}).Client("localhost")
	expect := func(want string) {
		t.Helper()
		seen, err, served := shake(t, client, server)
		if err != nil || served != nil || seen.PeerCertificates[0].Subject.CommonName != want {
			t.Fatalf("want %s: %v %v", want, err, served)
		}
	}
	expect("first")
	if err := os.Rename(write("b.pem", "second"), settings["ssl.keystore.location"]); err != nil {
		t.Fatal(err)
	}
	expect("second")
	keystoretest.Write(t, dir, "a.pem", "half a cert")
	expect("second")
	expect("second")
	if err := os.Remove(settings["ssl.keystore.location"]); err != nil {
		t.Fatal(err)
	}
	expect("second")
	settings["ssl.keystore.location"] = write("c.pem", "third")
	expect("third")
	settings["ssl.client.auth"] = "required"
	if _, err, served := shake(t, client, server); err == nil || served == nil {
		t.Error("a client without a certificate is let in after one is required")
	}
	settings["ssl.keystore.type"] = "JKS"
	if _, err, served := shake(t, client, server); err == nil || served == nil {
		t.Error("a setting that cannot be used has changed who is let in")
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 3 {
		t.Errorf("%d lines of what cannot be used, want 3:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "read again"); n != 3 {
		t.Errorf("%d lines of what was read again, want 3:\n%s", n, log.String())
	}
}
