package commitlog

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/internal/record"
)

// txnWalk follows the transactions of a log while a compaction reads it batch by batch, from the beginning of a segment.
type txnWalk struct {
	aborted   []AbortedTxn // by first offset; those that the walk has not reached
	open      map[int64]openAborted
	committed map[int64]struct{} // producers with batches of a committed transaction since their last marker
}

// openAborted is an aborted transaction whose marker the walk has not reached.
type openAborted struct {
	AbortedTxn
	seen bool // a batch of it was read
}

// add makes the aborted transactions known that touch the segment which the walk comes to next.
func (w *txnWalk) add(aborted []AbortedTxn) {
	w.aborted = append(w.aborted, aborted...)
	slices.SortStableFunc(w.aborted, func(a, b AbortedTxn) int { return cmp.Compare(a.First, b.First) })
}

// reach opens the aborted transactions that have begun by offset. One that touches several segments comes several times.
func (w *txnWalk) reach(offset int64) {
	n := 0
	for ; n < len(w.aborted) && w.aborted[n].First <= offset; n++ {
		txn := w.aborted[n]
		if open, found := w.open[txn.Producer]; found && open.AbortedTxn == txn {
			continue
		}
		if w.open == nil {
			w.open = make(map[int64]openAborted)
		}
		w.open[txn.Producer] = openAborted{AbortedTxn: txn}
	}
	w.aborted = w.aborted[n:]
}

// data tells whether a data batch belongs to an aborted transaction.
func (w *txnWalk) data(b record.Batch) (aborted bool) {
	if !b.Transactional() {
		return false
	}
	w.reach(b.LastOffset())
	producer := b.ProducerID()
	if open, found := w.open[producer]; found && b.BaseOffset() >= open.First {
		open.seen = true
		w.open[producer] = open
		return true
	}
	if w.committed == nil {
		w.committed = make(map[int64]struct{})
	}
	w.committed[producer] = struct{}{}
	return false
}

// marker tells whether a control batch has lost its purpose: no batch of its transaction was read. If it has not and ends
// an aborted transaction, that one stays in the transaction index.
func (w *txnWalk) marker(b record.Batch, d *record.Decompressor) (spent bool, aborted *AbortedTxn, err error) {
	w.reach(b.LastOffset())
	if b.Count() == 0 {
		return true, nil, nil
	}
	marker, found, err := b.ReadMarker(d)
	if err != nil || !found {
		return false, nil, err
	}
	producer := b.ProducerID()
	if marker.Type == record.Commit {
		_, seen := w.committed[producer]
		delete(w.committed, producer)
		return !seen, nil, nil
	}
	open, found := w.open[producer]
	delete(w.open, producer)
	if found && open.seen {
		return false, &open.AbortedTxn, nil
	}
	return true, nil, nil
}

// lastRecord says by which batch a producer's state could be rebuilt.
type lastRecord struct {
	offset int64 // of its last data record, or −1
	epoch  int16
}

// lastRecords are those of all producers that are not forgotten: their last ones below end, so that a scan up to there
// still finds them if a power cut takes what follows.
func (s *producerState) lastRecords(end int64) map[int64]lastRecord {
	if len(s.producers) == 0 {
		return nil
	}
	last := make(map[int64]lastRecord, len(s.producers))
	for id, entry := range s.producers {
		r := lastRecord{offset: -1, epoch: entry.epoch}
		for _, batch := range slices.Backward(entry.batches[:entry.count]) {
			if r.offset = batch.lastOffset; r.offset < end {
				break
			}
		}
		last[id] = r
	}
	return last
}

// cleanTally counts what a compaction did with the records and batches that it read. Every record is kept or counted for
// the reason it went.
type cleanTally struct {
	batchesRead, batchesKept                          int64
	recordsRead, recordsKept                          int64
	superseded, deleted, aborted, markers, withoutKey int64
	bytesRead, bytesKept                              int64
}

// balanced tells whether every record that was read is accounted for (U-15).
func (t *cleanTally) balanced() bool {
	return t.recordsRead == t.recordsKept+t.superseded+t.deleted+t.aborted+t.markers+t.withoutKey
}

func (t *cleanTally) add(o cleanTally) {
	t.batchesRead += o.batchesRead
	t.batchesKept += o.batchesKept
	t.recordsRead += o.recordsRead
	t.recordsKept += o.recordsKept
	t.superseded += o.superseded
	t.deleted += o.deleted
	t.aborted += o.aborted
	t.markers += o.markers
	t.withoutKey += o.withoutKey
	t.bytesRead += o.bytesRead
	t.bytesKept += o.bytesKept
}

// retention decides what of each batch stays, one pass over the segments of a log in offset order. Kafka's rules, with one
// more: the last batch of each group of segments stays, if need be without records, so that the offsets which the new
// segment stands for can be read from it (swap.go).
type retention struct {
	keys      *keyMap
	mapped    int64 // the keys of all records up to here are in keys; later records all stay
	now       int64 // ms since the epoch
	horizon   int64 // when a tombstone that stays in this pass may go: now and delete.retention.ms
	producers map[int64]lastRecord
	txns      txnWalk
	filter    *record.Filterer
	markers   *record.Decompressor

	pending int64 // the latest delete horizon of what stays; 0: there is none

	// Of the present group:
	tally      cleanTally
	kept       []AbortedTxn
	changed    bool // something went, or got a delete horizon
	lastOffset int64
}

// clean appends what stays of b to out. last says that b is the last batch of its group.
func (r *retention) clean(out []byte, b record.Batch, last bool) ([]byte, error) {
	r.tally.batchesRead++
	r.tally.bytesRead += int64(len(b))
	options := record.FilterOptions{DeleteHorizon: r.horizon, KeepEmpty: last || r.lastOfProducer(b)}
	expired := b.HasDeleteHorizon() && b.DeleteHorizon() <= r.now
	switch {
	case b.Control():
		spent, aborted, err := r.txns.marker(b, r.markers)
		if err != nil {
			return out, fmt.Errorf("control batch at offset %d: %w", b.BaseOffset(), err)
		}
		if aborted != nil {
			r.kept = append(r.kept, *aborted)
		}
		options.SetDeleteHorizon = spent
		if spent && expired {
			options.Keep = func(*record.Record) bool { r.tally.markers++; return false }
		}
	case r.txns.data(b):
		options.Keep = func(*record.Record) bool { r.tally.aborted++; return false }
	default:
		options.Keep = func(rec *record.Record) bool { return r.keep(rec, expired) }
	}
	start := len(out)
	r.lastOffset = b.LastOffset()
	out, filtered, err := r.filter.Filter(out, b, options)
	if err != nil {
		return out, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	r.tally.recordsRead += int64(filtered.Read)
	r.tally.recordsKept += int64(filtered.Kept)
	r.changed = r.changed || !filtered.Unchanged && !bytes.Equal(out[start:], b)
	if len(out) > start {
		stays := record.Batch(out[start:])
		r.tally.batchesKept++
		r.tally.bytesKept += int64(len(stays))
		if stays.HasDeleteHorizon() {
			r.pending = max(r.pending, stays.DeleteHorizon())
		}
	}
	return out, nil
}

// keep tells whether a record of a committed batch stays. expired says that the batch's delete horizon has passed.
func (r *retention) keep(rec *record.Record, expired bool) bool {
	switch {
	case rec.Offset > r.mapped:
		return true
	case rec.Key == nil:
		r.tally.withoutKey++
		return false
	case rec.Offset < r.keys.last(rec.Key):
		r.tally.superseded++
		return false
	case rec.Value == nil && expired:
		r.tally.deleted++
		return false
	}
	return true
}

// lastOfProducer tells whether a producer's state could not be rebuilt without the batch: it holds the last sequence, or,
// when the producer has none, the marker with its epoch.
func (r *retention) lastOfProducer(b record.Batch) bool {
	if !b.HasProducer() {
		return false
	}
	last, found := r.producers[b.ProducerID()]
	switch {
	case !found:
		return false
	case last.offset >= 0:
		return b.LastOffset() == last.offset
	default:
		return b.Control() && b.ProducerEpoch() == last.epoch
	}
}
