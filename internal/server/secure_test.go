package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/keystore"
	"github.com/tidemark-io/tidemark/internal/keystore/keystoretest"
)

// secured makes both sides of TLS, signed by one authority.
func secured(t *testing.T, clientAuth string) (server, client *tls.Config) {
	t.Helper()
	authority := keystoretest.NewAuthority(t)
	chain, key := authority.Issue("broker")
	settings := keystore.Settings{Chain: chain, Key: key, Authorities: authority.PEM, ClientAuth: clientAuth}
	store, err := keystore.Open(func() (keystore.Settings, error) { return settings, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := keystore.Open(func() (keystore.Settings, error) { return keystore.Settings{Authorities: authority.PEM}, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return store.Server(), trusting.Client("127.0.0.1")
}

// What does not belong on a listener with TLS, or on one without, is closed with a line that says what to do, and disturbs
// nobody else; requests and records pass through TLS as they do without.
func TestListenerWithTLS(t *testing.T) {
	ours, client := secured(t, keystore.AuthNone)
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	lines := &logLines{}
	config.Logger = newLogger(lines)
	config.Now = time.Now
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := runOn(t, config, Listener{Net: listener, Name: "SSL", TLS: ours}, func() net.Conn {
		socket, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return socket
	})
	good := tls.Client(s.dial(), client)
	ping(t, good)

	plain := s.dial()
	send(t, plain, 1, apiVersionsRequest())
	closed(t, plain)
	http := s.dial()
	if _, err := io.WriteString(http, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	closed(t, http)
	socket := s.dial()
	stranger := tls.Client(socket, &tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
	if err := stranger.HandshakeContext(t.Context()); err == nil {
		t.Fatal("a server that nobody trusts was believed")
	}
	_, _ = io.Copy(io.Discard, socket) // until the server has closed it, for what it has logged then
	ping(t, good)

	large := strings.Repeat("x", 3*sendfileBytesMin)
	put(t, b, topic, 0, large)
	put(t, b, topic, 0, "small")
	got := fetched(t, good, fetchFrom(12, 0, 0))
	if all := values(t, got.RecordBatches); len(all) != 2 || all[0] != large || all[1] != "small" {
		t.Errorf("%d records through TLS", len(all))
	}
	s.stop()
	for _, want := range []string{
		"a request without TLS arrived on a listener with TLS", "an HTTP request arrived on a Kafka listener", "the client ended the TLS handshake: tls: bad certificate",
	} {
		if !strings.Contains(strings.Join(lines.all(), "\n"), want) {
			t.Errorf("no line says %q: %q", want, lines.all())
		}
	}
}

// A client without a certificate is refused where one is required, in words; one that opens a connection and says nothing is
// closed in the time of a first request.
func TestTLSClientsAreChecked(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("tls: client didn't provide a certificate"), "ssl.client.auth"},
		{&tls.CertificateVerificationError{Err: errors.New("signed by unknown authority")}, "signed by unknown authority"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: unknown certificate authority")}, "unknown certificate authority"},
	} {
		var refused *refusal
		if err := refuseHandshake(test.err); !errors.As(err, &refused) || !strings.Contains(refused.what+refused.remedy, test.want) {
			t.Errorf("%v: %v", test.err, err)
		}
	}
	for _, err := range []error{io.EOF, context.DeadlineExceeded, &net.OpError{Op: "read", Err: errors.New("reset")}} {
		if got := refuseHandshake(err); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
