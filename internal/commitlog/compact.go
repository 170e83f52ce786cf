package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
)

// Compaction keeps the last record of each key. A pass over a log has two halves: it maps the keys of the dirty part, the
// segments since the last pass, to their last offsets; then it rewrites the log from its beginning up to there, a group of
// neighbouring segments at a time, and swaps each new segment in (swap.go). Nothing is ever changed in place: readers go on
// in the old files until they are done.

var (
	// ErrCompactionVoid is returned by Compact when the log was truncated, shortened or closed under it. What had not been
	// swapped in is dropped; nothing is wrong, and a later call starts again.
	ErrCompactionVoid = errors.New("the log changed under its compaction")
	// ErrCompactionBusy is returned by Compact when another compaction of the log is running.
	ErrCompactionBusy = errors.New("another compaction of the log is running")
	// ErrCompactionUnproven is returned by Compact when a rewritten segment does not account for every record that was read, or
	// does not read back as it was written (U-15). It is dropped; the log stays as it was.
	ErrCompactionUnproven = errors.New("compaction result does not prove itself")
)

// errKeysFull says that a single batch has more keys than the Cleaner has memory for.
var errKeysFull = errors.New("the keys of one batch exceed log.cleaner.dedupe.buffer.size")

// compactWriteBytes is how much of a new segment is gathered before it is written.
const compactWriteBytes = 1 << 20

// compaction is what a log remembers of its compactions.
type compaction struct {
	running atomic.Bool
	// cleaned is the end of the part that has been compacted.
	cleaned atomic.Int64
	// horizon is the time, in ms since the epoch, from which on the tombstones and markers that the last pass left may go; 0
	// when there are none.
	horizon atomic.Int64
}

// Cleaner is what compactions need besides the log, for one at a time: the memory for keys, buffers, the throttle.
type Cleaner struct {
	keys     *keyMap
	limits   record.Limits
	throttle func(ctx context.Context, bytes int) error
	out      []byte
}

// CleanerOptions configure a Cleaner.
type CleanerOptions struct {
	// KeyBytesMax bounds the memory for the keys of one pass (24 bytes for each key, at most 7 of 8 slots used); a log with
	// more keys takes several passes. log.cleaner.dedupe.buffer.size, default 128 MiB.
	KeyBytesMax int64
	// Limits bound the decompression of a batch; default record.DefaultLimits.
	Limits record.Limits
	// Throttle is told of bytes before they are read or written, and returns once they may be; default: at once.
	Throttle func(ctx context.Context, bytes int) error
}

// keyBytesMaxDefault is Kafka's default of log.cleaner.dedupe.buffer.size.
const keyBytesMaxDefault = 128 << 20

// NewCleaner makes a Cleaner.
func NewCleaner(o CleanerOptions) *Cleaner {
	if o.KeyBytesMax <= 0 {
		o.KeyBytesMax = keyBytesMaxDefault
	}
	if o.Limits == (record.Limits{}) {
		o.Limits = record.DefaultLimits
	}
	if o.Throttle == nil {
		o.Throttle = func(ctx context.Context, _ int) error { return ctx.Err() }
	}
	return &Cleaner{keys: newKeyMap(o.KeyBytesMax), limits: o.Limits, throttle: o.Throttle}
}

// Cleanable says what a compaction of a log would find.
type Cleanable struct {
	// Start and End bound the dirty part that may be compacted now. It ends before the active segment, the last stable
	// offset, what is not durable yet, and what min.compaction.lag.ms protects; always at the base of a segment.
	Start, End int64
	// CleanBytes and DirtyBytes are the sizes of the segments before Start and of those up to End.
	CleanBytes, DirtyBytes int64
	// Overdue is how far the oldest dirty record is past max.compaction.lag.ms; 0 if it is not.
	Overdue time.Duration
	// Due says that a compaction should run: enough is dirty, something is overdue, or nothing is dirty but tombstones have
	// outlived delete.retention.ms.
	Due bool
}

// Ratio is the dirty share of what a compaction would read, by which logs are ranked.
func (c Cleanable) Ratio() float64 {
	if c.DirtyBytes == 0 {
		return 0
	}
	return float64(c.DirtyBytes) / float64(c.CleanBytes+c.DirtyBytes)
}

// Compaction is what one pass did.
type Compaction struct {
	Start, End              int64 // the dirty offsets that it covered
	SegmentsRead, Segments  int   // segments before and after; those that were left alone are not counted
	BytesRead, Bytes        int64
	RecordsRead, Records    int64
	Superseded, Tombstones  int64 // records that went because of a later one with the key, tombstones past their horizon
	Aborted, Markers, NoKey int64 // aborted records, markers past their horizon, records without a key
	Took                    time.Duration
}

// CleanedOffset is the end of the part that has been compacted: the log's line in cleaner-offset-checkpoint. It is durable
// knowledge only as far as the segments are; a lower value merely makes a pass repeat work.
func (l *Log) CleanedOffset() int64 { return max(l.compaction.cleaned.Load(), l.start.Load()) }

// SetCleanedOffset says what the checkpoint holds for the log. Offsets outside the log count as its start. When the
// tombstones that the last pass left may go is not known any more, but it is not later than delete.retention.ms from now.
func (l *Log) SetCleanedOffset(offset int64) {
	l.compaction.cleaned.Store(offset)
	if offset > 0 {
		l.compaction.horizon.Store(l.options.Now().Add(l.settings.Load().DeleteRetention).UnixMilli())
	}
}

// Cleanable looks at the log without reading batches, but for the timestamps that lags need.
func (l *Log) Cleanable(highWatermark int64) (Cleanable, error) {
	set := l.settings.Load()
	now := l.options.Now()
	segments := *l.segments.Load()
	closed := segments[:len(segments)-1]
	c := Cleanable{Start: l.CleanedOffset()}
	if c.Start > l.end.Load() {
		c.Start = l.start.Load() // the log lost its end: nothing is known to be clean
	}
	if len(closed) == 0 {
		c.End = c.Start
		return c, nil
	}

	bound := min(segments[len(closed)].base, l.synced.Load(), l.LastStableOffset(highWatermark))
	first := floorSegment(closed, c.Start)
	for _, s := range closed[:first] {
		c.CleanBytes += s.size.Load()
	}
	c.End = c.Start
	for i, s := range closed[first:] {
		next := segments[first+i+1].base
		if next > bound || next <= c.Start {
			break
		}
		largest, err := s.largest()
		if err != nil {
			return c, fmt.Errorf("look for what may be compacted: %w", err)
		}
		if set.MinCompactionLag > 0 && largest.timestamp > now.Add(-set.MinCompactionLag).UnixMilli() {
			break
		}
		c.DirtyBytes += s.size.Load()
		c.End = next
	}
	if c.DirtyBytes > 0 && set.MaxCompactionLag < math.MaxInt64 {
		oldest, err := oldestTimestamp(closed[first:])
		if err != nil {
			return c, err
		}
		c.Overdue = max(0, now.Add(-set.MaxCompactionLag).Sub(time.UnixMilli(oldest)))
	}
	horizon := l.compaction.horizon.Load()
	c.Due = c.DirtyBytes > 0 && (c.Overdue > 0 || c.Ratio() > set.MinCleanableRatio) || horizon > 0 && horizon <= now.UnixMilli()
	return c, nil
}

// oldestTimestamp is the least timestamp of a first batch, as Kafka measures max.compaction.lag.ms.
func oldestTimestamp(segments []*segment) (int64, error) {
	oldest := int64(math.MaxInt64)
	for _, s := range segments {
		scan := newHeaderScan(s.log, 0, s.size.Load())
		first, err := scan.next()
		timestamp := int64(0)
		if err == nil {
			timestamp = first.MaxTimestamp()
		}
		scan.close()
		switch {
		case errors.Is(err, io.EOF):
			continue
		case err != nil:
			return 0, fmt.Errorf("oldest timestamp of segment %d: %w", s.base, err)
		case timestamp > 0:
			oldest = min(oldest, timestamp)
		}
	}
	if oldest == math.MaxInt64 {
		return math.MaxInt32 * 1000, nil
	}
	return oldest, nil
}

// Compact runs one pass over the log, whatever Cleanable says of its being due. Appends and reads go on beside it; they wait
// only while a finished segment is swapped in. It returns ErrCompactionVoid and ErrCompactionBusy when it could not run, an
// error of record when a batch of the log is corrupt, ErrStorage when the disk fails, and ctx's error when that ends; what
// had been swapped in by then stays.
func (l *Log) Compact(ctx context.Context, c *Cleaner, highWatermark int64) (Compaction, error) {
	if !l.compaction.running.CompareAndSwap(false, true) {
		return Compaction{}, ErrCompactionBusy
	}
	defer l.compaction.running.Store(false)
	defer c.keys.clear()
	p, err := l.planPass(c, highWatermark)
	if err != nil || p == nil {
		return Compaction{}, err
	}
	defer p.unpin()
	if err := p.run(ctx); err != nil {
		if l.changedUnder(p) {
			return p.result(), ErrCompactionVoid
		}
		return p.result(), fmt.Errorf("compact %s: %w", l.Name(), err)
	}
	result := p.result()
	l.logger.Info("compacted log", slog.Int64("start", result.Start), slog.Int64("end", result.End),
		slog.Int64("bytes_read", result.BytesRead), slog.Int64("bytes", result.Bytes),
		slog.Int64("records_read", result.RecordsRead), slog.Int64("records", result.Records), slog.Int64("took_ms", result.Took.Milliseconds()))
	return result, nil
}

// pass is one compaction under way.
type pass struct {
	log       *Log
	cleaner   *Cleaner
	set       *settings
	started   time.Time
	truncated uint64
	segments  []*segment // closed and pinned, up to end
	next      int64      // base of the segment that follows them
	start     int64      // first dirty offset
	end       int64      // of what may be compacted; lowered to what the keys cover
	retention retention

	tally         cleanTally
	before, after int
}

// planPass notes what a pass works on, and pins it; nil when there is nothing to do.
func (l *Log) planPass(c *Cleaner, highWatermark int64) (*pass, error) {
	can, err := l.Cleanable(highWatermark)
	if err != nil {
		return nil, err
	}
	set := l.settings.Load()
	now := l.options.Now()
	p := &pass{log: l, cleaner: c, set: set, started: now, start: can.Start, end: can.End}
	p.retention = retention{
		keys: c.keys, mapped: can.Start - 1, now: now.UnixMilli(),
		horizon: now.Add(set.DeleteRetention).UnixMilli(),
		filter:  record.NewFilterer(c.limits), markers: record.NewDecompressor(c.limits),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil, ErrCompactionVoid
	}
	p.truncated = l.mu.truncated
	p.retention.producers = l.mu.producers.lastRecords(can.End)
	segments := *l.segments.Load()
	for i, s := range segments[:len(segments)-1] {
		if s.base >= can.End {
			break
		}
		s.pin()
		p.segments, p.next = append(p.segments, s), segments[i+1].base
	}
	if len(p.segments) == 0 {
		return nil, nil
	}
	return p, nil
}

func (p *pass) unpin() {
	for _, s := range p.segments {
		s.unpin()
	}
}

// changedUnder tells whether the log was truncated, closed or deleted since the pass began.
func (l *Log) changedUnder(p *pass) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.closed || l.mu.truncated != p.truncated
}

func (p *pass) run(ctx context.Context) error {
	if err := p.mapKeys(ctx); err != nil {
		return fmt.Errorf("map keys: %w", err)
	}
	for _, group := range p.groups() {
		if err := p.cleanGroup(ctx, group); err != nil {
			return fmt.Errorf("segments %d to %d: %w", group[0].base, group[len(group)-1].base, err)
		}
	}
	p.log.compaction.cleaned.Store(p.end)
	p.log.compaction.horizon.Store(p.retention.pending)
	return nil
}

func (p *pass) result() Compaction {
	t := p.tally
	return Compaction{
		Start: p.start, End: p.end, SegmentsRead: p.before, Segments: p.after, BytesRead: t.bytesRead, Bytes: t.bytesKept,
		RecordsRead: t.recordsRead, Records: t.recordsKept, Superseded: t.superseded, Tombstones: t.deleted,
		Aborted: t.aborted, Markers: t.markers, NoKey: t.withoutKey, Took: p.log.options.Now().Sub(p.started),
	}
}

// mapKeys reads the dirty part. When the map is full, the pass ends there.
func (p *pass) mapKeys(ctx context.Context) error {
	if p.start >= p.end {
		return nil
	}
	var txns txnWalk
	aborted, err := p.log.AbortedTxns(p.start, p.end)
	if err != nil {
		return err
	}
	txns.add(aborted)
	for i := floorSegment(p.segments, p.start); i < len(p.segments); i++ {
		full, err := p.mapSegment(ctx, p.segments[i], &txns)
		if err != nil {
			return fmt.Errorf("segment %d: %w", p.segments[i].base, err)
		}
		if full {
			if p.retention.mapped < p.start {
				return fmt.Errorf("segment %d: %w", p.segments[i].base, errKeysFull)
			}
			p.end = p.retention.mapped + 1
			return nil
		}
		p.retention.mapped = max(p.retention.mapped, p.nextBase(i)-1) // offsets may be missing at a segment's end
	}
	return nil
}

// mapSegment maps the keys of one segment's records from the pass's start on, batch by batch.
func (p *pass) mapSegment(ctx context.Context, s *segment, txns *txnWalk) (full bool, err error) {
	position := int64(0)
	if p.start > s.base {
		first, err := s.find(p.start, s.size.Load())
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		position = first.position
	}
	scan := newBatchScan(s.log, position, s.size.Load())
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err == nil {
			err = p.admitRead(ctx, b)
		}
		if err != nil {
			return false, err
		}
		if full, err := p.mapBatch(b.Batch, txns); full || err != nil {
			return full, err
		}
		p.retention.mapped = max(p.retention.mapped, b.LastOffset())
	}
}

// admitRead waits for the throttle and checks the batch that was read.
func (p *pass) admitRead(ctx context.Context, b located) error {
	if err := p.cleaner.throttle(ctx, len(b.Batch)); err != nil {
		return err
	}
	if err := b.CheckCRC(); err != nil {
		return fmt.Errorf("batch at position %d: %w", b.position, err)
	}
	return nil
}

func (p *pass) mapBatch(b record.Batch, txns *txnWalk) (full bool, err error) {
	if b.Control() {
		_, _, err := txns.marker(b, p.retention.markers)
		return false, err
	}
	if txns.data(b) {
		return false, nil
	}
	records := b.Records(p.retention.markers)
	for records.Next() {
		r := records.Record()
		if r.Key != nil && r.Offset >= p.start && !p.retention.keys.put(r.Key, r.Offset) {
			return true, nil
		}
	}
	return false, records.Err()
}

// nextBase is the base of the segment after the pass's segment i.
func (p *pass) nextBase(i int) int64 {
	if i+1 < len(p.segments) {
		return p.segments[i+1].base
	}
	return p.next
}

// groups divides the segments up to the pass's end into groups that become one segment each: no more bytes and index
// entries than a segment may have, and no offset too far from the first one's base. Epochs do not matter (U-95).
func (p *pass) groups() [][]*segment {
	segments := p.segments
	for len(segments) > 0 && segments[len(segments)-1].base >= p.end {
		segments = segments[:len(segments)-1]
	}
	var groups [][]*segment
	for i := 0; i < len(segments); {
		first := segments[i]
		bytes, offsets, times := first.size.Load(), first.offsets.count(), first.times.count()
		j := i + 1
		for ; j < len(segments); j++ {
			s := segments[j]
			bytes, offsets, times = bytes+s.size.Load(), offsets+s.offsets.count(), times+s.times.count()
			if bytes > int64(p.set.SegmentBytes) || offsets*offsetEntryBytes > int(p.set.IndexBytesMax) ||
				times*timeEntryBytes > int(p.set.IndexBytesMax) || p.nextBase(j)-1-first.base > math.MaxInt32 {
				break
			}
		}
		groups = append(groups, segments[i:j])
		i = j
	}
	return slices.DeleteFunc(groups, func(group []*segment) bool {
		return !slices.ContainsFunc(group, func(s *segment) bool { return s.size.Load() > 0 })
	})
}
