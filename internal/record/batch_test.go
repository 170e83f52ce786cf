package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

var codecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// entry is a record as a test wants it.
type entry struct {
	Offset, Timestamp int64
	Key, Value        []byte
	Headers           []record.Header
}

// build makes a batch of the entries, at the offsets they have.
func build(t testing.TB, options record.BuilderOptions, entries ...entry) record.Batch {
	t.Helper()
	b := record.NewBuilder(options)
	for _, e := range entries {
		b.AppendAt(e.Offset, e.Timestamp, e.Key, e.Value, e.Headers...)
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(batch)
}

// entries reads all records of a batch.
func entries(t testing.TB, b record.Batch) []entry {
	t.Helper()
	var got []entry
	it := b.Records(record.NewDecompressor(record.DefaultLimits))
	for it.Next() {
		r := it.Record()
		e := entry{Offset: r.Offset, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
		for h := range r.Headers() {
			e.Headers = append(e.Headers, record.Header{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)})
		}
		got = append(got, e)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// sample is n records, of about size bytes each, that compress somewhat.
func sample(n, size int) []entry {
	var out []entry
	for i := range n {
		e := entry{Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(i), Key: fmt.Appendf(nil, "key-%d", i)}
		for len(e.Value) < size {
			e.Value = fmt.Appendf(e.Value, `{"id":%d,"text":"value %d of the sample"}`, i*7919, len(e.Value))
		}
		e.Value = e.Value[:size]
		out = append(out, e)
	}
	return out
}

func TestBuildAndRead(t *testing.T) {
	want := []entry{
		{Offset: 5, Timestamp: 1000, Key: []byte("k"), Value: []byte("v")},
		{Offset: 6, Timestamp: 900},
		{Offset: 9, Timestamp: 2000, Key: []byte{}, Value: []byte{}, Headers: []record.Header{
			{Key: []byte("a"), Value: []byte("1")}, {Key: []byte{}, Value: nil}, {Key: []byte("a"), Value: []byte{}},
		}},
		{Offset: 10, Timestamp: -1, Value: bytes.Repeat([]byte("long "), 40_000)},
	}
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			b := build(t, record.BuilderOptions{
				BaseOffset: 5, LeaderEpoch: 3, Codec: codec, HasProducer: true,
				ProducerID: 77, ProducerEpoch: 2, BaseSequence: math.MaxInt32 - 1, Transactional: true,
			}, want...)
			if err := b.CheckCRC(); err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.LastOffsetDelta(), b.PartitionLeaderEpoch(), b.Magic(), b.Codec(), b.Count(),
				b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(),
				b.Transactional(), b.Control(), b.LogAppendTime(), b.HasDeleteHorizon(), b.Size() == len(b))
			if want := fmt.Sprint(5, 10, 5, 3, 2, codec, 4, 1000, 2000, 77, 2, math.MaxInt32-1, 3, true, false, false, false, true); got != want {
				t.Errorf("header\n got %s\nwant %s", got, want)
			}
			assertEqual(t, entries(t, b), want)
		})
	}
}

func assertEqual(t testing.TB, got, want []entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := fmt.Sprintf("%#v", got[i]), fmt.Sprintf("%#v", want[i])
		if g != w {
			t.Fatalf("record %d\n got %.200s\nwant %.200s", i, g, w)
		}
	}
}

func TestLogAppendTimeIsEveryRecordsTimestamp(t *testing.T) {
	b := build(t, record.BuilderOptions{TimestampType: record.LogAppendTime, AppendTime: 50}, sample(3, 10)...)
	for _, e := range entries(t, b) {
		if e.Timestamp != 50 {
			t.Errorf("timestamp %d of the record at %d, want 50", e.Timestamp, e.Offset)
		}
	}
}

func TestStampLeavesTheChecksum(t *testing.T) {
	b := build(t, record.BuilderOptions{}, sample(3, 10)...)
	b.Stamp(1<<40, 9)
	if err := b.CheckCRC(); err != nil || b.BaseOffset() != 1<<40 || b.PartitionLeaderEpoch() != 9 || b.LastOffset() != 1<<40+2 {
		t.Errorf("after Stamp: %v, base %d, epoch %d, last %d", err, b.BaseOffset(), b.PartitionLeaderEpoch(), b.LastOffset())
	}
	b[len(b)-1] ^= 1
	if err := b.CheckCRC(); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("after a flipped bit: %v, want ErrCorrupt", err)
	}
}

func TestNext(t *testing.T) {
	one, two := build(t, record.BuilderOptions{}, sample(1, 1)...), build(t, record.BuilderOptions{BaseOffset: 1}, sample(3, 10)[1:]...)
	buf := slices.Concat(one, two)
	first, rest, err := record.Next(buf)
	if err != nil || !bytes.Equal(first, one) {
		t.Fatalf("first: %x, %v", first, err)
	}
	second, rest, err := record.Next(rest)
	if err != nil || !bytes.Equal(second, two) {
		t.Fatalf("second: %x, %v", second, err)
	}
	if _, _, err = record.Next(rest); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
	for n := 1; n < len(one); n++ {
		if _, _, err := record.Next(one[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v, want io.ErrUnexpectedEOF", n, err)
		}
	}
}

func TestNextRefusesNonsense(t *testing.T) {
	good := build(t, record.BuilderOptions{}, sample(1, 1)...)
	for _, tc := range []struct {
		name   string
		length int32
		magic  byte
		want   error
	}{
		{"zero length", 0, 2, record.ErrCorrupt},
		{"negative length", -1, 2, record.ErrCorrupt},
		{"smallest length", math.MinInt32, 2, record.ErrCorrupt},
		{"length that overflows", math.MaxInt32, 2, record.ErrCorrupt},
		{"longest length", math.MaxInt32 - 12, 2, io.ErrUnexpectedEOF},
		{"length below a header", record.HeaderBytes - 13, 2, record.ErrCorrupt},
		{"magic 0", int32(len(good) - 12), 0, record.ErrMagic},
		{"magic 1", int32(len(good) - 12), 1, record.ErrMagic},
		{"magic 3", int32(len(good) - 12), 3, record.ErrCorrupt},
		{"magic -1", int32(len(good) - 12), 255, record.ErrCorrupt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := slices.Clone(good)
			binary.BigEndian.PutUint32(b[8:], uint32(tc.length))
			b[16] = tc.magic
			if _, _, err := record.Next(b); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestBuilderRefusesWhatNoBatchCanHold(t *testing.T) {
	b := record.NewBuilder(record.BuilderOptions{})
	if _, err := b.Batch(); err == nil {
		t.Error("a batch without records was built")
	}
	b.AppendAt(3, 0, nil, nil)
	b.AppendAt(3, 0, nil, nil)
	if _, err := b.Batch(); err == nil {
		t.Error("a batch with one offset twice was built")
	}
	b.Reset(record.BuilderOptions{})
	b.AppendAt(1<<31, 0, nil, nil)
	if _, err := b.Batch(); err == nil {
		t.Error("an offset delta of 2^31 was built")
	}
	b.Reset(record.BuilderOptions{Codec: 5})
	b.Append(0, nil, nil)
	if _, err := b.Batch(); !errors.Is(err, record.ErrCodec) {
		t.Errorf("codec 5: %v, want ErrCodec", err)
	}
}

func TestMarker(t *testing.T) {
	want := record.Marker{ProducerID: 9, ProducerEpoch: 4, Type: record.Commit, CoordinatorEpoch: 12, Timestamp: 5000}
	b := record.Batch(record.AppendMarker(nil, 40, 3, want))
	if !b.Control() || !b.Transactional() || b.LastOffset() != 40 || b.BaseSequence() != record.NoSequence || b.LastSequence() != record.NoSequence {
		t.Errorf("header of a marker: attributes %b, last offset %d, sequences %d to %d", b.Attributes(), b.LastOffset(), b.BaseSequence(), b.LastSequence())
	}
	got, found, err := b.ReadMarker(nil)
	if err != nil || !found || got != want {
		t.Errorf("got %+v, %t, %v; want %+v", got, found, err, want)
	}
}

func TestParseCodec(t *testing.T) {
	for _, codec := range codecs {
		if got, err := record.ParseCodec(codec.String()); got != codec || err != nil {
			t.Errorf("%s: %v, %v", codec, got, err)
		}
	}
	if _, err := record.ParseCodec("producer"); !errors.Is(err, record.ErrCodec) {
		t.Errorf("producer: %v, want ErrCodec", err)
	}
}

func TestAddSequenceWraps(t *testing.T) {
	for _, tc := range [][3]int32{{0, 0, 0}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2}, {7, 3, 10}} {
		if got := record.AddSequence(tc[0], tc[1]); got != tc[2] {
			t.Errorf("%d + %d = %d, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

// TestLevels: every level that Kafka's configuration allows builds a batch that reads back.
func TestLevels(t *testing.T) {
	want := sample(20, 200)
	for codec, levels := range map[record.Codec][]int{
		record.Gzip: {-1, 1, 6, 9}, record.LZ4: {1, 8, 9, 17}, record.Zstd: {-131072, 1, 3, 22},
	} {
		for _, level := range levels {
			b := build(t, record.BuilderOptions{Codec: codec, Level: level}, want...)
			assertEqual(t, entries(t, b), want)
		}
	}
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Gzip, Level: 10})
	b.Append(0, nil, nil)
	if _, err := b.Batch(); err == nil {
		t.Error("gzip level 10 was taken")
	}
}
