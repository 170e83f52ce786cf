package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

const (
	// offsetEntryBytes is the width of an offset index entry: relative offset int32, position int32.
	offsetEntryBytes = 8
	// timeEntryBytes is the width of a time index entry: timestamp int64, relative offset int32.
	timeEntryBytes = 12
	// fenceEvery is how many entries of the file stand between two that are kept in memory, so that a look-up reads at
	// most fenceEvery entries from the file.
	fenceEvery = 64
	// indexTailBytesMax bounds the entries of an active segment that wait in memory; past it they are written to the file.
	indexTailBytesMax = 64 << 10
	// indexReadBytes is how much of an index file is read at a time to build its fence.
	indexReadBytes = 64 << 10
)

// errIndexCorrupt is returned by an index's look-ups when its file is missing, has a torn size, or does not ascend. The
// segment then builds the index again from its batches.
var errIndexCorrupt = errors.New("index is corrupt")

// column is one field of an index entry: its place and its width in bytes. All integers are big-endian.
type column struct{ at, width int }

// The columns of the two indexes.
var (
	offsetColumn     = column{0, 4} // offset index: last offset of a batch, relative to the segment's base
	positionColumn   = column{4, 4} // offset index: where that batch starts in the file
	timestampColumn  = column{0, 8} // time index: the greatest timestamp so far, in ms
	timeOffsetColumn = column{8, 4} // time index: last offset of the first batch that holds it, relative
)

// of reads the column of one entry.
func (c column) of(entry []byte) int64 {
	if c.width == 8 {
		return int64(binary.BigEndian.Uint64(entry[c.at:]))
	}
	return int64(int32(binary.BigEndian.Uint32(entry[c.at:])))
}

// index is a sparse index file of fixed-width entries, all of whose columns ascend. Entries start in the tail, in memory,
// and move to the file at flush; of those in the file every 64th (the fence) is kept in memory once something was looked
// up, and the rest is read with one pread. An index at rest holds neither.
//
// One goroutine at a time (the holder of the log's write slot) changes an index; look-ups run beside it.
type index struct {
	file  vfs.File // nil until there is something to write
	width int
	mu    struct {
		sync.Mutex
		written  int    // entries in the file
		missing  bool   // the file should exist and does not
		stale    bool   // the file holds bytes that are to be cut before the next write
		replaced int    // counts replacements, so that a flush knows that what it wrote is void
		loaded   bool   // fence holds every 64th of them
		fence    []byte // append-only: readers keep older headers of the slice
		tail     []byte // entries that follow those in the file; append-only too
	}
}

// open sets the index up over a file of fileBytes bytes, without reading it; with a nil file it is missing, which the
// first look-up reports.
func (x *index) open(file vfs.File, width int, fileBytes int64) {
	x.file, x.width = file, width
	x.mu.written = int(fileBytes / int64(width))
	x.mu.missing = file == nil
}

// start sets up an empty index, whose file is created by the first flush.
func (x *index) start(width int) {
	x.width = width
	x.mu.loaded = true
}

// indexView is what a look-up works on, taken at one moment.
type indexView struct {
	file            vfs.File
	written         int
	missing, loaded bool
	stale           bool
	replaced        int
	fence, tail     []byte
}

func (x *index) view() indexView {
	x.mu.Lock()
	defer x.mu.Unlock()
	return indexView{x.file, x.mu.written, x.mu.missing, x.mu.loaded, x.mu.stale, x.mu.replaced, x.mu.fence, x.mu.tail}
}

// count is the number of entries.
func (x *index) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.written + len(x.mu.tail)/x.width
}

// append adds an entry, which must ascend, to the tail.
func (x *index) append(entry []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.tail = append(x.mu.tail, entry...)
}

// tailBytes is the size of the entries that are not in the file yet.
func (x *index) tailBytes() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.tail)
}

// flush writes the tail to the file, which it creates under name if there is none, and keeps its fence. After an error
// the entries are still in the tail.
func (x *index) flush(fsys vfs.FS, name string) error {
	v := x.view()
	if x.file == nil {
		file, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		if err != nil {
			return fmt.Errorf("create index: %w", err)
		}
		x.mu.Lock()
		x.file = file
		x.mu.Unlock()
	}
	if v.stale {
		if err := x.file.Truncate(0); err != nil {
			return fmt.Errorf("cut stale index: %w", err)
		}
		x.mu.Lock()
		x.mu.stale = x.mu.replaced != v.replaced
		x.mu.Unlock()
	}
	if len(v.tail) == 0 {
		return nil
	}
	if _, err := x.file.WriteAt(v.tail, int64(v.written)*int64(x.width)); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.replaced != v.replaced {
		return nil // a reader found the index wrong meanwhile: all is to be written again
	}
	if v.loaded {
		x.mu.fence = appendFence(x.mu.fence, v.tail, v.written, x.width)
	}
	x.mu.written += len(v.tail) / x.width
	x.mu.tail = nil
	return nil
}

// appendFence adds the entries of run, whose first is entry number first of the index, that belong in the fence.
func appendFence(fence, run []byte, first, width int) []byte {
	for i := (fenceEvery - first%fenceEvery) % fenceEvery; i*width < len(run); i += fenceEvery {
		fence = append(fence, run[i*width:(i+1)*width]...)
	}
	return fence
}

// load reads the file once, checks that it ascends, and keeps the fence. Loading twice at the same time is harmless.
func (x *index) load() (indexView, error) {
	v := x.view()
	if v.loaded {
		return v, nil
	}
	if v.missing {
		return v, fmt.Errorf("%w: the file is missing", errIndexCorrupt)
	}
	size, err := v.file.Size()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v, fmt.Errorf("%w: the file is gone", errIndexCorrupt)
	case err != nil:
		return v, fmt.Errorf("load index: %w", err)
	case size != int64(v.written)*int64(x.width):
		return v, fmt.Errorf("%w: %d bytes, want %d entries of %d", errIndexCorrupt, size, v.written, x.width)
	}
	fence := make([]byte, 0, (v.written/fenceEvery+1)*x.width)
	buf := make([]byte, min(size, int64(indexReadBytes/x.width*x.width)))
	last := make([]byte, x.width)
	for first := 0; first < v.written; {
		run := buf[:min(len(buf), (v.written-first)*x.width)]
		if _, err := v.file.ReadAt(run, int64(first)*int64(x.width)); err != nil && !errors.Is(err, io.EOF) {
			return v, fmt.Errorf("load index: %w", err)
		}
		for at := 0; at < len(run); at += x.width {
			entry := run[at : at+x.width]
			if (first > 0 || at > 0) && !x.ascends(last, entry) || x.negative(entry) {
				return v, fmt.Errorf("%w: entry %d does not ascend", errIndexCorrupt, first+at/x.width)
			}
			last = append(last[:0], entry...)
		}
		fence = appendFence(fence, run, first, x.width)
		first += len(run) / x.width
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.mu.loaded && x.mu.written == v.written {
		x.mu.fence, x.mu.loaded = fence, true
	}
	v.fence, v.loaded = fence, true
	return v, nil
}

// ascends tells whether next may follow last.
func (x *index) ascends(last, next []byte) bool {
	if x.width == offsetEntryBytes {
		return offsetColumn.of(next) > offsetColumn.of(last) && positionColumn.of(next) > positionColumn.of(last)
	}
	return timestampColumn.of(next) > timestampColumn.of(last) && timeOffsetColumn.of(next) > timeOffsetColumn.of(last)
}

// negative tells whether a column that is relative to the segment's start lies before it.
func (x *index) negative(entry []byte) bool {
	if x.width == offsetEntryBytes {
		return offsetColumn.of(entry) < 0 || positionColumn.of(entry) < 0
	}
	return timeOffsetColumn.of(entry) < 0
}

// entry is a copy of one index entry; only the first width bytes count.
type entry [timeEntryBytes]byte

// floor finds the last entry whose column by is not above target; found is false when there is none.
func (x *index) floor(by column, target int64) (e entry, found bool, err error) {
	v, err := x.load()
	if err != nil {
		return e, false, err
	}
	if len(v.tail) > 0 && by.of(v.tail) <= target {
		i := countNotAbove(v.tail, x.width, by, target) - 1
		copy(e[:], v.tail[i*x.width:(i+1)*x.width])
		return e, true, nil
	}
	block := countNotAbove(v.fence, x.width, by, target) - 1
	if block < 0 {
		return e, false, nil
	}
	buf := fenceBlocks.Get().(*[fenceEvery * timeEntryBytes]byte)
	defer fenceBlocks.Put(buf)
	run := buf[:min(fenceEvery, v.written-block*fenceEvery)*x.width]
	if _, err := v.file.ReadAt(run, int64(block)*fenceEvery*int64(x.width)); err != nil && !errors.Is(err, io.EOF) {
		return e, false, fmt.Errorf("read index: %w", err)
	}
	i := countNotAbove(run, x.width, by, target) - 1
	if i < 0 {
		return e, false, fmt.Errorf("%w: its file changed", errIndexCorrupt)
	}
	copy(e[:], run[i*x.width:(i+1)*x.width])
	return e, true, nil
}

var fenceBlocks = sync.Pool{New: func() any { return new([fenceEvery * timeEntryBytes]byte) }}

// countNotAbove is the number of entries of run, which ascends, whose column is not above target.
func countNotAbove(run []byte, width int, by column, target int64) int {
	return sort.Search(len(run)/width, func(i int) bool { return by.of(run[i*width:]) > target })
}

// last is the last entry; found is false when the index is empty. It reads at most one entry from the file.
func (x *index) last() (e entry, found bool, err error) {
	v := x.view()
	switch {
	case len(v.tail) > 0:
		copy(e[:], v.tail[len(v.tail)-x.width:])
	case v.missing:
		return e, false, fmt.Errorf("%w: the file is missing", errIndexCorrupt)
	case v.written == 0:
		return e, false, nil
	default:
		buf := fenceBlocks.Get().(*[fenceEvery * timeEntryBytes]byte)
		defer fenceBlocks.Put(buf)
		if _, err := v.file.ReadAt(buf[:x.width], int64(v.written-1)*int64(x.width)); err != nil && !errors.Is(err, io.EOF) {
			return e, false, fmt.Errorf("read index: %w", err)
		}
		copy(e[:], buf[:x.width])
	}
	if x.negative(e[:]) {
		return e, false, fmt.Errorf("%w: negative last entry", errIndexCorrupt)
	}
	return e, true, nil
}

// truncate removes the entries whose column by is target or above.
func (x *index) truncate(by column, target int64) error {
	v, err := x.load()
	if err != nil {
		return err
	}
	if kept := countNotAbove(v.tail, x.width, by, target-1); kept > 0 || v.written == 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.mu.tail = v.tail[: kept*x.width : kept*x.width]
		return nil
	}
	kept := 0
	if block := countNotAbove(v.fence, x.width, by, target-1) - 1; block >= 0 {
		run := make([]byte, min(fenceEvery, v.written-block*fenceEvery)*x.width)
		if _, err := v.file.ReadAt(run, int64(block)*fenceEvery*int64(x.width)); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("truncate index: %w", err)
		}
		kept = block*fenceEvery + countNotAbove(run, x.width, by, target-1)
	}
	if kept < v.written {
		if err := x.file.Truncate(int64(kept) * int64(x.width)); err != nil {
			return fmt.Errorf("truncate index: %w", err)
		}
	}
	fenced := (kept + fenceEvery - 1) / fenceEvery * x.width
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.written, x.mu.fence, x.mu.tail = kept, v.fence[:fenced:fenced], nil
	return nil
}

// distrust says that the file misled a look-up which saw v: the index is to be built again.
func (x *index) distrust(v indexView) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.replaced == v.replaced {
		x.mu.missing, x.mu.loaded = true, false
	}
}

// replace puts entries, built from the segment's batches, in the place of an index that could not be loaded; one that was
// loaded or replaced meanwhile stays. Entries that the writer has added since stay too. All are in memory until the next
// flush cuts what the file held and writes them.
func (x *index) replace(entries []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.loaded {
		return
	}
	later := x.mu.tail
	for len(entries) > 0 && len(later) > 0 && !x.ascends(entries[len(entries)-x.width:], later) {
		later = later[x.width:]
	}
	x.mu.stale = x.file != nil
	x.mu.replaced++
	x.mu.written, x.mu.missing, x.mu.loaded, x.mu.fence, x.mu.tail = 0, false, true, nil, append(entries, later...)
}

// reset is replace by the holder of the write slot, of an index that may be whole.
func (x *index) reset(entries []byte) {
	x.mu.Lock()
	x.mu.loaded, x.mu.tail = false, nil
	x.mu.Unlock()
	x.replace(entries)
}
