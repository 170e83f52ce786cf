package keystore

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// pemBlock finds one block. Configurations write PEM with blanks in place of line ends, as the continuation lines of
// a properties file leave them, which encoding/pem does not read.
var pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END ([A-Z0-9 ]+)-----`)

const (
	certificateBlock = "CERTIFICATE"
	privateKeySuffix = "PRIVATE KEY"
)

// blocks reads all PEM blocks, with or without line ends.
func blocks(text []byte) ([]*pem.Block, error) {
	switch {
	case bytes.HasPrefix(text, []byte{0xfe, 0xed, 0xfe, 0xed}):
		return nil, errors.New("it is a JKS key store" + howToConvert)
	case bytes.HasPrefix(text, []byte{0x30, 0x82}), bytes.HasPrefix(text, []byte{0x30, 0x80}):
		return nil, errors.New("it is a PKCS12 key store or a certificate in DER" + howToConvert)
	}
	var all []*pem.Block
	for _, found := range pemBlock.FindAllSubmatch(text, -1) {
		kind, body := string(found[1]), found[2]
		switch {
		case kind != string(found[3]):
			return nil, fmt.Errorf("BEGIN %s is followed by END %s", kind, found[3])
		case strings.HasPrefix(kind, "ENCRYPTED "), bytes.Contains(body, []byte("Proc-Type:")):
			return nil, errors.New(`the private key is encrypted, which is not supported; write it without a password with "openssl pkey -in OLD -out NEW"`)
		}
		der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(body)), ""))
		if err != nil {
			return nil, fmt.Errorf("%s in PEM: %w", kind, err)
		}
		all = append(all, &pem.Block{Type: kind, Bytes: der})
	}
	return all, nil
}

// only keeps the blocks of which keep is true, as PEM.
func only(all []*pem.Block, keep func(kind string) bool) []byte {
	var out []byte
	for _, b := range all {
		if keep(b.Type) {
			out = append(out, pem.EncodeToMemory(b)...)
		}
	}
	return out
}

func isCertificate(kind string) bool { return kind == certificateBlock }
func isPrivateKey(kind string) bool  { return strings.HasSuffix(kind, privateKeySuffix) }

// pair joins a certificate chain and its private key.
func pair(chain, key []byte) (*tls.Certificate, error) {
	certificates, err := blocks(chain)
	if err != nil {
		return nil, err
	}
	keys, err := blocks(key)
	if err != nil {
		return nil, err
	}
	switch {
	case !slices.ContainsFunc(certificates, func(b *pem.Block) bool { return isCertificate(b.Type) }):
		return nil, errors.New("there is no certificate in PEM")
	case !slices.ContainsFunc(keys, func(b *pem.Block) bool { return isPrivateKey(b.Type) }):
		return nil, errors.New("there is no private key in PEM")
	}
	both, err := tls.X509KeyPair(only(certificates, isCertificate), only(keys, isPrivateKey))
	if err != nil {
		return nil, fmt.Errorf("certificate and private key: %w", err)
	}
	return &both, nil
}

// pool reads the certificates of authorities.
func pool(text []byte) (*x509.CertPool, error) {
	all, err := blocks(text)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(only(all, isCertificate)) {
		return nil, errors.New("there is no certificate in PEM")
	}
	return authorities, nil
}
