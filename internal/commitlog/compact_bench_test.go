package commitlog

import (
	"fmt"
	"testing"

	"github.com/tidemark-io/tidemark/internal/record"
)

// BenchmarkCompact is one pass over a log of 32 MiB, in batches of 100 records of 100 bytes, of which one in eight is the last of its
// key, on a disk in memory: what compaction costs besides the disk.
func BenchmarkCompact(b *testing.B) {
	for _, codec := range []record.Codec{record.None, record.LZ4, record.Zstd} {
		b.Run(codec.String(), func(b *testing.B) {
			const batches, records = 2600, 100
			var bytes int64
			for b.Loop() {
				b.StopTimer()
				c := newCompactLog(b, func(c *Config) { c.SegmentBytes = 8 << 20 })
				builder := record.NewBuilder(record.BuilderOptions{})
				value := make([]byte, 90)
				for i := range batches {
					builder.Reset(record.BuilderOptions{BaseOffset: int64(i * records), Codec: codec})
					for j := range records {
						builder.Append(c.now.UnixMilli(), fmt.Appendf(nil, "key%07d", (i*records+j)*7919%(batches*records/8)), value)
					}
					built, err := builder.Batch()
					if err != nil {
						b.Fatal(err)
					}
					c.write(built)
				}
				c.roll()
				bytes = c.log.Size()
				cleaner := NewCleaner(CleanerOptions{})
				b.StartTimer()
				result, err := c.log.Compact(b.Context(), cleaner, c.log.EndOffset())
				if err != nil || result.End != batches*records {
					b.Fatalf("%+v, %v", result, err)
				}
			}
			b.SetBytes(bytes)
			b.ReportMetric(float64(batches*records*b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportAllocs()
		})
	}
}

// BenchmarkKeyMap is what a key costs in the map of a pass.
func BenchmarkKeyMap(b *testing.B) {
	m := newKeyMap(256 << 20)
	var key [16]byte
	offset := int64(0)
	for b.Loop() {
		for i := range 8 {
			key[i] = byte(offset >> (8 * i))
		}
		if !m.put(key[:], offset) {
			m.clear()
		}
		offset++
	}
	b.ReportAllocs()
}
