package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// testFailer is a *testing.T or a *rapid.T.
type testFailer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// compactLog is a compacted log on a memory disk, with a clock that tests move.
type compactLog struct {
	t      testFailer
	disk   *vfs.Memory
	log    *Log
	config Config
	now    time.Time
	epoch  int32
	codec  record.Codec
}

const compactDir = "data/t-0"

func newCompactLog(t testFailer, change func(*Config)) *compactLog {
	t.Helper()
	config := DefaultConfig()
	config.CleanupCompact, config.CleanupDelete = true, false
	config.MinCleanableRatio = 0.01
	if change != nil {
		change(&config)
	}
	c := &compactLog{t: t, disk: vfs.NewMemory(1), config: config, now: time.UnixMilli(1_700_000_000_000)}
	c.check(c.disk.MkdirAll("data"))
	c.check(c.disk.SyncAll("."))
	c.open(false, 0)
	return c
}

func (c *compactLog) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *compactLog) open(clean bool, recoveryPoint int64) {
	c.t.Helper()
	var err error
	c.log, _, err = Open(Options{
		FS: c.disk, Dir: compactDir, Topic: "t", Config: c.config, Clean: clean, RecoveryPoint: recoveryPoint,
		Now: func() time.Time { return c.now },
	})
	c.check(err)
}

// crash cuts the power and opens what is left, from the recovery point that was durable.
func (c *compactLog) crash(mode vfs.CrashMode) {
	c.t.Helper()
	point := c.log.RecoveryPoint()
	c.disk = c.disk.Crash(mode)
	c.open(false, point)
}

// batch is a batch under construction.
type batch struct {
	record.BuilderOptions
	records [][2]string // key and value; the value "" is a tombstone, the key "" is null
}

// append writes a batch at the log end, as a follower would.
func (c *compactLog) append(b batch) (base int64) {
	c.t.Helper()
	b.BaseOffset, b.LeaderEpoch, b.Codec = c.log.EndOffset(), c.epoch, c.codec
	builder := record.NewBuilder(b.BuilderOptions)
	for _, r := range b.records {
		var key, value []byte
		if r[0] != "" {
			key = []byte(r[0])
		}
		if r[1] != "" {
			value = []byte(r[1])
		}
		builder.Append(c.now.UnixMilli(), key, value)
	}
	built, err := builder.Batch()
	c.check(err)
	c.write(built)
	return b.BaseOffset
}

func (c *compactLog) write(batches []byte) {
	c.t.Helper()
	_, err := c.log.Append(context.Background(), Append{Batches: slices.Clone(batches), Epoch: meta.NoEpoch, Origin: FromLeader})
	c.check(err)
}

// put appends a batch of one record.
func (c *compactLog) put(key, value string) int64 {
	c.t.Helper()
	return c.append(batch{records: [][2]string{{key, value}}})
}

// txnPut appends a batch of one record in a transaction.
func (c *compactLog) txnPut(producer int64, sequence int32, key, value string) int64 {
	c.t.Helper()
	return c.append(batch{
		BuilderOptions: record.BuilderOptions{HasProducer: true, ProducerID: producer, BaseSequence: sequence, Transactional: true},
		records:        [][2]string{{key, value}},
	})
}

// end appends a marker.
func (c *compactLog) end(producer int64, kind record.ControlType) int64 {
	c.t.Helper()
	base := c.log.EndOffset()
	c.write(record.AppendMarker(nil, base, c.epoch, record.Marker{ProducerID: producer, Type: kind, Timestamp: c.now.UnixMilli()}))
	return base
}

// roll closes the active segment and makes everything durable.
func (c *compactLog) roll() {
	c.t.Helper()
	if c.log.active().size.Load() == 0 {
		return
	}
	c.check(c.log.acquire())
	_, err := c.log.roll(nil)
	c.log.release()
	c.check(err)
	_, err = c.log.syncNow()
	c.check(err)
}

func (c *compactLog) compact() Compaction {
	c.t.Helper()
	result, err := c.log.Compact(context.Background(), NewCleaner(CleanerOptions{}), c.log.EndOffset())
	c.check(err)
	return result
}

// seenRecord is a record as readers see it.
type seenRecord struct {
	offset     int64
	key, value string
	producer   int64
	marker     bool
}

// read walks the log by Read as a client does, and checks that offsets rise.
func (c *compactLog) read() (lines []seenRecord) {
	c.t.Helper()
	end, last := c.log.EndOffset(), int64(-1)
	for at := c.log.StartOffset(); at < end; {
		slice, err := c.log.Read(at, 1<<20, end, true)
		c.check(err)
		data := make([]byte, slice.Bytes())
		c.check(slice.CopyTo(data))
		slice.Release()
		if len(data) == 0 {
			break // nothing is left up to the end
		}
		for len(data) > 0 {
			b, rest, err := record.Next(data)
			c.check(err)
			c.check(b.CheckCRC())
			if b.BaseOffset() <= last {
				c.t.Fatalf("batch at offset %d after offset %d", b.BaseOffset(), last)
			}
			last = b.LastOffset()
			it := b.Records(nil)
			for it.Next() {
				r := it.Record()
				lines = append(lines, seenRecord{r.Offset, string(r.Key), string(r.Value), b.ProducerID(), b.Control()})
			}
			c.check(it.Err())
			at, data = last+1, rest
		}
	}
	return lines
}

// committed are the values that a reader of committed data ends up with.
func (c *compactLog) committed() map[string]string {
	c.t.Helper()
	aborted, err := c.log.AbortedTxns(c.log.StartOffset(), c.log.EndOffset())
	c.check(err)
	values := map[string]string{}
	for _, l := range c.read() {
		skip := l.marker || slices.ContainsFunc(aborted, func(txn AbortedTxn) bool {
			return txn.Producer == l.producer && txn.First <= l.offset && l.offset <= txn.Last
		})
		switch {
		case skip:
		case l.value == "":
			delete(values, l.key)
		default:
			values[l.key] = l.value
		}
	}
	return values
}

// offsets are the offsets of the records that are left.
func (c *compactLog) offsets() (offsets []int64) {
	c.t.Helper()
	for _, l := range c.read() {
		offsets = append(offsets, l.offset)
	}
	return offsets
}

func (c *compactLog) wantOffsets(want ...int64) {
	c.t.Helper()
	if got := c.offsets(); !slices.Equal(got, want) {
		c.t.Fatalf("offsets %v are left, want %v", got, want)
	}
}

// noLeftovers checks that the directory holds nothing but live files.
func (c *compactLog) noLeftovers() {
	c.t.Helper()
	entries, err := c.disk.List(compactDir)
	c.check(err)
	bases := map[int64]bool{}
	for _, s := range *c.log.segments.Load() {
		bases[s.base] = true
	}
	for _, entry := range entries {
		base, suffix, isSegment := parseSegmentName(entry.Name)
		switch {
		case strings.HasSuffix(entry.Name, cleanedSuffix), strings.HasSuffix(entry.Name, swapSuffix), strings.HasSuffix(entry.Name, deletedSuffix):
			c.t.Fatalf("%s is left over", entry.Name)
		case isSegment && suffix != snapshotSuffix && !bases[base]:
			c.t.Fatalf("%s belongs to no segment", entry.Name)
		}
	}
}

// sweep removes what compaction took out of the log.
func (c *compactLog) sweep() {
	c.t.Helper()
	c.now = c.now.Add(c.config.FileDeleteDelay)
	_, err := c.log.Maintain(c.now, c.log.EndOffset())
	c.check(err)
	c.noLeftovers()
}

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
			if test.name == "close" {
				c.open(true, 0)
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

// mixture fills a log with keys, tombstones and transactions, in several segments.
func (c *compactLog) mixture(draw func(n int) int, records int) {
	c.t.Helper()
	open := map[int64]bool{}
	sequences := map[int64]int32{}
	for range records {
		producer := int64(1 + draw(2))
		key, value := fmt.Sprint("key", draw(5)), fmt.Sprint(c.log.EndOffset())
		switch draw(8) {
		case 0:
			c.put(key, "")
		case 1, 2:
			c.txnPut(producer, sequences[producer], key, value)
			sequences[producer]++
			open[producer] = true
		case 3:
			if open[producer] {
				c.end(producer, record.ControlType(draw(2)))
				open[producer] = false
			}
		case 4:
			c.roll()
			c.epoch++
		case 5:
			c.append(batch{records: [][2]string{{key, value}, {fmt.Sprint("key", draw(5)), "x"}, {key, "y"}}})
		default:
			c.put(key, value)
		}
	}
	for producer := int64(1); producer <= 2; producer++ {
		if open[producer] {
			c.end(producer, record.Commit)
		}
	}
	c.roll()
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
