package record_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/record"
)

// drawEntries draws the records of a batch at base, contiguous as producers send them.
func drawEntries(t *rapid.T, base int64) []entry {
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 40), rapid.Map(rapid.IntRange(0, 10_000), func(n int) []byte {
		return bytes.Repeat([]byte("abc"), n/3)
	}))
	timestamp := rapid.Int64Range(now-2*time.Hour.Milliseconds(), now+2*time.Hour.Milliseconds())
	var out []entry
	for i := range rapid.IntRange(1, 12).Draw(t, "records") {
		e := entry{Offset: base + int64(i), Timestamp: timestamp.Draw(t, "timestamp"), Key: field.Draw(t, "key"), Value: field.Draw(t, "value")}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			e.Headers = append(e.Headers, record.Header{Key: append([]byte{}, field.Draw(t, "header key")...), Value: field.Draw(t, "header value")})
		}
		out = append(out, e)
	}
	return out
}

// rapidTB lets the helpers of testing.TB report to rapid.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (r rapidTB) Helper()                   {}
func (r rapidTB) Fatal(args ...any)         { r.t.Fatal(args...) }
func (r rapidTB) Fatalf(f string, a ...any) { r.t.Fatalf(f, a...) }

// TestValidateAgainstModel compares Validate with the rules applied naively to a slice of records.
func TestValidateAgainstModel(t *testing.T) {
	d := record.NewDecompressor(record.DefaultLimits)
	rapid.Check(t, func(rt *rapid.T) {
		tb := rapidTB{t, rt}
		records := drawEntries(rt, 0)
		codec := rapid.SampledFrom(codecs).Draw(rt, "codec")
		rules := record.Rules{
			MaxMessageBytes: 64 << 20, TimestampBeforeMax: time.Hour, TimestampAfterMax: time.Hour, Client: true,
			TimestampType: rapid.SampledFrom([]record.TimestampType{record.CreateTime, record.LogAppendTime}).Draw(rt, "type"),
			Compacted:     rapid.Bool().Draw(rt, "compacted"), Compression: rapid.SampledFrom(codecs).Draw(rt, "target"),
		}
		var bad []int32
		badTimestamp := false
		greatest := 0
		for i, e := range records {
			outside := e.Timestamp < now-time.Hour.Milliseconds() || e.Timestamp > now+time.Hour.Milliseconds()
			switch {
			case rules.Compacted && e.Key == nil:
				bad = append(bad, int32(i))
			case rules.TimestampType == record.CreateTime && outside:
				bad = append(bad, int32(i))
				badTimestamp = true
			}
			if e.Timestamp > records[greatest].Timestamp {
				greatest = i
			}
		}

		result, err := record.Validate(build(tb, record.BuilderOptions{Codec: codec}, records...), rules, now, d)
		var invalid *record.InvalidError
		var timestamp *record.TimestampError
		var listed []record.Fault
		switch {
		case len(bad) == 0:
			if err != nil {
				rt.Fatal(err)
			}
			want := record.Result{
				Batches: result.Batches, Rewritten: codec != rules.Compression, BatchCount: 1, Count: len(records), LastOffset: int64(len(records)) - 1,
				MaxTimestamp: records[greatest].Timestamp, OffsetOfMaxTimestamp: int64(greatest),
			}
			if rules.TimestampType == record.LogAppendTime {
				want.MaxTimestamp, want.OffsetOfMaxTimestamp = now, 0
				for i := range records {
					records[i].Timestamp = now
				}
			}
			result.Batches, want.Batches = nil, nil
			if !equalResults(result, want) {
				rt.Fatalf("got %+v, want %+v", result, want)
			}
			return
		case errors.As(err, &timestamp) && badTimestamp:
			listed = timestamp.Records
		case errors.As(err, &invalid) && !badTimestamp:
			listed = invalid.Records
		default:
			rt.Fatalf("got %v; records %v are bad, of timestamp %t", err, bad, badTimestamp)
		}
		var indexes []int32
		for _, e := range listed {
			indexes = append(indexes, e.Index)
		}
		if !slices.Equal(indexes, bad) {
			rt.Fatalf("records %v refused, want %v", indexes, bad)
		}
	})
}

func equalResults(a, b record.Result) bool {
	return a.Rewritten == b.Rewritten && a.BatchCount == b.BatchCount && a.Count == b.Count && a.LastOffset == b.LastOffset &&
		a.MaxTimestamp == b.MaxTimestamp && a.OffsetOfMaxTimestamp == b.OffsetOfMaxTimestamp
}

// TestCompactionAgainstModel filters one batch again and again, as successive compactions do, beside a slice of records.
func TestCompactionAgainstModel(t *testing.T) {
	f := record.NewFilterer(record.DefaultLimits)
	rapid.Check(t, func(rt *rapid.T) {
		tb := rapidTB{t, rt}
		base := rapid.Int64Range(0, 1<<50).Draw(rt, "base")
		model := drawEntries(rt, base)
		options := record.BuilderOptions{
			BaseOffset: base, LeaderEpoch: 3, Codec: rapid.SampledFrom(codecs).Draw(rt, "codec"),
			HasProducer: true, ProducerID: 8, ProducerEpoch: 1, BaseSequence: 1<<31 - 3, Transactional: true,
		}
		b := build(tb, options, model...)
		last, lastSequence, horizon := b.LastOffset(), b.LastSequence(), record.NoTimestamp
		for pass := range rapid.IntRange(1, 4).Draw(rt, "passes") {
			var kept []entry
			tombstone := false
			for _, e := range model {
				if rapid.IntRange(0, 3).Draw(rt, "keep") > 0 {
					kept = append(kept, e)
					tombstone = tombstone || e.Value == nil
				}
			}
			next := 0
			out, filtered, err := f.Filter(nil, b, record.FilterOptions{
				KeepEmpty: true, DeleteHorizon: now + int64(pass),
				Keep: func(r *record.Record) bool {
					keep := next < len(kept) && kept[next].Offset == r.Offset
					if keep {
						next++
					}
					return keep
				},
			})
			if err != nil {
				rt.Fatal(err)
			}
			if tombstone && horizon == record.NoTimestamp {
				horizon = now + int64(pass)
			}
			if len(kept) == 0 {
				horizon = record.NoTimestamp
			}
			b, model = record.Batch(out), kept
			if err := b.CheckCRC(); err != nil {
				rt.Fatal(err)
			}
			assertEqual(tb, entries(tb, b), model)
			if b.BaseOffset() != base || b.LastOffset() != last || b.LastSequence() != lastSequence || b.ProducerID() != 8 ||
				!b.Transactional() || b.PartitionLeaderEpoch() != 3 || b.DeleteHorizon() != horizon || filtered.Kept != len(model) {
				rt.Fatalf("pass %d: header changed: %+v, horizon %d, want %d", pass, filtered, b.DeleteHorizon(), horizon)
			}
		}
	})
}
