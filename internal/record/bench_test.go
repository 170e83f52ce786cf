package record_test

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/yardstick"
)

// batchOf is a batch of about a mebibyte of uncompressed records of the given size.
func batchOf(b *testing.B, codec record.Codec, recordBytes int) (batch record.Batch, uncompressedBytes int) {
	b.Helper()
	builder := record.NewBuilder(record.BuilderOptions{Codec: codec})
	for _, e := range sample((1<<20)/recordBytes, recordBytes) {
		builder.Append(e.Timestamp, e.Key, e.Value, e.Headers...)
	}
	batch, err := builder.Batch()
	if err != nil {
		b.Fatal(err)
	}
	return batch, builder.UncompressedBytes()
}

var benchmarkSizes = []struct {
	name  string
	bytes int
}{{"100B", 100}, {"1KiB", 1 << 10}, {"10KiB", 10 << 10}}

// BenchmarkValidate measures Validate, which checks the CRC and walks every record, beside a bare CRC-32C of the same
// bytes. MB/s counts uncompressed bytes.
func BenchmarkValidate(b *testing.B) {
	for _, codec := range codecs {
		for _, size := range benchmarkSizes {
			b.Run(fmt.Sprintf("%s/%s", codec, size.name), func(b *testing.B) {
				batch, uncompressed := batchOf(b, codec, size.bytes)
				rules, d := record.DefaultRules, record.NewDecompressor(record.DefaultLimits)
				rules.MaxMessageBytes = 4 << 20
				yardstick.Run(b, yardstick.Contest{
					Bytes: int64(uncompressed), Turn: 4,
					Ours: func(n int) error {
						for range n {
							if _, err := record.Validate(batch, rules, now, d); err != nil {
								return err
							}
						}
						return nil
					},
					Raw: func(n int) error {
						for range n {
							crc32.Checksum(batch[21:], castagnoli)
						}
						return nil
					},
				})
			})
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BenchmarkValidateRecompress measures what a topic's compression.type costs when producers use another.
func BenchmarkValidateRecompress(b *testing.B) {
	for _, to := range codecs {
		b.Run("gzip-to-"+to.String(), func(b *testing.B) {
			batch, uncompressed := batchOf(b, record.Gzip, 1<<10)
			rules, d := record.DefaultRules, record.NewDecompressor(record.DefaultLimits)
			rules.KeepCodec, rules.Compression, rules.MaxMessageBytes = false, to, 4<<20
			b.SetBytes(int64(uncompressed))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := record.Validate(batch, rules, now, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIterate measures reading every record with key, value and headers.
func BenchmarkIterate(b *testing.B) {
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			batch, uncompressed := batchOf(b, codec, 100)
			d := record.NewDecompressor(record.DefaultLimits)
			b.SetBytes(int64(uncompressed))
			b.ReportAllocs()
			for b.Loop() {
				it := batch.Records(d)
				for it.Next() {
				}
				if it.Err() != nil {
					b.Fatal(it.Err())
				}
			}
		})
	}
}

// BenchmarkBuild measures building a batch of 100-byte records.
func BenchmarkBuild(b *testing.B) {
	records := sample(10_000, 100)
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			builder := record.NewBuilder(record.BuilderOptions{})
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset(record.BuilderOptions{Codec: codec})
				for i := range records {
					builder.Append(records[i].Timestamp, records[i].Key, records[i].Value)
				}
				if _, err := builder.Batch(); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(builder.UncompressedBytes()))
			}
		})
	}
}

// BenchmarkFilter measures compaction that removes every second record.
func BenchmarkFilter(b *testing.B) {
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			batch, uncompressed := batchOf(b, codec, 100)
			f := record.NewFilterer(record.DefaultLimits)
			keep := func(r *record.Record) bool { return r.Offset%2 == 0 }
			var dst []byte
			b.SetBytes(int64(uncompressed))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, _, err = f.Filter(dst[:0], batch, record.FilterOptions{Keep: keep}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
