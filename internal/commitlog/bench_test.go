package commitlog

import (
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// benchBatchBytes is about what a producer with Kafka's default batch.size sends.
const benchBatchBytes = 16 << 10

// benchBatch is a batch of records of one size, about benchBatchBytes in all.
func benchBatch(b testing.TB, recordBytes int) record.Batch {
	b.Helper()
	builder := record.NewBuilder(record.BuilderOptions{LeaderEpoch: -1})
	value := make([]byte, recordBytes)
	for i := range max(1, benchBatchBytes/recordBytes) {
		for j := range value {
			value[j] = byte(i*31 + j*7)
		}
		builder.Append(time.Now().UnixMilli(), nil, value)
	}
	batch, err := builder.Batch()
	if err != nil {
		b.Fatal(err)
	}
	return batch
}

func openBench(b testing.TB, dir string, change func(*Config)) *Log {
	b.Helper()
	config := DefaultConfig()
	config.TimestampBeforeMax, config.TimestampAfterMax = math.MaxInt64, math.MaxInt64
	if change != nil {
		change(&config)
	}
	l, _, err := Open(Options{FS: vfs.NewDisk(vfs.Options{}), Dir: dir, Topic: "bench", Config: config, Clean: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// benchRoom is how many bytes a benchmark writes before it starts its file again: few enough not to be throttled by the
// system's write-back, and to fit on a small disk.
const benchRoom = 64 << 20

// BenchmarkAppend measures appends of 16 KiB batches, and prints how much longer one takes than a bare pwritev of the same
// bytes with its checksum (and, with fsync, an fdatasync) by as many writers: x-raw. Aim: 1.5 in the page cache; with
// fsync 16 writers at 0.8 of the raw device or better.
func BenchmarkAppend(b *testing.B) {
	for _, fsync := range []bool{false, true} {
		for _, recordBytes := range []int{100, 1 << 10, 10 << 10} {
			for _, writers := range []int{1, 16} {
				mode := "cache"
				if fsync {
					mode = "fsync"
				}
				b.Run(fmt.Sprintf("%s/record=%d/writers=%d", mode, recordBytes, writers), func(b *testing.B) {
					benchAppend(b, fsync, recordBytes, writers)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, fsync bool, recordBytes, writers int) {
	batch := benchBatch(b, recordBytes)
	l := openBench(b, b.TempDir(), func(c *Config) { c.SegmentBytes, c.FileDeleteDelay = benchRoom, 0 })
	file, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	ours := func(own record.Batch) error {
		own.Stamp(0, -1)
		_, err := l.Append(b.Context(), Append{Batches: own, Epoch: 0})
		if err == nil && fsync {
			_, err = l.Sync(b.Context())
		}
		return err
	}
	var position atomic.Int64
	table := crc32.MakeTable(crc32.Castagnoli)
	raw := func(own record.Batch) error {
		crc32.Checksum(own[21:], table)
		_, err := file.WriteAt(own, position.Add(int64(len(own)))-int64(len(own)))
		if err == nil && fsync {
			err = syncData(file)
		}
		return err
	}
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	// Both take turns, so that what else the machine does hits both; each starts its file again before it fills the disk.
	var rawTook time.Duration
	slice := max(min(b.N/8, benchRoom/len(batch)), 1)
	b.ResetTimer()
	for done := 0; done < b.N; done += slice {
		n := min(slice, b.N-done)
		runWriters(b, n, writers, batch, ours)
		b.StopTimer()
		started := time.Now()
		runWriters(b, n, writers, batch, raw)
		rawTook += time.Since(started)
		position.Store(0)
		if err := file.Truncate(0); err != nil {
			b.Fatal(err)
		}
		if err := l.RaiseStart(l.EndOffset()); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Maintain(time.Now(), l.EndOffset()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed())/float64(rawTook), "x-raw")
	b.ReportMetric(float64(b.N)*float64(max(1, benchBatchBytes/recordBytes))/b.Elapsed().Seconds(), "records/s")
}

// runWriters does n calls from as many goroutines as there are writers, each with its own copy of the batch.
func runWriters(b *testing.B, n, writers int, batch record.Batch, each func(record.Batch) error) {
	var group sync.WaitGroup
	var next atomic.Int64
	for range writers {
		group.Go(func() {
			own := slices.Clone(batch)
			for next.Add(1) <= int64(n) {
				if err := each(own); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkRead measures reads of 1 MiB, located and copied out, beside a bare pread of as much: x-raw.
func BenchmarkRead(b *testing.B) {
	for _, recordBytes := range []int{100, 1 << 10, 10 << 10} {
		b.Run(fmt.Sprintf("record=%d", recordBytes), func(b *testing.B) {
			l := openBench(b, b.TempDir(), func(c *Config) { c.SegmentBytes = 64 << 20 })
			fillBench(b, l, benchBatch(b, recordBytes), 128<<20)
			const want = 1 << 20
			buf := make([]byte, want)
			segment := (*l.segments.Load())[0]
			offset, end := int64(0), l.EndOffset()
			var total int64
			var raw time.Duration
			b.ReportAllocs()
			for b.Loop() {
				slice, err := l.Read(offset, want, end, true)
				if err == nil {
					err = slice.CopyTo(buf[:slice.Bytes()])
				}
				if err != nil {
					b.Fatal(err)
				}
				total += slice.Bytes()
				b.StopTimer()
				offset = lastBatch(buf[:slice.Bytes()]).LastOffset() + 1
				if offset >= end-1 {
					offset = 0
				}
				started := time.Now()
				if _, err := segment.log.ReadAt(buf[:slice.Bytes()], slice.Runs[0].Offset%(32<<20)); err != nil {
					b.Fatal(err)
				}
				raw += time.Since(started)
				slice.Release()
				b.StartTimer()
			}
			b.SetBytes(total / int64(b.N))
			b.ReportMetric(float64(b.Elapsed())/float64(raw), "x-raw")
		})
	}
}

func lastBatch(data []byte) record.Batch {
	var last record.Batch
	for len(data) > 0 {
		last, data, _ = record.Next(data)
	}
	return last
}

// fillBench appends copies of a batch until the log holds so many bytes.
func fillBench(b testing.TB, l *Log, batch record.Batch, bytes int64) {
	b.Helper()
	for own := slices.Clone(batch); bytes > 0; bytes -= int64(len(batch)) {
		own.Stamp(0, -1)
		if _, err := l.Append(b.Context(), Append{Batches: own, Epoch: 0}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecover measures the scan after an unclean stop beside a bare read of the same file: of-raw is the part of the
// raw speed that is reached. Aim: 0.7.
func BenchmarkRecover(b *testing.B) {
	for _, recordBytes := range []int{100, 1 << 10, 10 << 10} {
		b.Run(fmt.Sprintf("record=%d", recordBytes), func(b *testing.B) {
			dir := b.TempDir()
			l := openBench(b, dir, nil)
			fillBench(b, l, benchBatch(b, recordBytes), 256<<20)
			size := l.Size()
			options := l.options
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			options.Clean, options.FS = false, vfs.NewDisk(vfs.Options{})
			file, err := os.Open(filepath.Join(dir, segmentName(0, logSuffix)))
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			buf := make([]byte, batchScanBytes)
			var raw time.Duration
			b.SetBytes(size)
			for b.Loop() {
				again, recovery, err := Open(options)
				if err != nil || recovery.ScannedBytes != size || recovery.CutBytes != 0 {
					b.Fatal(recovery, err)
				}
				b.StopTimer()
				again.abandon()
				started := time.Now()
				for at := int64(0); ; at += int64(len(buf)) {
					if _, err := file.ReadAt(buf, at); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
				raw += time.Since(started)
				b.StartTimer()
			}
			b.ReportMetric(float64(raw)/float64(b.Elapsed()), "of-raw")
		})
	}
}

// BenchmarkIndexLookup measures finding an offset in a closed segment whose index is not in memory but for its fence, and
// in the tail that is.
func BenchmarkIndexLookup(b *testing.B) {
	const entries = 100_000
	for _, inFile := range []bool{true, false} {
		b.Run(fmt.Sprintf("file=%v", inFile), func(b *testing.B) {
			disk, name := vfs.NewDisk(vfs.Options{}), filepath.Join(b.TempDir(), "index")
			var x index
			x.start(offsetEntryBytes)
			for i := range int64(entries) {
				x.append(appendOffsetEntry(nil, i*10, i*4096))
			}
			if inFile {
				if err := x.flush(disk, name); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := int64(0)
			for b.Loop() {
				i = (i*1103515245 + 12345) % (entries * 10)
				if e, found, err := x.floor(offsetColumn, i); err != nil || !found || positionColumn.of(e[:]) != i/10*4096 {
					b.Fatal(i, e, found, err)
				}
			}
		})
	}
}

// BenchmarkOpen10kPartitions measures a clean start of a data directory with 10,000 partitions of one batch each, and what
// an idle one then costs. Aim: 3 s, 20 KiB each.
func BenchmarkOpen10kPartitions(b *testing.B) {
	const partitions = 10_000
	o := ManagerOptions{FS: vfs.NewDisk(vfs.Options{}), Dir: filepath.Join(b.TempDir(), "data"), NodeID: 1, ClusterID: "c", FreeBytesMin: -1}
	m, err := OpenManager(o)
	if err != nil {
		b.Fatal(err)
	}
	if err := m.SetCluster("c"); err != nil {
		b.Fatal(err)
	}
	batch := benchBatch(b, 100)
	for p := range int32(partitions) {
		l, err := m.Open("bench", meta.TopicID{1}, p, DefaultConfig())
		if err == nil {
			batch.Stamp(0, -1)
			_, err = l.Append(b.Context(), Append{Batches: batch, Epoch: 0})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := m.Close(1); err != nil {
		b.Fatal(err)
	}
	m = nil
	var memory float64
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		o.FS = vfs.NewDisk(vfs.Options{})
		before := heapInUse()
		b.StartTimer()
		m, err := OpenManager(o)
		if err != nil {
			b.Fatal(err)
		}
		summary, err := m.Load(b.Context(), func(string) Config { return DefaultConfig() })
		if err != nil || summary.Partitions != partitions || summary.Scanned != 0 {
			b.Fatal(summary, err)
		}
		b.StopTimer()
		memory = (heapInUse() - before) / partitions / 1024
		if err := m.Close(1); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(memory, "KiB/partition")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/open")
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc)
}
