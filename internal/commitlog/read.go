package commitlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemark-io/tidemark/internal/record"
)

// Read returns whole batches from offset on, at most bytesMax bytes of them, all below end (exclusive: a high watermark,
// a last stable offset, or the log end). The first batch contains offset, or is the next one if compaction removed that
// one (U-101, U-129), so a slice that is not empty has a record at offset or above. Batches of one segment at most are
// returned. If the first batch alone is larger than bytesMax, it is returned all the same when minOne is set, else nothing.
//
// An offset from end up to the log end gives an empty slice. ErrOutOfRange is returned below the log start and
// above the log end, ErrStorage when the file cannot be read, ErrClosed after Close.
//
// The slice keeps its segment's file until it is released; it holds file ranges and no copy.
func (l *Log) Read(offset int64, bytesMax int32, end int64, minOne bool) (record.Slice, error) {
	r, err := l.beginRead(offset, end)
	if err != nil || r.segment == nil {
		return record.Slice{}, err
	}
	for {
		position, length, err := r.locate(int64(bytesMax), minOne)
		if err == nil && length > 0 {
			return record.Slice{
				Runs:      []record.Run{{File: r.segment.log, Offset: position, Length: length}},
				OnRelease: r.segment.unpin,
			}, nil
		}
		r.segment.unpin()
		switch {
		case err == nil:
			return record.Slice{}, nil
		case !errors.Is(err, io.EOF):
			return record.Slice{}, fmt.Errorf("%w: read offset %d: %w", ErrStorage, offset, err)
		}
		// Nothing at or above offset is left in this segment: compaction removed it.
		if r, err = l.nextRead(r); err != nil || r.segment == nil {
			return record.Slice{}, err
		}
	}
}

// reading is one read of one segment, which it keeps pinned.
type reading struct {
	segment     *segment
	offset, end int64
	limit       int64 // bytes of the segment that readers may see
	bounded     bool  // end may lie inside those bytes
	// from and bound are what is known without looking: where the batch with offset lies, and where that with end does.
	from, bound batchPlace
}

// batchPlace is where a batch lies; after is 0 when that is not known.
type batchPlace struct{ last, position, after int64 }

// beginRead checks the bounds and pins the segment that holds offset. There is none if nothing is to be read.
func (l *Log) beginRead(offset, end int64) (reading, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch start := l.start.Load(); {
	case l.mu.closed:
		return reading{}, ErrClosed
	case offset < start || offset > l.mu.end:
		return reading{}, fmt.Errorf("offset %d, log from %d to %d: %w", offset, start, l.mu.end, ErrOutOfRange)
	}
	if end = min(end, l.mu.end); offset >= end {
		return reading{}, nil
	}
	segments := *l.segments.Load()
	return l.readingLocked(segments, floorSegment(segments, offset), offset, end), nil
}

// nextRead goes on with the segment after r's, if the bound allows.
func (l *Log) nextRead(r reading) (reading, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return reading{}, ErrClosed
	}
	segments := *l.segments.Load()
	next := floorSegment(segments, r.segment.base) + 1
	if next >= len(segments) || segments[next].base >= r.end {
		return reading{}, nil
	}
	return l.readingLocked(segments, next, max(r.offset, segments[next].base), r.end), nil
}

func (l *Log) readingLocked(segments []*segment, i int, offset, end int64) reading {
	s := segments[i]
	s.pin()
	r := reading{segment: s, offset: offset, end: end, limit: s.size.Load()}
	if i < len(segments)-1 {
		r.bounded = end < segments[i+1].base
		return r
	}
	r.bounded = end < l.mu.end
	if mark, after, found := l.mu.recent.find(offset, r.limit); found {
		r.from = batchPlace{mark.last, mark.position, after}
	}
	if !r.bounded {
		return r
	}
	if mark, after, found := l.mu.recent.find(end, r.limit); found {
		r.bound = batchPlace{mark.last, mark.position, after}
	}
	return r
}

// locate finds the bytes to return; io.EOF if no batch of the segment has offset or a higher one.
func (r *reading) locate(bytesMax int64, minOne bool) (position, length int64, err error) {
	s := r.segment
	if r.from.after == 0 {
		span, err := s.find(r.offset, r.limit)
		if err != nil {
			return 0, 0, err
		}
		r.from = batchPlace{span.last, span.position, span.after}
	}
	if r.from.last >= r.end {
		return 0, 0, nil
	}
	upper := r.limit
	if r.bounded {
		switch {
		case r.bound.after != 0:
			upper = r.bound.position
		default:
			span, err := s.find(r.end, r.limit)
			if err != nil && !errors.Is(err, io.EOF) {
				return 0, 0, err
			}
			if err == nil {
				upper = span.position
			}
		}
	}
	position, length = r.from.position, upper-r.from.position
	if length <= bytesMax {
		return position, length, nil
	}
	if first := r.from.after - position; first > bytesMax {
		if !minOne {
			return position, 0, nil
		}
		return position, first, nil
	}
	cut, err := s.cut(r.from.after, position+bytesMax)
	return position, cut - position, err
}
