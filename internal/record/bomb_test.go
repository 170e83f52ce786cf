package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/tidemark-io/tidemark/internal/record"
)

// withPayload is a batch with the given payload and as many records as the header is to say.
func withPayload(codec record.Codec, count int32, payload []byte) record.Batch {
	b := make(record.Batch, record.HeaderBytes, record.HeaderBytes+len(payload))
	b[16] = record.Magic
	b.Stamp(0, -1)
	put16(b, 21, int16(codec))
	put32(b, 23, count-1)
	put64(b, 43, -1)
	put16(b, 51, -1)
	put32(b, 53, -1)
	put32(b, 57, count)
	b = append(b, payload...)
	put32(b, 8, int32(len(b)-12))
	return patch(b, func(record.Batch) {})
}

// bomb is a batch of one record whose value is size zeros.
func bomb(t testing.TB, codec record.Codec, size int) record.Batch {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch codec {
	case record.Gzip:
		w = gzip.NewWriter(&out)
	case record.LZ4:
		w = lz4.NewWriter(&out)
	case record.Zstd:
		encoder, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		w = encoder
	case record.Snappy:
		w = &xerial{out: &out}
	}
	value := binary.AppendVarint(nil, int64(size))
	head := binary.AppendVarint(nil, int64(4+len(value)+size+1)) // attributes, two deltas, null key, value, no headers
	head = append(head, 0, 0, 0, 1)
	head = append(head, value...)
	if _, err := w.Write(head); err != nil {
		t.Fatal(err)
	}
	for zeros := make([]byte, 1<<20); size > 0; size -= len(zeros) {
		if _, err := w.Write(zeros[:min(size, len(zeros))]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return withPayload(codec, 1, out.Bytes())
}

// xerial writes blocks of a MiB in the Java library's framing.
type xerial struct{ out *bytes.Buffer }

func (x *xerial) Write(p []byte) (int, error) {
	if x.out.Len() == 0 {
		x.out.WriteString("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
	}
	block := s2.EncodeSnappy(nil, p)
	x.out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
	x.out.Write(block)
	return len(p), nil
}

func (x *xerial) Close() error { return nil }

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombs proves the absolute cap and the ratio cap for every codec (reliability: parser rules), and that a bomb costs
// no memory to speak of: neither one that is refused nor one within the limits.
func TestBombs(t *testing.T) {
	const size = 24 << 20
	rules := record.DefaultRules
	rules.MaxMessageBytes = 8 << 20
	for _, codec := range codecs[1:] {
		b := bomb(t, codec, size)
		for _, tc := range []struct {
			name   string
			limits record.Limits
			want   error
		}{
			{"absolute", record.Limits{DecompressedBytesMax: size / 2, RatioMax: 1 << 30, RatioFreeBytes: 1 << 10}, record.ErrTooLarge},
			{"ratio", record.Limits{DecompressedBytesMax: 4 * size, RatioMax: 10, RatioFreeBytes: 1 << 10}, record.ErrTooLarge},
			{"within", record.Limits{DecompressedBytesMax: 4 * size, RatioMax: 1 << 30, RatioFreeBytes: 1 << 10}, nil},
		} {
			t.Run(codec.String()+"/"+tc.name, func(t *testing.T) {
				var err error
				used := allocated(func() { _, err = record.Validate(b, rules, now, record.NewDecompressor(tc.limits)) })
				if !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if used > 16<<20 {
					t.Errorf("%d MiB allocated for a batch of %d KiB", used>>20, len(b)>>10)
				}
				if tc.want == nil {
					return
				}
				it := b.Records(record.NewDecompressor(tc.limits))
				if it.Next() || !errors.Is(it.Err(), record.ErrTooLarge) {
					t.Errorf("iteration: %v, want ErrTooLarge", it.Err())
				}
			})
		}
	}
}

// zstdFrame is a frame by hand: a window descriptor, no content size, and one raw block.
func zstdFrame(windowDescriptor byte, content []byte) []byte {
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, windowDescriptor}
	block := uint32(len(content))<<3 | 1
	out = append(out, byte(block), byte(block>>8), byte(block>>16))
	return append(out, content...)
}

// TestClaimsAreNotBelieved: what a header claims is never allocated (U-86), and honest large windows still work.
func TestClaimsAreNotBelieved(t *testing.T) {
	one := []byte{14, 0, 0, 0, 1, 2, 'v', 0} // a record with value "v"
	xerialHead := "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
	for _, tc := range []struct {
		name    string
		codec   record.Codec
		payload []byte
		want    error // nil: accepted
	}{
		{"a record of 1 GiB", record.None, []byte{0x80, 0x80, 0x80, 0x80, 0x08, 0, 0}, record.ErrInvalid},
		{"a record of 1 GiB, compressed", record.Gzip, gzipped([]byte{0x80, 0x80, 0x80, 0x80, 0x08, 0, 0}), record.ErrInvalid},
		{"a key of 1 GiB", record.None, []byte{20, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x08, 1, 0}, record.ErrInvalid},
		{"2^31-1 headers", record.None, []byte{20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f}, record.ErrInvalid},
		{"a negative header count", record.None, []byte{12, 0, 0, 0, 1, 1, 1}, record.ErrInvalid},
		{"a varint without an end", record.None, bytes.Repeat([]byte{0xff}, 20), record.ErrInvalid},
		{"zstd window of 128 MiB", record.Zstd, zstdFrame(17<<3, one), nil},
		{"zstd window of 256 MiB", record.Zstd, zstdFrame(18<<3, one), record.ErrInvalid},
		{"zstd window of 8 MiB", record.Zstd, zstdFrame(13<<3, one), nil},
		{"zstd content size of 1 GiB", record.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 1, 0, 0}, record.ErrTooLarge},
		{"zstd with a dictionary", record.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 1, 0x40, 9, 1, 0, 0}, record.ErrInvalid},
		{"zstd magic alone", record.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd}, record.ErrInvalid},
		{"lz4 legacy frame", record.LZ4, []byte{0x02, 0x21, 0x4c, 0x18, 9, 0, 0, 0, 0x80}, record.ErrInvalid},
		{"lz4 without frame", record.LZ4, one, record.ErrInvalid},
		{"snappy raw block", record.Snappy, s2.EncodeSnappy(nil, one), nil},
		{"snappy raw block that claims 4 GiB", record.Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, record.ErrInvalid},
		{"snappy raw block that claims 256 MiB", record.Snappy, []byte{0x80, 0x80, 0x80, 0x80, 0x01, 0}, record.ErrInvalid},
		{"snappy raw block that claims 8 MiB", record.Snappy, []byte{0x80, 0x80, 0x80, 0x04, 0}, record.ErrInvalid},
		{"xerial block of 4 GiB", record.Snappy, []byte(xerialHead + "\xff\xff\xff\xff"), record.ErrInvalid},
		{"xerial header cut", record.Snappy, []byte(xerialHead[:10]), record.ErrInvalid},
		{"xerial length cut", record.Snappy, []byte(xerialHead + "\x00\x00"), record.ErrInvalid},
		{"xerial twice", record.Snappy, []byte(xerialHead + "\x00\x00\x00\x05\x03\x08" + string(one[:3]) + xerialHead + "\x00\x00\x00\x07\x05\x10" + string(one[3:])), nil},
		{"s2 repeat in snappy", record.Snappy, []byte{8, 0x0c, 14, 0, 0, 0, 0x05, 0x00, 0, 0}, record.ErrInvalid},
		{"empty gzip payload", record.Gzip, nil, record.ErrInvalid},
		{"empty snappy payload", record.Snappy, nil, record.ErrInvalid},
		{"empty lz4 payload", record.LZ4, nil, record.ErrInvalid},
		{"empty zstd payload", record.Zstd, nil, record.ErrInvalid},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "-"), func(t *testing.T) {
			b := withPayload(tc.codec, 1, tc.payload)
			var err error
			used := allocated(func() { _, err = record.Validate(b, record.DefaultRules, now, nil) })
			if !errors.Is(err, tc.want) {
				t.Errorf("Validate: %v, want %v", err, tc.want)
			}
			it := b.Records(nil)
			used = max(used, allocated(func() {
				for it.Next() {
				}
			}))
			if !errors.Is(it.Err(), tc.want) {
				t.Errorf("iteration: %v, want %v", it.Err(), tc.want)
			}
			if used > 20<<20 {
				t.Errorf("%d bytes allocated", used)
			}
		})
	}
}

// TestZstdLargeWindow: level 20 and above have windows that are not allocated on a header's word; batches made so are
// read, and refused beyond the limits without memory.
func TestZstdLargeWindow(t *testing.T) {
	for _, tc := range []struct {
		size int
		want error
	}{{3 << 20, nil}, {40 << 20, record.ErrTooLarge}} {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(32<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			t.Fatal(err)
		}
		value := binary.AppendVarint(nil, int64(tc.size))
		_, _ = w.Write(append(append(binary.AppendVarint(nil, int64(5+len(value)+tc.size)), 0, 0, 0, 1), value...))
		_, _ = w.Write(make([]byte, tc.size+1)) // the value, and no headers
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b := withPayload(record.Zstd, 1, out.Bytes())
		used := allocated(func() { _, err = record.Validate(b, record.DefaultRules, now, nil) })
		if !errors.Is(err, tc.want) {
			t.Errorf("%d bytes: %v, want %v", tc.size, err, tc.want)
		}
		if used > 64<<20 {
			t.Errorf("%d bytes: %d MiB allocated", tc.size, used>>20)
		}
	}
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}
