package server

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/replica/replicatest"
	"github.com/tidemark-io/tidemark/internal/vfs"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// FuzzFrame sends arbitrary bytes to a server with one topic, as a client that writes them and leaves. Nothing panics,
// and when the connection has ended nothing of it is left: no byte of the budget, no goroutine.
func FuzzFrame(f *testing.F) {
	b := replicatest.New(f, vfs.NewMemory(1), "data")
	b.Create("t", 1, nil)
	s, err := New(Config{
		Broker: replicatest.ID, Table: b.Table, Image: b.Image,
		Listeners:   []Listener{{Net: &pipeListener{}, Name: "PLAINTEXT"}},
		WaitImage:   func(context.Context, int64) error { return nil },
		ProducerIDs: func(context.Context) (int64, error) { return 1, nil },
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	s.config.Admin = controller.NewAdmin(controller.AdminConfig{
		Cluster: registry.NewCluster(registry.NewMemory(), "1.0", nil), Image: b.Image, Random: rand.Reader,
		Keys: s.config.Configs.Keys(), Partitions: 1, Replication: 1,
	})
	s.pool.Poison()
	for _, api := range s.versions() {
		for version := api.Min; version <= api.Max; version++ {
			req := kmsg.RequestForKey(api.Key)
			req.SetVersion(version)
			f.Add(frameOf(1, req))
		}
	}
	long := fetchFrom(12, 0, 9)
	long.MaxWaitMillis = 1 << 30
	f.Add(frameOf(1, fetchFrom(13, 0, 0)))
	f.Add(append(frameOf(1, long), frameOf(2, produceTo(9, 0, batchOf(f, record.BuilderOptions{}, "v")))...))
	f.Add(frameOf(1, listRequest(11, 0, -1, -1)))
	f.Add(raw(1<<31-1, header(0, 9)...))
	f.Add(raw(40, header(wire.KeyFetch, 99)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, ours)
		}()
		go func() {
			_, _ = ours.Write(data)
			_ = ours.Close()
		}()
		s.opened(theirs, &s.config.Listeners[0]).run(t.Context())
		<-read
		if n := s.metrics.panics.Load(); n != 0 {
			t.Fatalf("%d panics", n)
		}
		if n := s.budget.inUse(); n != 0 {
			t.Fatalf("%d bytes of the budget are still taken", n)
		}
	})
}
