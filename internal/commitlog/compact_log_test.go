package commitlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
