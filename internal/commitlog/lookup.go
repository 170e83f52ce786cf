package commitlog

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// TimeOffset is a record found by its timestamp.
type TimeOffset struct {
	Offset    int64
	Timestamp int64      // of the record, in ms since the epoch
	Epoch     meta.Epoch // of the batch the record is in (U-68)
}

// OffsetForTimestamp finds the first record below end whose timestamp is ts or later, in compressed batches too (U-99).
// found is false if there is none, which is no error. The scan is bounded by end (U-30).
func (l *Log) OffsetForTimestamp(ts, end int64) (at TimeOffset, found bool, err error) {
	view := l.lookupView(end)
	defer view.unpin()
	for i, s := range view.segments {
		largest, err := s.largest()
		if err != nil {
			return TimeOffset{}, false, l.lookupError(ts, err)
		}
		if largest.timestamp < ts {
			continue
		}
		at, found, err := view.firstAt(i, ts)
		if err != nil {
			return TimeOffset{}, false, l.lookupError(ts, err)
		}
		if found {
			return at, true, nil
		}
	}
	return TimeOffset{}, false, nil
}

// MaxTimestamp finds the record with the greatest timestamp below end, the first of several, with its own offset also
// inside a batch (U-98). found is false in a log without timestamps.
func (l *Log) MaxTimestamp(end int64) (at TimeOffset, found bool, err error) {
	view := l.lookupView(end)
	defer view.unpin()
	best := timePoint{record.NoTimestamp, 0}
	in := -1
	for i, s := range view.segments {
		largest, err := s.largest()
		if err == nil && (largest.last >= view.end || largest.last < view.start) {
			// The greatest timestamp is out of bounds: look for the greatest within them.
			largest, err = s.largestWithin(view.start, view.end, view.limits[i])
		}
		if err != nil {
			return TimeOffset{}, false, l.lookupError(-1, err)
		}
		if largest.timestamp > best.timestamp {
			best, in = largest, i
		}
	}
	if in < 0 {
		return TimeOffset{}, false, nil
	}
	at, found, err = view.firstAt(in, best.timestamp)
	if err == nil && !found {
		// The batch has lost that record: to the log start, which lies inside it, or to compaction.
		at, found, err = view.greatest()
	}
	if err != nil {
		return TimeOffset{}, false, l.lookupError(best.timestamp, err)
	}
	return at, found, nil
}

// greatest finds the record with the greatest timestamp by reading the records of every batch that may have it.
func (v *lookupView) greatest() (best TimeOffset, found bool, err error) {
	best.Timestamp = record.NoTimestamp
	for i, s := range v.segments {
		scan := newHeaderScan(s.log, 0, v.limits[i])
		for {
			b, err := scan.next()
			if errors.Is(err, io.EOF) || err == nil && b.BaseOffset() >= v.end {
				break
			}
			for err == nil && b.LastOffset() >= v.start && b.MaxTimestamp() > best.Timestamp {
				at, better, failed := v.firstInBatch(s, b.span(), best.Timestamp+1)
				if err = failed; !better {
					break
				}
				best, found = at, true
			}
			if err != nil {
				scan.close()
				return TimeOffset{}, false, err
			}
		}
		scan.close()
	}
	return best, found, nil
}

func (l *Log) lookupError(ts int64, err error) error {
	return fmt.Errorf("%w: look up timestamp %d: %w", ErrStorage, ts, err)
}

// lookupView is the segments below an end, pinned, as they are at one moment.
type lookupView struct {
	segments   []*segment
	limits     []int64
	start, end int64

	decompressors *sync.Pool
}

func (l *Log) lookupView(end int64) lookupView {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := lookupView{start: l.start.Load(), end: min(end, l.mu.end), decompressors: &l.options.pools.decompressors}
	if l.mu.closed {
		return v
	}
	for _, s := range *l.segments.Load() {
		if s.base >= v.end {
			break
		}
		s.pin()
		v.segments = append(v.segments, s)
		v.limits = append(v.limits, s.size.Load())
	}
	return v
}

func (v *lookupView) unpin() {
	for _, s := range v.segments {
		s.unpin()
	}
}

// firstAt finds the first record of segment i within the bounds whose timestamp is ts or later.
func (v *lookupView) firstAt(i int, ts int64) (TimeOffset, bool, error) {
	s, limit := v.segments[i], v.limits[i]
	from, err := s.beforeTimestamp(ts, v.start, limit)
	if errors.Is(err, io.EOF) {
		return TimeOffset{}, false, nil
	}
	if err != nil {
		return TimeOffset{}, false, err
	}
	scan := newHeaderScan(s.log, from, limit)
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) || err == nil && b.BaseOffset() >= v.end {
			return TimeOffset{}, false, nil
		}
		if err != nil {
			return TimeOffset{}, false, err
		}
		if b.MaxTimestamp() < ts || b.LastOffset() < v.start {
			continue
		}
		at, found, err := v.firstInBatch(s, b.span(), ts)
		if err != nil || found {
			return at, found, err
		}
	}
}

// beforeTimestamp is a position before which no batch has ts or a later timestamp. A time index entry (t, o) says that
// nothing up to the batch that ends with o is later than t, and that this batch is the first that has t.
func (s *segment) beforeTimestamp(ts, start, limit int64) (int64, error) {
	offset := max(start-s.base, 0)
	e, found, err := s.times.floor(timestampColumn, ts)
	if errors.Is(err, errIndexCorrupt) {
		if err := s.rebuildIndexes(); err != nil {
			return 0, err
		}
		e, found, err = s.times.floor(timestampColumn, ts)
	}
	if err != nil {
		return 0, err
	}
	if found {
		offset = max(offset, timeOffsetColumn.of(e[:]))
	}
	span, err := s.find(s.base+offset, limit)
	return span.position, err
}

// firstInBatch walks the records of one batch.
func (v *lookupView) firstInBatch(s *segment, span batchSpan, ts int64) (TimeOffset, bool, error) {
	scan := newBatchScan(s.log, span.position, span.after)
	defer scan.close()
	b, err := scan.next()
	if err != nil {
		return TimeOffset{}, false, err
	}
	d := v.decompressors.Get().(*record.Decompressor)
	defer v.decompressors.Put(d)
	records := b.Records(d)
	for records.Next() {
		r := records.Record()
		if r.Timestamp >= ts && r.Offset >= v.start && r.Offset < v.end {
			return TimeOffset{r.Offset, r.Timestamp, meta.Epoch(span.epoch)}, true, nil
		}
	}
	return TimeOffset{}, false, records.Err()
}

// largestWithin is the greatest timestamp of the batches that lie from start on and below end.
func (s *segment) largestWithin(start, end, limit int64) (timePoint, error) {
	largest := timePoint{record.NoTimestamp, s.base}
	first, err := s.find(max(start, s.base), limit)
	if errors.Is(err, io.EOF) {
		return largest, nil
	}
	if err != nil {
		return largest, err
	}
	scan := newHeaderScan(s.log, first.position, limit)
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) || err == nil && b.LastOffset() >= end {
			return largest, nil
		}
		if err != nil {
			return largest, err
		}
		if b.Count() > 0 && b.MaxTimestamp() > largest.timestamp {
			largest = timePoint{b.MaxTimestamp(), b.LastOffset()}
		}
	}
}
