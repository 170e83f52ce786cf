package replica

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// batch builds one batch of n records of 100 bytes.
func batch(t testing.TB, n int, options record.BuilderOptions) []byte {
	t.Helper()
	options.LeaderEpoch = -1
	b := record.NewBuilder(options)
	for range n {
		b.Append(1_700_000_000_000, []byte("k"), make([]byte, 100))
	}
	built, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func plain(t testing.TB, n int) []byte {
	return batch(t, n, record.BuilderOptions{})
}

func (n *node) produce(t testing.TB, r *Replica, acks int16, records int) *Pending {
	t.Helper()
	p, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, records), CurrentEpoch: meta.NoEpoch, Acks: acks})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// offsets reads everything from offset on and returns the first offset and the end of what came back; -1, -1 if nothing.
func offsets(t testing.TB, r *Replica, request ReadRequest) (int64, int64) {
	t.Helper()
	request.BytesMax, request.CurrentEpoch, request.LastFetchedEpoch, request.MinOne = 1<<20, meta.NoEpoch, meta.NoEpoch, true
	result, err := r.Read(request)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Records.Release()
	buf := make([]byte, result.Records.Bytes())
	if err := result.Records.CopyTo(buf); err != nil {
		t.Fatal(err)
	}
	first, end := int64(-1), int64(-1)
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if err != nil {
			t.Fatal(err)
		}
		if first < 0 {
			first = b.BaseOffset()
		}
		end, buf = b.LastOffset()+1, rest
	}
	return first, end
}

// TestAppendAndRead proves the plain path: offsets, acks, bounds. R-106 R-110 R-114 R-115
func TestAppendAndRead(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "plain", meta.Partition{})
	for i, acks := range []int16{AcksAll, AcksLeader, AcksNone} {
		p := n.produce(t, r, acks, 3)
		if got := p.Appended(); got.Base != int64(i*3) || got.Last != int64(i*3+2) || !p.Completed() || p.Err() != nil {
			t.Errorf("acks %d: %+v completed %v err %v", acks, got, p.Completed(), p.Err())
		}
	}
	if r.HighWatermark() != 9 || r.EndOffset() != 9 {
		t.Errorf("high watermark %d, end %d", r.HighWatermark(), r.EndOffset())
	}
	if first, end := offsets(t, r, ReadRequest{Offset: 4}); first != 3 || end != 9 {
		t.Errorf("read from 4: [%d, %d)", first, end)
	}
	if first, _ := offsets(t, r, ReadRequest{Offset: 9}); first != -1 {
		t.Errorf("read at the end gave %d", first)
	}
	for _, offset := range []int64{-1, 10} {
		result, err := r.Read(ReadRequest{Offset: offset, BytesMax: 100, CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: meta.NoEpoch})
		if !errors.Is(err, ErrOffsetOutOfRange) || result.HighWatermark != 9 || result.LogStart != 0 {
			t.Errorf("read from %d: %v %+v", offset, err, result)
		}
	}
	if _, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), Acks: 2, CurrentEpoch: meta.NoEpoch}); !errors.Is(err, ErrBadAcks) {
		t.Errorf("acks 2: %v", err)
	}
}

// TestFencing is the table of what requests are told that believe in another epoch. R-119
func TestFencing(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "fenced", meta.Partition{LeaderEpoch: 5})
	requests := map[string]func(meta.Epoch) error{
		"append": func(e meta.Epoch) error {
			_, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), Acks: AcksAll, CurrentEpoch: e})
			return err
		},
		"read": func(e meta.Epoch) error {
			_, err := r.Read(ReadRequest{CurrentEpoch: e, LastFetchedEpoch: meta.NoEpoch})
			return err
		},
		"list":      func(e meta.Epoch) error { _, err := r.ListOffset(Latest, ReadUncommitted, e); return err },
		"epoch end": func(e meta.Epoch) error { _, err := r.EpochEnd(5, e); return err },
	}
	for name, request := range requests {
		for epoch, want := range map[meta.Epoch]error{4: ErrFencedEpoch, 5: nil, 6: ErrUnknownEpoch, meta.NoEpoch: nil} {
			if err := request(epoch); !errors.Is(err, want) {
				t.Errorf("%s in epoch %d: %v, want %v", name, epoch, err, want)
			}
		}
	}
}

// TestFlushWaits proves that in a flush partition neither acks=1 nor acks=all is answered, and nothing is readable, before
// the group commit; and that one commit answers all. D9
func TestFlushWaits(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "flush", meta.Partition{Flush: true})
	var answered atomic.Int32
	pending := []*Pending{n.produce(t, r, AcksAll, 1), n.produce(t, r, AcksLeader, 1), n.produce(t, r, AcksNone, 1)}
	for i, p := range pending {
		p.Done(func() { answered.Add(1) })
		if p.Completed() != (i == 2) {
			t.Errorf("append %d: completed %v before the sync", i, p.Completed())
		}
	}
	if first, _ := offsets(t, r, ReadRequest{}); first != -1 {
		t.Error("unsynced records were read")
	}
	n.commit(t)
	if answered.Load() != 3 || pending[0].Err() != nil || pending[1].Err() != nil {
		t.Errorf("after the sync %d are answered: %v %v", answered.Load(), pending[0].Err(), pending[1].Err())
	}
	if _, end := offsets(t, r, ReadRequest{}); end != 3 {
		t.Errorf("readable end %d after the sync", end)
	}
	if got := n.flagged.Load(); got != 1 {
		t.Errorf("flushed was written %d times, want once", got)
	}
}

// TestExpire proves that a produce which times out is answered once, and its records stay. R-109
func TestExpire(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "flush", meta.Partition{Flush: true})
	p := n.produce(t, r, AcksAll, 1)
	var answered atomic.Int32
	p.Done(func() { answered.Add(1) })
	if !p.Expire() || p.Expire() || !errors.Is(p.Err(), ErrTimedOut) {
		t.Errorf("expired: %v", p.Err())
	}
	n.commit(t)
	if answered.Load() != 1 || r.HighWatermark() != 1 {
		t.Errorf("answered %d times, high watermark %d", answered.Load(), r.HighWatermark())
	}
}

// TestLostLeadership proves that waiting produces and fetches hear of it, and new ones are refused. R-109 R-113
func TestLostLeadership(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "moves", meta.Partition{Flush: true})
	p := n.produce(t, r, AcksAll, 1)
	w, fired := watchEnd(t, r)
	n.apply(t, n.update(r, meta.Partition{Leader: 2, LeaderEpoch: 1, Replicas: []meta.BrokerID{1, 2}, ISR: []meta.BrokerID{2}}))
	if !errors.Is(p.Err(), ErrNotLeader) || fired.Load() != 1 || !w.Fired() {
		t.Errorf("produce %v, fetch fired %d times", p.Err(), fired.Load())
	}
	if _, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), CurrentEpoch: meta.NoEpoch}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("append on a follower: %v", err)
	}
}

// TestNotEnoughReplicas proves the refusal before the append. R-108
func TestNotEnoughReplicas(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "short", meta.Partition{Replicas: []meta.BrokerID{1, 2}, MinISR: 2})
	_, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), Acks: AcksAll, CurrentEpoch: meta.NoEpoch})
	if !errors.Is(err, ErrNotEnoughReplicas) || r.EndOffset() != 0 {
		t.Errorf("%v, end %d", err, r.EndOffset())
	}
	n.produce(t, r, AcksLeader, 1)
}

// watchEnd parks a fetch of one byte at the end of the log.
func watchEnd(t testing.TB, r *Replica) (*Waiter, *atomic.Int32) {
	t.Helper()
	result, err := r.Read(ReadRequest{Offset: r.HighWatermark(), CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: meta.NoEpoch})
	if err != nil {
		t.Fatal(err)
	}
	fired := new(atomic.Int32)
	w := NewWaiter(1, func() { fired.Add(1) })
	if !r.Watch(w, result) {
		t.Fatal("nothing has happened, but the watch was refused")
	}
	return w, fired
}

// TestWatch proves that a fetch is woken by bytes, once, not before there are enough, and that a read which is out of date
// cannot park.
func TestWatch(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "watched", meta.Partition{})
	at := ReadRequest{CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: meta.NoEpoch}
	result, err := r.Read(at)
	if err != nil {
		t.Fatal(err)
	}
	var fired atomic.Int32
	size := int64(len(plain(t, 1)))
	w := NewWaiter(2*size, func() { fired.Add(1) })
	if !r.Watch(w, result) {
		t.Fatal("watch refused")
	}
	n.produce(t, r, AcksAll, 1)
	if fired.Load() != 0 {
		t.Error("fired with half of the bytes")
	}
	n.produce(t, r, AcksAll, 1)
	n.produce(t, r, AcksAll, 1)
	if fired.Load() != 1 {
		t.Errorf("fired %d times", fired.Load())
	}
	if r.Watch(NewWaiter(1, func() {}), result) {
		t.Error("a read that is out of date could park: its wake would be lost")
	}
	w, count := watchEnd(t, r)
	r.Unwatch(w)
	n.produce(t, r, AcksAll, 1)
	if count.Load() != 0 {
		t.Error("fired after Unwatch")
	}
	if !w.Fire() || w.Fire() {
		t.Error("Fire must work once")
	}
}

// TestWatchCommitted proves that a read-committed fetch sleeps while a transaction is open. R-114
func TestWatchCommitted(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "txn", meta.Partition{})
	at := ReadRequest{Isolation: ReadCommitted, CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: meta.NoEpoch}
	result, err := r.Read(at)
	if err != nil {
		t.Fatal(err)
	}
	var fired atomic.Int32
	if !r.Watch(NewWaiter(1, func() { fired.Add(1) }), result) {
		t.Fatal("watch refused")
	}
	open := batch(t, 2, record.BuilderOptions{HasProducer: true, ProducerID: 9, Transactional: true})
	if _, err := r.Append(t.Context(), AppendRequest{Batches: open, Acks: AcksAll, CurrentEpoch: meta.NoEpoch, Origin: FromCoordinator}); err != nil {
		t.Fatal(err)
	}
	if fired.Load() != 0 {
		t.Error("fired by records of an open transaction")
	}
	marker := record.AppendMarker(nil, 0, -1, record.Marker{ProducerID: 9, Type: record.Abort})
	if _, err := r.Append(t.Context(), AppendRequest{Batches: marker, Acks: AcksAll, CurrentEpoch: meta.NoEpoch, Origin: FromCoordinator}); err != nil {
		t.Fatal(err)
	}
	if fired.Load() != 1 {
		t.Errorf("fired %d times after the transaction ended", fired.Load())
	}
	at.BytesMax, at.MinOne = 1<<20, true
	result, err = r.Read(at)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Records.Release()
	if len(result.Aborted) != 1 || result.LastStable != 3 {
		t.Errorf("aborted %v, last stable offset %d", result.Aborted, result.LastStable)
	}
}

// TestOffsets proves ListOffset for every special timestamp, EpochEnd, and DeleteRecords. R-116 R-144 U-67 U-68
func TestOffsets(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "offsets", meta.Partition{LeaderEpoch: 2})
	n.produce(t, r, AcksAll, 10)
	n.apply(t, n.update(r, meta.Partition{Leader: 1, LeaderEpoch: 4}))
	n.produce(t, r, AcksAll, 10)
	const ts = 1_700_000_000_000
	for _, test := range []struct {
		spec int64
		want ListedOffset
	}{
		{Latest, ListedOffset{20, -1, 4}},
		{Earliest, ListedOffset{0, -1, 2}},
		{EarliestLocal, ListedOffset{0, -1, 2}},
		{MaxTimestamp, ListedOffset{0, ts, 2}},
		{LatestTiered, nothingListed},
		{EarliestPendingUpload, nothingListed},
		{ts - 1, ListedOffset{0, ts, 2}},
		{ts + 1, nothingListed},
	} {
		got, err := r.ListOffset(test.spec, ReadUncommitted, 4)
		if err != nil || got != test.want {
			t.Errorf("spec %d: %+v %v, want %+v", test.spec, got, err, test.want)
		}
	}
	for requested, want := range map[meta.Epoch]EpochEnd{2: {2, 10}, 3: {2, 10}, 4: {4, 20}, 5: {-1, -1}} {
		if got, err := r.EpochEnd(requested, 4); err != nil || got != want {
			t.Errorf("end of epoch %d: %+v %v, want %+v", requested, got, err, want)
		}
	}
	result, err := r.Read(ReadRequest{Offset: 15, CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: 3, BytesMax: 100})
	if err != nil || result.Diverging == nil || *result.Diverging != (EpochEnd{2, 10}) {
		t.Errorf("diverging %+v %v", result.Diverging, err)
	}
	for _, to := range []int64{12, 5} {
		if offset, err := r.DeleteRecords(to); err != nil || offset != to {
			t.Errorf("delete to %d: %d %v", to, offset, err)
		}
		if low, err := r.AwaitLowWatermark(t.Context(), to); err != nil || low != 12 {
			t.Errorf("low watermark after a deletion to %d: %d %v", to, low, err)
		}
	}
	if _, err := r.DeleteRecords(21); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("delete above the high watermark: %v", err)
	}
	if low, err := r.DeleteRecords(-1); err != nil || low != 20 || r.StartOffset() != 20 {
		t.Errorf("delete all: %d %v", low, err)
	}
}

// TestDiskFull proves that a nearly full disk refuses appends and nothing else. U-72
func TestDiskFull(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "full", meta.Partition{})
	n.produce(t, r, AcksAll, 1)
	n.table.RefuseAppends(errors.New("12 MiB free"))
	if _, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), CurrentEpoch: meta.NoEpoch}); !errors.Is(err, ErrStorage) {
		t.Errorf("append: %v", err)
	}
	if _, end := offsets(t, r, ReadRequest{}); end != 1 {
		t.Errorf("read end %d", end)
	}
	if _, err := r.DeleteRecords(1); err != nil {
		t.Errorf("delete records: %v", err)
	}
	n.table.RefuseAppends(nil)
	n.produce(t, r, AcksAll, 1)
}

// TestRoleChangeWaitsForAppends proves that an epoch begins at the end of what earlier epochs have written, whoever
// appends meanwhile: no batch is stamped with an epoch that the replica has left.
func TestRoleChangeWaitsForAppends(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "busy", meta.Partition{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 4)
	for range 4 {
		batches := plain(t, 1)
		go func() {
			for ctx.Err() == nil {
				if _, err := r.Append(ctx, AppendRequest{Batches: append([]byte(nil), batches...), Acks: AcksAll, CurrentEpoch: meta.NoEpoch}); err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for epoch := meta.Epoch(1); epoch <= 20; epoch++ {
		n.apply(t, n.update(r, meta.Partition{Leader: 1, LeaderEpoch: epoch}))
	}
	stop()
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	epochs := r.log.Epochs()
	for offset := int64(0); offset < r.HighWatermark(); {
		result, err := r.Read(ReadRequest{Offset: offset, BytesMax: 1 << 20, CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: meta.NoEpoch, MinOne: true})
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, result.Records.Bytes())
		if err := result.Records.CopyTo(buf); err != nil {
			t.Fatal(err)
		}
		result.Records.Release()
		for len(buf) > 0 {
			b, rest, err := record.Next(buf)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := epochs.At(b.BaseOffset()); b.PartitionLeaderEpoch() != int32(want) {
				t.Fatalf("batch at %d has epoch %d, the lineage says %d", b.BaseOffset(), b.PartitionLeaderEpoch(), want)
			}
			offset, buf = b.LastOffset()+1, rest
		}
	}
}

// BenchmarkAppend measures what a replica costs on top of its log: one batch of records of 100 bytes per append, on the
// real disk. Allocations do not grow with the records.
func BenchmarkAppend(b *testing.B) {
	for _, records := range []int{1, 100} {
		b.Run(strconv.Itoa(records), func(b *testing.B) {
			n := newNodeIn(b, vfs.NewDisk(vfs.Options{}), filepath.Join(b.TempDir(), "data"))
			r := n.create(b, "bench", meta.Partition{})
			batches := plain(b, records)
			b.ReportAllocs()
			b.SetBytes(int64(len(batches)))
			for b.Loop() {
				record.Batch(batches).Stamp(0, -1) // as a producer sends it
				if _, err := r.Append(b.Context(), AppendRequest{Batches: batches, Acks: AcksAll, CurrentEpoch: meta.NoEpoch}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
