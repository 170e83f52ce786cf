package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tidemark-io/tidemark/internal/record"
)

const (
	headerScanBytes = 4 << 10   // window of a headerScan: one page, about as much as lies between two index entries
	batchScanBytes  = 512 << 10 // read at a time by a batchScan
	batchKeepBytes  = 64 << 10  // room before that for the part of a batch that the last read has left
	pageBytes       = 4 << 10   // to which reads of a batchScan are aligned, in the file and in memory: a tenth faster
)

// readerAt is the part of a file that a scan needs.
type readerAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// located is a batch, or its header alone, and where it lies in its segment's file.
type located struct {
	record.Batch       // valid until the scan moves on
	position     int64 // of the batch's first byte
}

// after is the position that follows the batch.
func (l located) after() int64 { return l.position + int64(l.Size()) }

// headerScan walks the headers of the batches in file[position, limit), leaping over their records.
type headerScan struct {
	file            readerAt
	position, limit int64
	window          *[headerScanBytes]byte
	at, have        int64 // file[at, at+have) is in the window
}

var headerWindows = sync.Pool{New: func() any { return new([headerScanBytes]byte) }}

func newHeaderScan(file readerAt, position, limit int64) headerScan {
	return headerScan{file: file, position: position, limit: limit, window: headerWindows.Get().(*[headerScanBytes]byte)}
}

func (s *headerScan) close() { headerWindows.Put(s.window) }

// next returns the next header (record.HeaderBytes long) and moves past its batch. It returns io.EOF at the limit, and
// record.ErrCorrupt or record.ErrMagic, wrapped with the position, for bytes that are no batch within the limit.
func (s *headerScan) next() (located, error) {
	if s.position >= s.limit {
		return located{}, io.EOF
	}
	if s.position+record.HeaderBytes > s.limit {
		return located{}, fmt.Errorf("batch at position %d: %d bytes are left: %w", s.position, s.limit-s.position, record.ErrCorrupt)
	}
	if s.position < s.at || s.position+record.HeaderBytes > s.at+s.have {
		want := min(headerScanBytes, s.limit-s.position)
		n, err := s.file.ReadAt(s.window[:want], s.position)
		if n < record.HeaderBytes {
			return located{}, fmt.Errorf("read batch header at position %d: %w", s.position, noEOF(err))
		}
		s.at, s.have = s.position, int64(n)
	}
	from := s.position - s.at
	header, err := checkHeader(s.window[from:from+record.HeaderBytes], s.limit-s.position)
	if err != nil {
		return located{}, fmt.Errorf("batch at position %d: %w", s.position, err)
	}
	l := located{header, s.position}
	s.position = l.after()
	return l, nil
}

// checkHeader takes the first record.HeaderBytes bytes of a batch in a segment where room bytes are left.
func checkHeader(header record.Batch, room int64) (record.Batch, error) {
	if _, _, err := record.Next(header); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	switch {
	case int64(header.Size()) > room:
		return nil, fmt.Errorf("%d bytes long, %d are left: %w", header.Size(), room, record.ErrCorrupt)
	case header.LastOffsetDelta() < 0 || header.BaseOffset() < 0:
		return nil, fmt.Errorf("base offset %d, last offset delta %d: %w", header.BaseOffset(), header.LastOffsetDelta(), record.ErrCorrupt)
	}
	return header, nil
}

// noEOF turns the end of a file, where there should have been more, into an unexpected one.
func noEOF(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// batchScan walks whole batches of file[position, limit) through a window that grows to the largest batch, never beyond
// what is left of the file.
type batchScan struct {
	file            readerAt
	position, limit int64
	window          []byte
	start, have     int   // window[start:start+have] is what was read
	at              int64 // where in the file that starts
	pooled          *batchWindow
}

// batchWindow is the first window of a scan. A read goes behind batchKeepBytes; what is kept is put right before it.
type batchWindow [batchKeepBytes + batchScanBytes]byte

var batchWindows = sync.Pool{New: func() any { return new(batchWindow) }}

func newBatchScan(file readerAt, position, limit int64) *batchScan {
	pooled := batchWindows.Get().(*batchWindow)
	return &batchScan{file: file, position: position, limit: limit, window: pooled[:], pooled: pooled}
}

func (s *batchScan) close() { batchWindows.Put(s.pooled) }

// next returns the next batch, whose checksum the caller checks, and moves past it. Errors are headerScan's.
func (s *batchScan) next() (located, error) {
	if s.position >= s.limit {
		return located{}, io.EOF
	}
	if err := s.fill(min(record.HeaderBytes, s.limit-s.position)); err != nil {
		return located{}, err
	}
	if s.position+record.HeaderBytes > s.limit {
		return located{}, fmt.Errorf("batch at position %d: %d bytes are left: %w", s.position, s.limit-s.position, record.ErrCorrupt)
	}
	from := s.start + int(s.position-s.at)
	header, err := checkHeader(s.window[from:from+record.HeaderBytes], s.limit-s.position)
	if err != nil {
		return located{}, fmt.Errorf("batch at position %d: %w", s.position, err)
	}
	size := header.Size()
	if err := s.fill(int64(size)); err != nil {
		return located{}, err
	}
	from = s.start + int(s.position-s.at)
	l := located{record.Batch(s.window[from : from+size : from+size]), s.position}
	s.position += int64(size)
	return l, nil
}

// fill makes the window hold at least want bytes from position on; want is within the limit.
func (s *batchScan) fill(want int64) error {
	from := s.position - s.at
	if from >= 0 && from+want <= int64(s.have) {
		return nil
	}
	var kept []byte
	if from >= 0 && from < int64(s.have) {
		kept = s.window[s.start+int(from) : s.start+s.have]
	}
	read := s.position + int64(len(kept)) // where the next read starts
	room, window := batchKeepBytes, s.window
	if len(kept) > room || int(want)-len(kept) > len(window)-room {
		room = pagesUp(len(kept))
		window = make([]byte, room+max(batchScanBytes, pagesUp(int(want)-len(kept))))
	}
	copy(window[room-len(kept):], kept)
	// A read that starts inside a page ends at the end of one, so that the next one is aligned.
	end := min(int64(room)+s.limit-read, int64(len(window)))
	if short := read % pageBytes; short > 0 && end-int64(room)-short >= want-int64(len(kept)) {
		end = min(end, int64(len(window))-short)
	}
	s.window, s.start, s.at, s.have = window, room-len(kept), s.position, len(kept)
	n, err := s.file.ReadAt(window[room:end], read)
	s.have += n
	if int64(s.have) < want {
		return fmt.Errorf("read batches at position %d: %w", s.position, noEOF(err))
	}
	return nil
}

// pagesUp rounds up to whole pages.
func pagesUp(n int) int { return (n + pageBytes - 1) / pageBytes * pageBytes }

// appendOffsetEntry adds an offset index entry: the batch at position ends with last.
func appendOffsetEntry(entries []byte, relativeLast, position int64) []byte {
	entries = binary.BigEndian.AppendUint32(entries, uint32(relativeLast))
	return binary.BigEndian.AppendUint32(entries, uint32(position))
}

// appendTimeEntry adds a time index entry: timestamp is the greatest so far, first seen in the batch that ends with last.
func appendTimeEntry(entries []byte, timestamp, relativeLast int64) []byte {
	entries = binary.BigEndian.AppendUint64(entries, uint64(timestamp))
	return binary.BigEndian.AppendUint32(entries, uint32(relativeLast))
}
