package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/keystore"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/server"
)

// openKeystores reads the certificates of every listener with TLS, so that what is missing is told before anything opens.
func (b *Broker) openKeystores() error {
	b.keystores = make(map[string]*keystore.Store)
	for _, l := range b.config.Listeners {
		if l.Protocol == ssl {
			if err := b.openKeystore(l.Name); err != nil {
				return err
			}
		}
	}
	if _, several := b.config.self(); several && b.config.BrokersProtocol == ssl {
		return b.openKeystore(brokersListener)
	}
	return nil
}

// openKeystore reads the certificates of one listener. They follow what is set for it at run time.
func (b *Broker) openKeystore(listener string) error {
	store, err := keystore.Open(func() (keystore.Settings, error) {
		image := emptyImage
		if b.state != nil {
			image = b.state.load()
		}
		return keystore.Parse(sslOf(listener, b.configs.Lookup(image)))
	}, b.logger.With(slog.String("listener", listener)))
	if err == nil {
		err = store.CheckServer()
	}
	if err != nil {
		return fmt.Errorf("TLS of listener %s: %w", listener, err)
	}
	b.keystores[listener] = store
	return nil
}

// sslOf looks keys up for one listener: what has its prefix counts before what is set for all. Whoever connects to the
// listener for brokers may command this one, and must show a certificate unless the listener's own key says otherwise.
func sslOf(listener string, get meta.ConfigLookup) meta.ConfigLookup {
	prefix := listenerKeys(listener)
	return func(name string) (string, bool) {
		if value, set := get(prefix + name); set {
			return value, true
		}
		if name == "ssl.client.auth" && listener == brokersListener {
			return keystore.AuthRequired, true
		}
		return get(name)
	}
}

// checkBroker judges the whole of what would be set for a broker: certificates that its listeners could not use are
// refused now, as a start would refuse them.
func (b *Broker) checkBroker(broker string, values map[string]string) error {
	if err := b.configs.CheckBroker(broker, values); err != nil {
		return err
	}
	static := b.configs.Lookup(emptyImage)
	for _, listener := range slices.Sorted(maps.Keys(b.keystores)) {
		prefix := listenerKeys(listener)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(name string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		settings, err := keystore.Parse(sslOf(listener, func(name string) (string, bool) {
			if value, set := values[name]; set {
				return value, true
			}
			return static(name)
		}))
		if err == nil {
			err = keystore.Check(settings)
		}
		if err != nil {
			return &controller.Refusal{Kind: controller.ErrInvalidRequest, Message: fmt.Sprintf("TLS of listener %s: %v", listener, err)}
		}
	}
	return nil
}

// listenerKeys begins the keys that a listener has for itself.
func listenerKeys(listener string) string {
	return server.ListenerPrefix + strings.ToLower(listener) + "."
}

// serverTLS is what a listener's connections are secured with; nil for nothing.
func (b *Broker) serverTLS(listener string) *tls.Config {
	if store, secure := b.keystores[listener]; secure {
		return store.Server()
	}
	return nil
}

// dialBroker connects to another broker's listener for brokers.
func (b *Broker) dialBroker(ctx context.Context, network, address string) (net.Conn, error) {
	socket, err := b.config.Dial(ctx, network, address)
	store, secure := b.keystores[brokersListener]
	if err != nil || !secure {
		return socket, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(socket, store.Client(host))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = socket.Close() // it is of no use to anybody
		return nil, fmt.Errorf("TLS with the broker at %s: %w", address, err)
	}
	return conn, nil
}
