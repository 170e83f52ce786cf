package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// ListenFunc opens a listener, as net.ListenConfig's Listen does.
type ListenFunc func(ctx context.Context, network, address string) (net.Listener, error)

// DialFunc opens a connection, as net.Dialer's DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// loopbackHost is the host that stands for both loopback addresses.
const loopbackHost = "localhost"

// listen opens the listeners of one host and port, which the key of the configuration gave. An empty host is every address; "localhost" is 127.0.0.1 and, where the
// machine has it, ::1. With port 0 the first listener draws the port, and the second one takes the same.
func listen(ctx context.Context, open ListenFunc, key, host string, port int) ([]net.Listener, error) {
	if host != loopbackHost {
		l, err := open(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return nil, listenError(err, key, host, port)
		}
		return []net.Listener{l}, nil
	}
	const tries = 8 // a port drawn on one address may be taken on the other
	for try := 1; ; try++ {
		listeners, err := listenLoopback(ctx, open, port)
		if err == nil {
			return listeners, nil
		}
		if port != 0 || try == tries || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, listenError(err, key, host, port)
		}
	}
}

func listenLoopback(ctx context.Context, open ListenFunc, port int) ([]net.Listener, error) {
	v4, err := open(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	v6, err := open(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(portOf(v4.Addr()))))
	switch {
	case err == nil:
		return []net.Listener{v4, v6}, nil
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EPROTONOSUPPORT):
		return []net.Listener{v4}, nil // no IPv6 here
	}
	return nil, errors.Join(err, v4.Close())
}

func listenError(err error, key, host string, port int) error {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	example := "localhost:PORT"
	if key == "listeners" {
		example = "PLAINTEXT://localhost:PORT"
	}
	var dns *net.DNSError
	failed := &StartError{Fault: AddressUnusable, Err: fmt.Errorf("listen on %s (%s): %w", address, key, err)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		failed.Fault = PortTaken
		failed.Err = fmt.Errorf("port %d is taken on %s (%s): %w", port, hostName(host), key, syscall.EADDRINUSE)
		failed.Fix = fmt.Sprintf("stop the process that listens there, or choose another port with --set %s=%s", key, example)
		if key == ClusterKey {
			failed.Fix = "stop the process that listens there, perhaps another broker with this node.id; a port of the list is changed on every broker"
		}
	case errors.Is(err, syscall.EACCES):
		failed.Fix = fmt.Sprintf("choose a port above 1023 with --set %s=%s, or give the process the capability CAP_NET_BIND_SERVICE", key, example)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		failed.Fix = fmt.Sprintf("name an address of this machine in %s, or none for all of them; what clients are told is advertised.listeners", key)
	case errors.As(err, &dns):
		failed.Fix = fmt.Sprintf("name an address of this machine in %s, or none for all of them", key)
	default:
		return failed.Err
	}
	return failed
}

func hostName(host string) string {
	if host == "" {
		return "every address"
	}
	return host
}

// portOf is the port of a listener's address, 0 if it has none (in-memory networks of tests).
func portOf(address net.Addr) int {
	_, text, err := net.SplitHostPort(address.String())
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return port
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
