package keystore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// fileBytesMax bounds a file of key material: a larger one is a mistake.
const fileBytesMax = 1 << 20

// Store is one end's key material, as its settings and files have it. Its methods may be called at any time.
type Store struct {
	settings func() (Settings, error)
	logger   *slog.Logger
	current  atomic.Pointer[material]
	failure  atomic.Pointer[string] // the last one that was logged
}

// material is what was read at one moment; immutable.
type material struct {
	settings    Settings
	files       []file
	certificate *tls.Certificate // nil for none
	authorities *x509.CertPool   // nil for the system's
	server      *tls.Config
}

// file is a file as it was when it was read.
type file struct {
	name string
	info os.FileInfo
}

// Open reads the material for the first time; later, settings is asked at each handshake. The error says what is wrong
// with which key or file. A nil logger hears nothing.
func Open(settings func() (Settings, error), logger *slog.Logger) (*Store, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{settings: settings, logger: logger}
	now, err := settings()
	if err != nil {
		return nil, err
	}
	m, err := read(now)
	if err != nil {
		return nil, err
	}
	s.current.Store(m)
	return s, nil
}

// Check reads what settings name, for a listener, and tells what is wrong; nil for nothing.
func Check(settings Settings) error {
	m, err := read(settings)
	if err != nil {
		return err
	}
	return m.checkServer()
}

// Server is the configuration of a listener that speaks the given protocols over TLS, if any are named. Every handshake has
// the material of its moment. CheckServer must have found nothing.
func (s *Store) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// tls.NewListener wants to see that there is a certificate; GetConfigForClient comes first.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.now().certificate, nil },
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := s.now().server
			if len(protocols) > 0 {
				config = config.Clone()
				config.NextProtos = protocols
			}
			return config, nil
		},
	}
}

// CheckServer tells what a listener lacks; nil for nothing.
func (s *Store) CheckServer() error {
	m := s.current.Load()
	return m.checkServer()
}

func (m *material) checkServer() error {
	switch {
	case m.certificate == nil:
		return errors.New("there is no certificate: set ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key")
	case m.settings.clientAuth() != tls.NoClientCert && m.authorities == nil:
		return fmt.Errorf("ssl.client.auth=%s needs the authorities that sign clients' certificates: set ssl.truststore.location or ssl.truststore.certificates", m.settings.ClientAuth)
	}
	return nil
}

// Client is the configuration of a connection to host, for which the server's certificate must be made; if host is empty,
// whoever dials says it.
func (s *Store) Client(host string) *tls.Config {
	m := s.now()
	config := &tls.Config{
		MinVersion: max(m.settings.min, tls.VersionTLS12), MaxVersion: m.settings.max, CipherSuites: m.settings.cipherSuites(),
		RootCAs: m.authorities, ServerName: host, DynamicRecordSizingDisabled: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := s.now().certificate; c != nil {
				return c, nil
			}
			return new(tls.Certificate), nil // none; the server decides what that means
		},
	}
	if m.settings.AnyHost {
		config.InsecureSkipVerify = true // the name is not checked; the chain is, below
		config.VerifyConnection = func(state tls.ConnectionState) error {
			options := x509.VerifyOptions{Roots: m.authorities, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		}
	}
	return config
}

// now is the material as settings and files have it at this moment; what was there before if that cannot be used.
func (s *Store) now() *material {
	m := s.current.Load()
	settings, err := s.settings()
	if err == nil {
		if settings == m.settings && m.unchanged() {
			return m
		}
		var fresh *material
		if fresh, err = read(settings); err == nil && m.server != nil && fresh.server == nil {
			err = fresh.checkServer()
		}
		if err == nil {
			s.failure.Store(nil)
			s.current.Store(fresh)
			s.logger.Info("certificates were read again", slog.String("subject", fresh.subject()), slog.Time("not_after", fresh.notAfter()))
			return fresh
		}
	}
	text := err.Error()
	if last := s.failure.Swap(&text); last == nil || *last != text {
		s.logger.Warn("certificates have changed and cannot be used: those from before stay", slog.Any("err", err))
	}
	return m
}

// unchanged tells whether the files are those that were read.
func (m *material) unchanged() bool {
	for _, f := range m.files {
		info, err := os.Stat(f.name)
		if err != nil || !os.SameFile(info, f.info) || info.Size() != f.info.Size() || !info.ModTime().Equal(f.info.ModTime()) {
			return false
		}
	}
	return true
}

func (m *material) subject() string {
	if m.certificate == nil {
		return ""
	}
	return m.certificate.Leaf.Subject.String()
}

func (m *material) notAfter() time.Time {
	if m.certificate == nil {
		return time.Time{}
	}
	return m.certificate.Leaf.NotAfter
}

// read reads everything that settings name.
func read(settings Settings) (*material, error) {
	m := &material{settings: settings}
	chain, key := []byte(settings.Chain), []byte(settings.Key)
	if settings.Chain == "" && settings.ChainFile != "" {
		var err error
		if chain, err = m.file(settings.ChainFile); err != nil {
			return nil, err
		}
		if key = chain; settings.KeyFile != settings.ChainFile {
			if key, err = m.file(settings.KeyFile); err != nil {
				return nil, err
			}
		}
	}
	if len(chain) > 0 {
		both, err := pair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", origin(settings.ChainFile, "ssl.keystore.certificate.chain and ssl.keystore.key"), err)
		}
		m.certificate = both
	}
	authorities := []byte(settings.Authorities)
	if settings.Authorities == "" && settings.AuthoritiesFile != "" {
		var err error
		if authorities, err = m.file(settings.AuthoritiesFile); err != nil {
			return nil, err
		}
	}
	if len(authorities) > 0 {
		var err error
		if m.authorities, err = pool(authorities); err != nil {
			return nil, fmt.Errorf("%s: %w", origin(settings.AuthoritiesFile, "ssl.truststore.certificates"), err)
		}
	}
	if m.checkServer() == nil {
		m.server = &tls.Config{
			MinVersion: max(settings.min, tls.VersionTLS12), MaxVersion: settings.max, CipherSuites: settings.cipherSuites(),
			Certificates: []tls.Certificate{*m.certificate}, ClientAuth: settings.clientAuth(), ClientCAs: m.authorities,
			DynamicRecordSizingDisabled: true,
			// A session that is resumed was judged by an earlier truststore.
			SessionTicketsDisabled: true,
		}
	}
	return m, nil
}

// origin is the file, or the key when there is none.
func origin(file, key string) string {
	if file != "" {
		return file
	}
	return key
}

// file reads a file and remembers how it was.
func (m *material) file(name string) ([]byte, error) {
	info, err := os.Stat(name) // before it is read: a change in between is read again
	if err != nil {
		return nil, err
	}
	if info.Size() > fileBytesMax {
		return nil, fmt.Errorf("%s has %d bytes; a file of certificates has at most %d", name, info.Size(), fileBytesMax)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	m.files = append(m.files, file{name, info})
	return text, nil
}
