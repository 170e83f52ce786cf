package record_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// memoryFile is a RangeFile without a descriptor.
type memoryFile struct{ *bytes.Reader }

func (memoryFile) Descriptor() (int, func(), error) { return 0, nil, errors.ErrUnsupported }

func TestSlice(t *testing.T) {
	file := memoryFile{bytes.NewReader([]byte("0123456789"))}
	released := 0
	s := record.Slice{
		Runs:      []record.Run{{Data: []byte("ab")}, {File: file, Offset: 3, Length: 4}, {}, {Data: []byte("c")}},
		OnRelease: func() { released++ },
	}
	dst := make([]byte, s.Bytes())
	if err := s.CopyTo(dst); err != nil || string(dst) != "ab3456c" {
		t.Errorf("got %q, %v", dst, err)
	}
	if err := s.CopyTo(dst[:3]); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("into a short buffer: %v", err)
	}
	past := record.Slice{Runs: []record.Run{{File: file, Offset: 8, Length: 4}}}
	if err := past.CopyTo(make([]byte, 4)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("past the end of the file: %v", err)
	}
	s.Release()
	s.Release()
	if released != 1 || s.Bytes() != 0 {
		t.Errorf("released %d times, %d bytes left", released, s.Bytes())
	}
}
