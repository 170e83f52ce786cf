package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// Append is one call of Log.Append.
type Append struct {
	// Batches are whole batches. The log stamps offsets and epoch into them, also if the append then fails, so they cannot
	// be appended a second time; the caller has the slice back when Append returns.
	Batches []byte
	// Epoch is the leader epoch that is stamped (FromClient, FromCoordinator), or, FromLeader, the highest one that is
	// taken: batches of a newer epoch than the follower follows are dropped (U-52). meta.NoEpoch takes all.
	Epoch  meta.Epoch
	Origin Origin
	// Guard proves that a client's transactional batch was verified.
	Guard TxnGuard
	// TransactionVersion is the feature level of the transaction that a coordinator's marker ends.
	TransactionVersion int16
}

// Appended says what became of an Append.
type Appended struct {
	// Base and Last are the offsets of the first and last record; −1 if all batches were dropped.
	Base, Last int64
	// LogStart is the log start at the time.
	LogStart int64
	// LogAppendTime is the timestamp that the log gave to all records, or −1 if they keep their own. Of a Duplicate it is
	// the greatest timestamp of the first append in either case, as Kafka answers.
	LogAppendTime int64
	// Count is the number of records.
	Count int
	// Duplicate says that a producer sent these batches again and nothing was appended: Base and Last are the first
	// append's.
	Duplicate bool
}

// appendOp is one append on its way into the log.
type appendOp struct {
	bytes        []byte // what is written; nothing for a duplicate that waits for the original
	batches      []pendingBatch
	maxTimestamp int64
	undo         []producerUndo // what restores the producers if the write fails
	aborted      []AbortedTxn   // of abort markers among the batches
	done         chan error     // one slot; receives the outcome
}

// pendingBatch is a batch of an append and what the producer checks want to know of it.
type pendingBatch struct {
	record.Batch
	producer    producerBatch
	hasProducer bool
}

// first and last are the offsets of an op that has batches.
func (op *appendOp) first() int64 { return op.batches[0].BaseOffset() }
func (op *appendOp) last() int64  { return op.batches[len(op.batches)-1].LastOffset() }

func (l *Log) recycle(op *appendOp) {
	clear(op.batches)
	op.bytes, op.batches, op.undo, op.aborted = nil, op.batches[:0], op.undo[:0], op.aborted[:0]
	l.options.pools.ops.Put(op)
}

// Append validates the batches, gives them offsets, and writes them; it returns when they are in the file, visible to
// readers, and the hooks have run. Calls are written in the order in which they get their offsets, many with one system
// call. Batches are checked outside the lock. ctx bounds the wait for a sync that flush.messages may demand; the write
// itself is not given up once it has offsets.
//
// Errors: those of record.Validate, ErrSegmentSize, ErrOutOfOrderSequence, ErrProducerFenced, ErrTxnState,
// ErrCoordinatorFenced, ErrUnexpectedOffset, ErrTruncated, ErrClosed, and ErrStorage with the cause, which is ErrDiskFull
// if the append may be tried again. After an error nothing of the call is in the log, but for one: a sync that
// flush.messages demands may fail, also for want of space, when the batches are in the log.
func (l *Log) Append(ctx context.Context, in Append) (Appended, error) {
	set := l.settings.Load()
	op := l.options.pools.ops.Get().(*appendOp)
	defer l.recycle(op)
	out, err := l.prepare(op, set, in)
	if err != nil || len(op.batches) == 0 {
		return out, err
	}
	wait, err := l.reserve(op, in, &out)
	if err != nil {
		return Appended{}, err
	}
	if wait {
		if err := l.await(op); err != nil {
			return Appended{}, err
		}
	}
	if l.end.Load()-l.synced.Load() >= set.FlushMessages {
		if _, err := l.Sync(ctx); err != nil {
			return Appended{}, err
		}
	}
	return out, nil
}

// prepare does what needs no lock: it validates the batches and notes what the checks of their producers need.
func (l *Log) prepare(op *appendOp, set *settings, in Append) (Appended, error) {
	out := Appended{Base: -1, Last: -1, LogStart: l.start.Load(), LogAppendTime: -1}
	if err := l.Err(); err != nil {
		return out, err
	}
	d := set.decompressors.Get().(*record.Decompressor)
	defer set.decompressors.Put(d)
	op.bytes, op.maxTimestamp = in.Batches, record.NoTimestamp
	if in.Origin != FromLeader {
		rules := &set.clientRules
		if in.Origin == FromCoordinator {
			rules = &set.coordinatorRules
		}
		now := l.options.Now().UnixMilli()
		result, err := record.Validate(in.Batches, *rules, now, d)
		if err != nil {
			return out, err
		}
		op.bytes = result.Batches
		if set.LogAppendTime {
			out.LogAppendTime = now
		}
		if len(op.bytes) > int(set.SegmentBytes) {
			return out, fmt.Errorf("%d bytes of batches, segment.bytes is %d: %w", len(op.bytes), set.SegmentBytes, ErrSegmentSize)
		}
	}
	if err := op.split(in, d); err != nil {
		return out, err
	}
	for i := range op.batches {
		out.Count += int(op.batches[i].Count())
	}
	return out, nil
}

// split takes the op's bytes apart. A leader's batches are checked here, and those after a newer epoch are dropped.
func (op *appendOp) split(in Append, d *record.Decompressor) error {
	rest, taken, expected := op.bytes, 0, int64(0)
	for len(rest) > 0 {
		batch, after, err := record.Next(rest)
		if errors.Is(err, io.ErrUnexpectedEOF) && in.Origin == FromLeader && taken > 0 {
			break // a leader may cut its answer inside a batch
		}
		if err != nil {
			return err
		}
		if in.Origin == FromLeader {
			if in.Epoch != meta.NoEpoch && batch.PartitionLeaderEpoch() > int32(in.Epoch) {
				break
			}
			if err := batch.CheckCRC(); err != nil {
				return fmt.Errorf("batch with base offset %d: %w", batch.BaseOffset(), err)
			}
			if batch.BaseOffset() < expected || batch.LastOffsetDelta() < 0 {
				return fmt.Errorf("batch with offsets %d to %d, want at least %d: %w",
					batch.BaseOffset(), batch.LastOffset(), expected, record.ErrCorrupt)
			}
			expected = batch.LastOffset() + 1
		}
		p := pendingBatch{Batch: batch}
		if p.hasProducer, err = describeProducer(batch, d, &p.producer); err != nil {
			return err
		}
		op.batches = append(op.batches, p)
		op.maxTimestamp = max(op.maxTimestamp, batch.MaxTimestamp())
		taken += len(batch)
		rest = after
	}
	op.bytes = op.bytes[:taken]
	return nil
}

// describeProducer fills p from a batch of a producer; false if it has none.
func describeProducer(batch record.Batch, d *record.Decompressor, p *producerBatch) (bool, error) {
	if !batch.HasProducer() {
		return false, nil
	}
	*p = producerBatch{
		producer: batch.ProducerID(), epoch: batch.ProducerEpoch(), baseSequence: batch.BaseSequence(),
		base: batch.BaseOffset(), last: batch.LastOffset(), maxTimestamp: batch.MaxTimestamp(),
		transactional: batch.Transactional(),
	}
	if !batch.Control() {
		return true, nil
	}
	marker, found, err := batch.ReadMarker(d)
	if err != nil || !found {
		return false, err
	}
	p.marker, p.coordinatorEpoch, p.maxTimestamp = commitMarker, marker.CoordinatorEpoch, marker.Timestamp
	if marker.Type == record.Abort {
		p.marker = abortMarker
	}
	return true, nil
}

// reserve gives the op its offsets, or finds out that it may not have any. wait is false for a duplicate of something that
// is in the log already.
func (l *Log) reserve(op *appendOp, in Append, out *Appended) (wait bool, err error) {
	how := producerCheck{origin: in.Origin, guard: in.Guard, transactionVersion: in.TransactionVersion}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false, ErrClosed
	}
	next := l.mu.next
	for i := range op.batches {
		b := &op.batches[i]
		if in.Origin == FromLeader {
			if b.BaseOffset() < next {
				return false, fmt.Errorf("base offset %d, log end %d: %w", b.BaseOffset(), next, ErrUnexpectedOffset)
			}
		} else {
			delta := b.LastOffset() - b.BaseOffset()
			b.producer.base, b.producer.last = next, next+delta
			if b.hasProducer {
				duplicate, err := l.mu.producers.check(&b.producer, how)
				if err != nil {
					return false, err
				}
				if duplicate != nil {
					*out = Appended{
						Base: duplicate.firstOffset(), Last: duplicate.lastOffset, LogStart: out.LogStart,
						LogAppendTime: duplicate.timestamp, Count: out.Count, Duplicate: true,
					}
					if duplicate.lastOffset < l.mu.end {
						return false, nil
					}
					op.bytes, op.batches = nil, op.batches[:0] // the original is still being written: share its fate
					l.mu.pending = append(l.mu.pending, op)
					return true, nil
				}
			}
			b.Stamp(next, int32(in.Epoch))
		}
		next = b.LastOffset() + 1
	}
	for i := range op.batches {
		if b := &op.batches[i]; b.hasProducer {
			op.undo = append(op.undo, l.mu.producers.remember(b.producer.producer))
			if txn := l.mu.producers.update(&b.producer); txn != nil && txn.aborted {
				op.aborted = append(op.aborted, txn.abortedTxn())
			}
		}
	}
	l.mu.next = next
	l.mu.pending = append(l.mu.pending, op)
	out.Base, out.Last = op.first(), op.last()
	return true, nil
}

// crowdedFor is how many writes after one that was shared by several appends look out for others to share with.
const crowdedFor = 16

// await waits until the op is written, by another goroutine or, once the slot is free, by this one.
func (l *Log) await(op *appendOp) error {
	select {
	case err := <-op.done:
		return err
	case l.slot <- struct{}{}:
	}
	defer l.release()
	select {
	case err := <-op.done:
		return err
	default:
	}
	if l.holder.crowded > 0 {
		// Others append too. Those who are ready to run get to add theirs first, and one call writes for all: else the
		// first one writes alone while the others queue up.
		runtime.Gosched()
	}
	l.writePending()
	return <-op.done
}

// writePending writes what is pending and tells its owners. The caller holds the slot.
func (l *Log) writePending() {
	l.mu.Lock()
	ops := l.mu.pending
	l.mu.pending = l.holder.spare[:0]
	l.mu.Unlock()
	if l.holder.crowded--; len(ops) > 1 {
		l.holder.crowded = crowdedFor
	}

	written, err := l.writeOps(ops)
	flushAcks := l.settings.Load().FlushAcks
	if flushAcks {
		l.unasked.Add(int32(written))
	}
	if hooks := l.hooks.Load(); written > 0 && hooks.Appended != nil {
		hooks.Appended(l.end.Load())
	}
	for _, op := range ops[:written] {
		op.done <- nil
	}
	if err != nil {
		l.undo(ops[written:], err)
	}
	if written > 0 && flushAcks {
		l.options.Syncer.Request(l)
	}
	clear(ops)
	l.holder.spare = ops[:0]
}

// writeOps writes ops in as few system calls as segments allow and publishes each part. It returns how many ops are in
// the log.
func (l *Log) writeOps(ops []*appendOp) (written int, err error) {
	if err := l.Err(); err != nil {
		return 0, err
	}
	if err := l.beBorn(); err != nil {
		return 0, l.fail(err)
	}
	set := l.settings.Load()
	active := l.active()
	if err := active.resume(); err != nil {
		return 0, l.fail(err)
	}
	for written < len(ops) {
		run, bytes := l.gather(set, active, ops[written:])
		if run == 0 {
			if active, err = l.roll(ops[written:]); err != nil {
				return written, l.fail(err)
			}
			continue
		}
		if bytes > 0 {
			if err := l.writeRun(set, active, ops[written:written+run], bytes); err != nil {
				return written, l.fail(err)
			}
		}
		written += run
	}
	return written, nil
}

// gather collects the bytes of the first ops that fit in the active segment, and tells how many those are.
func (l *Log) gather(set *settings, active *segment, ops []*appendOp) (run int, bytes int64) {
	l.holder.bufs = l.holder.bufs[:0]
	for _, op := range ops {
		if len(op.bytes) == 0 {
			run++
			continue
		}
		if l.mustRoll(set, active, bytes, op) {
			break
		}
		l.holder.bufs = append(l.holder.bufs, op.bytes)
		bytes += int64(len(op.bytes))
		run++
	}
	return run, bytes
}

// mustRoll tells whether op, after bytes others, belongs in a new segment. The rules are Kafka's: size, age by the
// timestamps of the records, a full index, an offset too far from the base for the indexes.
func (l *Log) mustRoll(set *settings, active *segment, bytes int64, op *appendOp) bool {
	size := active.writer.bytes + bytes
	if size == 0 {
		return op.last()-active.base > math.MaxInt32
	}
	if size+int64(len(op.bytes)) > int64(set.SegmentBytes) || op.last()-active.base > math.MaxInt32 {
		return true
	}
	entriesMax := int(set.IndexBytesMax) / timeEntryBytes
	if active.offsets.count() >= int(set.IndexBytesMax)/offsetEntryBytes || active.times.count() >= entriesMax-1 {
		return true
	}
	return bytes == 0 && l.aged(set, active, op.maxTimestamp)
}

// aged tells whether the segment is old enough to be closed when maxTimestamp arrives.
func (l *Log) aged(set *settings, active *segment, maxTimestamp int64) bool {
	age := int64(math.MaxInt64)
	if set.SegmentAge < math.MaxInt64 {
		age = set.SegmentAge.Milliseconds() - l.jitter(set, active.base)
	}
	if set.CleanupCompact {
		age = min(age, set.MaxCompactionLag.Milliseconds()) // only closed segments are compacted
	}
	if first := active.writer.firstTimestamp; first >= 0 {
		return maxTimestamp-first > age
	}
	return l.options.Now().Sub(active.writer.created).Milliseconds() > age
}

// jitter is what segment.jitter.ms takes off the age of one segment: a number that looks random, and is the same each
// time it is asked for.
func (l *Log) jitter(set *settings, base int64) int64 {
	span := set.SegmentJitter.Milliseconds()
	if span <= 0 {
		return 0
	}
	h := uint64(base) ^ uint64(l.options.Partition)<<32
	for _, c := range []byte(l.options.Topic) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 32
	return int64(h % uint64(span))
}

// writeRun writes the gathered bytes of ops and makes them visible.
func (l *Log) writeRun(set *settings, active *segment, ops []*appendOp, bytes int64) error {
	position := active.writer.bytes
	active.spacing.Store(int64(set.IndexInterval))
	err := l.writeAborted(active, ops)
	if err == nil {
		err = active.write(l.holder.bufs, bytes)
	}
	if err != nil {
		return errors.Join(err, active.unwrite(), active.truncateTxns(l.end.Load()))
	}
	var end int64
	marks := position
	for _, op := range ops {
		for i := range op.batches {
			active.admit(op.batches[i].Batch, position)
			position += int64(len(op.batches[i].Batch))
			end = op.batches[i].LastOffset() + 1
		}
	}
	now := l.options.Now()
	l.mu.Lock()
	for _, op := range ops {
		for i := range op.batches {
			b := &op.batches[i]
			l.noteEpochLocked(b.Batch)
			l.mu.recent.add(b.BaseOffset(), b.LastOffset(), marks)
			marks += int64(len(b.Batch))
		}
	}
	active.publish(now)
	l.mu.end = end
	l.end.Store(end)
	l.mu.Unlock()
	l.options.Metrics.appended(len(ops), bytes)
	if err := active.flushIndexes(false); err != nil {
		// The entries stay in memory and are tried again; the batches are in the log, so the appends have succeeded.
		l.logger.Warn("index entries could not be written yet", slog.Any("err", err))
	}
	return nil
}

// noteEpochLocked adds the epoch of an appended batch to the lineage if it is new (E-14b).
func (l *Log) noteEpochLocked(b record.Batch) {
	if epoch := meta.Epoch(b.PartitionLeaderEpoch()); epoch > l.mu.epochs.LatestEpoch() {
		// Neither is negative and the epoch is above all others, so nothing is refused or removed but empty epochs.
		_, _ = l.mu.epochs.assign(epoch, b.BaseOffset())
	}
}

// writeAborted puts the aborted transactions of ops into the transaction index, before readers see their markers.
func (l *Log) writeAborted(active *segment, ops []*appendOp) error {
	for _, op := range ops {
		for _, txn := range op.aborted {
			if err := active.appendTxn(txn); err != nil {
				return err
			}
		}
	}
	return nil
}

// undo takes back what was promised to ops, and to all that came after them, and tells their owners. The caller holds
// the slot.
func (l *Log) undo(ops []*appendOp, cause error) {
	l.mu.Lock()
	later := l.mu.pending
	l.mu.pending = nil
	for _, op := range slices.Backward(later) {
		l.mu.producers.restore(op.undo)
	}
	for _, op := range slices.Backward(ops) {
		l.mu.producers.restore(op.undo)
	}
	l.mu.producers.restored(l.mu.end)
	l.mu.next = l.mu.end
	l.mu.Unlock()
	for _, op := range ops {
		op.done <- cause
	}
	for _, op := range later {
		op.done <- cause
	}
}

// failPending fails everything that waits; with closing, nothing can join any more. The caller holds the slot.
func (l *Log) failPending(cause error, closing bool) {
	l.mu.Lock()
	l.mu.closed = l.mu.closed || closing
	l.mu.Unlock()
	l.undo(nil, cause)
}

// roll closes the active segment and starts the next one at the first offset of ops, none of which is written. The order
// is that of the states of a segment: indexes and producer snapshot before the new file exists; a sync follows in the
// background and only then moves the recovery point. The caller holds the slot.
func (l *Log) roll(ops []*appendOp) (*segment, error) {
	active := l.active()
	base := l.end.Load() // so that segments leave no gap, even where a leader's batches do
	if len(ops) > 0 {
		base = max(base, ops[0].last()-math.MaxInt32)
	}
	if err := active.flushIndexes(true); err != nil {
		return nil, err
	}
	if change := l.names.last(); l.names.unsynced() {
		// One new file at most may be unsynced: else a power cut could keep a segment and forget the one before it.
		if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
			return nil, lost(err)
		}
		l.names.synced(change)
	}
	if err := l.takeSnapshot(base, ops); err != nil {
		return nil, err
	}
	next, err := createSegment(l.options.FS, l.options.Dir, base, "", l.options.Now())
	if err != nil {
		return nil, err
	}
	l.names.changed()
	l.swapSegments(append(slices.Clone(*l.segments.Load()), next))
	l.logger.Debug("rolled segment", slog.Int64("segment", base), slog.Int64("bytes", active.writer.bytes))
	l.options.Syncer.Request(l)
	return next, nil
}

// swapSegments puts another list of segments in place. Under the lock, so that a reader that has seen a segment in the
// list pins it before anybody can find it unpinned outside the list.
func (l *Log) swapSegments(segments []*segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.segments.Load(); old == nil || segments[len(segments)-1] != (*old)[len(*old)-1] {
		l.mu.recent.reset()
	}
	l.segments.Store(&segments)
}

// recentBatches are the last batches of the active segment: readers at the tail find their place without a look-up.
type recentBatches struct {
	marks []batchMark // a ring once it is full
	next  int
}

type batchMark struct{ base, last, position int64 }

// recentMax is how many batches are kept; consumers and followers that keep up are within a few.
const recentMax = 32

func (r *recentBatches) reset() { r.marks, r.next = r.marks[:0], 0 }

func (r *recentBatches) add(base, last, position int64) {
	if len(r.marks) < recentMax {
		if r.marks == nil {
			r.marks = make([]batchMark, 0, recentMax)
		}
		r.marks = append(r.marks, batchMark{base, last, position})
		return
	}
	r.marks[r.next] = batchMark{base, last, position}
	r.next = (r.next + 1) % recentMax
}

// find is the first batch whose last offset is offset or above, and where it ends; end is the size of the segment.
func (r *recentBatches) find(offset, end int64) (mark batchMark, after int64, found bool) {
	n := len(r.marks)
	at := func(i int) batchMark { return r.marks[(r.next+i)%n] }
	if n == 0 || offset < at(0).base || offset > at(n-1).last {
		return batchMark{}, 0, false
	}
	low, high := 0, n-1
	for low < high {
		if middle := (low + high) / 2; at(middle).last < offset {
			low = middle + 1
		} else {
			high = middle
		}
	}
	after = end
	if low < n-1 {
		after = at(low + 1).position
	}
	return at(low), after, true
}
