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
	listeners, err := listen(t.Context(), tcp, "listeners", "localhost", 0)
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(listeners[0].Addr())
	for _, l := range listeners {
		if portOf(l.Addr()) != port || !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("listener on %s, want port %d of a loopback address", l.Addr(), port)
		}
	}
	_, err = listen(t.Context(), tcp, "listeners", "localhost", port)
	var start *StartError
	if !errors.As(err, &start) || start.Fault != PortTaken || !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("second listener: %v", err)
	}
	if !strings.Contains(err.Error(), "is taken on localhost") || !strings.Contains(err.Error(), "--set listeners") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the message is no help: %s", err)
	}
	if _, err := listen(t.Context(), tcp, ClusterKey, "localhost", port); err == nil || !strings.Contains(err.Error(), "perhaps another broker with this node.id") {
		t.Errorf("of a port of the list: %v", err)
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
	}, "listeners", "localhost", 0)
	if err != nil || len(listeners) != 1 {
		t.Fatalf("%v %v", listeners, err)
	}
	if err := closeAll(listeners); err != nil {
		t.Fatal(err)
	}
}

// TestListenFaults proves that an address which cannot be had says which key gave it and what would do.
func TestListenFaults(t *testing.T) {
	for _, c := range []struct {
		cause error
		fault StartFault
		want  string
	}{
		{syscall.EADDRINUSE, PortTaken, "choose another port with --set admin.listener=localhost:PORT"},
		{syscall.EACCES, AddressUnusable, "choose a port above 1023 with --set admin.listener=localhost:PORT"},
		{syscall.EADDRNOTAVAIL, AddressUnusable, "name an address of this machine in admin.listener"},
		{&net.DNSError{Err: "no such host", Name: "nowhere"}, AddressUnusable, "name an address of this machine in admin.listener"},
	} {
		refuse := func(context.Context, string, string) (net.Listener, error) {
			return nil, &net.OpError{Op: "listen", Err: c.cause}
		}
		_, err := listen(t.Context(), refuse, "admin.listener", "nowhere", 80)
		var start *StartError
		if !errors.As(err, &start) || start.Fault != c.fault || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", c.cause, err)
		}
	}
}

// TestLoopbackBeyondLocalhost proves that clients of a listener on ::1 alone are not sent to 127.0.0.1, where localhost
// leads. (U-132)
func TestLoopbackBeyondLocalhost(t *testing.T) {
	for host, told := range map[string]string{"127.0.0.2": "127.0.0.2", "127.0.0.1": "", "localhost": "", "": "", "0.0.0.0": ""} {
		b, err := New(Config{
			BrokerID: 1, DataDir: t.TempDir(), AdminOff: true, Listeners: []Listener{{Name: "PLAINTEXT", Address: Address{Host: host}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ports, err := b.listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ports.clients {
			if l.Host != told || told != "" && int(l.Port) != portOf(l.Net.Addr()) {
				t.Errorf("listener on %q: clients are told %q port %d", host, l.Host, l.Port)
			}
		}
		if err := ports.close(); err != nil {
			t.Error(err)
		}
	}
	for host, want := range map[string]bool{"::1": true, "127.0.0.1": false, "localhost": false, "::": false, "10.0.0.1": false} {
		if got := beyondLocalhost(host); got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
}
