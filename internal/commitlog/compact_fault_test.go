package commitlog

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// What happens to the log while a pass runs makes the pass void, or does not concern it.
func TestCompactionGivesWay(t *testing.T) {
	for _, test := range []struct {
		name   string
		during func(c *compactLog) error
		want   error
	}{
		{"truncation", func(c *compactLog) error { return c.log.Truncate(1) }, ErrCompactionVoid},
		{"close", func(c *compactLog) error { return c.log.Close() }, ErrCompactionVoid},
		{"start over", func(c *compactLog) error { return c.log.TruncateFully(50) }, ErrCompactionVoid},
		{"deletion", func(c *compactLog) error {
			c.log.abandon()
			return c.disk.Rename(compactDir, "data/t-0.x-delete")
		}, ErrCompactionVoid},
		{"append", func(c *compactLog) error { c.put("a", "9"); return nil }, nil},
		{"roll", func(c *compactLog) error { c.put("a", "9"); c.roll(); return nil }, nil},
		{"second compaction", func(c *compactLog) error {
			if _, err := c.log.Compact(context.Background(), NewCleaner(CleanerOptions{}), 3); !errors.Is(err, ErrCompactionBusy) {
				return fmt.Errorf("second compaction: %w", err)
			}
			return nil
		}, nil},
		{"end of ctx", func(*compactLog) error { return context.Canceled }, context.Canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCompactLog(t, nil)
			c.put("a", "1")
			c.put("a", "2")
			c.put("b", "1")
			c.roll()
			calls := 0
			cleaner := NewCleaner(CleanerOptions{Throttle: func(context.Context, int) error {
				if calls++; calls == 5 { // in the rewrite, after the three reads of the mapping
					return test.during(c)
				}
				return nil
			}})
			_, err := c.log.Compact(t.Context(), cleaner, c.log.EndOffset())
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			switch test.name {
			case "close":
				c.open(true, 0)
			case "deletion":
				if c.log.Err() != nil {
					t.Errorf("the log failed: %v", c.log.Err())
				}
				return
			}
			if err == nil {
				c.wantOffsets(append([]int64{1, 2}, c.offsets()[2:]...)...)
			}
			c.sweep()
		})
	}
}

// A corrupt batch, or a full disk, stops a pass and leaves the log as it was.
func TestCompactionFailures(t *testing.T) {
	fill := func() *compactLog {
		c := newCompactLog(t, nil)
		c.put("a", "1")
		c.put("a", "2")
		c.roll()
		return c
	}
	c := fill()
	file := (*c.log.segments.Load())[0].log
	if _, err := file.WriteAt([]byte{0xff}, record.HeaderBytes+2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.log.Compact(t.Context(), NewCleaner(CleanerOptions{}), 2); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("corrupt batch: %v", err)
	}
	c.noLeftovers()

	c = fill()
	c.disk.SetCapacity(1)
	if _, err := c.log.Compact(t.Context(), NewCleaner(CleanerOptions{}), 2); !errors.Is(err, ErrDiskFull) || !errors.Is(err, ErrStorage) {
		t.Errorf("full disk: %v", err)
	}
	c.disk.SetCapacity(0)
	c.noLeftovers()
	c.wantOffsets(0, 1)
	c.compact()
	c.wantOffsets(1)

	c = fill()
	c.disk.FailAfter(3, syscall.EIO)
	if _, err := c.log.Compact(t.Context(), NewCleaner(CleanerOptions{}), 2); !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrStorage) {
		t.Errorf("broken disk: %v", err)
	}
	if c.log.Err() == nil {
		t.Error("the log did not fail")
	}
}

// U-15: a result that does not account for what was read is not swapped in.
func TestCompactionProof(t *testing.T) {
	tally := cleanTally{recordsRead: 10, recordsKept: 3, superseded: 2, deleted: 1, aborted: 2, markers: 1, withoutKey: 1}
	if !tally.balanced() {
		t.Error("balanced tally is refused")
	}
	tally.recordsKept--
	if tally.balanced() {
		t.Error("a lost record goes unnoticed")
	}
	c := newCompactLog(t, nil)
	c.put("a", "1")
	c.put("a", "2")
	c.roll()
	p, err := c.log.planPass(NewCleaner(CleanerOptions{}), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer p.unpin()
	c.check(p.mapKeys(t.Context()))
	group := p.groups()[0]
	cleaned, err := createSegment(c.disk, compactDir, 0, cleanedSuffix, c.now)
	if err != nil {
		t.Fatal(err)
	}
	c.check(p.writeGroup(t.Context(), group, cleaned))
	c.check(p.sealGroup(group, cleaned))
	good := p.retention.tally
	for name, spoil := range map[string]func(){
		"a record unaccounted for":  func() { p.retention.tally.recordsRead++ },
		"a batch too few":           func() { p.retention.tally.batchesKept++ },
		"input not read to its end": func() { p.retention.tally.bytesRead-- },
		"another last offset":       func() { p.retention.lastOffset++ },
	} {
		p.retention.tally, p.retention.lastOffset = good, 1
		spoil()
		if err := p.prove(group, cleaned); !errors.Is(err, ErrCompactionUnproven) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.retention.tally, p.retention.lastOffset = good, 1
	if _, err := cleaned.log.WriteAt([]byte{0xff}, cleaned.writer.bytes-1); err != nil {
		t.Fatal(err)
	}
	if err := p.prove(group, cleaned); !errors.Is(err, ErrCompactionUnproven) {
		t.Errorf("written otherwise: %v", err)
	}
}
