package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// compressors keeps encoders, which hold up to a few MiB each, from batch to batch.
var compressors = sync.Pool{New: func() any { return new(compressor) }}

// compressor holds one encoder of each codec, made when first needed and again when the level changes.
type compressor struct {
	out  sink
	gzip leveled[*gzip.Writer]
	lz4  leveled[*lz4.Writer]
	zstd leveled[*zstd.Encoder]

	snappy snappyWriter
}

// leveled is an encoder and the level it was made for.
type leveled[W any] struct {
	writer W
	level  int
	made   bool
}

// sink gathers what an encoder writes: it appends to buf while that stays within limit, and counts all of it.
type sink struct {
	buf   []byte
	limit int // most bytes that buf may have
	total int // bytes that buf would have without the limit
}

// Write implements io.Writer; it never fails.
func (s *sink) Write(p []byte) (int, error) {
	s.total += len(p)
	if s.total <= s.limit {
		s.buf = append(s.buf, p...)
	}
	return len(p), nil
}

// start makes an encoder that appends to dst, up to limit bytes of it. The encoder's Close ends the payload; finish then
// tells what was written.
func (c *compressor) start(dst []byte, limit int, codec Codec, level int) (io.WriteCloser, error) {
	c.out = sink{buf: dst, limit: limit, total: len(dst)}
	switch codec {
	case None:
		return nopCloser{&c.out}, nil
	case Gzip:
		return c.startGzip(level)
	case Snappy:
		c.snappy.reset(&c.out)
		return &c.snappy, nil
	case LZ4:
		return c.startLZ4(level)
	case Zstd:
		return c.startZstd(level)
	}
	return nil, fmt.Errorf("codec %d: %w", codec, ErrCodec)
}

// finish returns dst with what was appended, and the size it would have without the limit; if that is larger, the bytes
// are not whole.
func (c *compressor) finish() (buf []byte, total int) {
	buf, total = c.out.buf, c.out.total
	c.out = sink{}
	return buf, total
}

// startGzip takes Kafka's levels, 1 to 9; 0 and -1 are the default.
func (c *compressor) startGzip(level int) (io.WriteCloser, error) {
	if level == 0 {
		level = gzip.DefaultCompression
	}
	if !c.gzip.made || c.gzip.level != level {
		writer, err := gzip.NewWriterLevel(&c.out, level)
		if err != nil {
			return nil, err
		}
		c.gzip = leveled[*gzip.Writer]{writer, level, true}
	}
	c.gzip.writer.Reset(&c.out)
	return c.gzip.writer, nil
}

// lz4DefaultLevel is Kafka's default level, which its encoder takes for "fast".
const lz4DefaultLevel = 9

// startLZ4 takes Kafka's levels, 1 to 17; 0 and 9 are the default, above 9 nothing more is gained. The frame is as Java
// clients make it: independent blocks of 64 KiB, no checksums.
func (c *compressor) startLZ4(level int) (io.WriteCloser, error) {
	if !c.lz4.made || c.lz4.level != level {
		c.lz4 = leveled[*lz4.Writer]{lz4.NewWriter(&c.out), level, true}
		speed := lz4.Fast
		if level > 0 && level != lz4DefaultLevel {
			speed = lz4.Level1 << (min(level, 9) - 1)
		}
		if err := c.lz4.writer.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false),
			lz4.ConcurrencyOption(1), lz4.CompressionLevelOption(speed)); err != nil {
			c.lz4.made = false
			return nil, err
		}
	}
	c.lz4.writer.Reset(&c.out)
	return c.lz4.writer, nil
}

// zstdEncoderWindowBytes covers most batches whole and keeps an encoder small.
const zstdEncoderWindowBytes = 1 << 20

// startZstd takes Kafka's levels, -131072 to 22; 0 is the default, here the fastest of the encoder's, whose ratio on
// typical records is that of level 3.
func (c *compressor) startZstd(level int) (io.WriteCloser, error) {
	if !c.zstd.made || c.zstd.level != level {
		speed := zstd.SpeedFastest
		if level != 0 {
			speed = zstd.EncoderLevelFromZstd(level)
		}
		writer, err := zstd.NewWriter(&c.out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(speed),
			zstd.WithWindowSize(zstdEncoderWindowBytes), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, err
		}
		c.zstd = leveled[*zstd.Encoder]{writer, level, true}
	}
	c.zstd.writer.Reset(&c.out)
	return c.zstd.writer, nil
}

// appendCompressed appends raw, compressed, to dst. It fails only on a codec or level that does not exist.
func appendCompressed(dst []byte, codec Codec, level int, raw []byte) ([]byte, error) {
	if codec == None {
		return append(dst, raw...), nil
	}
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	w, err := c.start(dst, maxInt, codec, level)
	if err != nil {
		return dst, err
	}
	if _, err = w.Write(raw); err == nil {
		err = w.Close()
	}
	if err != nil {
		return dst, fmt.Errorf("compress as %s: %w", codec, err)
	}
	dst, _ = c.finish()
	return dst, nil
}

const maxInt = int(^uint(0) >> 1)

// nopCloser ends a payload that is not compressed.
type nopCloser struct{ io.Writer }

// Close does nothing.
func (nopCloser) Close() error { return nil }

// snappyWriter writes the Java library's framing, which every client reads.
type snappyWriter struct {
	out   *sink
	plain []byte // gathered for the next block
	block []byte
}

func (w *snappyWriter) reset(out *sink) {
	w.out, w.plain = out, w.plain[:0]
	_, _ = out.Write(xerialHeader)
}

// Write implements io.Writer; it never fails.
func (w *snappyWriter) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		if len(w.plain) == 0 && len(p) >= xerialBlockBytes {
			w.flush(p[:xerialBlockBytes])
			p = p[xerialBlockBytes:]
			continue
		}
		n := min(len(p), xerialBlockBytes-len(w.plain))
		w.plain = append(w.plain, p[:n]...)
		p = p[n:]
		if len(w.plain) == xerialBlockBytes {
			w.flush(w.plain)
			w.plain = w.plain[:0]
		}
	}
	return written, nil
}

func (w *snappyWriter) flush(plain []byte) {
	if w.block == nil {
		w.block = make([]byte, s2.MaxEncodedLen(xerialBlockBytes))
	}
	encoded := s2.EncodeSnappy(w.block, plain)
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(encoded)))
	_, _ = w.out.Write(size[:])
	_, _ = w.out.Write(encoded)
}

// Close writes the last block. It never fails.
func (w *snappyWriter) Close() error {
	if len(w.plain) > 0 {
		w.flush(w.plain)
		w.plain = w.plain[:0]
	}
	return nil
}
