package broker

import (
	"net"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// TestRefusedPortEndsRegistration proves that a broker whose process is gone is missed at once, however long its lease,
// while one that only does not answer is left alone. D6
func TestRefusedPortEndsRegistration(t *testing.T) {
	brokers := startCluster(t, 2)
	cluster := brokers[0].cluster
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.Register(t.Context(), 9, registry.Registration{
		Directories: []meta.DirectoryID{{9}}, Endpoints: []meta.Endpoint{{Listener: brokersListener, Host: "127.0.0.1", Port: int32(portOf(l.Addr()))}},
	}, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	watched := make(map[string]net.Conn) // a sentry of each broker, and the controller, which gets no answer
	for len(watched) < 3 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		watched[conn.RemoteAddr().String()] = conn
	}
	registered := func() bool {
		state, err := cluster.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := state.Brokers[9]
		return b != nil && b.Registration != 0
	}
	if !registered() {
		t.Fatal("a broker that does not answer was ended")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range watched {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(patience)
	for registered() {
		if time.Now().After(deadline) {
			t.Fatal("the registration outlived the process")
		}
	}
	for _, b := range brokers {
		err := b.state.until(t.Context(), func(image *meta.Image) bool {
			_, known := image.Broker(9)
			return !known
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, known := b.state.load().Broker(b.config.BrokerID); !known {
			t.Errorf("broker %s was ended too", b.config.BrokerID)
		}
	}
}
