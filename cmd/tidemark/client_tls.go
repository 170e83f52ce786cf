package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/tidemark-io/tidemark/internal/keystore"
)

// securityProtocol is the key of a client's configuration that says whether it talks over TLS.
const securityProtocol = "security.protocol"

// dialFunc connects to an address.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects in plain text, or over TLS if the file of --command-config says so with the keys of Kafka's clients:
// security.protocol=SSL, and ssl.* as on a broker. Its other keys are not used, so that one file does for Kafka's tools too.
func (f *clientFlags) dialer() (dialFunc, error) {
	plain := (&net.Dialer{Timeout: dialTimeout, Control: unpaced}).DialContext
	if f.commandConfig == "" {
		return plain, nil
	}
	properties, err := readProperties(f.commandConfig)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for _, p := range properties {
		values[p.key] = p.value
	}
	switch values[securityProtocol] {
	case "SSL":
	case "", "PLAINTEXT":
		return plain, nil
	default:
		return nil, usageError{fmt.Errorf("%s: %s=%s: want PLAINTEXT or SSL", f.commandConfig, securityProtocol, values[securityProtocol])}
	}
	store, err := keystore.Open(func() (keystore.Settings, error) {
		return keystore.Parse(func(name string) (string, bool) {
			value, set := values[name]
			return value, set
		})
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", f.commandConfig, err)}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		conn, err := plain(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, store.Client(host))
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake says what is wrong
			return nil, fmt.Errorf("connect to %s over TLS: %w", address, err)
		}
		return secure, nil
	}, nil
}
