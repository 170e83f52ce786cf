package commitlog

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/record"
)

// feed appends batches to a producerState as a log does: check, then update at the next offset.
type feed struct {
	producerState
	end     int64
	aborted []AbortedTxn
}

// data is a batch of count records of a producer in an epoch.
func data(producer int64, epoch int16, sequence int32, count int64) producerBatch {
	return producerBatch{producer: producer, epoch: epoch, baseSequence: sequence, last: count - 1, maxTimestamp: 1}
}

// txn is data inside a transaction.
func txn(producer int64, epoch int16, sequence int32, count int64) producerBatch {
	b := data(producer, epoch, sequence, count)
	b.transactional = true
	return b
}

// marker ends a producer's transaction.
func marker(producer int64, epoch int16, kind markerKind, coordinatorEpoch int32) producerBatch {
	return producerBatch{
		producer: producer, epoch: epoch, baseSequence: record.NoSequence, maxTimestamp: 1, transactional: true,
		marker: kind, coordinatorEpoch: coordinatorEpoch,
	}
}

func (f *feed) append(b producerBatch, how producerCheck) (duplicate *batchEntry, err error) {
	count := b.last + 1
	b.base, b.last = f.end, f.end+count-1
	if duplicate, err = f.check(&b, how); duplicate != nil || err != nil {
		return duplicate, err
	}
	f.end += count
	if completed := f.update(&b); completed != nil && completed.aborted {
		f.aborted = append(f.aborted, completed.abortedTxn())
	}
	return nil, nil
}

// must appends and expects neither an error nor a duplicate.
func (f *feed) must(t *testing.T, b producerBatch, how producerCheck) {
	t.Helper()
	if duplicate, err := f.append(b, how); duplicate != nil || err != nil {
		t.Fatalf("append %+v: duplicate %v, error %v", b, duplicate, err)
	}
}

// verified appends a client's transactional batch with a ticket.
func (f *feed) verified(t *testing.T, b producerBatch) {
	t.Helper()
	f.must(t, b, producerCheck{guard: f.startVerification(b.producer, b.epoch, b.baseSequence, 0)})
}

var (
	client      = producerCheck{origin: FromClient}
	coordinator = producerCheck{origin: FromCoordinator}
	leader      = producerCheck{origin: FromLeader}
)

// U-103: the last five batches are recognised, with their offsets; what is older is out of order.
func TestRetriesAreRecognised(t *testing.T) {
	var f feed
	f.end = 100
	for i := range int32(6) {
		f.must(t, data(7, 0, i*10, 10), client)
	}
	for i := range int32(6) {
		duplicate, err := f.append(data(7, 0, i*10, 10), client)
		if i == 0 {
			if !errors.Is(err, ErrOutOfOrderSequence) {
				t.Errorf("batch 0: %v, %v; want out of order", duplicate, err)
			}
			continue
		}
		if err != nil || duplicate == nil {
			t.Fatalf("batch %d: %v, %v; want a duplicate", i, duplicate, err)
		}
		if first, last := duplicate.firstOffset(), duplicate.lastOffset; first != 100+int64(i)*10 || last != first+9 {
			t.Errorf("batch %d: offsets %d to %d", i, first, last)
		}
	}
	if duplicate, err := f.append(data(7, 0, 50, 9), client); duplicate != nil || !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("a shorter batch with a known first sequence: %v, %v", duplicate, err)
	}
	if f.end != 160 {
		t.Errorf("end %d", f.end)
	}
}

func TestSequences(t *testing.T) {
	for _, test := range []struct {
		name   string
		before []producerBatch
		batch  producerBatch
		how    producerCheck
		want   error
	}{
		{name: "unknown producer starts anywhere (U-104)", batch: data(1, 4, 77, 1)},
		{name: "next", before: []producerBatch{data(1, 0, 0, 3)}, batch: data(1, 0, 3, 1)},
		{name: "gap", before: []producerBatch{data(1, 0, 0, 3)}, batch: data(1, 0, 4, 1), want: ErrOutOfOrderSequence},
		{name: "new epoch from 0", before: []producerBatch{data(1, 0, 0, 3)}, batch: data(1, 1, 0, 1)},
		{name: "new epoch from 3", before: []producerBatch{data(1, 0, 0, 3)}, batch: data(1, 1, 3, 1), want: ErrOutOfOrderSequence},
		{name: "old epoch", before: []producerBatch{data(1, 2, 0, 3)}, batch: data(1, 1, 0, 1), want: ErrProducerFenced},
		{name: "old epoch of a coordinator", before: []producerBatch{data(1, 2, 0, 3)}, batch: data(1, 1, -1, 1), how: coordinator, want: ErrProducerFenced},
		{name: "old epoch from the leader", before: []producerBatch{data(1, 2, 0, 3)}, batch: data(1, 1, 0, 1), how: leader},
		{name: "a coordinator writes without sequences", before: []producerBatch{data(1, 2, 0, 3)}, batch: data(1, 2, -1, 1), how: coordinator},
		{name: "wrap between batches (U-102)", before: []producerBatch{data(1, 0, math.MaxInt32-2, 3)}, batch: data(1, 0, 0, 1)},
		{name: "no wrap to 1", before: []producerBatch{data(1, 0, math.MaxInt32-2, 3)}, batch: data(1, 0, 1, 1), want: ErrOutOfOrderSequence},
		{name: "wrap inside a batch (U-102)", before: []producerBatch{data(1, 0, math.MaxInt32-1, 5)}, batch: data(1, 0, 3, 1)},
		{name: "wrap inside a batch, gap", before: []producerBatch{data(1, 0, math.MaxInt32-1, 5)}, batch: data(1, 0, 4, 1), want: ErrOutOfOrderSequence},
		{name: "0 after a marker of the same epoch without data", before: []producerBatch{marker(1, 3, commitMarker, 0)}, batch: data(1, 3, 0, 1)},
		{name: "5 after a marker of the same epoch without data", before: []producerBatch{marker(1, 3, commitMarker, 0)}, batch: data(1, 3, 5, 1), want: ErrOutOfOrderSequence},
		{name: "marker of a new epoch starts its sequence", before: []producerBatch{data(1, 3, 0, 9), marker(1, 4, commitMarker, 0)}, batch: data(1, 4, 0, 1)},
		{name: "the sequence goes on after a marker of the same epoch", before: []producerBatch{txn(1, 3, 0, 9), marker(1, 3, commitMarker, 0)}, batch: data(1, 3, 9, 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var f feed
			for _, b := range test.before {
				f.must(t, b, leader)
			}
			duplicate, err := f.append(test.batch, test.how)
			if duplicate != nil || !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("duplicate %v, error %v; want error %v", duplicate, err, test.want)
			}
		})
	}
}

// U-102: the wrap inside a batch, and retries of it.
func TestSequenceArithmetic(t *testing.T) {
	b := data(1, 0, math.MaxInt32-1, 5)
	if last := b.lastSequence(); last != 2 {
		t.Errorf("last sequence %d, want 2", last)
	}
	var f feed
	f.must(t, b, client)
	if duplicate, err := f.append(b, client); duplicate == nil || err != nil || duplicate.firstSequence() != math.MaxInt32-1 {
		t.Errorf("retry over the wrap: %v, %v", duplicate, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		sequence := rapid.Int32Range(0, math.MaxInt32).Draw(t, "sequence")
		delta := rapid.Int32Range(0, math.MaxInt32).Draw(t, "delta")
		sum := record.AddSequence(sequence, delta)
		if want := int32((int64(sequence) + int64(delta)) % (1 << 31)); sum != want {
			t.Fatalf("%d + %d = %d, want %d", sequence, delta, sum, want)
		}
		if back := subtractSequence(sum, delta); back != sequence {
			t.Fatalf("%d − %d = %d, want %d", sum, delta, back, sequence)
		}
	})
}

func TestTransactionChecks(t *testing.T) {
	var f feed
	if _, err := f.append(txn(1, 0, 0, 2), client); !errors.Is(err, ErrTxnState) {
		t.Errorf("unverified: %v", err)
	}
	if _, err := f.append(txn(1, 0, 0, 2), producerCheck{guard: 5}); !errors.Is(err, ErrTxnState) {
		t.Errorf("guard that was never given: %v", err)
	}
	guard := f.startVerification(1, 0, 0, 0)
	if again := f.startVerification(1, 0, 2, 0); again != guard {
		t.Errorf("guards %d and %d for one start", guard, again)
	}
	if _, err := f.append(txn(1, 0, 2, 2), producerCheck{guard: guard}); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("a later batch before the first: %v", err)
	}
	f.must(t, txn(1, 0, 0, 2), producerCheck{guard: guard})
	if guard := f.startVerification(1, 0, 2, 0); guard != 0 {
		t.Errorf("guard %d for an open transaction", guard)
	}
	f.must(t, txn(1, 0, 2, 2), client)
	if _, err := f.append(data(1, 0, 4, 1), client); !errors.Is(err, ErrTxnState) {
		t.Errorf("non-transactional inside: %v", err)
	}
	f.must(t, marker(1, 0, commitMarker, 3), coordinator)
	if _, err := f.append(txn(1, 0, 4, 1), producerCheck{guard: guard}); !errors.Is(err, ErrTxnState) {
		t.Errorf("used guard: %v", err)
	}
	if _, err := f.append(marker(1, 0, commitMarker, 2), coordinator); !errors.Is(err, ErrCoordinatorFenced) {
		t.Errorf("older coordinator: %v", err)
	}
	f.verified(t, txn(1, 0, 4, 1))
	// KIP-890: a marker of version 2 raises the epoch, and only a retry of it may come again.
	v2 := producerCheck{origin: FromCoordinator, transactionVersion: 2}
	if _, err := f.append(marker(1, 0, abortMarker, 3), v2); !errors.Is(err, ErrProducerFenced) {
		t.Errorf("version 2 marker in the epoch of the data: %v", err)
	}
	f.must(t, marker(1, 1, abortMarker, 3), v2)
	f.must(t, marker(1, 1, abortMarker, 3), v2)
	if _, err := f.append(marker(1, 0, abortMarker, 3), v2); !errors.Is(err, ErrProducerFenced) {
		t.Errorf("marker of an older epoch: %v", err)
	}
}

// U-109, U-110: the last stable offset and what goes into the transaction index.
func TestLastStable(t *testing.T) {
	var f feed
	stable := func(highWatermark, want int64) {
		t.Helper()
		if got := f.lastStable(highWatermark); got != want {
			t.Errorf("last stable is %d at high watermark %d, want %d", got, highWatermark, want)
		}
	}
	stable(7, 7)
	f.must(t, txn(1, 0, 0, 5), leader) // 0–4
	f.must(t, txn(2, 0, 0, 5), leader) // 5–9
	stable(3, 0)
	stable(10, 0)
	f.must(t, marker(1, 0, abortMarker, 0), leader) // 10
	stable(10, 0)                                   // the marker is not replicated
	stable(11, 5)
	f.must(t, txn(3, 0, 0, 1), leader)              // 11
	f.must(t, marker(2, 0, abortMarker, 0), leader) // 12
	stable(12, 5)
	stable(13, 11)
	f.replicated(11)
	stable(12, 5)
	f.replicated(13)
	stable(13, 11)
	f.must(t, marker(3, 0, commitMarker, 0), leader) // 13
	f.must(t, marker(3, 0, abortMarker, 0), leader)  // 14, ends nothing
	stable(15, 15)
	want := []AbortedTxn{{Producer: 1, First: 0, Last: 10, LastStable: 5}, {Producer: 2, First: 5, Last: 12, LastStable: 11}}
	if !slices.Equal(f.aborted, want) {
		t.Errorf("aborted %v, want %v", f.aborted, want)
	}
	f.replicated(15)
	if len(f.open) > 0 || f.unreplicated != nil {
		t.Errorf("left open %v, unreplicated %v", f.open, f.unreplicated)
	}
}

func TestProducerExpiry(t *testing.T) {
	var f feed
	old, late, open := data(1, 0, 0, 1), data(2, 0, 0, 1), txn(3, 0, 0, 1)
	old.maxTimestamp, late.maxTimestamp, open.maxTimestamp = 1000, 2000, 1000
	for _, b := range []producerBatch{old, late, open} {
		f.must(t, b, leader)
	}
	f.startVerification(9, 0, 0, 1000)
	if expired := f.expire(1999, time.Second); expired != 0 {
		t.Errorf("%d expired too early", expired)
	}
	if expired := f.expire(2000, time.Second); expired != 1 || f.producers[1] != nil || f.verifications != nil {
		t.Errorf("%d expired, left %v, %v", expired, f.list(), f.verifications)
	}
	f.must(t, data(1, 0, 1234, 1), client) // U-104
	if f.expire(1<<40, time.Second); len(f.producers) != 1 || f.producers[3] == nil {
		t.Errorf("left %v, want only the open transaction's producer", f.list())
	}
}

func TestProducerList(t *testing.T) {
	var f feed
	f.must(t, txn(5, 2, 8, 3), leader)
	f.must(t, marker(4, 1, commitMarker, 6), leader)
	want := []Producer{
		{ID: 4, Epoch: 1, LastSequence: -1, LastTimestamp: 1, CoordinatorEpoch: 6, TxnStart: -1},
		{ID: 5, Epoch: 2, LastSequence: 10, LastTimestamp: 1, CoordinatorEpoch: -1, TxnStart: 0},
	}
	if got := f.list(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Memory: an empty state allocates nothing, and reads of it cost nothing.
func TestEmptyProducerState(t *testing.T) {
	if allocs := testing.AllocsPerRun(10, func() {
		var s producerState
		s.lastStable(9)
		s.replicated(9)
		s.expire(9, time.Second)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// drawBatch draws a batch of few producers that are often right and often wrong.
func drawBatch(t *rapid.T, f *feed) (producerBatch, producerCheck) {
	producer := rapid.Int64Range(1, 3).Draw(t, "producer")
	epoch, sequence := int16(0), int32(0)
	if entry := f.producers[producer]; entry != nil {
		epoch, sequence = max(entry.epoch, 0), record.AddSequence(entry.lastSequence(), 1)
	}
	origin := rapid.SampledFrom([]Origin{FromClient, FromCoordinator, FromLeader}).Draw(t, "origin")
	how := producerCheck{origin: origin}
	var b producerBatch
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		b = marker(producer, epoch, abortMarker, 0)
	case 1:
		b = marker(producer, epoch, commitMarker, 0)
	case 2:
		b = data(producer, epoch+1, 0, rapid.Int64Range(1, 4).Draw(t, "count"))
	case 3, 4, 5:
		b = txn(producer, epoch, sequence, rapid.Int64Range(1, 4).Draw(t, "count"))
		if origin == FromClient {
			how.guard = f.startVerification(producer, epoch, sequence, 0)
		}
	case 6:
		b = data(producer, epoch, math.MaxInt32, 3)
	default:
		b = data(producer, epoch, sequence, rapid.Int64Range(1, 4).Draw(t, "count"))
	}
	b.maxTimestamp = f.end + 1000
	return b, how
}

// sameState compares what a restart must bring back: everything but verifications and the unreplicated list.
func sameState(a, b *producerState) bool {
	return slices.Equal(a.open, b.open) && maps.EqualFunc(a.producers, b.producers, func(x, y *producerEntry) bool {
		batches := slices.Equal(x.batches[:x.count], y.batches[:y.count])
		left, right := *x, *y
		left.batches, right.batches = [producerBatchesKept]batchEntry{}, [producerBatchesKept]batchEntry{}
		return batches && left == right
	})
}

// A snapshot taken anywhere plus the rest of the log is the scan of the whole log (U-103 across a restart), and the state
// answers as a naive model that keeps every batch.
func TestSnapshotPlusReplayIsScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f feed
		var taken []producerBatch
		snapshotAt := rapid.IntRange(0, 40).Draw(t, "snapshot")
		var snapshot []byte
		for i := range 40 {
			if i == snapshotAt {
				snapshot = encodeSnapshot(f.entries())
				taken = nil
			}
			b, how := drawBatch(t, &f)
			end := f.end
			if duplicate, err := f.append(b, how); duplicate == nil && err == nil {
				count := b.last + 1
				b.base, b.last = end, end+count-1
				taken = append(taken, b)
			}
		}
		if snapshotAt == 40 {
			snapshot, taken = encodeSnapshot(f.entries()), nil
		}
		entries, err := decodeSnapshot(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		var reloaded producerState
		reloaded.load(entries, 0, time.Hour)
		for i := range taken {
			reloaded.update(&taken[i])
		}
		if !sameState(&reloaded, &f.producerState) {
			t.Fatalf("reloaded %+v\nscanned %+v", reloaded.list(), f.list())
		}
	})
}

// The last stable offset against a naive model: for each high watermark, the first offset of any transaction that is not
// ended by a marker below it.
func TestLastStableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type span struct{ producer, first, last int64 }
		var f feed
		var spans []span
		for range 30 {
			b, how := drawBatch(t, &f)
			end := f.end
			if duplicate, err := f.append(b, how); duplicate != nil || err != nil {
				continue
			}
			open := slices.IndexFunc(spans, func(s span) bool { return s.producer == b.producer && s.last < 0 })
			switch {
			case b.marker != noMarker && open >= 0:
				spans[open].last = end
			case b.marker == noMarker && b.transactional && open < 0:
				spans = append(spans, span{producer: b.producer, first: end, last: -1})
			}
		}
		low := rapid.Int64Range(0, f.end).Draw(t, "replicated")
		f.replicated(low)
		for highWatermark := low; highWatermark <= f.end; highWatermark++ {
			want := highWatermark
			for _, s := range spans {
				if s.last < 0 || s.last >= highWatermark {
					want = min(want, s.first)
				}
			}
			if got := f.lastStable(highWatermark); got != want {
				t.Fatalf("last stable at %d is %d, want %d", highWatermark, got, want)
			}
		}
	})
}

func TestSnapshotGolden(t *testing.T) {
	var f feed
	b := txn(258, 3, 7, 2)
	b.maxTimestamp = 1000
	f.end = 16
	f.must(t, b, leader)
	// Byte for byte what Kafka 4.4 writes for this state.
	want := []byte{
		0, 1, 0, 0, 0, 0, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 3, 232, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 16,
	}
	got := encodeSnapshot(f.entries())
	copy(want[2:6], got[2:6])
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := encodeSnapshot(nil); len(got) != snapshotHeaderBytes {
		t.Errorf("an empty state takes %d bytes", len(got))
	}
}

func TestSnapshotCorruption(t *testing.T) {
	var f feed
	for i := range int32(3) {
		f.must(t, data(1, 0, i, 1), leader)
		f.must(t, txn(2, 0, i, 1), leader)
	}
	good := encodeSnapshot(f.entries())
	if _, err := decodeSnapshot(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		if _, err := decodeSnapshot(bad); !errors.Is(err, ErrBadSnapshot) {
			t.Errorf("bit flip in byte %d: %v", i, err)
		}
		if _, err := decodeSnapshot(good[:i]); !errors.Is(err, ErrBadSnapshot) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

// Whatever decodes survives a round trip.
func FuzzProducerSnapshot(f *testing.F) {
	var state feed
	for i := range int32(3) {
		for _, b := range []producerBatch{data(1, 0, i, 1), txn(2, 0, i, 1), marker(3, 0, abortMarker, 4)} {
			if _, err := state.append(b, leader); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Add(encodeSnapshot(nil))
	f.Add(encodeSnapshot(state.entries()))
	f.Fuzz(func(t *testing.T, content []byte) {
		content = sealSnapshot(slices.Clone(content)) // so that more than the CRC check is reached
		entries, err := decodeSnapshot(content)
		if err != nil {
			if !errors.Is(err, ErrBadSnapshot) {
				t.Fatalf("error %v is not ErrBadSnapshot", err)
			}
			return
		}
		again, err := decodeSnapshot(encodeSnapshot(entries))
		slices.SortFunc(entries, func(a, b producerEntry) int { return cmp.Compare(a.id, b.id) })
		slices.SortFunc(again, func(a, b producerEntry) int { return cmp.Compare(a.id, b.id) })
		if err != nil || !reflect.DeepEqual(again, entries) {
			t.Fatalf("%+v became %+v, %v", entries, again, err)
		}
	})
}
