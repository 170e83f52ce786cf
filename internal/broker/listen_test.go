package broker

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

func tcp(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, network, address)
}

// TestListenLoopback proves that both loopback addresses share a port, and that a taken port explains itself.
func TestListenLoopback(t *testing.T) {
	listeners, err := listen(t.Context(), tcp, "localhost", 0)
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(listeners[0].Addr())
	for _, l := range listeners {
		if portOf(l.Addr()) != port || !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("listener on %s, want port %d of a loopback address", l.Addr(), port)
		}
	}
	_, err = listen(t.Context(), tcp, "localhost", port)
	var start *StartError
	if !errors.As(err, &start) || start.Fault != PortTaken || !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("second listener: %v", err)
	}
	if !strings.Contains(err.Error(), "is taken on localhost") || !strings.Contains(err.Error(), "--set listeners") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the message is no help: %s", err)
	}
	if err := closeAll(listeners); err != nil {
		t.Fatal(err)
	}
	if err := closeAll(listeners); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// TestListenWithoutIPv6 proves that a machine without ::1 serves on 127.0.0.1.
func TestListenWithoutIPv6(t *testing.T) {
	listeners, err := listen(t.Context(), func(ctx context.Context, network, address string) (net.Listener, error) {
		if network == "tcp6" {
			return nil, &net.OpError{Op: "listen", Err: syscall.EADDRNOTAVAIL}
		}
		return tcp(ctx, network, address)
	}, "localhost", 0)
	if err != nil || len(listeners) != 1 {
		t.Fatalf("%v %v", listeners, err)
	}
	if err := closeAll(listeners); err != nil {
		t.Fatal(err)
	}
}
