package commitlog

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
	"github.com/tidemark-io/tidemark/internal/yardstick"
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
	return openBenchIn(b, Options{FS: vfs.NewDisk(vfs.Options{}), Dir: dir}, change)
}

func openBenchIn(b testing.TB, options Options, change func(*Config)) *Log {
	b.Helper()
	options.Topic, options.Config, options.Clean = "bench", DefaultConfig(), true
	options.Config.TimestampBeforeMax, options.Config.TimestampAfterMax = math.MaxInt64, math.MaxInt64
	if change != nil {
		change(&options.Config)
	}
	l, _, err := Open(options)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// benchRoom is how many bytes a benchmark writes before it starts its file again: few enough not to be throttled by the
// system's write-back, and to fit on a small disk.
const benchRoom = 64 << 20

// BenchmarkAppend measures appends of 16 KiB batches beside the least that can be done with the same bytes: their checksum
// and a bare pwritev by as many writers; with fsync one pwritev of what all writers have to say and one fdatasync. Aims:
// 1.5 times the raw time in the page cache; with fsync 0.8 of the raw speed.
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
	l := openBench(b, b.TempDir(), func(c *Config) { c.SegmentBytes, c.FileDeleteDelay, c.FlushAcks = benchRoom, 0, fsync })
	runSyncer(b, l.options.Syncer)
	synced := awaitSyncs(l)
	file, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	own := make([]record.Batch, writers)
	for i := range own {
		own[i] = slices.Clone(batch)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	var position atomic.Int64
	written := 0 // bytes since the files were started again
	c := yardstick.Contest{Bytes: int64(len(batch)), Turn: 64}
	c.Ours = func(n int) error {
		return inParallel(n, writers, func(i int) error {
			own[i].Stamp(0, -1)
			appended, err := l.Append(b.Context(), Append{Batches: own[i], Epoch: 0})
			if err == nil && fsync {
				synced(appended.Last)
			}
			return err
		})
	}
	c.Raw = func(n int) error {
		return inParallel(n, writers, func(i int) error {
			crc32.Checksum(own[i][21:], table)
			_, err := file.WriteAt(own[i], position.Add(int64(len(batch)))-int64(len(batch)))
			return err
		})
	}
	if fsync {
		c.Turn = 16 * writers
		c.Raw = func(n int) error { return rawSynced(file, own, n, &position) }
	}
	c.Rest = func() error { // each starts its file again before the disk is full or the system throttles them
		if written += c.Turn * len(batch); written < benchRoom/2 {
			return nil
		}
		written = 0
		position.Store(0)
		_, err := l.Maintain(time.Now(), l.EndOffset())
		return errors.Join(file.Truncate(0), l.RaiseStart(l.EndOffset()), err)
	}
	yardstick.Run(b, c)
}

// BenchmarkAppendLogs measures as many writers as logs, each with a log of its own, all in one data directory and with
// fsync, beside one pwritev of what all of them have to say to one file and one fdatasync. Aim: 0.8 of the raw speed.
func BenchmarkAppendLogs(b *testing.B) {
	for _, logs := range []int{4, 16} {
		b.Run(fmt.Sprintf("fsync/record=1024/logs=%d", logs), func(b *testing.B) { benchAppendLogs(b, logs) })
	}
}

func benchAppendLogs(b *testing.B, writers int) {
	disk, dir := vfs.NewDisk(vfs.Options{}), b.TempDir()
	syncer := NewSyncer(disk, dir)
	syncer.SyncAllAllowed = littleUnwritten
	runSyncer(b, syncer)
	batch := benchBatch(b, 1<<10)
	logs, synced, own := make([]*Log, writers), make([]func(int64), writers), make([]record.Batch, writers)
	for i := range logs {
		logs[i] = openBenchIn(b, Options{FS: disk, Dir: filepath.Join(dir, fmt.Sprint("bench-", i)), Syncer: syncer},
			func(c *Config) { c.SegmentBytes, c.FileDeleteDelay, c.FlushAcks = benchRoom, 0, true })
		synced[i] = awaitSyncs(logs[i])
		own[i] = slices.Clone(batch)
	}
	file, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	var position atomic.Int64
	written := 0
	c := yardstick.Contest{Bytes: int64(len(batch)), Turn: 16 * writers}
	c.Ours = func(n int) error {
		return inParallel(n, writers, func(i int) error {
			own[i].Stamp(0, -1)
			appended, err := logs[i].Append(b.Context(), Append{Batches: own[i], Epoch: 0})
			if err == nil {
				synced[i](appended.Last)
			}
			return err
		})
	}
	c.Raw = func(n int) error { return rawSynced(file, own, n, &position) }
	c.Rest = func() error {
		if written += c.Turn * len(batch); written < benchRoom/2 {
			return nil
		}
		written = 0
		position.Store(0)
		errs := file.Truncate(0)
		for _, l := range logs {
			_, err := l.Maintain(time.Now(), l.EndOffset())
			errs = errors.Join(errs, l.RaiseStart(l.EndOffset()), err)
		}
		return errs
	}
	yardstick.Run(b, c)
}

// runSyncer runs the group commits of a data directory, as a broker does.
func runSyncer(b *testing.B, s *Syncer) {
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(ctx) })
	b.Cleanup(func() { cancel(); group.Wait() })
}

// awaitSyncs returns a function that waits until an offset of the log is synced.
func awaitSyncs(l *Log) func(last int64) {
	var mu sync.Mutex
	rose := sync.NewCond(&mu)
	l.SetHooks(Hooks{Synced: func(int64) {
		mu.Lock()
		defer mu.Unlock()
		rose.Broadcast()
	}})
	return func(last int64) {
		mu.Lock()
		defer mu.Unlock()
		for l.SyncedOffset() <= last {
			rose.Wait()
		}
	}
}

// rawSynced writes n batches, one of each writer with one system call, and syncs after each such call.
func rawSynced(file *os.File, own []record.Batch, n int, position *atomic.Int64) error {
	joined := slices.Concat(own...)
	table := crc32.MakeTable(crc32.Castagnoli)
	for n > 0 {
		k := min(n, len(own))
		part := joined[:k*len(own[0])]
		crc32.Checksum(part, table)
		_, err := file.WriteAt(part, position.Add(int64(len(part)))-int64(len(part)))
		if err == nil {
			err = syncData(file)
		}
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// inParallel does n calls from as many goroutines as there are workers; each call is told its worker.
func inParallel(n, workers int, each func(worker int) error) error {
	if workers == 1 {
		for range n {
			if err := each(0); err != nil {
				return err
			}
		}
		return nil
	}
	var group errgroup.Group
	var next atomic.Int64
	for worker := range workers {
		group.Go(func() error {
			for next.Add(1) <= int64(n) {
				if err := each(worker); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// BenchmarkRead measures reads of up to 1 MiB of whole batches, located and copied out, beside a bare pread of as much by
// as many readers. All of it is in the page cache.
func BenchmarkRead(b *testing.B) {
	for _, recordBytes := range []int{100, 1 << 10, 10 << 10} {
		for _, readers := range []int{1, 16} {
			b.Run(fmt.Sprintf("record=%d/readers=%d", recordBytes, readers), func(b *testing.B) {
				benchRead(b, recordBytes, readers)
			})
		}
	}
}

func benchRead(b *testing.B, recordBytes, readers int) {
	const want, total = 1 << 20, 64 << 20
	l := openBench(b, b.TempDir(), func(c *Config) { c.SegmentBytes = total / 2 })
	batch := benchBatch(b, recordBytes)
	fillBench(b, l, batch, total)
	perRead := int64(want / len(batch) * len(batch))
	recordsPerRead := int64(want/len(batch)) * int64(batch.Count())
	reads := l.EndOffset()/recordsPerRead - 1
	segments, end := *l.segments.Load(), l.EndOffset()
	bufs := make([][]byte, readers)
	for i := range bufs {
		bufs[i] = make([]byte, want)
	}
	var next, rawNext atomic.Int64
	yardstick.Run(b, yardstick.Contest{
		Bytes: perRead, Turn: 32,
		Ours: func(n int) error {
			return inParallel(n, readers, func(i int) error {
				slice, err := l.Read(next.Add(1)%reads*recordsPerRead, want, end, true)
				if err == nil {
					err = slice.CopyTo(bufs[i][:slice.Bytes()])
					slice.Release()
				}
				return err
			})
		},
		Raw: func(n int) error {
			return inParallel(n, readers, func(i int) error {
				// The same places in the same order: what the processor's caches hold is a third of the time.
				at, s := rawNext.Add(1)%reads*perRead, segments[0]
				for _, next := range segments[1:] {
					if at < s.size.Load() {
						break
					}
					at, s = at-s.size.Load(), next
				}
				_, err := s.log.ReadAt(bufs[i][:min(perRead, s.size.Load()-at)], at)
				return err
			})
		},
	})
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

// BenchmarkRecover measures the scan after an unclean stop beside a bare read of the same file. Aim: 0.7 of its speed.
func BenchmarkRecover(b *testing.B) {
	for _, recordBytes := range []int{100, 1 << 10, 10 << 10} {
		b.Run(fmt.Sprintf("record=%d", recordBytes), func(b *testing.B) {
			dir := b.TempDir()
			l := openBench(b, dir, nil)
			fillBench(b, l, benchBatch(b, recordBytes), 64<<20)
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
			buf := make([]byte, 512<<10)
			var again *Log
			yardstick.Run(b, yardstick.Contest{
				Bytes: size,
				Ours: func(int) error {
					var recovery Recovery
					var err error
					again, recovery, err = Open(options)
					if err == nil && (recovery.ScannedBytes != size || recovery.CutBytes != 0) {
						err = fmt.Errorf("recovered %+v of %d bytes", recovery, size)
					}
					return err
				},
				Raw: func(int) error {
					for at := int64(0); ; at += int64(len(buf)) {
						if _, err := file.ReadAt(buf, at); err == io.EOF {
							return nil
						} else if err != nil {
							return err
						}
					}
				},
				Rest: func() error { again.abandon(); return nil },
			})
		})
	}
}

// BenchmarkIndexLookup measures finding an offset: in a closed segment of which memory holds a fence only, beside the one
// pread that its index page takes; and in the tail that is in memory, beside a binary search of the bare entries.
func BenchmarkIndexLookup(b *testing.B) {
	const entries = 100_000
	offset := func(i int) int64 { return int64(i) * 1103515245 % (entries * 10) }
	for _, inFile := range []bool{true, false} {
		b.Run(fmt.Sprintf("file=%v", inFile), func(b *testing.B) {
			disk, name := vfs.NewDisk(vfs.Options{}), filepath.Join(b.TempDir(), "index")
			var x index
			x.start(offsetEntryBytes)
			var bare []byte
			for i := range int64(entries) {
				bare = appendOffsetEntry(bare, i*10, i*4096)
				x.append(appendOffsetEntry(nil, i*10, i*4096))
			}
			if err := os.WriteFile(name, bare, 0o600); err != nil {
				b.Fatal(err)
			}
			c := yardstick.Contest{Turn: 1000}
			c.Raw = func(n int) error {
				for i := range n {
					want := offset(i)
					at := sort.Search(entries, func(k int) bool { return offsetColumn.of(bare[k*offsetEntryBytes:]) > want })
					if at == 0 {
						return errors.New("not found")
					}
				}
				return nil
			}
			if inFile {
				file, err := os.Open(name)
				if err != nil {
					b.Fatal(err)
				}
				defer file.Close()
				if err := x.flush(disk, name); err != nil {
					b.Fatal(err)
				}
				page := make([]byte, fenceEvery*offsetEntryBytes)
				c.Raw = func(n int) error {
					for i := range n {
						if _, err := file.ReadAt(page, offset(i)/10/fenceEvery*int64(len(page))); err != nil && err != io.EOF {
							return err
						}
					}
					return nil
				}
			}
			c.Ours = func(n int) error {
				for i := range n {
					e, found, err := x.floor(offsetColumn, offset(i))
					if err != nil || !found || positionColumn.of(e[:]) != offset(i)/10*4096 {
						return fmt.Errorf("offset %d: %v %v %w", offset(i), e, found, err)
					}
				}
				return nil
			}
			yardstick.Run(b, c)
		})
	}
}

// BenchmarkOpen10kPartitions measures a clean start of a data directory with 10,000 partitions of one batch each, and what
// an idle one then costs. Aim: 3 s, 20 KiB each.
func BenchmarkOpen10kPartitions(b *testing.B) {
	const partitions = 10_000
	o := ManagerOptions{FS: vfs.NewDisk(vfs.Options{}), Dir: filepath.Join(b.TempDir(), "data"), NodeID: 1, ClusterID: "c"}
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
