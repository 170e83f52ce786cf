//go:build !race

package record_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// TestNoAllocationPerRecord compares batches of few and of many records: what is allocated may belong to a batch, never
// to a record. The race detector allocates on its own, so this file is not built with it.
func TestNoAllocationPerRecord(t *testing.T) {
	for _, codec := range codecs {
		few, many := build(t, record.BuilderOptions{Codec: codec}, sample(10, 100)...), build(t, record.BuilderOptions{Codec: codec}, sample(5000, 100)...)
		d := record.NewDecompressor(record.DefaultLimits)
		f := record.NewFilterer(record.DefaultLimits)
		builder := record.NewBuilder(record.BuilderOptions{})
		key, value := []byte("key"), make([]byte, 100)
		headers := []record.Header{{Key: key, Value: value}}
		dst := make([]byte, 0, 4<<20)
		for _, op := range []struct {
			name  string
			limit float64 // allocations for each batch
			run   func(b record.Batch)
		}{
			{"validate", 0, func(b record.Batch) {
				if _, err := record.Validate(b, record.DefaultRules, now, d); err != nil {
					t.Fatal(err)
				}
			}},
			{"iterate", 0, func(b record.Batch) {
				it := b.Records(d)
				for it.Next() {
					for range it.Record().Headers() {
						t.Fatal("the sample has no headers")
					}
				}
				if it.Err() != nil {
					t.Fatal(it.Err())
				}
			}},
			{"filter", 6, func(b record.Batch) {
				var err error
				if dst, _, err = f.Filter(dst[:0], b, record.FilterOptions{Keep: func(r *record.Record) bool { return r.Offset%2 == 0 }}); err != nil {
					t.Fatal(err)
				}
			}},
			{"build", 6, func(b record.Batch) {
				builder.Reset(record.BuilderOptions{Codec: codec})
				for range b.Count() {
					builder.Append(now, key, value, headers...)
				}
				if _, err := builder.Batch(); err != nil {
					t.Fatal(err)
				}
			}},
		} {
			op.run(many) // buffers grow to their final size
			for _, b := range []record.Batch{few, many} {
				if allocs := testing.AllocsPerRun(5, func() { op.run(b) }); allocs > op.limit {
					t.Errorf("%s, %s: %.1f allocations for a batch of %d records, want at most %.0f", codec, op.name, allocs, b.Count(), op.limit)
				}
			}
		}
	}
}
