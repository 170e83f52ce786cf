package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// testConfig is Kafka's defaults with small segments and a dense index, so that little data crosses many boundaries.
func testConfig() Config {
	c := DefaultConfig()
	c.SegmentBytes = 2 << 10
	c.IndexInterval = 200
	return c
}

// clock is a time that a test moves.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.UnixMilli(1_700_000_000_000)} }

func (c *clock) read() time.Time { return c.now }

func (c *clock) ms() int64 { return c.now.UnixMilli() }

// opened is a log under test and how to open it again.
type opened struct {
	*Log
	t       testing.TB
	options Options
	clock   *clock
}

func openTest(t testing.TB, change func(*Options)) *opened {
	t.Helper()
	c := newClock()
	o := Options{
		FS: vfs.NewMemory(1), Dir: "/data/topic-0", Topic: "topic", Partition: 0, Config: testConfig(), Clean: true, Now: c.read,
	}
	if change != nil {
		change(&o)
	}
	l, _, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return &opened{l, t, o, c}
}

// reopen opens the log again as a start would; clean says whether it was closed, else what is on disk is scanned.
func (o *opened) reopen(clean bool) Recovery {
	o.t.Helper()
	options := o.options
	options.Clean, options.RecoveryPoint, options.LogStart = clean, o.RecoveryPoint(), o.StartOffset()
	if clean {
		if err := o.Close(); err != nil {
			o.t.Fatal(err)
		}
	}
	l, recovery, err := Open(options)
	if err != nil {
		o.t.Fatal(err)
	}
	o.Log = l
	return recovery
}

type message struct {
	timestamp  int64
	key, value string
}

// makeBatch is a producer's batch.
func makeBatch(t testing.TB, options record.BuilderOptions, messages ...message) []byte {
	t.Helper()
	options.LeaderEpoch = -1
	b := record.NewBuilder(options)
	for _, m := range messages {
		b.Append(m.timestamp, []byte(m.key), []byte(m.value))
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// produce appends one batch of a client in epoch 0.
func (o *opened) produce(messages ...message) Appended {
	o.t.Helper()
	return o.produceIn(0, record.BuilderOptions{}, messages...)
}

func (o *opened) produceIn(epoch meta.Epoch, options record.BuilderOptions, messages ...message) Appended {
	o.t.Helper()
	out, err := o.Append(o.t.Context(), Append{Batches: makeBatch(o.t, options, messages...), Epoch: epoch})
	if err != nil {
		o.t.Fatal(err)
	}
	return out
}

// fill appends n batches of two records with values of size bytes.
func (o *opened) fill(n, size int) {
	o.t.Helper()
	for range n {
		value := string(bytes.Repeat([]byte{'v'}, size))
		o.produce(message{o.clock.ms(), "k", value}, message{o.clock.ms(), "k", value})
		o.clock.now = o.clock.now.Add(time.Millisecond)
	}
}

// readAll reads every batch from offset on, checking what Read promises.
func (o *opened) readAll(offset int64, bytesMax int32) []record.Batch {
	o.t.Helper()
	var batches []record.Batch
	for end := o.EndOffset(); offset < end; {
		slice, err := o.Read(offset, bytesMax, end, true)
		if err != nil {
			o.t.Fatalf("read %d: %v", offset, err)
		}
		if slice.Bytes() == 0 {
			o.t.Fatalf("read %d of %d: nothing", offset, end)
		}
		data := make([]byte, slice.Bytes())
		if err := slice.CopyTo(data); err != nil {
			o.t.Fatal(err)
		}
		slice.Release()
		first := true
		for len(data) > 0 {
			batch, rest, err := record.Next(data)
			if err != nil {
				o.t.Fatalf("read %d: %v", offset, err)
			}
			if err := batch.CheckCRC(); err != nil {
				o.t.Fatal(err)
			}
			if batch.LastOffset() < offset || !first && batch.BaseOffset() < offset {
				o.t.Fatalf("read %d: batch %d to %d", offset, batch.BaseOffset(), batch.LastOffset())
			}
			batches, data, first = append(batches, batch), rest, false
			offset = batch.LastOffset() + 1
		}
	}
	return batches
}

func TestAppendGivesOffsetsAndReadFindsThem(t *testing.T) {
	o := openTest(t, nil)
	for i := range 100 {
		out := o.produceIn(3, record.BuilderOptions{}, message{o.clock.ms(), "a", fmt.Sprint(i)}, message{o.clock.ms(), "b", fmt.Sprint(i)})
		if out.Base != int64(2*i) || out.Last != int64(2*i+1) || out.Count != 2 {
			t.Fatalf("append %d: %+v", i, out)
		}
	}
	if o.SegmentCount() < 3 {
		t.Fatalf("%d segments: the test should cross some", o.SegmentCount())
	}
	for _, bytesMax := range []int32{1, 150, 1000, 1 << 20} {
		batches := o.readAll(0, bytesMax)
		if len(batches) != 100 {
			t.Fatalf("read %d batches with %d bytes at a time", len(batches), bytesMax)
		}
		for i, batch := range batches {
			if batch.BaseOffset() != int64(2*i) || batch.PartitionLeaderEpoch() != 3 {
				t.Fatalf("batch %d: base %d epoch %d", i, batch.BaseOffset(), batch.PartitionLeaderEpoch())
			}
		}
	}
	for offset := range o.EndOffset() { // U-101, U-129
		if batches := o.readAll(offset, 300); batches[0].BaseOffset() != offset/2*2 {
			t.Fatalf("read %d: starts with %d", offset, batches[0].BaseOffset())
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	o := openTest(t, nil)
	o.fill(50, 50)
	for end := int64(0); end <= o.EndOffset(); end++ {
		for _, offset := range []int64{0, 13, end - 1, end} {
			if offset < 0 {
				continue
			}
			slice, err := o.Read(offset, 1<<20, end, true)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, slice.Bytes())
			if err := slice.CopyTo(data); err != nil {
				t.Fatal(err)
			}
			slice.Release()
			for len(data) > 0 {
				batch, rest, err := record.Next(data)
				if err != nil {
					t.Fatal(err)
				}
				if batch.LastOffset() >= end {
					t.Fatalf("read %d below %d: got %d", offset, end, batch.LastOffset())
				}
				data = rest
			}
		}
	}
	if slice, err := o.Read(0, 10, o.EndOffset(), false); err != nil || slice.Bytes() != 0 {
		t.Errorf("a batch above bytesMax without minOne: %d bytes, %v", slice.Bytes(), err)
	}
	for _, offset := range []int64{-1, o.EndOffset() + 1} {
		if _, err := o.Read(offset, 10, 10, true); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("read %d: %v", offset, err)
		}
	}
}

func TestReopen(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			o := openTest(t, nil)
			o.fill(100, 50)
			want, end := o.readAll(0, 1<<20), o.EndOffset()
			recovery := o.reopen(clean)
			if recovery.Scanned == clean || recovery.CutBytes != 0 {
				t.Errorf("recovery: %+v", recovery)
			}
			if o.EndOffset() != end {
				t.Fatalf("end %d, want %d", o.EndOffset(), end)
			}
			got := o.readAll(0, 1<<20)
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("batch %d differs", i)
				}
			}
			o.fill(100, 50)
			if got := o.readAll(0, 1<<20); len(got) != 200 {
				t.Errorf("%d batches after appending again", len(got))
			}
		})
	}
}

func TestTruncate(t *testing.T) { // E-33
	base := openTest(t, nil)
	base.fill(60, 100)
	want := base.readAll(0, 1<<20)
	for to := int64(0); to <= base.EndOffset(); to += 7 {
		o := openTest(t, nil)
		o.fill(60, 100)
		if err := o.Truncate(to); err != nil {
			t.Fatal(err)
		}
		end := to / 2 * 2 // never inside a batch
		if o.EndOffset() != end {
			t.Fatalf("truncate to %d: end %d", to, o.EndOffset())
		}
		check := func() {
			t.Helper()
			got := o.readAll(0, 1<<20)
			if int64(len(got)) != end/2 {
				t.Fatalf("truncate to %d: %d batches", to, len(got))
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("truncate to %d: batch %d differs", to, i)
				}
			}
		}
		check()
		o.reopen(to%2 == 0)
		check()
		o.fill(30, 100)
		if got := o.readAll(0, 1<<20); int64(len(got)) != end/2+30 {
			t.Fatalf("truncate to %d: %d batches after appending again", to, len(got))
		}
	}
}

// An old leader's epoch that wrote nothing is not the follower's to claim: after it has truncated, the log names the epoch
// of its last batch.
func TestTruncateTakesEmptyEpochs(t *testing.T) { // E-14, E-44
	o := openTest(t, nil)
	o.fill(3, 10)
	last := o.Epochs()
	if err := o.AssignEpoch(5, o.EndOffset()); err != nil {
		t.Fatal(err)
	}
	if err := o.Truncate(o.EndOffset()); err != nil {
		t.Fatal(err)
	}
	if got := o.Epochs(); !slices.Equal(got, last) {
		t.Fatalf("epochs %v, want %v", got, last)
	}
	if got := len(o.readAll(0, 1<<20)); got != 3 {
		t.Fatalf("%d batches left of 3", got)
	}
}
