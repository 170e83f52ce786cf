package commitlog

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// lineage builds Epochs from pairs of epoch and start.
func lineage(pairs ...int64) Epochs {
	var e Epochs
	for i := 0; i < len(pairs); i += 2 {
		e = append(e, EpochEntry{Epoch: meta.Epoch(pairs[i]), Start: pairs[i+1]})
	}
	return e
}

// E-13
func TestEpochsAssign(t *testing.T) {
	for _, test := range []struct {
		name         string
		before       Epochs
		epoch        meta.Epoch
		start        int64
		after        Epochs
		removed      Epochs
		wantBadEpoch bool
	}{
		{name: "first", epoch: 3, start: 7, after: lineage(3, 7)},
		{name: "next", before: lineage(0, 0), epoch: 1, start: 5, after: lineage(0, 0, 1, 5)},
		{name: "same epoch and start", before: lineage(1, 5), epoch: 1, start: 5, after: lineage(1, 5)},
		{name: "same epoch, higher start", before: lineage(1, 5), epoch: 1, start: 9, after: lineage(1, 5)},
		{name: "same epoch, lower start", before: lineage(1, 5), epoch: 1, start: 4, after: lineage(1, 4), removed: lineage(1, 5)},
		{name: "empty epoch gives way in silence", before: lineage(0, 0, 1, 5), epoch: 2, start: 5, after: lineage(0, 0, 2, 5)},
		{
			name: "lower start drops the tail", before: lineage(0, 0, 1, 5, 2, 9), epoch: 3, start: 4,
			after: lineage(0, 0, 3, 4), removed: lineage(1, 5, 2, 9),
		},
		{
			name: "lower epoch drops the tail", before: lineage(0, 0, 2, 5, 4, 9), epoch: 2, start: 12,
			after: lineage(0, 0, 2, 12), removed: lineage(2, 5, 4, 9),
		},
		{name: "negative epoch", before: lineage(0, 0), epoch: -1, start: 4, after: lineage(0, 0), wantBadEpoch: true},
		{name: "negative start", before: lineage(0, 0), epoch: 1, start: -1, after: lineage(0, 0), wantBadEpoch: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := slices.Clone(test.before)
			after, removed, err := test.before.Assign(test.epoch, test.start)
			if !slices.Equal(after, test.after) || !slices.Equal(removed, test.removed) {
				t.Errorf("got %v, removed %v; want %v, removed %v", after, removed, test.after, test.removed)
			}
			if errors.Is(err, ErrBadEpoch) != test.wantBadEpoch {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(before, test.before) {
				t.Errorf("the receiver changed to %v", test.before)
			}
		})
	}
}

// E-15, E-16, E-20, KAFKA-10706
func TestEpochsTruncate(t *testing.T) {
	example := lineage(0, 0, 1, 10, 2, 20)
	for _, test := range []struct {
		name      string
		got, want Epochs
	}{
		{"from end, between", example.TruncateFromEnd(15), lineage(0, 0, 1, 10)},
		{"from end, at a start", example.TruncateFromEnd(20), lineage(0, 0, 1, 10)},
		{"from end, above", example.TruncateFromEnd(21), example},
		{"from end, all", example.TruncateFromEnd(0), nil},
		{"from start, the example of E-16", example.TruncateFromStart(15), lineage(1, 15, 2, 20)},
		{"from start, exactly at an entry", example.TruncateFromStart(10), lineage(1, 10, 2, 20)},
		{"from start, at the first entry", example.TruncateFromStart(0), example},
		{"from start, below the first entry", lineage(1, 10).TruncateFromStart(5), lineage(1, 10)},
		{"from start, above all", example.TruncateFromStart(99), lineage(2, 99)},
		{"from start, empty", Epochs(nil).TruncateFromStart(5), nil},
		{"range", example.Range(5, 20), lineage(0, 5, 1, 10)},
		{"range from the beginning", example.Range(-1, 11), lineage(0, 0, 1, 10)},
		{"range of one offset", example.Range(10, 11), lineage(1, 10)},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, test.got, test.want)
		}
	}
	if !slices.Equal(example, lineage(0, 0, 1, 10, 2, 20)) {
		t.Errorf("the receiver changed to %v", example)
	}
}

// E-18, E-24
func TestEpochsEndFor(t *testing.T) {
	e := lineage(2, 10, 4, 20, 7, 30)
	for _, test := range []struct {
		requested, epoch meta.Epoch
		end              int64
	}{
		{requested: -1, epoch: -1, end: -1},
		{requested: 7, epoch: 7, end: 42},
		{requested: 8, epoch: -1, end: -1},
		{requested: 1, epoch: 1, end: 10},
		{requested: 2, epoch: 2, end: 20},
		{requested: 3, epoch: 2, end: 20},
		{requested: 4, epoch: 4, end: 30},
		{requested: 6, epoch: 4, end: 30},
	} {
		if epoch, end := e.EndFor(test.requested, 42); epoch != test.epoch || end != test.end {
			t.Errorf("EndFor(%d) = %d, %d; want %d, %d", test.requested, epoch, end, test.epoch, test.end)
		}
	}
	if epoch, end := Epochs(nil).EndFor(0, 42); epoch != meta.NoEpoch || end != -1 {
		t.Errorf("without epochs: %d, %d", epoch, end)
	}
}

// E-19
func TestEpochsAt(t *testing.T) {
	e := lineage(2, 10, 4, 20)
	for offset, want := range map[int64]meta.Epoch{0: -1, 9: -1, 10: 2, 19: 2, 20: 4, 1000: 4} {
		epoch, found := e.At(offset)
		if epoch != want || found != (want >= 0) {
			t.Errorf("At(%d) = %d, %v; want %d", offset, epoch, found, want)
		}
	}
}

// settle runs the follower's rounds of E-29 against a leader and returns where its log ends at last. It fails if a round
// does not lower the follower's latest epoch (E-30).
func settle(t interface{ Fatalf(string, ...any) }, leader, follower Epochs, leaderEnd, end, highWatermark int64) int64 {
	for {
		latest := follower.LatestEpoch()
		if latest == meta.NoEpoch {
			return min(end, highWatermark) // E-28
		}
		epoch, epochEnd := leader.EndFor(latest, leaderEnd)
		to, done := follower.Diverge(epoch, epochEnd, end, highWatermark)
		if to > end {
			t.Fatalf("truncation to %d above the end %d", to, end)
		}
		end = to
		follower = follower.TruncateFromEnd(end)
		if done {
			return end
		}
		if follower.LatestEpoch() >= latest {
			t.Fatalf("a round left the latest epoch at %d", follower.LatestEpoch())
		}
	}
}

// E-5, E-6, E-29, U-51: leader's and follower's lineages and ends, and where the follower must truncate. The leader has
// begun an epoch of its own (e9) in each.
func TestTruncationCatalogue(t *testing.T) {
	for _, test := range []struct {
		name             string
		leader, follower Epochs
		leaderEnd, end   int64
		want             int64
	}{
		{"A same epoch, leader ahead", lineage(1, 0, 9, 4), lineage(1, 0), 4, 2, 2},
		{"B later epoch, leader ahead", lineage(1, 0, 2, 2, 9, 4), lineage(1, 0), 4, 2, 2},
		{"C follower longer in the same epoch", lineage(1, 0, 9, 2), lineage(1, 0), 2, 4, 2},
		{"D follower has an epoch unknown to the leader", lineage(1, 0, 9, 2), lineage(1, 0, 2, 2), 2, 4, 2},
		{"E both forked after a common prefix", lineage(1, 0, 3, 2, 9, 5), lineage(1, 0, 2, 2), 5, 6, 2},
		{"F follower forked while the leader has more of the common epoch", lineage(1, 0, 9, 3), lineage(1, 0, 2, 1), 3, 4, 1},
		{"G no common epoch", lineage(1, 0, 9, 5), lineage(2, 0), 5, 3, 0},
		{"E-5 fast failover", lineage(1, 0, 2, 10, 4, 20), lineage(1, 0, 3, 10), 20, 15, 10},
		{"equal logs", lineage(1, 0, 9, 7), lineage(1, 0), 7, 7, 7},
		{"two changes apart", lineage(1, 0, 2, 4, 5, 8, 9, 12), lineage(1, 0, 2, 4, 3, 6, 4, 7), 12, 9, 6},
		{"no epochs: the high watermark (E-28)", lineage(1, 0, 9, 7), nil, 7, 5, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := settle(t, test.leader, test.follower, test.leaderEnd, test.end, 3); got != test.want {
				t.Errorf("truncated to %d, want %d", got, test.want)
			}
		})
	}
}

// E-29, first two cases.
func TestDivergeWithoutEpoch(t *testing.T) {
	e := lineage(1, 0)
	if to, done := e.Diverge(meta.NoEpoch, -1, 10, 4); to != 4 || !done {
		t.Errorf("undefined end: %d, %v", to, done)
	}
	if to, done := e.Diverge(meta.NoEpoch, 6, 10, 4); to != 6 || !done {
		t.Errorf("old leader: %d, %v", to, done)
	}
}

// Property: two logs are lists of epochs, one for each record, never falling, where one epoch is written by one log only
// after both were equal. After the rounds of E-29 the follower is the longest common prefix.
func TestTruncationFindsTheCommonPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var logs [2][]meta.Epoch
		epoch := meta.Epoch(0)
		for range rapid.IntRange(1, 8).Draw(t, "elections") {
			epoch++
			leader := rapid.IntRange(0, 1).Draw(t, "leader")
			if rapid.Bool().Draw(t, "reconciled") {
				common := 0
				for common < len(logs[0]) && common < len(logs[1]) && logs[0][common] == logs[1][common] {
					common++
				}
				ahead := rapid.IntRange(common, len(logs[leader])).Draw(t, "replicated")
				logs[1-leader] = slices.Clone(logs[leader][:ahead])
			}
			for range rapid.IntRange(0, 4).Draw(t, "records") {
				logs[leader] = append(logs[leader], epoch)
			}
		}
		of := func(log []meta.Epoch) (e Epochs) {
			for offset, epoch := range log {
				if e.LatestEpoch() != epoch {
					e = append(e, EpochEntry{Epoch: epoch, Start: int64(offset)})
				}
			}
			return e
		}
		leader, follower := logs[0], logs[1]
		common := 0
		for common < len(leader) && common < len(follower) && leader[common] == follower[common] {
			common++
		}
		lineage, _, err := of(leader).Assign(epoch+1, int64(len(leader)))
		if err != nil {
			t.Fatal(err)
		}
		got := settle(t, lineage, of(follower), int64(len(leader)), int64(len(follower)), 0)
		if len(follower) > 0 && got != int64(common) {
			t.Fatalf("leader %v, follower %v: truncated to %d, common is %d", leader, follower, got, common)
		}
	})
}

// E-11, E-21, U-53, KAFKA-16541
func TestEpochCheckpoint(t *testing.T) {
	for _, test := range []struct {
		text string
		want Epochs
	}{
		{"0\n0\n", nil},
		{"0\n2\n0 0\n3 17\n", lineage(0, 0, 3, 17)},
		{"0\n3\n0 0\n1 10\n2 10\n", lineage(0, 0, 2, 10)},
		{"0\n1\n5 9", lineage(5, 9)},
	} {
		if got, err := decodeEpochs([]byte(test.text)); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: %v, %v", test.text, got, err)
		}
	}
	for _, text := range []string{
		"", "0", "0\n", "1\n0\n", "x\n0\n", "0\nx\n", "0\n-1\n", "0\n1\n", "0\n1\n1 2 3\n", "0\n1\n1\n", "0\n1\n1 -2\n",
		"0\n1\n-1 2\n", "0\n1\n1 2\n2 3\n", "0\n1\n99999999999 2\n", "0\n2\n2 1\n1 5\n", "0\n2\n1 5\n2 4\n", "0\n1\n\n", "0\n1\n1 +2\n",
	} {
		if got, err := decodeEpochs([]byte(text)); !errors.Is(err, ErrBadCheckpoint) {
			t.Errorf("%q: %v, %v; want ErrBadCheckpoint", text, got, err)
		}
	}
	if _, err := decodeEpochs([]byte("0\n2\n1 2\n")); err == nil || !strings.Contains(err.Error(), "2 entries announced") {
		t.Errorf("short file: %v", err)
	}
}

// D8: nothing is written when nothing changed, and an entry that came and went leaves nothing to write.
func TestEpochCacheUnsaved(t *testing.T) {
	cache := newEpochCache(lineage(0, 0))
	unsaved := func(want bool) Epochs {
		t.Helper()
		e, got := cache.unsaved()
		if got != want {
			t.Errorf("unsaved is %v for %v", got, e)
		}
		return e
	}
	unsaved(false)
	if _, err := cache.assign(0, 5); err != nil {
		t.Fatal(err)
	}
	unsaved(false)
	if _, err := cache.assign(1, 5); err != nil {
		t.Fatal(err)
	}
	taken := unsaved(true)
	if _, err := cache.assign(2, 9); err != nil {
		t.Fatal(err)
	}
	cache.saved(taken)
	unsaved(true)
	cache.truncateFromEnd(9)
	unsaved(false)
	cache.truncateFromStart(5)
	cache.saved(unsaved(true))
	if !slices.Equal(cache.Epochs, lineage(1, 5)) {
		t.Errorf("left %v", cache.Epochs)
	}
}

// Whatever decodes is strictly increasing and survives a round trip.
func FuzzEpochCheckpoint(f *testing.F) {
	f.Add([]byte("0\n2\n0 0\n3 17\n"))
	f.Add([]byte("0\n3\n0 0\n1 10\n2 10\n"))
	f.Add([]byte("0\n1\n1 -2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		epochs, err := decodeEpochs(text)
		if err != nil {
			if !errors.Is(err, ErrBadCheckpoint) {
				t.Fatalf("error %v is not ErrBadCheckpoint", err)
			}
			return
		}
		for i := 1; i < len(epochs); i++ {
			if epochs[i].Epoch <= epochs[i-1].Epoch || epochs[i].Start <= epochs[i-1].Start {
				t.Fatalf("%v does not ascend", epochs)
			}
		}
		again, err := decodeEpochs(encodeEpochs(epochs))
		if err != nil || !slices.Equal(again, epochs) {
			t.Fatalf("%v became %v, %v", epochs, again, err)
		}
	})
}
