package replica

import (
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// Isolation says up to where a reader may read.
type Isolation uint8

// The isolation levels of consumers, numbered as in the protocol.
const (
	// ReadUncommitted reads up to the high watermark.
	ReadUncommitted Isolation = 0
	// ReadCommitted reads up to the last stable offset, and hears of aborted transactions.
	ReadCommitted Isolation = 1
)

// AbortedTxn is an aborted transaction whose records a read-committed reader must skip.
type AbortedTxn = commitlog.AbortedTxn

// ReadRequest is one partition of a fetch.
type ReadRequest struct {
	Offset           int64
	BytesMax         int32
	Isolation        Isolation
	CurrentEpoch     meta.Epoch // that the client believes in, meta.NoEpoch if it does not say
	LastFetchedEpoch meta.Epoch // of the record before Offset, meta.NoEpoch if the client does not say
	MinOne           bool       // return at least one batch, even above BytesMax

	// TakesFollowers says that the client reads from followers too (KIP-392).
	TakesFollowers bool
	// Near tells which brokers are near the client: if one of them has the offset and this one, which leads, is not near, Read
	// answers Preferred. Nil: the client reads from the leader.
	Near func(meta.BrokerID) bool
}

// ReadResult is what a partition has to say to a fetch.
type ReadResult struct {
	// Records are whole batches; the first contains Offset. The caller releases it. It is empty when there is nothing
	// to read yet.
	Records       record.Slice
	HighWatermark int64
	LastStable    int64
	LogStart      int64
	Aborted       []AbortedTxn // with ReadCommitted
	// Diverging is set, and Records are empty, when the log's last epoch not above LastFetchedEpoch ends before Offset:
	// the reader has records that this log does not have.
	Diverging *EpochEnd
	// News says that another replica does not know the high watermark yet: its fetch is answered, also without records.
	News bool
	// Preferred is the replica from which the client should read instead; nothing was read. It is meta.NoBroker otherwise.
	Preferred meta.BrokerID

	seen seen
}

// EpochEnd is the end of a leader epoch in a log.
type EpochEnd struct {
	Epoch meta.Epoch // the largest epoch of the log that is not above the requested one
	End   int64      // its end: the start of the next one, or the log's end
}

// seen is what a read saw, so that Watch can tell whether something has happened since.
type seen struct {
	isolation Isolation
	terms     uint64
	bound     int64
	tail      bool  // another replica has read, up to the log's end
	high      int64 // the high watermark that it knows then
}

// Read reads up to the bound of the isolation level. A follower's bound is its own: what its leader has told it is committed. It returns ErrOffsetOutOfRange, with HighWatermark, LastStable and
// LogStart set, for an offset outside the log; an offset between the bound and the log's end reads nothing.
func (r *Replica) Read(request ReadRequest) (ReadResult, error) {
	result, err := r.read(request)
	r.traffic.fetched(err)
	return result, err
}

func (r *Replica) read(request ReadRequest) (ReadResult, error) {
	leader, preferred, err := r.reading(&request)
	if err != nil {
		return ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, Preferred: meta.NoBroker}, err
	}
	result := ReadResult{
		HighWatermark: leader.high, LastStable: r.log.LastStableOffset(leader.high), LogStart: r.log.StartOffset(), Preferred: preferred,
	}
	if preferred != meta.NoBroker {
		return result, nil
	}
	bound := leader.high
	if request.Isolation == ReadCommitted {
		bound = result.LastStable
	}
	result.seen = seen{isolation: request.Isolation, terms: leader.terms, bound: bound}
	end := r.log.EndOffset()
	if request.LastFetchedEpoch >= 0 {
		diverging, err := r.diverging(request, result.LogStart)
		if err != nil || diverging != nil {
			result.Diverging = diverging
			return result, err
		}
	}
	if request.Offset < result.LogStart || request.Offset > end {
		return result, fmt.Errorf("offset %d is outside [%d, %d]: %w", request.Offset, result.LogStart, end, ErrOffsetOutOfRange)
	}
	if request.Offset >= bound {
		return result, nil
	}
	result.Records, err = r.log.Read(request.Offset, request.BytesMax, bound, request.MinOne)
	if err != nil {
		return result, err
	}
	if request.Isolation == ReadCommitted && result.Records.Bytes() > 0 {
		if result.Aborted, err = r.log.AbortedTxns(request.Offset, bound); err != nil {
			result.Records.Release()
			return result, err
		}
	}
	return result, nil
}

// reading tells what the replica knows for a consumer, why it does not serve it, or who should instead.
func (r *Replica) reading(q *ReadRequest) (leadership, meta.BrokerID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.mu.machine
	if r.mu.closed != nil {
		return leadership{}, meta.NoBroker, r.mu.closed
	}
	if err := m.CheckReader(q.CurrentEpoch, q.TakesFollowers && m.Role() == RoleFollower && r.fed()); err != nil {
		return leadership{}, meta.NoBroker, err
	}
	preferred := meta.NoBroker
	if q.Near != nil {
		preferred = m.Reader(q.Offset, q.Near)
	}
	return leadership{m.HighWatermark(), m.Epoch(), r.mu.terms, m.LatestKnown()}, preferred, nil
}

// fed tells whether a follower's leader answers its fetches: it has not been silent for replica.lag.time.max.ms. A follower that
// hears nothing would serve what is old for ever.
func (r *Replica) fed() bool {
	l := r.feeder.Load()
	return l != nil && time.Since(l.answered()) <= r.table.config.LagMax
}

// diverging compares the epoch of the reader's last record with this log's epochs.
func (r *Replica) diverging(request ReadRequest, start int64) (*EpochEnd, error) {
	if request.Offset < start {
		return nil, fmt.Errorf("offset %d is below the log's start %d: %w", request.Offset, start, ErrOffsetOutOfRange)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.machine.Compare(request.LastFetchedEpoch, request.Offset, r.log.Epochs(), r.log.EndOffset())
}

// Watch parks a fetch: w will hear of every byte that becomes readable after the read that gave result, and fires when
// the terms of the replica change. It returns false, and registers nothing, if something has happened since that read:
// the caller reads again.
func (r *Replica) Watch(w *Waiter, result ReadResult) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed != nil || r.mu.terms != result.seen.terms {
		return false
	}
	if result.seen.tail {
		return r.watchTailLocked(w, result.seen)
	}
	high := r.mu.machine.HighWatermark()
	bound, bytes := high, r.mu.highBytes
	if result.seen.isolation == ReadCommitted {
		bound = r.log.LastStableOffset(high)
		if bound > r.mu.stable {
			r.mu.stable, r.mu.stableBytes = bound, r.mu.highBytes
		}
		bytes = r.mu.stableBytes
	}
	if bound > result.seen.bound {
		return false
	}
	if r.mu.fetches == nil {
		r.mu.fetches = make(map[*Waiter]watch, 1)
	}
	r.mu.fetches[w] = watch{result.seen.isolation, bytes}
	return true
}

// Unwatch forgets a waiter; it is a no-op if the replica does not know it.
func (r *Replica) Unwatch(w *Waiter) {
	r.mu.Lock()
	delete(r.mu.fetches, w)
	delete(r.mu.tails, w)
	r.mu.Unlock()
}
