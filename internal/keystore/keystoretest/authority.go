// Package keystoretest makes certificates for tests: an authority and what it signs, for loopback.
package keystoretest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates that are good for an hour.
type Authority struct {
	// PEM is the authority's own certificate.
	PEM string

	t           testing.TB
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	issued      int64
}

// NewAuthority makes an authority that nobody trusts yet.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.PEM = a.sign(a.certificate, a.key)
	return a
}

// Issue makes a certificate for a name and 127.0.0.1, ::1 and localhost, for both sides of connections; chain and key are
// PEM.
func (a *Authority) Issue(name string) (chain, key string) {
	a.t.Helper()
	return a.IssueFor(name, "127.0.0.1", "::1", "localhost")
}

// IssueFor is Issue with other hosts: addresses or names.
func (a *Authority) IssueFor(name string, hosts ...string) (chain, key string) {
	a.t.Helper()
	a.issued++
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.issued), Subject: pkix.Name{CommonName: name}, NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			certificate.IPAddresses = append(certificate.IPAddresses, ip)
		} else {
			certificate.DNSNames = append(certificate.DNSNames, host)
		}
	}
	private := newKey(a.t)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.sign(certificate, private), encode("PRIVATE KEY", der)
}

// Write puts text into a file of dir, and returns its path.
func Write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (a *Authority) sign(certificate *x509.Certificate, key *ecdsa.PrivateKey) string {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, certificate, a.certificate, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return encode("CERTIFICATE", der)
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
