package commitlog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// txnIndexSuffix ends the name of a segment's transaction index; it exists only once a transaction was aborted in it.
const txnIndexSuffix = ".txnindex"

// abortedTxnBytes is the size of an entry: version, producer id, first offset, last offset, last stable offset.
const abortedTxnBytes = 2 + 4*8

// ErrBadTxnIndex is returned when a transaction index does not parse or contradicts its segment. It is to be rebuilt by
// scanning.
var ErrBadTxnIndex = errors.New("malformed transaction index")

// AbortedTxn is an aborted transaction: a consumer that reads committed data skips the batches of Producer from First up
// to the marker at Last.
type AbortedTxn struct {
	Producer    int64
	First, Last int64 // first data offset, and the abort marker's
	// LastStable is the last stable offset when the marker was appended: a look-up that ends at or below it needs no later
	// entry, because every transaction that ends later starts at or above it.
	LastStable int64
}

func (c *completedTxn) abortedTxn() AbortedTxn {
	return AbortedTxn{Producer: c.producer, First: c.first, Last: c.last, LastStable: c.lastStable}
}

// appendAbortedTxn appends the bytes of an index entry to b.
func appendAbortedTxn(b []byte, txn AbortedTxn) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, 0)
	b = be.AppendUint64(b, uint64(txn.Producer))
	b = be.AppendUint64(b, uint64(txn.First))
	b = be.AppendUint64(b, uint64(txn.Last))
	return be.AppendUint64(b, uint64(txn.LastStable))
}

// decodeTxnIndex reads all entries of the index of the segment that starts at base. It returns ErrBadTxnIndex for an
// unknown version, a torn entry, markers below base or not in ascending order, and a transaction that starts after its
// marker.
func decodeTxnIndex(data []byte, base int64) ([]AbortedTxn, error) {
	if len(data)%abortedTxnBytes != 0 {
		return nil, fmt.Errorf("%w: %d bytes are no whole number of entries of %d bytes",
			ErrBadTxnIndex, len(data), abortedTxnBytes)
	}
	be := binary.BigEndian
	txns := make([]AbortedTxn, 0, len(data)/abortedTxnBytes)
	last := int64(-1)
	for b := data; len(b) > 0; b = b[abortedTxnBytes:] {
		if version := be.Uint16(b); version != 0 {
			return nil, fmt.Errorf("%w: entry %d has version %d, want 0", ErrBadTxnIndex, len(txns), version)
		}
		txn := AbortedTxn{
			Producer:   int64(be.Uint64(b[2:])),
			First:      int64(be.Uint64(b[10:])),
			Last:       int64(be.Uint64(b[18:])),
			LastStable: int64(be.Uint64(b[26:])),
		}
		if txn.Last < base || txn.Last <= last || txn.First < 0 || txn.First > txn.Last {
			return nil, fmt.Errorf("%w: entry %d spans offsets %d to %d, the one before ends at %d, the segment starts at %d",
				ErrBadTxnIndex, len(txns), txn.First, txn.Last, last, base)
		}
		last = txn.Last
		txns = append(txns, txn)
	}
	return txns, nil
}

// overlapping appends to found the transactions of one index that touch the offsets from start to end. complete tells
// that no later segment can hold another one.
func overlapping(found, txns []AbortedTxn, start, end int64) (_ []AbortedTxn, complete bool) {
	for _, txn := range txns {
		if txn.Last >= start && txn.First < end {
			found = append(found, txn)
		}
		if txn.LastStable >= end {
			return found, true
		}
	}
	return found, false
}

// sortAborted orders the answer of a look-up as clients need it: by first offset (U-110).
func sortAborted(txns []AbortedTxn) {
	slices.SortFunc(txns, func(a, b AbortedTxn) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
}
