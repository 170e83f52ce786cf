package commitlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
)

// Truncate removes everything from offset to on (E-33): whole segments above it, and in the segment that holds it every
// batch that ends at to or above. A batch is never split: if to lies inside one, the log ends before it; if to lies in a
// gap that compaction left, the log ends where its last batch does, as it would after a restart. Indexes,
// producer state, epochs and transaction index follow; the recovery point sinks. An offset at or above the log end takes
// the epochs that have written nothing, and nothing else; below the first segment the log starts over at to (E-32).
// Appends that wait get ErrTruncated.
func (l *Log) Truncate(to int64) error {
	if err := l.acquire(); err != nil {
		return err
	}
	defer l.release()
	if err := l.Err(); err != nil {
		return err
	}
	l.failPending(ErrTruncated, false)
	end := l.end.Load()
	if to >= end {
		l.mu.Lock()
		l.mu.epochs.truncateFromEnd(end)
		l.mu.Unlock()
		return nil
	}
	if to < (*l.segments.Load())[0].base {
		if err := l.lowerSynced(to); err != nil {
			return err
		}
		return l.failed(l.startOver(to))
	}
	return l.failed(l.truncate(to))
}

// TruncateFully empties the log and lets it start over at start: a follower so far behind that nothing of its log is
// left at the leader.
func (l *Log) TruncateFully(start int64) error {
	if err := l.acquire(); err != nil {
		return err
	}
	defer l.release()
	if err := l.Err(); err != nil {
		return err
	}
	l.failPending(ErrTruncated, false)
	if err := l.lowerSynced(min(start, l.start.Load())); err != nil {
		return err
	}
	return l.failed(l.startOver(start))
}

// failed passes an error of a truncation on. The log is then between two states and takes no more appends.
func (l *Log) failed(err error) error {
	if err == nil {
		return nil
	}
	return l.fail(fmt.Errorf("%w: truncate: %w", errLost, err))
}

// lowerSynced lowers the recovery point, and its checkpoint: bytes that will be written above it again are not synced. Until
// the log end is lowered too no sync raises it.
func (l *Log) lowerSynced(to int64) error {
	l.mu.Lock()
	l.mu.truncated++
	l.mu.truncating = true
	l.compaction.cleaned.Store(min(l.compaction.cleaned.Load(), to))
	l.synced.Store(min(l.synced.Load(), to))
	l.mu.Unlock()
	if l.options.LowerRecoveryPoint == nil {
		return nil
	}
	if err := l.options.LowerRecoveryPoint(to); err != nil {
		l.mu.Lock()
		l.mu.truncating = false
		l.mu.Unlock()
		return l.fail(fmt.Errorf("lower recovery point to %d: %w", to, err))
	}
	return nil
}

// truncate removes what lies from to on; to is not below the first segment. The caller holds the slot.
func (l *Log) truncate(to int64) error {
	segments := *l.segments.Load()
	i := floorSegment(segments, to)
	target := segments[i]
	position := target.size.Load()
	switch span, err := target.find(to, position); {
	case err == nil:
		position = span.position
	case !errors.Is(err, io.EOF):
		return err
	}
	end, err := target.endBefore(position)
	if err != nil {
		return err
	}
	if err := l.lowerSynced(end); err != nil {
		return err
	}

	// Readers lose the bytes before the file does.
	l.mu.Lock()
	kept := slices.Clone(segments[:i+1])
	l.segments.Store(&kept)
	target.size.Store(position)
	l.mu.end, l.mu.next = end, end
	l.end.Store(end)
	l.synced.Store(min(l.synced.Load(), end))
	l.mu.truncated++
	l.mu.truncating = false
	l.mu.recent.reset()
	l.mu.epochs.truncateFromEnd(end)
	l.start.Store(min(l.start.Load(), end))
	l.mu.Unlock()

	if err := l.doomTail(segments[i+1:]); err != nil {
		return err
	}
	if err := target.truncate(end, position); err != nil {
		return err
	}
	l.logger.Info("truncated log", slog.Int64("offset", end))
	return l.loadProducers(end)
}

// truncate cuts the segment at a batch boundary, which is where offset end begins, and its indexes with it. The cut is
// synced: else a power cut might bring the old batches back behind new ones.
func (s *segment) truncate(end, position int64) error {
	if err := s.offsets.truncate(offsetColumn, end-s.base); err != nil && !errors.Is(err, errIndexCorrupt) {
		return err
	}
	if err := s.times.truncate(timeOffsetColumn, end-s.base); err != nil && !errors.Is(err, errIndexCorrupt) {
		return err
	}
	if err := s.truncateTxns(end); err != nil {
		return err
	}
	if err := s.log.Truncate(position); err != nil {
		return fmt.Errorf("truncate segment %d to %d bytes: %w", s.base, position, err)
	}
	if err := s.log.Sync(); err != nil {
		return fmt.Errorf("truncate segment %d: %w", s.base, err)
	}
	s.writer.bytes = position
	s.writer.indexed = unknownTimestamp
	s.sealed.Store(false)
	return s.remeasure(position)
}

// remeasure sets what the writer knows of a segment that was cut.
func (s *segment) remeasure(size int64) error {
	build := s.indexBuilder()
	first := int64(-1)
	scan := newHeaderScan(s.log, 0, size)
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("measure segment %d: %w", s.base, err)
		}
		if b.position == 0 {
			first = b.MaxTimestamp()
		}
		build.add(b)
	}
	s.writer.largest, s.writer.firstTimestamp, s.writer.sinceIndexed = build.largest, first, build.sinceIndexed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.largest, s.mu.known = build.largest, true
	return nil
}

// startOver empties the log and begins a segment at start. The caller holds the slot, or the log is not in use yet.
func (l *Log) startOver(start int64) error {
	if err := l.beBorn(); err != nil {
		return err
	}
	old := *l.segments.Load()
	next, err := l.emptySegment(old, start)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.segments.Store(&[]*segment{next})
	l.mu.recent.reset()
	l.mu.end, l.mu.next = start, start
	l.end.Store(start)
	l.start.Store(start)
	l.mu.producers.reset()
	l.mu.epochs.truncateFromEnd(0)
	l.mu.truncated++
	l.mu.truncating = false
	l.mu.Unlock()
	l.synced.Store(start)
	l.names.changed()
	l.dropSnapshots(func(int64) bool { return true })
	l.logger.Info("log starts over", slog.Int64("offset", start))
	return nil
}

// emptySegment dooms the old segments and makes an empty one.
func (l *Log) emptySegment(old []*segment, start int64) (*segment, error) {
	if err := l.doomTail(old); err != nil {
		return nil, err
	}
	return createSegment(l.options.FS, l.options.Dir, start, "", l.options.Now())
}

// doom renames the files of segments that are about to leave the log, or have left it, so that no start takes them up
// again. They are removed by sweep.
func (l *Log) doom(segments []*segment) error {
	now := l.options.Now()
	for _, s := range slices.Backward(segments) {
		if err := s.rename(deletedSuffix); err != nil {
			return err
		}
		l.holder.doomed = append(l.holder.doomed, doomedSegment{s, now})
		l.doomedCount.Store(int32(len(l.holder.doomed)))
		l.names.changed()
	}
	return nil
}

// doomTail dooms segments at the end of the log, durably and the last one first: after a crash the log is whole up to some
// offset, and no old segment comes back behind what is appended next.
func (l *Log) doomTail(segments []*segment) error {
	for i := range slices.Backward(segments) {
		if err := l.doom(segments[i : i+1]); err != nil {
			return err
		}
		l.dropSnapshots(func(at int64) bool { return at == segments[i].base })
		if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
			return fmt.Errorf("sync directory: %w", err)
		}
	}
	return nil
}

// RaiseStart moves the log start up (DeleteRecords, and retention of compacted logs). Segments below it go with the next
// maintenance. An offset at or below the log start changes nothing; above the log end it is ErrOutOfRange.
func (l *Log) RaiseStart(to int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.closed:
		return ErrClosed
	case to > l.mu.end:
		return fmt.Errorf("raise log start to %d, log end %d: %w", to, l.mu.end, ErrOutOfRange)
	case to <= l.start.Load():
		return nil
	}
	l.start.Store(to)
	l.mu.epochs.truncateFromStart(to)
	return nil
}
