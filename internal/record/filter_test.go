package record_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

func TestFilterKeepsAnUntouchedBatchAsItIs(t *testing.T) {
	for _, codec := range codecs {
		b := build(t, record.BuilderOptions{BaseOffset: 10, Codec: codec}, shifted(sample(20, 100), 10)...)
		prefix := []byte("prefix")
		got, result, err := record.NewFilterer(record.DefaultLimits).Filter(prefix, b, record.FilterOptions{DeleteHorizon: 1})
		if err != nil || !result.Unchanged || result.Kept != 20 || result.OffsetOfMaxTimestamp != 29 {
			t.Errorf("%s: %+v, %v", codec, result, err)
		}
		if !bytes.Equal(got, append(prefix, b...)) {
			t.Errorf("%s: the batch changed", codec)
		}
	}
}

func TestFilterEveryCodec(t *testing.T) {
	const horizon = now + 5
	f := record.NewFilterer(record.DefaultLimits)
	for _, codec := range codecs {
		all := shifted(sample(40, 100), 1000)
		all[7].Value, all[8].Value = nil, nil
		b := build(t, record.BuilderOptions{BaseOffset: 1000, LeaderEpoch: 4, Codec: codec, HasProducer: true, ProducerID: 1, BaseSequence: 9}, all...)
		keep := func(r *record.Record) bool { return r.Offset%3 == 1 || r.Offset == 1007 }
		out, result, err := f.Filter(nil, b, record.FilterOptions{Keep: keep, DeleteHorizon: horizon})
		if err != nil {
			t.Fatal(err)
		}
		var want []entry
		for _, e := range all {
			if keep(&record.Record{Offset: e.Offset}) {
				want = append(want, e)
			}
		}
		got := record.Batch(out)
		assertEqual(t, entries(t, got), want)
		if got.Codec() != codec || got.LastOffset() != 1039 || got.LastSequence() != 48 || got.DeleteHorizon() != horizon ||
			got.PartitionLeaderEpoch() != 4 || got.CheckCRC() != nil || result.Kept != len(want) {
			t.Errorf("%s: %+v, last offset %d, last sequence %d, horizon %d", codec, result, got.LastOffset(), got.LastSequence(), got.DeleteHorizon())
		}

		// A second pass keeps the horizon, though it has a later one to offer, and may remove the tombstone.
		out, _, err = f.Filter(nil, got, record.FilterOptions{Keep: func(r *record.Record) bool { return r.Value != nil }, DeleteHorizon: horizon + 99})
		if err != nil || record.Batch(out).DeleteHorizon() != horizon {
			t.Errorf("%s: horizon %d after a second pass, %v", codec, record.Batch(out).DeleteHorizon(), err)
		}

		// A third removes all. An empty batch can itself be filtered, and is then kept or dropped whole.
		out, result, err = f.Filter(nil, out, record.FilterOptions{Keep: func(*record.Record) bool { return false }, KeepEmpty: true})
		if empty := record.Batch(out); err != nil || empty.Count() != 0 || empty.LastSequence() != 48 || len(empty) != record.HeaderBytes || result.MaxTimestamp != empty.MaxTimestamp() {
			t.Errorf("%s: empty batch %x, %+v, %v", codec, out, result, err)
		}
		again, _, err := f.Filter(nil, out, record.FilterOptions{KeepEmpty: true})
		if err != nil || !bytes.Equal(again, out) {
			t.Errorf("%s: empty batch became %x, %v", codec, again, err)
		}
		if out, _, err = f.Filter(nil, again, record.FilterOptions{}); len(out) != 0 || err != nil {
			t.Errorf("%s: empty batch kept: %x, %v", codec, out, err)
		}
	}
}

func TestFilterReportsABrokenBatch(t *testing.T) {
	for _, codec := range codecs {
		b := patch(build(t, record.BuilderOptions{Codec: codec}, sample(4, 100)...), func(b record.Batch) { put32(b, 57, 5) })
		dst := []byte("kept")
		out, _, err := record.NewFilterer(record.DefaultLimits).Filter(dst, b, record.FilterOptions{KeepEmpty: true})
		if !errors.Is(err, record.ErrInvalid) || string(out) != "kept" {
			t.Errorf("%s: %q, %v", codec, out, err)
		}
	}
}

// shifted moves entries to offsets from base.
func shifted(entries []entry, base int64) []entry {
	for i := range entries {
		entries[i].Offset += base
	}
	return entries
}
