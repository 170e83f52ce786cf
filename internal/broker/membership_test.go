package broker

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

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
