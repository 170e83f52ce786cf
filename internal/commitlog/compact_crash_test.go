package commitlog

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// compactionState is what readers may tell about a log.
type compactionState struct {
	records   []seenRecord
	committed map[string]string
	aborted   []AbortedTxn
	producers []Producer
	epochs    Epochs
	end       int64
}

func (c *compactLog) state() compactionState {
	c.t.Helper()
	aborted, err := c.log.AbortedTxns(0, c.log.EndOffset())
	c.check(err)
	return compactionState{c.read(), c.committed(), aborted, c.log.Producers(), c.log.Epochs(), c.log.EndOffset()}
}

// mustFollow checks what a crash in a compaction left: each stretch of the log is as before or as it would have become, and
// a reader of committed data sees no difference.
func (c *compactLog) mustFollow(before, after compactionState) {
	c.t.Helper()
	now := c.state()
	if now.end != before.end || !slices.Equal(now.epochs, before.epochs) {
		c.t.Fatalf("log ends at %d with epochs %v, was %d with %v", now.end, now.epochs, before.end, before.epochs)
	}
	if !maps.Equal(now.committed, before.committed) {
		c.t.Fatalf("committed %v, was %v", now.committed, before.committed)
	}
	if !slices.Equal(now.producers, before.producers) {
		c.t.Fatalf("producers %v, were %v", now.producers, before.producers)
	}
	for _, r := range after.records {
		if !slices.Contains(now.records, r) {
			c.t.Fatalf("%+v is lost", r)
		}
	}
	for _, r := range now.records {
		if !slices.Contains(before.records, r) {
			c.t.Fatalf("%+v comes from nowhere", r)
		}
	}
	for _, txn := range after.aborted {
		if !slices.Contains(now.aborted, txn) {
			c.t.Fatalf("aborted transaction %+v is lost", txn)
		}
	}
	for _, txn := range now.aborted {
		if !slices.Contains(before.aborted, txn) {
			c.t.Fatalf("aborted transaction %+v comes from nowhere", txn)
		}
	}
	c.noLeftovers()
}

// mixedLog is a log whose content follows from seed, ready to be compacted in several groups.
func mixedLog(t *testing.T, seed uint64) *compactLog {
	t.Helper()
	c := newCompactLog(t, func(c *Config) { c.DeleteRetention = time.Hour; c.SegmentBytes = 900 })
	c.disk = vfs.NewMemory(seed)
	c.check(c.disk.MkdirAll("data"))
	c.check(c.disk.SyncAll("."))
	c.open(false, 0)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2 {
		c.mixture(random.IntN, 25)
		if seed%2 == 0 {
			c.compact() // the next one finds compacted segments, tombstones with horizons and retained transactions
			c.now = c.now.Add(2 * time.Hour)
		}
	}
	c.put("active", "1")
	_, err := c.log.syncNow()
	c.check(err)
	return c
}

// D7, trap 10: the power goes at each change that a compaction makes on disk. Whatever is left, the next start finds the records that compaction keeps and none that it invents, the
// same values, producers, epochs and aborted transactions, and no leftover file; a second cut during that start changes
// nothing; and compaction can then be completed.
func TestPowerCutInCompaction(t *testing.T) {
	for seed := range max(1, *crashSeeds/20) {
		reference := mixedLog(t, seed)
		before := reference.state()
		changes := reference.disk.Changes()
		reference.compact()
		steps := int(reference.disk.Changes() - changes)
		after := reference.state()
		if steps < 20 {
			t.Fatalf("seed %d: the compaction took %d steps: nothing to test", seed, steps)
		}
		for step := range steps + 1 {
			c := mixedLog(t, seed)
			c.t = namedFailer{t, fmt.Sprintf("seed %d, step %d", seed, step)}
			c.cutInCompaction(step, step == steps, before, after)
		}
	}
}

// cutInCompaction cuts the power at one step, and draws several of the outcomes that each kind of disk allows.
func (c *compactLog) cutInCompaction(step int, complete bool, before, after compactionState) {
	c.disk.FailAfter(step, vfs.ErrCrashed)
	if _, err := c.log.Compact(context.Background(), NewCleaner(CleanerOptions{}), c.log.EndOffset()); err != nil && complete {
		c.t.Fatal(err)
	}
	point, crashed := c.log.RecoveryPoint(), c.disk
	draws := []vfs.CrashMode{vfs.Prefix, vfs.Ext4, vfs.Adversarial, vfs.Adversarial, vfs.Adversarial, vfs.Adversarial}
	for draw, mode := range draws {
		c.disk = crashed.Crash(mode)
		if draw%2 == 1 { // cut the power again while the log opens
			c.disk.FailAfter((step+draw)%12, vfs.ErrCrashed)
			_, _, _ = Open(Options{
				FS: c.disk, Dir: compactDir, Topic: "t", Config: c.config, RecoveryPoint: point, Now: func() time.Time { return c.now },
			})
			c.disk = c.disk.Crash(mode)
		}
		c.open(false, point)
		c.mustFollow(before, after)
	}
	c.compact()
	if got := c.committed(); !maps.Equal(got, before.committed) {
		c.t.Fatalf("committed %v after the completed compaction, was %v", got, before.committed)
	}
	c.sweep()
}

// namedFailer says where a failure belongs.
type namedFailer struct {
	*testing.T
	where string
}

func (f namedFailer) Fatal(args ...any) {
	f.Helper()
	f.T.Fatal(append([]any{f.where + ":"}, args...)...)
}

func (f namedFailer) Fatalf(format string, args ...any) {
	f.Helper()
	f.T.Fatalf(f.where+": "+format, args...)
}
