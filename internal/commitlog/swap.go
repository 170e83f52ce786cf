package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// errSegmentsChanged is returned by replaceSegments when the segments to replace are no longer a stretch of closed
// segments of the log: retention or a truncation came first. The replacement is to be thrown away.
var errSegmentsChanged = errors.New("segments changed meanwhile")

// closedSegments are the closed segments that lie wholly below end, in offset order, and the base of the segment that
// follows them.
func (l *Log) closedSegments(end int64) (closed []*segment, next int64) {
	segments := *l.segments.Load()
	n := 0
	for n < len(segments)-1 && segments[n+1].base <= end {
		n++
	}
	return segments[:n:n], segments[n].base
}

// replaceSegments puts one segment, which compaction wrote under cleanedSuffix from old, in their place. A crash at any
// step leaves the old segments or the new one:
//
//	cleaned files synced ── renamed to .swap, the batches last ── old files to .deleted ── .swap to their names
//
// Once the .swap of the batches is there, a start finishes the replacement (finishSwaps). Readers go over from the old
// segments to the new one at one moment.
func (l *Log) replaceSegments(old []*segment, cleaned *segment) error {
	if err := l.acquire(); err != nil {
		return err
	}
	defer l.release()
	segments := *l.segments.Load()
	at := slices.Index(segments, old[0])
	if at < 0 || at+len(old) >= len(segments) || !slices.Equal(segments[at:at+len(old)], old) {
		return errSegmentsChanged
	}
	if err := cleaned.flushIndexes(true); err != nil {
		return l.fail(err)
	}
	if err := cleaned.sync(true); err != nil {
		return l.fail(lost(err))
	}
	if err := cleaned.rename(swapSuffix); err != nil {
		return l.fail(err)
	}
	if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
		return l.fail(lost(err))
	}
	cleaned.publish(time.Time{})
	cleaned.sealed.Store(true)
	l.swapSegments(slices.Replace(slices.Clone(segments), at, at+len(old), cleaned))
	// The snapshots stay: the one at the base belongs to the new segment, and the others are still true.
	if err := l.doom(old); err != nil {
		return l.fail(err)
	}
	if err := cleaned.rename(""); err != nil {
		return l.fail(err)
	}
	if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
		return l.fail(lost(err))
	}
	return nil
}

// finishSwaps finishes the replacements that a crash interrupted: the old segments between a swapped one's base and its
// end are removed, and it gets its name. Files of a swap whose batches were not renamed are removed; so nothing happened.
func (l *Log) finishSwaps(f *found) error {
	for base, sizes := range f.swaps {
		swap := newSegment(l.options.FS, l.options.Dir, base, swapSuffix)
		if sizes.log < 0 {
			if err := swap.removeFiles(); err != nil {
				return err
			}
			continue
		}
		end, err := l.swapEnd(swap, sizes.log)
		if err != nil {
			return err
		}
		for other, known := range f.segments {
			// Where the old batches are gone, so is the rest of the old segment: what bears the base's name is the new one's.
			if known.log >= 0 && (other == base || other > base && other < end) {
				if err := newSegment(l.options.FS, l.options.Dir, other, "").removeFiles(); err != nil {
					return err
				}
				delete(f.segments, other)
			}
		}
		renamed, known := f.segments[base]
		if !known {
			renamed = segmentSizes{-1, -1, -1, -1}
		}
		renamed.log, renamed.offsets = sizes.log, max(renamed.offsets, sizes.offsets)
		renamed.times, renamed.txns = max(renamed.times, sizes.times), max(renamed.txns, sizes.txns)
		if err := swap.rename(""); err != nil {
			return err
		}
		f.segments[base] = renamed
		f.modified[base] = l.options.Now()
		l.unsyncedDir.Store(true)
	}
	return nil
}

// swapEnd is the end of the last batch of a swapped segment.
func (l *Log) swapEnd(swap *segment, size int64) (int64, error) {
	file, err := l.options.FS.Open(swap.name(logSuffix), 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	end := swap.base
	scan := newHeaderScan(file, 0, size)
	defer scan.close()
	for {
		b, err := scan.next()
		if err != nil {
			// The end of the file, or damage: the file was synced before it got its name, so recovery will say which.
			return end, nil //nolint:nilerr // see above
		}
		end = b.LastOffset() + 1
	}
}

// removeFiles removes a segment's files, which nobody has open.
func (s *segment) removeFiles() error {
	for _, part := range slices.Backward(segmentSuffixes[:]) {
		if err := s.fs.Remove(s.name(part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove segment %d: %w", s.base, err)
		}
	}
	return nil
}
