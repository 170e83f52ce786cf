package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/vfs"
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

// TestIOErrorIsOnRecord proves that a start after an I/O error counts as unclean, even if the disk that failed kept the
// boot id file that says otherwise, and that the sweep which this brings settles it. D9
func TestIOErrorIsOnRecord(t *testing.T) {
	store, disk := registry.NewMemory(), vfs.NewMemory(1)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	begin := func() *running {
		return startWith(t, dir, func(c *Config) { c.Registry, c.FS = store, disk })
	}
	unclean := func(b *running) bool {
		t.Helper()
		unclean, err := b.cluster.Unclean(ctx, b.config.BrokerID)
		if err != nil {
			t.Fatal(err)
		}
		return unclean
	}
	b := begin()
	b.create("topic", nil)
	b.produceOne("topic", "x")
	epoch := b.leaderEpoch("topic")
	disk.FailAfter(0, syscall.EIO)
	err := b.client(kgo.DefaultProduceTopic("topic"), kgo.RecordRetries(0), kgo.DisableIdempotentWrite()).ProduceSync(ctx, kgo.StringRecord("y")).FirstErr()
	if err == nil {
		t.Fatal("a record was taken by a disk that takes nothing")
	}
	for !unclean(b) {
		if err := ctx.Err(); err != nil {
			t.Fatal("the error was not recorded")
		}
	}
	disk.FailAfter(0, nil)
	b.stop()
	if err := <-b.done; !errors.Is(err, commitlog.ErrStorage) {
		t.Errorf("the stop said %v", err)
	}
	close(b.done)

	b = begin()
	if !b.logs.StartState().SameBoot {
		t.Fatal("the disk has forgotten the boot id: the test proves nothing")
	}
	if got := b.leaderEpoch("topic"); got != epoch+1 {
		t.Errorf("the epoch after an unclean start is %d, was %d", got, epoch)
	}
	if unclean(b) {
		t.Error("the record is still there after the sweep")
	}
	if values := b.read("topic", 0, 1); values[0] != "x" {
		t.Errorf("read %q", values)
	}
	b.close()
	b = begin()
	if got := b.leaderEpoch("topic"); got != epoch+1 {
		t.Errorf("the epoch after a clean start is %d, want %d", got, epoch+1)
	}
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
