package broker

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// leases is a store that remembers the last lease it granted.
type leases struct {
	registry.Store
	last atomic.Int64
}

func (l *leases) Grant(ctx context.Context, ttl time.Duration) (registry.Lease, error) {
	lease, err := l.Store.Grant(ctx, ttl)
	l.last.Store(int64(lease))
	return lease, err
}

// TestLostLease proves that a broker whose registration is gone registers again, is unfenced again, and leads in the same
// epoch: standing still for longer than a lease costs nothing but the time. D6
func TestLostLease(t *testing.T) {
	store := &leases{Store: registry.NewMemory()}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	b := startWith(t, filepath.Join(t.TempDir(), "data"), func(c *Config) { c.Registry = store })
	b.create("kept", nil)
	b.produceOne("kept", "x")
	epoch := b.leaderEpoch("kept")
	before, _ := b.state.load().Broker(b.config.BrokerID)
	if err := store.Revoke(t.Context(), registry.Lease(store.last.Load())); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := b.state.until(ctx, func(image *meta.Image) bool {
		self, found := image.Broker(b.config.BrokerID)
		return found && !self.Fenced && self.Registration > before.Registration
	})
	if err != nil {
		t.Fatalf("the broker is not live again: %v", err)
	}
	if offset := b.produceOne("kept", "y"); offset != 1 {
		t.Errorf("offset %d", offset)
	}
	if got := b.leaderEpoch("kept"); got != epoch {
		t.Errorf("the epoch is %d, was %d", got, epoch)
	}
	b.create("another", nil)
	b.close()
}

// failing is a store that fails for good, as the embedded registry does on a full disk.
type failing struct {
	registry.Store
	failed chan struct{}
}

func (f *failing) err() error {
	select {
	case <-f.failed:
		return registry.ErrFailed
	default:
		return nil
	}
}

func (f *failing) Txn(ctx context.Context, t registry.Txn) (registry.TxnResult, error) {
	if err := f.err(); err != nil {
		return registry.TxnResult{}, err
	}
	return f.Store.Txn(ctx, t)
}

func (f *failing) KeepAlive(ctx context.Context, lease registry.Lease) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Store.KeepAlive(ctx, lease)
}

func (f *failing) Watch(ctx context.Context, prefix string, from int64, handle func(registry.Changes) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-f.failed:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f.Store.Watch(ctx, prefix, from, handle)
	if failed := f.err(); failed != nil {
		return failed
	}
	return err
}

// TestFailedRegistry proves that a registry which fails for good takes neither produce nor fetch away, that an admin
// request is answered with an error, and that the stop is still a clean one. D3 U-72
func TestFailedRegistry(t *testing.T) {
	store := &failing{Store: registry.NewMemory(), failed: make(chan struct{})}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir := filepath.Join(t.TempDir(), "data")
	b := startWith(t, dir, func(c *Config) { c.Registry = store })
	b.create("kept", nil)
	b.produceOne("kept", "x")
	close(store.failed)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := b.admin().CreateTopic(ctx, 1, 1, nil, "more"); err == nil {
		t.Error("a topic was created without a registry")
	}
	if offset := b.produceOne("kept", "y", kgo.DisableIdempotentWrite()); offset != 1 {
		t.Errorf("offset %d", offset)
	}
	if values := b.read("kept", 0, 2); len(values) != 2 {
		t.Errorf("read %v", values)
	}
	b.close()
	if _, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Errorf("no mark of a clean shutdown: %v", err)
	}
}
