package commitlog

import (
	"cmp"
	"errors"
	"slices"
	"testing"
)

func encodeTxnIndex(txns []AbortedTxn) (b []byte) {
	for _, txn := range txns {
		b = appendAbortedTxn(b, txn)
	}
	return b
}

func TestTxnIndexGolden(t *testing.T) {
	got := appendAbortedTxn(nil, AbortedTxn{Producer: 258, First: 3, Last: 700, LastStable: 701})
	want := []byte{
		0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 2, 188, 0, 0, 0, 0, 0, 0, 2, 189,
	}
	if !slices.Equal(got, want) || len(got) != 34 {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTxnIndexSanity(t *testing.T) {
	good := []AbortedTxn{{1, 90, 110, 100}, {2, 100, 120, 121}}
	if got, err := decodeTxnIndex(encodeTxnIndex(good), 100); err != nil || !slices.Equal(got, good) {
		t.Errorf("read %v, %v", got, err)
	}
	if got, err := decodeTxnIndex(nil, 100); err != nil || len(got) != 0 {
		t.Errorf("empty: %v, %v", got, err)
	}
	for name, data := range map[string][]byte{
		"torn":                     encodeTxnIndex(good)[:50],
		"marker below the segment": encodeTxnIndex([]AbortedTxn{{1, 90, 99, 100}}),
		"markers descend":          encodeTxnIndex([]AbortedTxn{{1, 90, 120, 100}, {2, 100, 110, 121}}),
		"starts after its marker":  encodeTxnIndex([]AbortedTxn{{1, 121, 120, 100}}),
		"negative start":           encodeTxnIndex([]AbortedTxn{{1, -1, 120, 100}}),
		"version 1":                append([]byte{0, 1}, encodeTxnIndex(good)[2:]...),
	} {
		if got, err := decodeTxnIndex(data, 100); !errors.Is(err, ErrBadTxnIndex) {
			t.Errorf("%s: %v, %v; want ErrBadTxnIndex", name, got, err)
		}
	}
}

// U-110
func TestTxnIndexLookup(t *testing.T) {
	// Producer 3 starts first and is aborted last.
	txns := []AbortedTxn{{1, 10, 20, 5}, {2, 15, 30, 5}, {3, 5, 40, 41}, {4, 50, 60, 61}}
	for _, test := range []struct {
		start, end int64
		producers  []int64
		complete   bool
	}{
		{start: 0, end: 5, complete: true},
		{start: 0, end: 6, producers: []int64{3}, complete: true},
		{start: 0, end: 100, producers: []int64{3, 1, 2, 4}},
		{start: 20, end: 21, producers: []int64{3, 1, 2}, complete: true},
		{start: 21, end: 41, producers: []int64{3, 2}, complete: true},
		{start: 41, end: 50, complete: true},
		{start: 61, end: 70},
	} {
		found, complete := overlapping(nil, txns, test.start, test.end)
		sortAborted(found)
		var producers []int64
		for _, txn := range found {
			producers = append(producers, txn.Producer)
		}
		if !slices.Equal(producers, test.producers) || complete != test.complete {
			t.Errorf("[%d, %d): producers %v, complete %v; want %v, %v",
				test.start, test.end, producers, complete, test.producers, test.complete)
		}
	}
}

// Whatever decodes is in order and survives a round trip.
func FuzzTxnIndex(f *testing.F) {
	f.Add(encodeTxnIndex([]AbortedTxn{{1, 90, 110, 100}, {2, 100, 120, 121}}), int64(100))
	f.Add([]byte{0, 1}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, base int64) {
		txns, err := decodeTxnIndex(data, base)
		if err != nil {
			if !errors.Is(err, ErrBadTxnIndex) {
				t.Fatalf("error %v is not ErrBadTxnIndex", err)
			}
			return
		}
		if !slices.IsSortedFunc(txns, func(a, b AbortedTxn) int { return cmp.Compare(a.Last, b.Last) }) {
			t.Fatalf("%v is not sorted by marker", txns)
		}
		if again := encodeTxnIndex(txns); !slices.Equal(again, data) {
			t.Fatalf("%v became %v", data, again)
		}
	})
}
