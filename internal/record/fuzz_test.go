package record_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// fuzzLimits keep a fuzzing process small.
var fuzzLimits = record.Limits{DecompressedBytesMax: 4 << 20, RatioMax: 1100, RatioFreeBytes: 1 << 20}

// addGolden seeds a target with Kafka's own batches.
func addGolden(f *testing.F, add func(b record.Batch)) {
	names, err := filepath.Glob("testdata/kafka/*.batch")
	if err != nil || len(names) == 0 {
		f.Fatal("no golden batches", err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if len(raw) < 4096 {
			add(raw)
		}
	}
}

// FuzzBatch: any bytes are split without a panic, and what Next accepts has a header that can be read, a length that is
// true, and bytes that are none but the input's.
func FuzzBatch(f *testing.F) {
	addGolden(f, func(b record.Batch) { f.Add([]byte(b)) })
	d, filterer := record.NewDecompressor(fuzzLimits), record.NewFilterer(fuzzLimits)
	f.Fuzz(func(t *testing.T, input []byte) {
		for rest := input; ; {
			b, after, err := record.Next(rest)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrMagic) {
					t.Fatalf("unknown error %v", err)
				}
				return
			}
			if len(b) != b.Size() || len(b)+len(after) != len(rest) || !bytes.Equal(b, rest[:len(b)]) {
				t.Fatalf("%d bytes split into %d and %d; the header says %d", len(rest), len(b), len(after), b.Size())
			}
			sound := b.CheckCRC() == nil
			b.Stamp(b.BaseOffset(), b.PartitionLeaderEpoch())
			if sound != (b.CheckCRC() == nil) {
				t.Fatal("Stamp touched the checksum")
			}
			if _, _, err := b.ReadMarker(d); err != nil {
				known(t, err)
			}
			if _, _, err := filterer.Filter(nil, b, record.FilterOptions{KeepEmpty: true}); err != nil {
				known(t, err)
			}
			rest = after
		}
	})
}

// known fails the test if err is not one that callers are told of.
func known(t *testing.T, err error) {
	t.Helper()
	for _, sentinel := range []error{record.ErrCorrupt, record.ErrMagic, record.ErrCodec, record.ErrTooLarge, record.ErrInvalid, record.ErrTimestamp} {
		if errors.Is(err, sentinel) {
			return
		}
	}
	t.Fatalf("unknown error %v", err)
}

// fuzzRecords: a batch with any payload is either walked to its end or refused, and Validate, which skims, agrees with
// iteration, which reads, on whether it is sound.
func fuzzRecords(f *testing.F, codec record.Codec) {
	addGolden(f, func(b record.Batch) {
		if b.Codec() == codec {
			f.Add(b.Count(), b.Payload())
		}
	})
	f.Add(int32(3), build(f, record.BuilderOptions{Codec: codec}, sample(3, 40)...).Payload())
	f.Add(int32(1<<31-1), []byte{})
	d := record.NewDecompressor(fuzzLimits)
	rules := record.DefaultRules
	rules.TimestampAfterMax = record.NoTimestampLimit
	f.Fuzz(func(t *testing.T, count int32, payload []byte) {
		b := withPayload(codec, count, payload)
		contiguous, walked := true, int32(0)
		it := b.Records(d)
		for ; it.Next(); walked++ {
			r := it.Record()
			contiguous = contiguous && r.Offset == int64(walked)
			headers := 0
			for range r.Headers() {
				headers++
			}
			if headers != r.HeaderCount() {
				t.Fatalf("record %d yields %d headers of %d", walked, headers, r.HeaderCount())
			}
		}
		err := it.Err()
		if err != nil {
			known(t, err)
		} else if walked != count {
			t.Fatalf("%d records of %d without an error", walked, count)
		}
		sound := err == nil && contiguous && count > 0
		if len(b) > int(rules.MaxMessageBytes) {
			return
		}
		_, invalid := record.Validate(slices.Clone(b), rules, now, d)
		if sound != (invalid == nil) {
			t.Fatalf("iteration: %v, contiguous %t; Validate: %v", err, contiguous, invalid)
		}
	})
}

func FuzzRecordsNone(f *testing.F)   { fuzzRecords(f, record.None) }
func FuzzRecordsGzip(f *testing.F)   { fuzzRecords(f, record.Gzip) }
func FuzzRecordsSnappy(f *testing.F) { fuzzRecords(f, record.Snappy) }
func FuzzRecordsLZ4(f *testing.F)    { fuzzRecords(f, record.LZ4) }
func FuzzRecordsZstd(f *testing.F)   { fuzzRecords(f, record.Zstd) }

// FuzzValidate: whatever Validate accepts, under any rules, is stored in a form that holds: whole batches with true
// checksums in the topic's codec, as many records as the result says, and acceptable to Validate once more as they are.
func FuzzValidate(f *testing.F) {
	addGolden(f, func(b record.Batch) {
		for _, flags := range []uint16{0, 0x1f, 0x20f, 0x418} {
			f.Add([]byte(b), flags, true)
		}
	})
	f.Fuzz(func(t *testing.T, input []byte, flags uint16, fixCRC bool) {
		input = slices.Clone(input)
		if b, _, err := record.Next(input); err == nil && fixCRC {
			copy(input, patch(b, func(record.Batch) {}))
		}
		rules := record.Rules{
			MaxMessageBytes: 1 << 20, TimestampBeforeMax: record.NoTimestampLimit, TimestampAfterMax: record.NoTimestampLimit,
			TimestampType: record.TimestampType(flags & 1), Compacted: flags&2 != 0, KeepCodec: flags&4 != 0, Client: flags&8 != 0,
			Compression: record.Codec(flags >> 8 % 5),
		}
		d := record.NewDecompressor(fuzzLimits)
		result, err := record.Validate(input, rules, now, d)
		if err != nil {
			known(t, err)
			return
		}
		count, batches := 0, 0
		for rest := result.Batches; len(rest) > 0; batches++ {
			b, after, err := record.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CheckCRC(); err != nil {
				t.Fatal(err)
			}
			if want := rules.Compression; !rules.KeepCodec && b.Codec() != want && !b.Control() {
				t.Fatalf("codec %s, want %s", b.Codec(), want)
			}
			if b.LogAppendTime() != (rules.TimestampType == record.LogAppendTime) {
				t.Fatal("wrong timestamp type")
			}
			count += len(entries(t, b))
			rest = after
		}
		if count != result.Count || batches != result.BatchCount || result.LastOffset != int64(count)-1 {
			t.Fatalf("%d records in %d batches; the result says %+v", count, batches, result)
		}
		if rules.TimestampType == record.LogAppendTime {
			return // what the broker stored so, a producer may not send
		}
		stored := slices.Clone(result.Batches)
		again, err := record.Validate(stored, rules, now, d)
		if err != nil || again.Rewritten || !bytes.Equal(stored, result.Batches) {
			t.Fatalf("a second time: %v, rewritten %t", err, again.Rewritten)
		}
	})
}

// FuzzRoundTrip is differential: what is built is validated, read back and filtered, and each step must agree with the
// records that went in.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("a few words to be cut into keys, values and headers"), byte(0))
	for i := range byte(5) {
		f.Add(bytes.Repeat([]byte{i, 0, 200, 3}, 50), i)
	}
	f.Fuzz(func(t *testing.T, input []byte, flags byte) {
		want := cut(input)
		if len(want) == 0 {
			return
		}
		codec := record.Codec(flags % 5)
		b := build(t, record.BuilderOptions{Codec: codec}, want...)
		rules := record.DefaultRules
		rules.TimestampAfterMax = record.NoTimestampLimit
		sent := slices.Clone(b)
		result, err := record.Validate(b, rules, now, record.NewDecompressor(fuzzLimits))
		if err != nil || !bytes.Equal(result.Batches, sent) {
			t.Fatalf("validate: %v, changed %t", err, !bytes.Equal(result.Batches, sent))
		}
		assertEqual(t, entries(t, b), want)

		keep := func(offset int64) bool { return offset%3 != int64(flags)%3 }
		out, filtered, err := record.NewFilterer(fuzzLimits).Filter(nil, b, record.FilterOptions{
			Keep: func(r *record.Record) bool { return keep(r.Offset) }, DeleteHorizon: now,
		})
		if err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(e entry) bool { return !keep(e.Offset) })
		if len(want) != filtered.Kept || (len(want) == 0) != (len(out) == 0) {
			t.Fatalf("kept %d records in %d bytes, want %d", filtered.Kept, len(out), len(want))
		}
		if len(want) > 0 {
			assertEqual(t, entries(t, out), want)
			if kept := record.Batch(out); kept.LastOffset() != b.LastOffset() || kept.CheckCRC() != nil {
				t.Fatalf("last offset %d, want %d", kept.LastOffset(), b.LastOffset())
			}
		}
	})
}

// cut makes records of input: each byte says how long the next field is, or that it is null.
func cut(input []byte) []entry {
	var out []entry
	field := func() []byte {
		if len(input) == 0 || input[0]%4 == 3 {
			input = input[min(1, len(input)):]
			return nil
		}
		n := min(int(input[0]), len(input)-1)
		b := input[1 : 1+n : 1+n]
		input = input[1+n:]
		return append([]byte{}, b...)
	}
	for len(input) > 0 && len(out) < 200 {
		e := entry{Offset: int64(len(out)), Timestamp: int64(input[0]) << (input[0] % 50)}
		e.Key, e.Value = field(), field()
		if len(input) > 0 && input[0]%2 == 0 {
			key := append([]byte{}, field()...)
			e.Headers = []record.Header{{Key: key, Value: field()}}
		}
		out = append(out, e)
	}
	return out
}
