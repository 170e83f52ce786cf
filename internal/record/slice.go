package record

import (
	"errors"
	"fmt"
	"io"
)

// RangeFile is an open file from which a Run may be read or sent. vfs.File satisfies it.
type RangeFile interface {
	// ReadAt reads len(p) bytes at off, as io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)
	// Descriptor pins the file's descriptor, for sendfile, until release is called. A file that has none returns an error,
	// and its bytes are then read with ReadAt.
	Descriptor() (fd int, release func(), err error)
}

// Run is a stretch of consecutive bytes: either Data, or Length bytes of File at Offset.
type Run struct {
	Data   []byte
	File   RangeFile
	Offset int64 // position in File, in bytes
	Length int64 // bytes of File
}

// Bytes is the length of the run.
func (r Run) Bytes() int64 {
	if r.File == nil {
		return int64(len(r.Data))
	}
	return r.Length
}

// Slice is what a log hands to the wire: whole batches as runs of bytes in memory or in files, to be sent in order
// without a copy. The bytes do not change and the files stay readable until Release.
type Slice struct {
	Runs []Run
	// OnRelease, if not nil, is called by the first Release; the log uses it to unpin segments.
	OnRelease func()
}

// Bytes is the total length of the runs.
func (s Slice) Bytes() int64 {
	var total int64
	for _, run := range s.Runs {
		total += run.Bytes()
	}
	return total
}

// CopyTo reads all runs into dst, whose length must be Bytes(). The error of a file that cannot be read is wrapped; a file
// that ends early gives io.ErrUnexpectedEOF.
func (s Slice) CopyTo(dst []byte) error {
	if int64(len(dst)) != s.Bytes() {
		return fmt.Errorf("copy %d bytes into %d: %w", s.Bytes(), len(dst), io.ErrShortBuffer)
	}
	for _, run := range s.Runs {
		if run.File == nil {
			dst = dst[copy(dst, run.Data):]
			continue
		}
		n, err := run.File.ReadAt(dst[:run.Length], run.Offset)
		if int64(n) < run.Length {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read %d bytes at %d: %w", run.Length, run.Offset, err)
		}
		dst = dst[run.Length:]
	}
	return nil
}

// Release gives the runs back: they must not be used afterwards. It may be called again without effect, but a Slice that
// was copied by value must be released through one of the copies only.
func (s *Slice) Release() {
	release := s.OnRelease
	s.Runs, s.OnRelease = nil, nil
	if release != nil {
		release()
	}
}
