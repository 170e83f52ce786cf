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
	producers []Producer
	epochs    Epochs
	end       int64
}

func (c *compactLog) state() compactionState {
	c.t.Helper()
	return compactionState{c.read(), c.committed(), c.log.Producers(), c.log.Epochs(), c.log.EndOffset()}
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
	for seed := range uint64(6) {
		reference := mixedLog(t, seed)
		before := reference.state()
		changes := reference.disk.Changes()
		reference.compact()
		steps := int(reference.disk.Changes() - changes)
		after := reference.state()
		if len(after.records) == len(before.records) || steps < 20 {
			t.Fatalf("seed %d: compaction of %d records left %d in %d steps: nothing to test", seed, len(before.records), len(after.records), steps)
		}
		for step := range steps + 1 {
			mode := vfs.CrashModes[(step+int(seed))%len(vfs.CrashModes)]
			t.Run(fmt.Sprint("seed ", seed, " step ", step, " ", mode), func(t *testing.T) {
				c := mixedLog(t, seed)
				c.disk.FailAfter(step, vfs.ErrCrashed)
				if _, err := c.log.Compact(context.Background(), NewCleaner(CleanerOptions{}), c.log.EndOffset()); err != nil && step == steps {
					t.Fatal(err)
				}
				point := c.log.RecoveryPoint()
				crashed := c.disk
				for draw := range 4 {
					c.disk = crashed.Crash(mode)
					if draw > 0 { // cut the power again while the log opens
						c.disk.FailAfter(draw*3, vfs.ErrCrashed)
						_, _, _ = Open(Options{FS: c.disk, Dir: compactDir, Topic: "t", Config: c.config, RecoveryPoint: point, Now: func() time.Time { return c.now }})
						c.disk = c.disk.Crash(mode)
					}
					c.open(false, point)
					c.mustFollow(before, after)
				}
				c.compact()
				if got := c.committed(); !maps.Equal(got, before.committed) {
					t.Fatalf("committed %v after the completed compaction, was %v", got, before.committed)
				}
				c.sweep()
			})
		}
	}
}
