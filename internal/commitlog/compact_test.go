package commitlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

func TestCompactionKeepsTheLastRecordOfEachKey(t *testing.T) {
	for _, codec := range []record.Codec{record.None, record.Gzip, record.LZ4, record.Snappy, record.Zstd} {
		c := newCompactLog(t, nil)
		c.codec = codec
		c.put("a", "1")                                                           // 0
		c.append(batch{records: [][2]string{{"b", "1"}, {"a", "2"}, {"c", "1"}}}) // 1–3
		c.put("b", "2")                                                           // 4
		c.roll()
		c.put("a", "3") // 5, active: never cleaned, and does not supersede
		before := c.committed()
		result := c.compact()
		c.wantOffsets(2, 3, 4, 5)
		if result.Superseded != 2 || result.Records != 3 || result.SegmentsRead != 1 || result.End != 5 {
			t.Errorf("%v: result %+v", codec, result)
		}
		if after := c.committed(); !maps.Equal(before, after) {
			t.Errorf("values were %v and are %v", before, after)
		}
		if got := c.log.CleanedOffset(); got != 5 {
			t.Errorf("cleaned up to %d, want 5", got)
		}
		if c.log.EndOffset() != 6 || c.log.StartOffset() != 0 {
			t.Errorf("log from %d to %d", c.log.StartOffset(), c.log.EndOffset())
		}
		c.sweep()
		if again := c.compact(); again.SegmentsRead != 0 {
			t.Errorf("a second pass rewrote %d segments", again.SegmentsRead)
		}
		c.noLeftovers()
		c.log.Close()
		c.open(true, 0)
		c.wantOffsets(2, 3, 4, 5)
	}
}

// U-94: a tombstone is kept for delete.retention.ms after the pass that first met it, so that readers see it, and then goes,
// also when nothing else is written.
func TestTombstonesGoAfterDeleteRetention(t *testing.T) {
	c := newCompactLog(t, func(c *Config) { c.DeleteRetention = time.Hour })
	c.put("a", "1")
	c.put("a", "")  // 1
	c.put("b", "1") // 2
	c.roll()
	c.compact()
	c.wantOffsets(1, 2)
	due := func(want bool) {
		t.Helper()
		can, err := c.log.Cleanable(c.log.EndOffset())
		if err != nil || can.Due != want {
			t.Errorf("due is %v, %v; want %v", can.Due, err, want)
		}
	}
	c.now = c.now.Add(time.Hour - time.Millisecond)
	due(false)
	c.compact()
	c.wantOffsets(1, 2)
	c.now = c.now.Add(time.Millisecond)
	due(true)
	if result := c.compact(); result.Tombstones != 1 {
		t.Errorf("result %+v", result)
	}
	c.wantOffsets(2)
	due(false)
	c.sweep()

	// Nor does a restart keep them.
	c.put("b", "")
	c.roll()
	c.compact()
	c.wantOffsets(3)
	c.check(c.log.Close())
	c.open(true, 0)
	c.log.SetCleanedOffset(4)
	due(false)
	c.now = c.now.Add(time.Hour)
	due(true)
	c.compact()
	c.wantOffsets()
	due(false)
	c.sweep()
}

// A pass writes nothing where nothing changes, and copies what comes before the first change.
func TestCompactionLeavesSegmentsAlone(t *testing.T) {
	c := newCompactLog(t, func(c *Config) { c.SegmentBytes = 3000 })
	fill := func(prefix string) {
		for i := range 12 {
			c.put(fmt.Sprint(prefix, i), strings.Repeat("x", 100))
		}
	}
	fill("a")
	c.roll()
	fill("b")
	c.put("a7", "2")
	c.roll()
	before := *c.log.segments.Load()
	result := c.compact()
	after := *c.log.segments.Load()
	if result.SegmentsRead != 1 || before[0] == after[0] || before[1] != after[1] {
		t.Errorf("%+v", result)
	}
	want := []int64{0, 1, 2, 3, 4, 5, 6}
	for offset := int64(8); offset < 25; offset++ {
		want = append(want, offset)
	}
	c.wantOffsets(want...)
	c.put("c", "1")
	c.roll()
	before = *c.log.segments.Load()
	c.compact()
	if after = *c.log.segments.Load(); before[0] != after[0] {
		t.Error("a segment in which everything stays was rewritten")
	}
	c.sweep()
}

// A group's offsets fit in the indexes of its segment.
func TestCompactionKeepsFarOffsetsApart(t *testing.T) {
	c := newCompactLog(t, nil)
	c.put("a", "1")
	const far = 3 << 30
	builder := record.NewBuilder(record.BuilderOptions{BaseOffset: far})
	builder.Append(c.now.UnixMilli(), []byte("b"), []byte("1"))
	built, err := builder.Batch()
	c.check(err)
	c.write(built)
	c.put("a", "2")
	c.roll()
	c.compact()
	c.wantOffsets(far, far+1)
	if got := c.log.SegmentCount(); got != 4 { // one for each record, and the active one
		t.Errorf("%d segments", got)
	}
	c.sweep()
}

// The first offset of a tombstone's batch is kept by its timestamps: setting the delete horizon moves the base timestamp.
func TestDeleteHorizonKeepsTimestamps(t *testing.T) {
	c := newCompactLog(t, nil)
	c.append(batch{records: [][2]string{{"a", ""}, {"b", "1"}}})
	c.roll()
	before := c.read()
	wrote := c.now.UnixMilli()
	c.now = c.now.Add(time.Minute)
	c.compact()
	if after := c.read(); !slices.Equal(before, after) {
		t.Errorf("was %v, is %v", before, after)
	}
	at, found, err := c.log.OffsetForTimestamp(wrote, c.log.EndOffset())
	if err != nil || !found || at.Offset != 0 || at.Timestamp != wrote {
		t.Errorf("time look-up: %+v, %v, %v", at, found, err)
	}
}

// U-95: small segments of different epochs become one, within segment.bytes.
func TestCompactionMergesSegmentsAcrossEpochs(t *testing.T) {
	c := newCompactLog(t, func(c *Config) { c.SegmentBytes = 1000 })
	for i := range 12 {
		c.epoch = int32(i / 2)
		c.put(fmt.Sprint("key", i), strings.Repeat("x", 100))
		c.roll()
	}
	before, lineage := c.read(), c.log.Epochs()
	c.compact()
	if got := c.log.SegmentCount(); got != 4 { // 12 batches of some 180 bytes in three, and the active one
		t.Errorf("%d segments", got)
	}
	if after := c.read(); !slices.Equal(before, after) {
		t.Errorf("was %v, is %v", before, after)
	}
	if got := c.log.Epochs(); !slices.Equal(got, lineage) {
		t.Errorf("epochs were %v and are %v", lineage, got)
	}
	c.sweep()
	c.log.Close()
	c.open(false, 0)
	if after := c.read(); !slices.Equal(before, after) {
		t.Errorf("was %v, is %v", before, after)
	}
}

func TestCompactionBounds(t *testing.T) {
	c := newCompactLog(t, func(c *Config) {
		c.MinCompactionLag, c.MaxCompactionLag, c.MinCleanableRatio = time.Hour, 3*time.Hour, 0.9
	})
	look := func(highWatermark, start, end int64, due bool) Cleanable {
		t.Helper()
		can, err := c.log.Cleanable(highWatermark)
		if err != nil || can.Start != start || can.End != end || can.Due != due {
			t.Errorf("got %+v, %v; want [%d, %d), due %v", can, err, start, end, due)
		}
		return can
	}
	c.put("a", "1")
	c.roll()
	c.now = c.now.Add(time.Minute)
	c.put("a", "2")
	c.roll()
	look(2, 0, 0, false) // too young
	c.now = c.now.Add(time.Hour)
	look(0, 0, 0, false) // not replicated
	look(1, 0, 1, true)  // all of it is dirty
	look(2, 0, 2, true)
	c.compact()
	look(2, 2, 2, false)
	c.put("b", "1")
	c.roll()
	c.now = c.now.Add(2 * time.Hour)
	if can := look(3, 2, 3, false); can.Overdue != 0 || can.Ratio() > 0.9 {
		t.Errorf("%+v", can)
	}
	c.now = c.now.Add(time.Hour + time.Minute)
	if can := look(3, 2, 3, true); can.Overdue != time.Minute {
		t.Errorf("overdue by %v, want a minute", can.Overdue)
	}
	c.txnPut(1, 0, "c", "1") // 3
	c.roll()
	c.put("d", "1")
	c.roll()
	c.now = c.now.Add(2 * time.Hour)
	look(5, 2, 3, true) // an open transaction pins the last stable offset
}

// KIP-534 and transactions: aborted records go at once; markers stay while the transaction has records, and then for
// delete.retention.ms.
func TestCompactionAndTransactions(t *testing.T) {
	c := newCompactLog(t, func(c *Config) { c.DeleteRetention = time.Hour })
	c.put("a", "0")                // 0
	c.txnPut(1, 0, "a", "aborted") // 1
	c.txnPut(2, 0, "b", "1")       // 2
	c.roll()
	c.end(1, record.Abort)   // 3
	c.end(2, record.Commit)  // 4
	c.txnPut(2, 1, "b", "2") // 5
	c.end(2, record.Commit)  // 6
	c.put("z", "1")          // 7
	c.roll()
	want := map[string]string{"a": "0", "b": "2", "z": "1"}
	look := func(offsets ...int64) {
		t.Helper()
		c.wantOffsets(offsets...)
		if got := c.committed(); !maps.Equal(got, want) {
			t.Errorf("committed %v, want %v", got, want)
		}
	}
	look(0, 1, 2, 3, 4, 5, 6, 7)
	// Producer 1's only data batch is its last: it stays, empty, for the sequence. So does its abort marker then.
	if result := c.compact(); result.Aborted != 1 || result.Superseded != 1 {
		t.Errorf("result %+v", result)
	}
	look(0, 3, 4, 5, 6, 7)
	c.now = c.now.Add(c.config.ProducerExpiry)
	c.check(c.maintain())
	c.compact() // the producers are forgotten: the empty batch at 1 goes, and nothing is left of the transaction of 4
	look(0, 3, 4, 5, 6, 7)
	c.now = c.now.Add(time.Hour)
	if result := c.compact(); result.Markers != 1 { // and nothing is left of the transaction of 3
		t.Errorf("result %+v", result)
	}
	look(0, 3, 5, 6, 7)
	c.now = c.now.Add(time.Hour)
	c.compact()
	look(0, 5, 6, 7)
	if txns, err := c.log.AbortedTxns(0, 100); err != nil || len(txns) != 0 {
		t.Errorf("aborted transactions %v, %v", txns, err)
	}
	c.sweep()
}

func (c *compactLog) maintain() error {
	_, err := c.log.Maintain(c.now, c.log.EndOffset())
	return err
}

// U-103 after compaction and a crash: the last batch of each producer is there to rebuild its state from.
func TestCompactionKeepsTheLastBatchOfEachProducer(t *testing.T) {
	c := newCompactLog(t, nil)
	sequence := func(s int32, key string) {
		c.append(batch{
			BuilderOptions: record.BuilderOptions{HasProducer: true, ProducerID: 7, ProducerEpoch: 2, BaseSequence: s},
			records:        [][2]string{{key, "1"}},
		})
	}
	sequence(0, "a")
	sequence(1, "b")
	c.put("a", "2")
	c.put("b", "2")
	c.roll()
	c.compact()
	c.wantOffsets(2, 3)
	before := c.log.Producers()
	c.sweep()
	for _, entry := range mustList(t, c.disk) {
		if _, suffix, ok := parseSegmentName(entry); ok && suffix == snapshotSuffix {
			c.check(c.disk.Remove(compactDir + "/" + entry))
		}
	}
	c.check(c.disk.SyncDir(compactDir))
	c.crash(vfs.Prefix)
	if after := c.log.Producers(); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("producers were %v and are %v", before, after)
	}
}

// The last batch of a producer may be kept without records. Its header still has their greatest timestamp, which no time
// index may name: look-ups, and Kafka's dump tool, want a record there.
func TestEmptiedBatchIsInNoTimeIndex(t *testing.T) {
	c := newCompactLog(t, nil)
	c.put("a", "1")
	c.now = c.now.Add(time.Hour)
	c.append(batch{
		BuilderOptions: record.BuilderOptions{HasProducer: true, ProducerID: 7},
		records:        [][2]string{{"b", "1"}},
	})
	c.now = c.now.Add(-time.Hour)
	c.put("b", "2")
	c.roll()
	c.compact()
	c.wantOffsets(0, 2)
	verify := func(when string) {
		t.Helper()
		c.check(c.log.Close())
		empty := 0
		for _, entry := range mustList(t, c.disk) {
			if KindOf(entry) != SegmentFile {
				continue
			}
			name := compactDir + "/" + entry
			c.check(InspectSegment(c.disk, name, func(_ int64, b record.Batch) error {
				if b.Count() == 0 {
					empty++
				}
				return nil
			}))
			faults, err := VerifySegment(c.disk, name)
			c.check(err)
			for _, fault := range faults {
				t.Errorf("%s: %s", when, fault)
			}
		}
		if empty == 0 {
			t.Fatalf("%s: there is no emptied batch", when)
		}
	}
	verify("compacted")
	c.open(false, 0) // scanned: both indexes are made anew
	verify("rebuilt")
}

func mustList(t *testing.T, disk vfs.FS) (names []string) {
	t.Helper()
	entries, err := disk.List(compactDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name)
	}
	return names
}

// A map that holds few keys makes several passes, with the same result.
func TestCompactionInBoundedMemory(t *testing.T) {
	c := newCompactLog(t, nil)
	const keys = 2000 // more than the smallest map holds
	for round := range 2 {
		for i := range keys / 10 {
			var b batch
			for j := range 10 {
				b.records = append(b.records, [2]string{fmt.Sprint("key", i*10+j), fmt.Sprint(round)})
			}
			c.append(b)
		}
		c.roll()
	}
	want := c.committed()
	cleaner := NewCleaner(CleanerOptions{KeyBytesMax: 1})
	passes := 0
	for c.log.CleanedOffset() < c.log.EndOffset() {
		passes++
		result, err := c.log.Compact(t.Context(), cleaner, c.log.EndOffset())
		if err != nil {
			t.Fatal(err)
		}
		if result.End <= result.Start {
			t.Fatalf("pass %d made no progress: %+v", passes, result)
		}
		c.check(c.maintain())
	}
	if passes < 3 {
		t.Errorf("%d passes, want several", passes)
	}
	if got := c.read(); len(got) != keys {
		t.Errorf("%d records are left, want %d", len(got), keys)
	}
	if got := c.committed(); !maps.Equal(got, want) {
		t.Error("values changed")
	}
}

func TestKeyMap(t *testing.T) {
	m := newKeyMap(1 << 20)
	n := 0
	for ; m.put(fmt.Append(nil, n), int64(n)); n++ {
	}
	if bytes := len(m.slots) * keySlotBytes; bytes > 1<<20 || n < 1<<20/keySlotBytes/2 {
		t.Errorf("%d keys in %d bytes", n, bytes)
	}
	for i := range n {
		if got := m.last(fmt.Append(nil, i)); got != int64(i) {
			t.Fatalf("key %d was last seen at %d", i, got)
		}
	}
	if !m.put([]byte("7"), 1<<40) || m.last([]byte("7")) != 1<<40 {
		t.Error("a full map refuses a key that it knows")
	}
	if m.last([]byte("new")) != -1 {
		t.Error("an unknown key is known")
	}
	m.clear()
	if m.last([]byte("7")) != -1 || m.used != 0 {
		t.Error("clear left a key")
	}
	key := []byte("key")
	if allocs := testing.AllocsPerRun(100, func() { m.put(key, 5); m.last(key) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// Whatever is in the log, compaction at any time changes nothing for a reader of committed data, and after enough time no
// superseded record and no tombstone is left in what has been compacted.
func TestCompactionIsInvisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCompactLog(t, func(c *Config) { c.DeleteRetention = time.Hour; c.SegmentBytes = 600 })
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		for range 3 {
			c.mixture(draw, 12)
			want := c.committed()
			highWatermark := c.log.EndOffset()
			_, err := c.log.Compact(context.Background(), NewCleaner(CleanerOptions{}), highWatermark)
			c.check(err)
			if got := c.committed(); !maps.Equal(got, want) {
				t.Fatalf("committed %v before, %v after", want, got)
			}
			c.now = c.now.Add(time.Duration(draw(3)) * 40 * time.Minute)
		}
		want := c.committed()
		for range 2 {
			c.now = c.now.Add(c.config.ProducerExpiry + time.Hour)
			c.check(c.maintain())
			c.compact()
		}
		if got := c.committed(); !maps.Equal(got, want) {
			t.Fatalf("committed %v before, %v in the end", want, got)
		}
		seen := map[string]bool{}
		for _, l := range c.read() {
			if l.marker {
				continue
			}
			if seen[l.key] || l.value == "" {
				t.Fatalf("%+v is left", l)
			}
			seen[l.key] = true
		}
		c.sweep()
	})
}
