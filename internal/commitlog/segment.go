package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Suffixes of the files of a segment, Kafka's own.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	snapshotSuffix  = ".snapshot"

	deletedSuffix = ".deleted" // removed from the log, waits for readers and file.delete.delay.ms
	cleanedSuffix = ".cleaned" // being written by compaction
	swapSuffix    = ".swap"    // written by compaction, about to replace segments
)

// segmentSuffixes are the files that belong to a segment; a producer snapshot belongs to the offset it is named for. The
// file of batches is last: see rename.
var segmentSuffixes = [...]string{indexSuffix, timeIndexSuffix, txnIndexSuffix, logSuffix}

// segment is a stretch of the log: one file of batches and its indexes, all named for the base offset, below which it
// holds nothing. The last segment of a log is active and grows; the others are closed and change only by leaving the log.
//
//	active ── roll ──▶ closed ── retention, truncation, compaction ──▶ doomed ── no readers, delay over ──▶ gone
//
// Methods that change a segment are called by the holder of the log's write slot; look-ups run beside them and see only
// what publish has made visible.
type segment struct {
	base    int64
	dir     string
	spacing atomic.Int64 // bytes of batches between two index entries
	fs      vfs.FS
	log     vfs.File // nil in a log that is not born
	offsets index
	times   index

	size   atomic.Int64 // bytes that readers may see
	pins   atomic.Int32 // slices handed out and not released
	unpin  func()       // gives one of them back
	sealed atomic.Bool  // synced together with its indexes: closed for good

	writer struct { // of the holder of the write slot
		bytes            int64     // in the file, published or not
		sinceIndexed     int64     // bytes since the last index entry
		indexed          int64     // the last timestamp in the time index; unknownTimestamp until read
		firstTimestamp   int64     // of the first batch, for rolls by time; unknownTimestamp until read
		created          time.Time // by this process's clock
		largest          timePoint // not published yet
		transactionBytes int64     // of the transaction index
	}
	mu struct {
		sync.Mutex
		suffix   string    // ends the names of all files: "", or one of the suffixes above
		largest  timePoint // the greatest timestamp of the published batches
		known    bool      // largest is valid
		modified time.Time // of the last append, as far as this process knows; zero when it does not
		txns     []AbortedTxn
		txnsRead bool // txns holds the transaction index
	}
}

// timePoint is a timestamp and the last offset of the first batch that has it.
type timePoint struct{ timestamp, last int64 }

// unknownTimestamp says that a first timestamp has not been read; record.NoTimestamp that the batch has none.
const unknownTimestamp = math.MinInt64

// segmentName is the name of a segment's file: the base offset in twenty digits, and the suffix.
func segmentName(base int64, suffix string) string {
	digits := strconv.FormatInt(base, 10)
	return "00000000000000000000"[len(digits):] + digits + suffix
}

// parseSegmentName is the inverse of segmentName.
func parseSegmentName(name string) (base int64, suffix string, ok bool) {
	dot := strings.IndexByte(name, '.')
	if dot != 20 {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:dot], 10, 64)
	return base, name[dot:], err == nil && base >= 0
}

func newSegment(fsys vfs.FS, dir string, base int64, suffix string) *segment {
	s := &segment{base: base, dir: dir, fs: fsys}
	s.spacing.Store(4096)
	s.mu.suffix = suffix
	s.unpin = func() { s.pins.Add(-1) }
	s.writer.firstTimestamp, s.writer.indexed = unknownTimestamp, unknownTimestamp
	s.writer.largest = timePoint{record.NoTimestamp, base}
	return s
}

// createSegment makes the file of an empty segment; index files appear when there is something to write. The caller
// syncs the directory before anything in it may count as durable.
func createSegment(fsys vfs.FS, dir string, base int64, suffix string, now time.Time) (*segment, error) {
	s := newSegment(fsys, dir, base, suffix)
	file, err := fsys.Open(s.name(logSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("create segment %d: %w", base, err)
	}
	s.log = file
	s.startEmpty(now)
	return s, nil
}

// startEmpty says that the segment has no batches.
func (s *segment) startEmpty(now time.Time) {
	s.offsets.start(offsetEntryBytes)
	s.times.start(timeEntryBytes)
	s.writer.created = now
	s.writer.firstTimestamp = record.NoTimestamp
	s.mu.largest, s.mu.known, s.mu.txnsRead = s.writer.largest, true, true
}

// segmentSizes are the bytes that a directory listing shows for a segment's files; −1 for a file that is not there.
type segmentSizes struct{ log, offsets, times, txns int64 }

// openSegment takes up a segment that exists. Nothing is read before it is needed.
func openSegment(fsys vfs.FS, dir string, base int64, sizes segmentSizes, modified time.Time) (*segment, error) {
	s := newSegment(fsys, dir, base, "")
	var err error
	if s.log, err = fsys.Open(s.name(logSuffix), os.O_RDWR); err != nil {
		return nil, fmt.Errorf("open segment %d: %w", base, err)
	}
	if err := s.openIndex(&s.offsets, indexSuffix, offsetEntryBytes, sizes.offsets, sizes.log == 0); err != nil {
		return nil, err
	}
	if err := s.openIndex(&s.times, timeIndexSuffix, timeEntryBytes, sizes.times, sizes.log == 0); err != nil {
		return nil, err
	}
	s.size.Store(sizes.log)
	s.writer.bytes = sizes.log
	s.writer.created = modified
	s.writer.transactionBytes = max(sizes.txns, 0)
	s.mu.modified = modified
	s.mu.txnsRead = sizes.txns <= 0
	if sizes.log == 0 {
		s.writer.transactionBytes, s.mu.txnsRead = 0, true
		s.writer.firstTimestamp = record.NoTimestamp
		s.mu.largest, s.mu.known = s.writer.largest, true
	}
	return s, nil
}

func (s *segment) openIndex(x *index, suffix string, width int, fileBytes int64, empty bool) error {
	switch {
	case empty: // a file that is there belongs to batches that a power cut has taken; the first flush empties it
		x.start(width)
		return nil
	case fileBytes < 0 || fileBytes%int64(width) != 0:
		x.open(nil, width, 0)
		return nil
	}
	file, err := s.fs.Open(s.name(suffix), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("open segment %d: %w", s.base, err)
	}
	x.open(file, width, fileBytes)
	return nil
}

// name is the path of one of the segment's files.
func (s *segment) name(suffix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Join(s.dir, segmentName(s.base, suffix)+s.mu.suffix)
}

// pin keeps the segment's files until unpin. The caller holds a lock or the slot under which the segment was in the log.
func (s *segment) pin() { s.pins.Add(1) }

// files are the open files of the segment, that of the batches first.
func (s *segment) files() []vfs.File {
	if s.log == nil {
		return nil
	}
	files := []vfs.File{s.log}
	for _, x := range []*index{&s.offsets, &s.times} {
		if file := x.view().file; file != nil {
			files = append(files, file)
		}
	}
	return files
}

// relative is an offset as the indexes hold it; ok is false when it does not fit.
func (s *segment) relative(offset int64) (relative int64, ok bool) {
	relative = offset - s.base
	return relative, relative >= 0 && relative <= math.MaxInt32
}

// write puts bufs at the end of the file with one system call. Nothing is visible until publish. After an error the file
// may be longer than the segment: unwrite.
func (s *segment) write(bufs [][]byte, bytes int64) error {
	if _, err := s.log.WriteV(bufs, s.writer.bytes); err != nil {
		return fmt.Errorf("write segment %d: %w", s.base, err)
	}
	s.writer.bytes += bytes
	return nil
}

// unwrite cuts the file back to what the segment knows to be in it, durably: else a power cut might put a refused batch in
// the place of a later one with its offset and epoch.
func (s *segment) unwrite() error {
	err := s.log.Truncate(s.writer.bytes)
	if err == nil {
		err = s.log.Sync()
	}
	if err != nil {
		return lost(fmt.Errorf("cut segment %d back to %d bytes: %w", s.base, s.writer.bytes, err))
	}
	return nil
}

// admit accounts for a batch that was written at position: timestamps, and an index entry if more than spacing bytes
// have gone by since the last one. The entry carries the batch's last offset, as Kafka's does.
func (s *segment) admit(batch record.Batch, position int64) {
	w := &s.writer
	timestamp, last := batch.MaxTimestamp(), batch.LastOffset()
	if position == 0 {
		w.firstTimestamp = timestamp
	}
	if batch.Count() > 0 && timestamp > w.largest.timestamp { // a batch that compaction emptied has no record to find
		w.largest = timePoint{timestamp, last}
	}
	if w.sinceIndexed > s.spacing.Load() {
		var e [offsetEntryBytes]byte
		s.offsets.append(appendOffsetEntry(e[:0], last-s.base, position))
		s.indexTime()
		w.sinceIndexed = 0
	}
	w.sinceIndexed += int64(batch.Size())
}

// indexTime adds the greatest timestamp so far to the time index, if it is greater than the last entry.
func (s *segment) indexTime() {
	w := &s.writer
	if w.indexed == unknownTimestamp {
		last, found, err := s.times.last()
		if err != nil {
			return // a look-up will find the index broken and build it again
		}
		w.indexed = record.NoTimestamp
		if found {
			w.indexed = timestampColumn.of(last[:])
		}
	}
	if w.largest.timestamp > w.indexed {
		var e [timeEntryBytes]byte
		s.times.append(appendTimeEntry(e[:0], w.largest.timestamp, w.largest.last-s.base))
		w.indexed = w.largest.timestamp
	}
}

// publish makes everything written visible to readers. now is the time of the append; zero if it is of older records.
func (s *segment) publish(now time.Time) {
	s.mu.Lock()
	s.mu.largest, s.mu.known = s.writer.largest, true
	if !now.IsZero() {
		s.mu.modified = now
	}
	s.mu.Unlock()
	s.size.Store(s.writer.bytes)
}

// resume reads what a writer must know of a segment that was opened and not yet written to.
func (s *segment) resume() error {
	w := &s.writer
	if w.firstTimestamp != unknownTimestamp {
		return nil
	}
	// From here on no reader finds an index that it must rebuild.
	for _, x := range []*index{&s.offsets, &s.times} {
		if _, err := x.load(); errors.Is(err, errIndexCorrupt) {
			err = s.rebuildIndexes()
			if err != nil {
				return err
			}
		} else if err != nil {
			return fmt.Errorf("resume segment %d: %w", s.base, err)
		}
	}
	largest, err := s.largest()
	if err != nil {
		return err
	}
	scan := newHeaderScan(s.log, 0, w.bytes)
	defer scan.close()
	first, err := scan.next()
	if err != nil {
		return fmt.Errorf("resume segment %d: %w", s.base, err)
	}
	w.largest = largest
	w.firstTimestamp = first.MaxTimestamp()
	return nil
}

// flushIndexes writes the index entries that are in memory. At a roll and at close, final also notes the greatest
// timestamp, and makes files that were never needed.
func (s *segment) flushIndexes(final bool) error {
	if final {
		if s.writer.firstTimestamp != unknownTimestamp {
			s.indexTime()
		}
		if s.writer.bytes == 0 {
			return nil
		}
	}
	if final || s.offsets.tailBytes() > indexTailBytesMax {
		if err := s.offsets.flush(s.fs, s.name(indexSuffix)); err != nil {
			return fmt.Errorf("segment %d: %w", s.base, err)
		}
	}
	if final || s.times.tailBytes() > indexTailBytesMax {
		if err := s.times.flush(s.fs, s.name(timeIndexSuffix)); err != nil {
			return fmt.Errorf("segment %d: %w", s.base, err)
		}
	}
	return nil
}

// largest is the greatest timestamp of the segment, record.NoTimestamp if it has none.
func (s *segment) largest() (timePoint, error) {
	s.mu.Lock()
	largest, known := s.mu.largest, s.mu.known
	s.mu.Unlock()
	if known {
		return largest, nil
	}
	last, found, err := s.times.last()
	switch {
	case errors.Is(err, errIndexCorrupt):
		if err := s.rebuildIndexes(); err != nil {
			return timePoint{}, err
		}
		return s.largest()
	case err != nil:
		return timePoint{}, fmt.Errorf("segment %d: %w", s.base, err)
	}
	largest = timePoint{record.NoTimestamp, s.base}
	if found {
		largest = timePoint{timestampColumn.of(last[:]), s.base + timeOffsetColumn.of(last[:])}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.known {
		s.mu.largest, s.mu.known = largest, true
	}
	return s.mu.largest, nil
}

// age is the time by which retention judges the segment: the greatest timestamp, but not later than the last append, so
// that a timestamp from the future does not keep it for ever (U-93).
func (s *segment) age() (time.Time, error) {
	largest, err := s.largest()
	s.mu.Lock()
	modified := s.mu.modified
	s.mu.Unlock()
	switch {
	case err != nil:
		return time.Time{}, err
	case largest.timestamp < 0:
		return modified, nil
	}
	at := time.UnixMilli(largest.timestamp)
	if !modified.IsZero() && modified.Before(at) {
		return modified, nil
	}
	return at, nil
}

// rename moves all files of the segment from one suffix to another: the batches last, but first when the segment leaves the
// log, so that they are never in it without their transaction index. A file that is not there is no error: the segment never
// had it, or an earlier try moved it.
func (s *segment) rename(suffix string) error {
	s.mu.Lock()
	from := s.mu.suffix
	s.mu.Unlock()
	parts := segmentSuffixes
	if suffix == deletedSuffix {
		slices.Reverse(parts[:])
	}
	for _, part := range parts {
		name := filepath.Join(s.dir, segmentName(s.base, part))
		if err := s.fs.Rename(name+from, name+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rename segment %d: %w", s.base, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.suffix = suffix
	return nil
}

// remove closes the segment and removes its files. Nobody may have it pinned.
func (s *segment) remove() error {
	s.close()
	var first error
	for _, part := range segmentSuffixes {
		if err := s.fs.Remove(s.name(part)); err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = fmt.Errorf("remove segment %d: %w", s.base, err)
		}
	}
	return first
}

// close gives up the segment's files.
func (s *segment) close() {
	for _, file := range s.files() {
		_ = file.Close() // nothing is buffered; data was synced before or is not promised
	}
}

// sync makes the segment's data durable; with indexes also those, for a closed segment.
func (s *segment) sync(indexes bool) error {
	if err := s.log.Sync(); err != nil {
		return fmt.Errorf("sync segment %d: %w", s.base, err)
	}
	if !indexes {
		return nil
	}
	for _, file := range s.files()[1:] {
		if err := file.Sync(); err != nil {
			return fmt.Errorf("sync indexes of segment %d: %w", s.base, err)
		}
	}
	return s.syncTxns()
}
