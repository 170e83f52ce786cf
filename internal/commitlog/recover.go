package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// recover checks every batch of the segments from the one that ends at or above the recovery point on, rebuilds what
// follows from them, and cuts the log at the first bad batch. The log is not in use yet. It returns the log end.
func (l *Log) recover(recoveryPoint int64) (Recovery, int64, error) {
	segments := *l.segments.Load()
	// The segment that ends at the recovery point may have been closed since: its indexes are synced only with the next
	// sync, so it is read again.
	first := floorSegment(segments, recoveryPoint-1)
	for i, s := range segments[:first] {
		s.sealed.Store(segments[i+1].base <= recoveryPoint)
	}
	if err := l.loadProducers(segments[first].base); err != nil {
		return Recovery{}, 0, err
	}
	r := recoverer{log: l, expected: segments[first].base, epoch: int32(meta.NoEpoch)}
	report := Recovery{Scanned: true}
	for i := first; i < len(segments); i++ {
		s := segments[i]
		size := s.writer.bytes
		cut, err := r.segment(s)
		if err != nil {
			return report, 0, err
		}
		report.Segments++
		report.ScannedBytes += s.writer.bytes
		report.CutBytes += size - s.writer.bytes
		if cut == nil && i < len(segments)-1 && segments[i+1].base > r.expected {
			// The file of the next segment has survived a power cut, the end of this one has not: segments leave no gap
			// between them, since a roll starts at the log end and compaction keeps the last batch of what it rewrites.
			cut = fmt.Errorf("segment ends at %d, the next one starts at %d: %w", r.expected, segments[i+1].base, record.ErrCorrupt)
		}
		if cut != nil {
			l.logger.Debug("segment has a bad batch", slog.Int64("segment", s.base), slog.Any("err", cut))
			dropped, err := l.dropSegments(segments[i+1:])
			if err != nil {
				return report, 0, err
			}
			report.CutBytes += dropped
			segments = segments[:i+1]
		}
		if i < len(segments)-1 {
			l.closeRecovered(s, segments[i+1].base)
		}
	}
	segments = slices.Clone(segments)
	l.segments.Store(&segments)
	end := r.expected
	if report.CutBytes > 0 {
		report.CutOffset = end
	}
	l.synced.Store(min(recoveryPoint, end))
	l.names.changed()
	if recoveryPoint > end {
		report.BelowRecoveryPoint = report.CutBytes > 0
		if l.options.LowerRecoveryPoint != nil {
			if err := l.options.LowerRecoveryPoint(end); err != nil {
				return report, 0, fmt.Errorf("lower recovery point to %d: %w", end, err)
			}
		}
	}
	return report, end, nil
}

// closeRecovered writes the indexes of a closed segment and the snapshot at its end. On a full disk they stay in memory,
// or are made again by the next start: a broker must start without free space (U-73).
func (l *Log) closeRecovered(s *segment, end int64) {
	l.mu.end = end // what a snapshot is taken of
	err := errors.Join(s.flushIndexes(true), l.takeSnapshot(end, nil))
	if err != nil {
		l.logger.Warn("recovered indexes could not be written yet", slog.Int64("segment", s.base), slog.Any("err", err))
	}
}

// dropSegments removes segments that follow a cut, durably: none may come back behind what is appended next.
func (l *Log) dropSegments(segments []*segment) (bytes int64, err error) {
	for _, s := range slices.Backward(segments) {
		bytes += s.writer.bytes
		if err := s.remove(); err != nil {
			return bytes, err
		}
	}
	if len(segments) > 0 {
		err = l.options.FS.SyncDir(l.options.Dir)
	}
	return bytes, err
}

// recoverer is the state of a recovery scan: what the next batch must continue.
type recoverer struct {
	log      *Log
	expected int64 // no batch may start below
	epoch    int32 // no batch may have a lower one (I6)
}

// segment checks one segment, cuts it at its first bad batch, and rebuilds its indexes, its transaction index, and the
// log's producer state and epochs. cut is what was wrong with the bad batch; err is an error of the disk.
func (r *recoverer) segment(s *segment) (cut, err error) {
	r.expected = max(r.expected, s.base)
	build := s.indexBuilder()
	var aborted []AbortedTxn
	d := r.log.options.pools.decompressors.Get().(*record.Decompressor)
	defer r.log.options.pools.decompressors.Put(d)
	scan := newBatchScan(s.log, 0, s.writer.bytes)
	defer scan.close()
	good, firstTimestamp := int64(0), record.NoTimestamp
	for cut == nil {
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if !damaged(err) {
				return nil, err
			}
			cut = err
			break
		}
		if cut = r.check(s, b.Batch); cut != nil {
			break
		}
		txn, err := r.log.foldBatch(b.Batch, d)
		if err != nil {
			cut = fmt.Errorf("batch with base offset %d: %w", b.BaseOffset(), err)
			break
		}
		if txn != nil && txn.aborted {
			aborted = append(aborted, txn.abortedTxn())
		}
		if good == 0 {
			firstTimestamp = b.MaxTimestamp()
		}
		r.take(b.Batch)
		build.add(b)
		good = b.after()
	}
	if good < s.writer.bytes {
		if err := s.log.Truncate(good); err != nil {
			return cut, fmt.Errorf("cut segment %d to %d bytes: %w", s.base, good, err)
		}
		if err := s.log.Sync(); err != nil {
			return cut, fmt.Errorf("cut segment %d to %d bytes: %w", s.base, good, err)
		}
		s.writer.bytes = good
	}
	s.size.Store(good)
	s.writer.sinceIndexed, s.writer.largest, s.writer.firstTimestamp = build.sinceIndexed, build.largest, firstTimestamp
	s.writer.indexed = unknownTimestamp
	build.indexTime()
	s.offsets.reset(build.offsets)
	s.times.reset(build.times)
	s.mu.Lock()
	s.mu.largest, s.mu.known = build.largest, true
	s.mu.Unlock()
	return cut, s.replaceTxns(aborted)
}

// check tells what is wrong with a batch, or nil.
func (r *recoverer) check(s *segment, b record.Batch) error {
	if err := b.CheckCRC(); err != nil {
		return fmt.Errorf("batch with base offset %d: %w", b.BaseOffset(), err)
	}
	if _, fits := s.relative(b.LastOffset()); b.BaseOffset() < r.expected || !fits {
		return fmt.Errorf("batch with offsets %d to %d, want at least %d and at most 2^31-1 above %d: %w",
			b.BaseOffset(), b.LastOffset(), r.expected, s.base, record.ErrCorrupt)
	}
	if b.PartitionLeaderEpoch() < r.epoch {
		return fmt.Errorf("batch with base offset %d has epoch %d, the one before it %d: %w",
			b.BaseOffset(), b.PartitionLeaderEpoch(), r.epoch, record.ErrCorrupt)
	}
	return nil
}

// take continues after a good batch.
func (r *recoverer) take(b record.Batch) {
	r.expected = b.LastOffset() + 1
	r.epoch = b.PartitionLeaderEpoch()
	epochs := &r.log.mu.epochs
	if known, _ := epochs.At(b.BaseOffset()); known != meta.Epoch(r.epoch) && r.epoch >= 0 {
		epochs.truncateFromEnd(b.BaseOffset()) // the file was ahead of the batches that survived
		_, _ = epochs.assign(meta.Epoch(r.epoch), b.BaseOffset())
	}
}

// replaceTxns makes the transaction index hold exactly txns; if it does already, nothing is written.
func (s *segment) replaceTxns(txns []AbortedTxn) error {
	if err := s.readTxns(); err == nil {
		s.mu.Lock()
		same := slices.Equal(s.mu.txns, txns)
		s.mu.Unlock()
		if same {
			return nil
		}
	}
	if err := s.fs.Remove(s.name(txnIndexSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace transaction index of segment %d: %w", s.base, err)
	}
	s.writer.transactionBytes = 0
	s.mu.Lock()
	s.mu.txns, s.mu.txnsRead = nil, true
	s.mu.Unlock()
	for _, txn := range txns {
		if err := s.appendTxn(txn); err != nil {
			return err
		}
	}
	return nil
}
