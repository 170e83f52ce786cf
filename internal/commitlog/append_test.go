package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

func idempotent(producer int64, epoch int16, sequence int32) record.BuilderOptions {
	return record.BuilderOptions{HasProducer: true, ProducerID: producer, ProducerEpoch: epoch, BaseSequence: sequence}
}

func (o *opened) try(options record.BuilderOptions, messages ...message) (Appended, error) {
	o.t.Helper()
	return o.Append(o.t.Context(), Append{Batches: makeBatch(o.t, options, messages...)})
}

func TestAppendRecognisesRetries(t *testing.T) { // I7, U-103
	for _, restart := range []string{"none", "clean", "unclean"} {
		t.Run(restart, func(t *testing.T) {
			o := openTest(t, func(o *Options) { o.Config.ProducerExpiry = time.Hour })
			one := message{o.clock.ms(), "k", "v"}
			var first []Appended
			for i := range int32(7) {
				first = append(first, o.produceIn(0, idempotent(9, 0, 2*i), one, one))
			}
			if restart != "none" {
				o.reopen(restart == "clean")
			}
			for i := range int32(7) {
				out, err := o.try(idempotent(9, 0, 2*i), one, one)
				if i < 2 { // five are remembered
					if !errors.Is(err, ErrOutOfOrderSequence) {
						t.Errorf("retry of batch %d: %+v, %v", i, out, err)
					}
					continue
				}
				if err != nil || !out.Duplicate || out.Base != first[i].Base || out.Last != first[i].Last {
					t.Errorf("retry of batch %d: %+v, %v; the first was %+v", i, out, err, first[i])
				}
			}
			if end := o.EndOffset(); end != 14 {
				t.Errorf("end %d: a retry was appended", end)
			}
			if _, err := o.try(idempotent(9, 0, 15), one); !errors.Is(err, ErrOutOfOrderSequence) {
				t.Errorf("gap: %v", err)
			}
			o.produceIn(0, idempotent(9, 1, 0), one)
			if _, err := o.try(idempotent(9, 0, 14), one); !errors.Is(err, ErrProducerFenced) {
				t.Errorf("old epoch: %v", err)
			}
		})
	}
}

func TestAppendFromManyGoroutines(t *testing.T) { // architecture: Append
	o := openTest(t, func(o *Options) { o.Config.FlushAcks = true })
	var hooked atomic.Int64
	o.SetHooks(Hooks{Appended: func(end int64) { hooked.Store(end) }})
	var group sync.WaitGroup
	var mu sync.Mutex
	bases := map[int64]string{}
	for w := range 16 {
		group.Go(func() {
			for i := range int32(50) {
				value := fmt.Sprint(w, "-", i)
				out, err := o.try(idempotent(int64(w), 0, i), message{1, "k", value})
				if err != nil {
					t.Error(err)
					return
				}
				if hooked.Load() <= out.Last {
					t.Errorf("append at %d returned before the hook ran", out.Last)
				}
				mu.Lock()
				bases[out.Base] = value
				mu.Unlock()
				if i%10 == 0 {
					if end, err := o.Sync(t.Context()); err != nil || end <= out.Last {
						t.Errorf("synced to %d: %v", end, err)
					}
				}
			}
		})
	}
	group.Go(func() { // readers beside
		for o.EndOffset() < 800 {
			end := o.EndOffset()
			if end > 0 {
				slice, err := o.Read(rand.Int64N(end), 500, end, true)
				if err != nil {
					t.Error(err)
					return
				}
				if err := slice.CopyTo(make([]byte, slice.Bytes())); err != nil {
					t.Error(err)
				}
				slice.Release()
			}
		}
	})
	group.Wait()
	if t.Failed() {
		return
	}
	for _, b := range o.readAll(0, 1000) {
		records := b.Records(nil)
		records.Next()
		if got := string(records.Record().Value); bases[b.BaseOffset()] != got {
			t.Fatalf("offset %d holds %q, %q was acknowledged there", b.BaseOffset(), got, bases[b.BaseOffset()])
		}
	}
	o.reopen(false)
	if o.EndOffset() != 800 {
		t.Errorf("end %d", o.EndOffset())
	}
}

func TestAppendOnAFullDisk(t *testing.T) { // U-72, I7
	disk := vfs.NewMemory(1)
	o := openTest(t, func(o *Options) { o.FS, o.Config.ProducerExpiry = disk, time.Hour })
	used := func() (bytes int64) {
		entries, err := disk.List("/data/topic-0")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			bytes += e.Size
		}
		return bytes
	}
	value := strings.Repeat("v", 200)
	sequence := int32(0)
	for range 60 { // the space ends in batches, in indexes, in snapshots and in new segments alike
		disk.SetCapacity(used() + rand.Int64N(600))
		end := o.EndOffset()
		out, err := o.try(idempotent(1, 0, sequence), message{o.clock.ms(), "k", value})
		if err != nil {
			if !errors.Is(err, ErrDiskFull) || !errors.Is(err, ErrStorage) || o.EndOffset() != end || o.Err() != nil {
				t.Fatalf("%v; end %d to %d, log %v", err, end, o.EndOffset(), o.Err())
			}
			disk.SetCapacity(0)
			if out, err = o.try(idempotent(1, 0, sequence), message{o.clock.ms(), "k", value}); err != nil {
				t.Fatalf("after space came back: %v", err)
			}
		}
		if out.Base != end || out.Duplicate {
			t.Fatalf("%+v at end %d", out, end)
		}
		sequence++
	}
	disk.SetCapacity(0)
	if got := o.readAll(0, 1000); len(got) != 60 {
		t.Errorf("%d batches", len(got))
	}
	if r := o.reopen(false); r.CutBytes != 0 || o.EndOffset() != 60 {
		t.Errorf("%+v, end %d", r, o.EndOffset())
	}
}

func TestAppendFailsForGoodOnAnIOError(t *testing.T) { // U-77
	disk := vfs.NewMemory(1)
	var reported []error
	o := openTest(t, func(o *Options) {
		o.FS = disk
		o.OnError = func(err error) { reported = append(reported, err) }
	})
	o.fill(3, 10)
	disk.FailAfter(0, syscall.EIO)
	if _, err := o.try(record.BuilderOptions{}, message{1, "k", "v"}); !errors.Is(err, ErrStorage) || !errors.Is(err, syscall.EIO) {
		t.Errorf("append: %v", err)
	}
	if _, err := o.try(record.BuilderOptions{}, message{1, "k", "v"}); !errors.Is(err, ErrStorage) {
		t.Errorf("next append: %v", err)
	}
	if len(reported) != 1 || !errors.Is(reported[0], syscall.EIO) {
		t.Errorf("reported %v", reported)
	}
	if got := o.readAll(0, 1000); len(got) != 3 {
		t.Errorf("%d batches can be read", len(got))
	}
}

func TestAppendFromLeader(t *testing.T) { // U-52
	o := openTest(t, nil)
	batch := func(base int64, epoch int32) []byte {
		b := record.Batch(makeBatch(t, record.BuilderOptions{}, message{1, "k", "v"}))
		b.Stamp(base, epoch)
		return b
	}
	replicate := func(epoch meta.Epoch, batches ...[]byte) (Appended, error) {
		return o.Append(t.Context(), Append{Batches: slices.Concat(batches...), Epoch: epoch, Origin: FromLeader})
	}
	out, err := replicate(5, batch(0, 3), batch(1, 5), batch(2, 6))
	if err != nil || out.Base != 0 || out.Last != 1 || o.EndOffset() != 2 {
		t.Errorf("a batch of a newer epoch must be left out: %+v, %v", out, err)
	}
	if got, want := o.Epochs(), (Epochs{{3, 0}, {5, 1}}); !slices.Equal(got, want) {
		t.Errorf("epochs %v, want %v", got, want)
	}
	if out, err := replicate(5, batch(2, 6)); err != nil || out.Count != 0 || out.Base != -1 {
		t.Errorf("nothing to take: %+v, %v", out, err)
	}
	if _, err := replicate(5, batch(1, 5)); !errors.Is(err, ErrUnexpectedOffset) {
		t.Errorf("below the end: %v", err)
	}
	if _, err := replicate(5, batch(9, 5), batch(8, 5)); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("offsets that fall: %v", err)
	}
	broken := batch(2, 5)
	broken[len(broken)-1] ^= 1
	if _, err := replicate(5, broken); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("bad checksum: %v", err)
	}
	if out, err := replicate(5, batch(2, 5), batch(3, 5)[:40]); err != nil || out.Last != 2 {
		t.Errorf("an answer cut inside a batch: %+v, %v", out, err)
	}
}

func TestRoll(t *testing.T) {
	small := func(change func(*Config)) *opened {
		return openTest(t, func(o *Options) {
			o.Config.SegmentBytes = 1 << 20
			change(&o.Config)
		})
	}
	t.Run("age by timestamps", func(t *testing.T) {
		o := small(func(c *Config) { c.SegmentAge = time.Minute })
		base := o.clock.ms()
		for _, seconds := range []int64{0, 60, 30, 61, 62} {
			o.produce(message{base + seconds*1000, "k", "v"})
		}
		if o.SegmentCount() != 2 || (*o.segments.Load())[1].base != 3 {
			t.Errorf("%d segments", o.SegmentCount())
		}
		o.reopen(true)
		o.produce(message{base + 61_000 + 60_000, "k", "v"})
		if o.SegmentCount() != 2 {
			t.Error("rolled early after a restart")
		}
		o.produce(message{base + 61_000 + 60_001, "k", "v"})
		if o.SegmentCount() != 3 {
			t.Error("not rolled after a restart")
		}
	})
	t.Run("full index", func(t *testing.T) {
		o := small(func(c *Config) { c.IndexInterval, c.IndexBytesMax = 0, 100 })
		o.fill(40, 10)
		for _, s := range *o.segments.Load() {
			if s.offsets.count() > 100/offsetEntryBytes || s.times.count() > 100/timeEntryBytes {
				t.Errorf("segment %d: %d and %d entries", s.base, s.offsets.count(), s.times.count())
			}
		}
		if o.SegmentCount() < 4 {
			t.Errorf("%d segments", o.SegmentCount())
		}
	})
	t.Run("offset too far", func(t *testing.T) {
		o := small(func(*Config) {})
		for _, base := range []int64{5, 1 << 31, 1<<31 + 4, 1 << 40} {
			b := record.Batch(makeBatch(t, record.BuilderOptions{}, message{1, "k", "v"}))
			b.Stamp(base, 0)
			if _, err := o.Append(t.Context(), Append{Batches: b, Epoch: 0, Origin: FromLeader}); err != nil {
				t.Fatal(err)
			}
		}
		if o.SegmentCount() != 3 {
			t.Errorf("%d segments", o.SegmentCount())
		}
		if got := o.readAll(0, 1<<20); len(got) != 4 {
			t.Errorf("%d batches", len(got))
		}
		if r := o.reopen(true); r.Scanned || o.EndOffset() != 1<<40+1 {
			t.Errorf("%+v, end %d", r, o.EndOffset())
		}
	})
	t.Run("too large", func(t *testing.T) {
		o := small(func(c *Config) { c.SegmentBytes = 100 })
		if _, err := o.try(record.BuilderOptions{}, message{1, "k", strings.Repeat("v", 100)}); !errors.Is(err, ErrSegmentSize) {
			t.Error(err)
		}
	})
}

func TestRetention(t *testing.T) {
	t.Run("age, with a timestamp from the future", func(t *testing.T) { // U-93
		o := openTest(t, func(o *Options) {
			o.Config.Retention, o.Config.TimestampAfterMax = time.Hour, 1<<62
			o.Config.FileDeleteDelay = time.Minute
		})
		o.produce(message{o.clock.ms() + 1<<40, "k", strings.Repeat("v", 1500)})
		o.fill(20, 200)
		o.clock.now = o.clock.now.Add(30 * time.Minute)
		o.fill(3, 200)
		segments := o.SegmentCount()
		o.clock.now = o.clock.now.Add(31 * time.Minute)
		m, err := o.Maintain(o.clock.now, o.EndOffset())
		if err != nil || m.Segments == 0 || m.Segments >= segments || o.StartOffset() != (*o.segments.Load())[0].base {
			t.Errorf("%+v of %d, %v; start %d", m, segments, err, o.StartOffset())
		}
		names, err := o.options.FS.List(o.options.Dir)
		if err != nil || !slices.ContainsFunc(names, func(e vfs.Entry) bool { return strings.HasSuffix(e.Name, deletedSuffix) }) {
			t.Errorf("%v %v", names, err)
		}
		o.clock.now = o.clock.now.Add(time.Hour)
		m, err = o.Maintain(o.clock.now, o.EndOffset()) // all of it is old now
		if err != nil || o.StartOffset() != o.EndOffset() || m.Removed == 0 || o.Size() != 0 {
			t.Errorf("%+v, %v: %d to %d", m, err, o.StartOffset(), o.EndOffset())
		}
		end := o.EndOffset()
		o.reopen(true)
		if o.StartOffset() != end || o.EndOffset() != end {
			t.Errorf("%d to %d after a restart", o.StartOffset(), o.EndOffset())
		}
		o.produce(message{o.clock.ms(), "k", "v"})
	})
	t.Run("size", func(t *testing.T) {
		o := openTest(t, func(o *Options) { o.Config.RetentionBytes = 5000 })
		o.fill(50, 100)
		if _, err := o.Maintain(o.clock.now, 10); err != nil || o.StartOffset() > 10 {
			t.Errorf("above the high watermark: start %d, %v", o.StartOffset(), err)
		}
		if _, err := o.Maintain(o.clock.now, o.EndOffset()); err != nil || o.Size() < 5000 || o.Size() > 8000 {
			t.Errorf("%d bytes are left, %v", o.Size(), err)
		}
	})
	t.Run("readers keep what they hold", func(t *testing.T) { // U-22
		o := openTest(t, func(o *Options) { o.Config.RetentionBytes, o.Config.FileDeleteDelay = 0, 0 })
		o.fill(50, 100)
		slice, err := o.Read(0, 1000, o.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := o.Maintain(o.clock.now, o.EndOffset()); err != nil {
				t.Fatal(err)
			}
		}
		if err := slice.CopyTo(make([]byte, slice.Bytes())); err != nil {
			t.Error(err)
		}
		slice.Release()
		if m, err := o.Maintain(o.clock.now, o.EndOffset()); err != nil || m.Removed != 1 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

func TestIndexesAreRebuilt(t *testing.T) {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		for _, damage := range []string{"missing", "torn", "zeros", "wrong"} {
			t.Run(suffix+damage, func(t *testing.T) {
				o := openTest(t, nil)
				o.fill(100, 60)
				want := o.readAll(0, 1<<20)
				if err := o.Close(); err != nil {
					t.Fatal(err)
				}
				fsys := o.options.FS
				for _, s := range *o.segments.Load() {
					name := o.path(segmentName(s.base, suffix))
					data, err := vfs.ReadFile(fsys, name, 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					switch damage {
					case "missing":
						if err := fsys.Remove(name); err != nil {
							t.Fatal(err)
						}
						continue
					case "torn":
						data = data[:len(data)-3]
					case "zeros":
						clear(data)
					case "wrong": // ascends, and points nowhere
						for i := 7; i < len(data); i += 8 {
							data[i]++
						}
					}
					if err := vfs.WriteAtomic(fsys, name, data); err != nil {
						t.Fatal(err)
					}
				}
				l, _, err := Open(o.options)
				if err != nil {
					t.Fatal(err)
				}
				o.Log = l
				for offset := range o.EndOffset() {
					if got := o.readAll(offset, 100); !bytes.Equal(got[0], want[offset/2]) {
						t.Fatalf("offset %d: another batch", offset)
					}
				}
				at, found, err := o.MaxTimestamp(o.EndOffset())
				if err != nil || (damage == "missing" || damage == "torn") && (!found || at.Offset != 198) {
					t.Errorf("max timestamp: %+v %v %v", at, found, err)
				}
				o.clock.now = o.clock.now.Add(time.Hour)
				o.fill(5, 60)
				o.readAll(0, 1000)
				o.reopen(true)
				o.readAll(0, 1000)
			})
		}
	}
}

// TestAppendAllocatesPerCallAtMost proves that nothing is allocated for each record.
func TestAppendAllocatesPerCallAtMost(t *testing.T) {
	l := openBench(t, t.TempDir(), nil)
	for _, records := range []int{1, 1000} {
		builder := record.NewBuilder(record.BuilderOptions{LeaderEpoch: -1})
		for range records {
			builder.Append(time.Now().UnixMilli(), []byte("key"), []byte("value"))
		}
		batch, err := builder.Batch()
		if err != nil {
			t.Fatal(err)
		}
		allocs := testing.AllocsPerRun(200, func() {
			batch.Stamp(0, -1)
			if _, err := l.Append(t.Context(), Append{Batches: batch}); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 3 {
			t.Errorf("%d records: %v allocations per append", records, allocs)
		}
	}
	end := l.EndOffset()
	allocs := testing.AllocsPerRun(200, func() {
		slice, err := l.Read(end/2, 10_000, end, true)
		if err != nil {
			t.Fatal(err)
		}
		slice.Release()
	})
	if allocs > 4 {
		t.Errorf("%v allocations per read", allocs)
	}
}
