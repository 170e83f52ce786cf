package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
)

const now = int64(1_700_000_100_000)

// patch changes a batch and makes its checksum true again, as a buggy or hostile client would.
func patch(b record.Batch, change func(b record.Batch)) record.Batch {
	b = slices.Clone(b)
	change(b)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func put16(b []byte, off int, v int16) { binary.BigEndian.PutUint16(b[off:], uint16(v)) }
func put32(b []byte, off int, v int32) { binary.BigEndian.PutUint32(b[off:], uint32(v)) }
func put64(b []byte, off int, v int64) { binary.BigEndian.PutUint64(b[off:], uint64(v)) }

func TestValidateAcceptsInPlace(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			b := build(t, record.BuilderOptions{Codec: codec}, sample(50, 100)...)
			sent := slices.Clone(b)
			got, err := record.Validate(b, record.DefaultRules, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.Rewritten || &got.Batches[0] != &b[0] || !bytes.Equal(b, sent) {
				t.Error("a sound batch was changed")
			}
			if got.Count != 50 || got.LastOffset != 49 || got.BatchCount != 1 || got.MaxTimestamp != b.MaxTimestamp() || got.OffsetOfMaxTimestamp != 49 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestValidateRefuses proves the rules of Kafka's LogValidator, and U-96, U-97.
func TestValidateRefuses(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) { testValidateRefuses(t, codec) })
	}
}

func testValidateRefuses(t *testing.T, codec record.Codec) {
	options := record.BuilderOptions{Codec: codec, HasProducer: true, ProducerID: 5}
	good := build(t, options, sample(3, 50)...)
	noKey := sample(3, 50)
	noKey[1].Key = nil
	old, future := sample(3, 50), sample(3, 50)
	old[2].Timestamp = now - time.Hour.Milliseconds() - 1
	future[1].Timestamp = now + time.Hour.Milliseconds() + 1
	gap := sample(3, 50)
	gap[1].Offset, gap[2].Offset = 2, 3
	hour := func(r *record.Rules) { r.TimestampBeforeMax = time.Hour }
	for _, tc := range []struct {
		name  string
		input []byte
		rules func(r *record.Rules)
		want  error
		text  string
		index int32
	}{
		{"nothing", nil, nil, record.ErrInvalid, "exactly one", -1},
		{"half a batch", good[:len(good)-1], nil, record.ErrInvalid, "exactly one", -1},
		{"two batches", slices.Concat(good, good), nil, record.ErrInvalid, "more than one batch", -1},
		{"flipped bit", func() []byte { b := slices.Clone(good); b[len(b)-2] ^= 4; return b }(), nil, record.ErrCorrupt, "crc", 0},
		{"magic 1", func() []byte { b := slices.Clone(good); b[16] = 1; return b }(), nil, record.ErrMagic, "magic 1", 0},
		{"base offset", func() []byte { b := slices.Clone(good); b.Stamp(7, -1); return b }(), nil, record.ErrInvalid, "must be 0, but it is 7", -1},
		{"too large on the wire", good, func(r *record.Rules) { r.MaxMessageBytes = int32(len(good)) - 1 }, record.ErrTooLarge, "on the wire", 0},
		{"count above offsets", patch(good, func(b record.Batch) { put32(b, 57, 4) }), nil, record.ErrInvalid, "4 records", -1},
		{"count and offsets above records", patch(good, func(b record.Batch) { put32(b, 57, 4); put32(b, 23, 3) }), nil, record.ErrInvalid, "", 3},
		{"count and offsets below records", patch(good, func(b record.Batch) { put32(b, 57, 2); put32(b, 23, 1) }), nil, record.ErrInvalid, "follow the last", -1},
		{"no records", patch(good[:record.HeaderBytes], func(b record.Batch) { put32(b, 8, 49); put32(b, 57, 0); put32(b, 23, -1) }), nil, record.ErrInvalid, "", -1},
		{"negative count", patch(good, func(b record.Batch) { put32(b, 57, -1) }), nil, record.ErrInvalid, "-1 records", -1},
		{"huge count", patch(good, func(b record.Batch) { put32(b, 57, 1<<31-1); put32(b, 23, 1<<31-2) }), nil, record.ErrInvalid, "", 3},
		{"gap in the offsets", patch(build(t, options, gap...), func(b record.Batch) { put32(b, 23, 2) }), nil, record.ErrInvalid, "offset delta is 2", 1},
		{"control batch", build(t, record.BuilderOptions{Codec: codec, Control: true}, sample(1, 1)...), nil, record.ErrInvalid, "control", -1},
		{"producer without sequence", patch(good, func(b record.Batch) { put32(b, 53, -1) }), nil, record.ErrInvalid, "sequence number -1", -1},
		{"producer without epoch", patch(good, func(b record.Batch) { put16(b, 51, -1) }), nil, record.ErrInvalid, "producer epoch -1", -1},
		{"transaction without producer", build(t, record.BuilderOptions{Codec: codec, Transactional: true}, sample(1, 1)...), nil, record.ErrInvalid, "transactional", -1},
		{"codec 6", patch(good, func(b record.Batch) { b[22] = b[22]&^7 | 6 }), nil, record.ErrCodec, "codec 6", 0},
		{"no key on a compacted topic", build(t, options, noKey...), func(r *record.Rules) { r.Compacted = true }, record.ErrInvalid, "without key", 1},
		{"too old", build(t, options, old...), hour, record.ErrTimestamp, "out of range", 2},
		{"in the future", build(t, options, future...), nil, record.ErrTimestamp, "out of range", 1},
		{
			"append time set by the producer", build(t, record.BuilderOptions{Codec: codec, TimestampType: record.LogAppendTime, AppendTime: now}, sample(1, 1)...),
			func(r *record.Rules) { r.TimestampType = record.LogAppendTime }, record.ErrTimestamp, "LogAppendTime", 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules := record.DefaultRules
			if tc.rules != nil {
				tc.rules(&rules)
			}
			_, err := record.Validate(tc.input, rules, now, nil)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want %v with %q", err, tc.want, tc.text)
			}
			var invalid *record.InvalidError
			var timestamp *record.TimestampError
			if errors.As(err, &invalid) && invalid.Index != tc.index {
				t.Errorf("record %d, want %d: %v", invalid.Index, tc.index, err)
			}
			if errors.As(err, &timestamp) && (timestamp.Index != tc.index || timestamp.Records[0].Index != tc.index) {
				t.Errorf("record %d, want %d", timestamp.Index, tc.index)
			}
		})
	}
}

// TestValidateNamesEveryRefusedRecord proves U-96: all of them, with their indexes, not the first alone.
func TestValidateNamesEveryRefusedRecord(t *testing.T) {
	records := sample(250, 5)
	for i := range records {
		if i%2 == 1 {
			records[i].Key = nil
		}
	}
	rules := record.DefaultRules
	rules.Compacted = true
	_, err := record.Validate(build(t, record.BuilderOptions{}, records...), rules, now, nil)
	var invalid *record.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Records) != 100 || invalid.Records[99].Index != 199 || !strings.Contains(err.Error(), "125 of 250") {
		t.Fatalf("got %v", err)
	}
}

func TestValidateDropsATornTail(t *testing.T) {
	b := build(t, record.BuilderOptions{}, sample(3, 50)...)
	got, err := record.Validate(append(slices.Clone(b), b[:40]...), record.DefaultRules, now, nil)
	if err != nil || !bytes.Equal(got.Batches, b) {
		t.Errorf("from a client: %d bytes, %v; want %d", len(got.Batches), err, len(b))
	}
	rules := record.DefaultRules
	rules.Client = false
	if _, err = record.Validate(append(slices.Clone(b), b[:40]...), rules, now, nil); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("from a coordinator: %v, want ErrCorrupt", err)
	}
}

func TestValidateTakesSeveralBatchesFromACoordinator(t *testing.T) {
	plain := build(t, record.BuilderOptions{}, sample(3, 50)...)
	packed := build(t, record.BuilderOptions{Codec: record.LZ4}, sample(4, 50)...)
	marker := record.AppendMarker(nil, 0, -1, record.Marker{ProducerID: 1, Type: record.Abort, Timestamp: now})
	rules := record.DefaultRules
	rules.Client, rules.KeepCodec, rules.Compression = false, false, record.LZ4
	got, err := record.Validate(slices.Concat(packed, plain, marker, packed), rules, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Rewritten || got.BatchCount != 4 || got.Count != 12 || got.LastOffset != 11 || got.MaxTimestamp != now || got.OffsetOfMaxTimestamp != 7 {
		t.Errorf("got %+v", got)
	}
	var codecs []record.Codec
	for rest := got.Batches; len(rest) > 0; {
		var b record.Batch
		if b, rest, err = record.Next(rest); err != nil {
			t.Fatal(err)
		}
		if err := b.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		codecs = append(codecs, b.Codec())
		entries(t, b)
	}
	if want := []record.Codec{record.LZ4, record.LZ4, record.None, record.LZ4}; !slices.Equal(codecs, want) {
		t.Errorf("codecs %v, want %v: control records are not compressed", codecs, want)
	}
}

// TestValidateLogAppendTime proves that the payload is untouched: no recompression.
func TestValidateLogAppendTime(t *testing.T) {
	for _, codec := range codecs {
		b := build(t, record.BuilderOptions{Codec: codec}, sample(5, 100)...)
		sent := slices.Clone(b)
		rules := record.DefaultRules
		rules.TimestampType, rules.TimestampAfterMax = record.LogAppendTime, 0
		got, err := record.Validate(b, rules, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Rewritten || got.MaxTimestamp != now || !b.LogAppendTime() || b.MaxTimestamp() != now || b.CheckCRC() != nil {
			t.Errorf("%s: %+v, max timestamp %d", codec, got, b.MaxTimestamp())
		}
		if !bytes.Equal(b.Payload(), sent.Payload()) || b.BaseTimestamp() != sent.BaseTimestamp() {
			t.Errorf("%s: more than the header changed", codec)
		}
	}
}

// TestValidateCorrectsTheMaxTimestamp: a client's header is not believed (the time index rests on it).
func TestValidateCorrectsTheMaxTimestamp(t *testing.T) {
	for _, codec := range codecs {
		good := build(t, record.BuilderOptions{Codec: codec}, sample(5, 10)...)
		bad := patch(good, func(b record.Batch) { put64(b, 35, 1<<60); b[22] |= 8 })
		got, err := record.Validate(bad, record.DefaultRules, now, nil)
		if err != nil || !bytes.Equal(got.Batches, good) {
			t.Errorf("%s: %v, max timestamp %d, want %d", codec, err, record.Batch(got.Batches).MaxTimestamp(), good.MaxTimestamp())
		}
	}
}

// TestValidateRecompresses proves that recompression happens only where the topic's codec differs, and keeps the records.
func TestValidateRecompresses(t *testing.T) {
	want := sample(200, 300)
	for _, from := range codecs {
		for _, to := range codecs {
			b := build(t, record.BuilderOptions{Codec: from, HasProducer: true, ProducerID: 7, ProducerEpoch: 1, BaseSequence: 3}, want...)
			sent := slices.Clone(b)
			rules := record.DefaultRules
			rules.KeepCodec, rules.Compression = false, to
			got, err := record.Validate(b, rules, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			stored := record.Batch(got.Batches)
			if got.Rewritten != (from != to) || stored.Codec() != to || !bytes.Equal(b, sent) || stored.CheckCRC() != nil {
				t.Errorf("%s to %s: rewritten %t, codec %s, crc %v", from, to, got.Rewritten, stored.Codec(), stored.CheckCRC())
			}
			if stored.ProducerID() != 7 || stored.BaseSequence() != 3 || stored.LastOffsetDelta() != 199 || stored.MaxTimestamp() != sent.MaxTimestamp() {
				t.Errorf("%s to %s: the header changed", from, to)
			}
			assertEqual(t, entries(t, stored), want)
		}
	}
}

// TestValidateSizeAfterRecompression proves U-97: both sizes are checked and named.
func TestValidateSizeAfterRecompression(t *testing.T) {
	for _, to := range []record.Codec{record.None, record.Snappy} {
		b := build(t, record.BuilderOptions{Codec: record.Zstd}, sample(200, 300)...)
		rules := record.DefaultRules
		rules.KeepCodec, rules.Compression, rules.MaxMessageBytes = false, to, int32(len(b))
		_, err := record.Validate(b, rules, now, nil)
		var size *record.SizeError
		if !errors.As(err, &size) || !errors.Is(err, record.ErrTooLarge) {
			t.Fatalf("got %v, want a SizeError", err)
		}
		rules.MaxMessageBytes = int32(size.RewrittenBytes)
		got, err := record.Validate(b, rules, now, nil)
		if err != nil || len(got.Batches) != int(size.RewrittenBytes) || size.WireBytes != int64(len(b)) {
			t.Errorf("%d bytes, %v; the error said %v", len(got.Batches), err, size)
		}
	}
}
