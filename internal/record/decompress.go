package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits bound what decompressing one batch may produce. A batch may decompress to DecompressedBytesMax, and to no more
// than RatioMax times its compressed size once it exceeds RatioFreeBytes.
type Limits struct {
	// DecompressedBytesMax is the absolute cap in bytes. Validation streams, so it bounds time more than memory.
	DecompressedBytesMax int64
	// RatioMax is the greatest expansion. Below gzip's 1,032 honest batches of constant bytes would be refused.
	RatioMax int
	// RatioFreeBytes is the size up to which any ratio is allowed: small batches of constant bytes are common in tests.
	RatioFreeBytes int64
}

// DefaultLimits take any batch that a client with default settings makes.
var DefaultLimits = Limits{DecompressedBytesMax: 256 << 20, RatioMax: 1100, RatioFreeBytes: 16 << 20}

// allowance is how many bytes a payload of the given size may decompress to.
func (l Limits) allowance(compressedBytes int) int64 {
	return min(l.DecompressedBytesMax, max(l.RatioFreeBytes, int64(compressedBytes)*int64(l.RatioMax)))
}

const (
	// windowBytes is the usual size of the window through which records are read; it grows only for a record that does
	// not fit, and only as bytes arrive.
	windowBytes = 64 << 10
	// emptyReadsMax is how often in a row a decoder may produce nothing.
	emptyReadsMax = 100
	// keepBytesMax is the largest buffer kept from one batch to the next.
	keepBytesMax = 1 << 20
	// zstdWindowBytesMax is the largest zstd window that is decoded as a stream; a decoder allocates what a frame claims.
	zstdWindowBytesMax = 8 << 20
	// zstdWholeBytesMax bounds the output of frames with larger windows (levels 20 and above), which are decoded whole, so
	// that memory follows the output and not the claim.
	zstdWholeBytesMax = 64 << 20
	// zstdBlockBytesMax is the most that one zstd block holds.
	zstdBlockBytesMax = 128 << 10
	// zstdWindowBytesLimit is the largest window that zstd itself decodes by default.
	zstdWindowBytesLimit = 128 << 20
)

// Decompressor holds what decompressing needs, to be used again from batch to batch. One goroutine uses it at a time.
type Decompressor struct {
	iterator Iterator
	walk     walk
	stream   stream
}

// NewDecompressor makes one; its buffers are allocated when they are first needed.
func NewDecompressor(limits Limits) *Decompressor {
	d := &Decompressor{}
	d.stream.limits = limits
	return d
}

// stream is the decompressed payload of one batch, seen through a window.
type stream struct {
	limits Limits

	codec      Codec
	compressed int   // bytes of the payload
	allowance  int64 // bytes it may produce
	produced   int64 // bytes it has produced
	reader     io.Reader
	err        error // what the reader ended with; io.EOF at the end

	window     []byte
	start, end int // the unread part of window

	source bytes.Reader
	whole  bytes.Reader // over buffer
	gzip   *gzip.Reader
	lz4    *lz4.Reader
	snappy snappyReader
	zstd   *zstd.Decoder
	wholes *zstd.Decoder // decodes frames with large windows
	buffer []byte        // what wholes decodes into
}

// reset starts to decompress the payload of b.
func (s *stream) reset(b Batch) error {
	payload := b.Payload()
	s.codec, s.compressed, s.allowance, s.produced, s.err = b.Codec(), len(payload), s.limits.allowance(len(payload)), 0, nil
	s.start, s.end = 0, 0
	if cap(s.window) > keepBytesMax || s.window == nil {
		s.window = make([]byte, windowBytes)
	}
	if cap(s.buffer) > keepBytesMax {
		s.buffer = nil
	}
	s.source.Reset(payload)
	var err error
	switch s.codec {
	case Gzip:
		err = s.resetGzip()
	case Snappy:
		s.snappy.reset(payload, s.allowance)
		s.reader = &s.snappy
	case LZ4:
		err = s.resetLZ4(payload)
	case Zstd:
		err = s.resetZstd(payload)
	default:
		return fmt.Errorf("codec %d: %w", s.codec, ErrCodec)
	}
	if err != nil {
		return s.broken(err)
	}
	return nil
}

// broken says why a payload does not decompress.
func (s *stream) broken(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return err
	}
	return invalid("its %d bytes do not decompress as %s: %v", s.compressed, s.codec, err)
}

func (s *stream) resetGzip() error {
	if s.gzip == nil {
		s.gzip = new(gzip.Reader)
	}
	s.reader = s.gzip
	return s.gzip.Reset(&s.source)
}

// lz4FrameMagic starts the one frame format that Kafka clients read.
const lz4FrameMagic = 0x184D2204

func (s *stream) resetLZ4(payload []byte) error {
	if len(payload) < 4 || binary.LittleEndian.Uint32(payload) != lz4FrameMagic {
		return errors.New("it does not start with the magic number of a frame")
	}
	if s.lz4 == nil {
		s.lz4 = lz4.NewReader(&s.source)
	} else {
		s.lz4.Reset(&s.source)
	}
	s.reader = s.lz4
	return nil
}

func (s *stream) resetZstd(payload []byte) error {
	var frame zstd.Header
	if err := frame.Decode(payload); err != nil {
		return err
	}
	if frame.WindowSize > zstdWindowBytesMax || frame.SingleSegment && frame.FrameContentSize > zstdWindowBytesMax {
		return s.resetZstdWhole(payload, &frame)
	}
	if s.zstd == nil {
		decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowBytesMax), zstd.WithDecoderMaxMemory(uint64(s.limits.DecompressedBytesMax)))
		if err != nil {
			return err
		}
		s.zstd = decoder
	}
	s.reader = s.zstd
	return s.zstd.Reset(&s.source)
}

// resetZstdWhole decodes a payload whose window is too large to be allocated on the word of its header.
func (s *stream) resetZstdWhole(payload []byte, frame *zstd.Header) error {
	outputMax := min(s.allowance, zstdWholeBytesMax)
	if frame.HasFCS && frame.FrameContentSize > uint64(outputMax) {
		return s.tooLarge(outputMax)
	}
	if s.wholes == nil {
		decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowBytesLimit), zstd.WithDecoderMaxMemory(zstdWindowBytesLimit), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
		s.wholes = decoder
	}
	// The decoder fills what it is given and no more; only after one that was full comes a larger one. Not all of its
	// errors say that it was full, but how far it came does.
	for capacity := int64(windowBytes); ; capacity *= 8 {
		capacity = min(capacity, outputMax)
		if int64(cap(s.buffer)) < capacity {
			s.buffer = make([]byte, 0, capacity)
		}
		output, err := s.wholes.DecodeAll(payload, s.buffer[:0:capacity])
		if full := errors.Is(err, zstd.ErrDecoderSizeExceeded) || int64(len(output)) > capacity-zstdBlockBytesMax; err == nil || !full {
			s.whole.Reset(output)
			s.reader = &s.whole
			return err
		}
		if capacity == outputMax {
			return s.tooLarge(outputMax)
		}
	}
}

func (s *stream) tooLarge(limit int64) error {
	return fmt.Errorf("%d bytes of %s decompress to more than the %d bytes allowed: %w", s.compressed, s.codec, limit, ErrTooLarge)
}

// peek returns the unread part of the window, with at least n bytes unless the payload ends before that. The window grows
// as bytes arrive, never by what a length claims.
func (s *stream) peek(n int) ([]byte, error) {
	for s.end-s.start < n && s.err == nil {
		if n > len(s.window) && int64(n) > s.allowance-s.produced+int64(s.end-s.start) {
			return nil, s.tooLarge(s.allowance)
		}
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	return s.window[s.start:s.end], nil
}

// fill reads at least one byte into the window, or meets the end.
func (s *stream) fill() error {
	switch {
	case s.start > 0:
		copy(s.window, s.window[s.start:s.end])
		s.end -= s.start
		s.start = 0
	case s.end == len(s.window):
		grown := make([]byte, 2*len(s.window))
		copy(grown, s.window)
		s.window = grown
	}
	n, err := 0, error(nil)
	for range emptyReadsMax {
		if n, err = s.reader.Read(s.window[s.end:]); n > 0 || err != nil {
			break
		}
	}
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	s.end += n
	s.produced += int64(n)
	if s.produced > s.allowance {
		s.err = s.tooLarge(s.allowance)
		return s.err
	}
	if err != nil {
		s.err = err
		if !errors.Is(err, io.EOF) {
			s.err = s.broken(err)
			return s.err
		}
	}
	return nil
}

// skip drops n unread bytes of the window.
func (s *stream) skip(n int) { s.start += n }
