package commitlog

import (
	"errors"
	"fmt"
	"io"
)

// batchSpan is what a look-up tells of a batch.
type batchSpan struct {
	base, last      int64 // offsets
	position, after int64 // of its first byte, and of the byte that follows it
	maxTimestamp    int64
	epoch           int32
}

func (l located) span() batchSpan {
	return batchSpan{
		base: l.BaseOffset(), last: l.LastOffset(), position: l.position, after: l.after(),
		maxTimestamp: l.MaxTimestamp(), epoch: l.PartitionLeaderEpoch(),
	}
}

// seek starts a scan at the last indexed batch whose column by is not above target, or at the start of the segment. An
// index entry is believed only if the batch it points to is the one it names; else the index is built again.
func (s *segment) seek(by column, target, limit int64) (headerScan, error) {
	scan, err := s.seekOnce(by, target, limit)
	if errors.Is(err, errIndexCorrupt) {
		if err := s.rebuildIndexes(); err != nil {
			return headerScan{}, err
		}
		return s.seekOnce(by, target, limit)
	}
	return scan, err
}

func (s *segment) seekOnce(by column, target, limit int64) (headerScan, error) {
	seen := s.offsets.view()
	e, found, err := s.offsets.floor(by, target)
	if err != nil {
		return headerScan{}, err
	}
	if !found {
		return newHeaderScan(s.log, 0, limit), nil
	}
	position, last := positionColumn.of(e[:]), s.base+offsetColumn.of(e[:])
	scan := newHeaderScan(s.log, position, limit)
	if position >= limit {
		return scan, nil
	}
	b, err := scan.next()
	if damaged(err) || err == nil && b.LastOffset() != last {
		scan.close()
		s.offsets.distrust(seen)
		return headerScan{}, fmt.Errorf("%w: position %d is not the batch that ends with offset %d", errIndexCorrupt, position, last)
	}
	if err != nil {
		scan.close()
		return headerScan{}, err
	}
	scan.position = position
	return scan, nil
}

// find returns the first batch below limit (a position) whose last offset is offset or above, io.EOF if there is none.
func (s *segment) find(offset, limit int64) (batchSpan, error) {
	scan, err := s.seek(offsetColumn, max(offset-s.base, 0), limit)
	if err != nil {
		return batchSpan{}, err
	}
	defer scan.close()
	for {
		l, err := scan.next()
		if err != nil {
			return batchSpan{}, err
		}
		if l.LastOffset() >= offset {
			return l.span(), nil
		}
	}
}

// cut is the greatest batch boundary that is not above limit; from is one below it.
func (s *segment) cut(from, limit int64) (int64, error) {
	scan, err := s.seek(positionColumn, limit, s.size.Load())
	if err != nil {
		return 0, err
	}
	defer scan.close()
	scan.position = max(scan.position, from)
	for {
		from = scan.position
		l, err := scan.next()
		switch {
		case errors.Is(err, io.EOF) || err == nil && l.after() > limit:
			return from, nil
		case err != nil:
			return 0, err
		}
	}
}

// endBefore is the end of the last batch before position, a batch boundary; the base at the beginning of the segment.
func (s *segment) endBefore(position int64) (int64, error) {
	scan, err := s.seek(positionColumn, position-1, position)
	if err != nil {
		return 0, err
	}
	defer scan.close()
	end := s.base
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, fmt.Errorf("segment %d: %w", s.base, err)
		}
		end = b.LastOffset() + 1
	}
}
