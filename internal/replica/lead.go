package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// FollowerRead is one partition of another replica's fetch.
type FollowerRead struct {
	Broker      meta.BrokerID
	BrokerEpoch int64 // in which it fetches; -1 if it has none: then it may read, but never counts (D6)

	Offset   int64 // the follower's log end, its synced end in a flush partition: the fetch acknowledges what is below
	LogStart int64 // of the follower
	// CurrentEpoch is the leader epoch in which the follower follows; it must be the leader's (KIP-320).
	CurrentEpoch     meta.Epoch
	LastFetchedEpoch meta.Epoch // of the follower's last record, meta.NoEpoch if its log is empty
	// KnownHigh is the high watermark that the follower knows; -1 if it does not say. A newer one answers the fetch.
	KnownHigh int64

	BytesMax int32
	MinOne   bool // return at least one batch, even above BytesMax
}

// ReadForFollower reads up to the log's end for another replica, and counts what the fetch acknowledges: the high
// watermark may rise, and the follower may join the ISR. A follower whose log diverges acknowledges nothing (E-43).
//
// Besides the errors of Read it returns ErrUnknownEpoch, with the reason, for a broker that has no replica in this epoch.
// With ErrOffsetOutOfRange the result's HighWatermark and LogStart are set, for the follower to find its way back (E-47).
func (r *Replica) ReadForFollower(q FollowerRead) (ReadResult, error) {
	result, err := r.readForFollower(&q)
	r.traffic.fetched(err)
	if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknownEpoch) { // who is ahead of this broker's statements asks again
		r.note(meta.EventFetchRefused, q.Broker, "the fetch of broker %d from offset %d in leader epoch %d was refused: %v", q.Broker, q.Offset, q.CurrentEpoch, err)
	}
	return result, err
}

func (r *Replica) readForFollower(q *FollowerRead) (ReadResult, error) {
	nothing := ReadResult{HighWatermark: -1, LastStable: -1, LogStart: -1, Preferred: meta.NoBroker}
	terms, err := r.leadingFor(q)
	if err != nil {
		return nothing, err
	}
	end := r.log.EndOffset()
	result := ReadResult{HighWatermark: r.HighWatermark(), LastStable: -1, LogStart: r.log.StartOffset(), Preferred: meta.NoBroker}
	if q.Offset < result.LogStart {
		return result, fmt.Errorf("offset %d is below the log's start %d: %w", q.Offset, result.LogStart, ErrOffsetOutOfRange)
	}
	if q.LastFetchedEpoch >= 0 {
		asked := ReadRequest{Offset: q.Offset, LastFetchedEpoch: q.LastFetchedEpoch}
		if result.Diverging, err = r.diverging(asked, result.LogStart); err != nil || result.Diverging != nil {
			return result, err
		}
	}
	if q.Offset > end {
		return result, fmt.Errorf("offset %d is above the log's end %d: %w", q.Offset, end, ErrOffsetOutOfRange)
	}
	if q.Offset < end && !r.holdsBack(q.Broker) {
		if result.Records, err = r.log.Read(q.Offset, q.BytesMax, end, q.MinOne); err != nil {
			return result, err
		}
	}
	// A leader's log is only ever appended to, so what was compared above holds in this epoch.
	f := FollowerFetch{
		Broker: q.Broker, BrokerEpoch: q.BrokerEpoch, Current: r.table.liveIn(q.Broker, q.BrokerEpoch), Epoch: q.CurrentEpoch,
		Offset: q.Offset, LogStart: q.LogStart, LeaderEnd: end,
	}
	r.act(func(m *Machine) Effects { return m.FollowerFetched(f, time.Now()) })
	result.HighWatermark = r.HighWatermark()
	// A newer high watermark is news as far as the follower's log goes, and so is a log start that it can follow. One that gets no
	// records, because it is throttled, would otherwise be told of the same high watermark again and again.
	result.News = q.KnownHigh >= 0 && (min(result.HighWatermark, q.Offset) > q.KnownHigh || q.LogStart < result.LogStart && result.LogStart <= q.KnownHigh)
	result.seen = seen{tail: true, terms: terms, bound: end, high: max(result.HighWatermark, q.KnownHigh)}
	return result, nil
}

// wakeTails answers the parked fetches of other replicas: the log's start is news for them.
func (r *Replica) wakeTails() {
	var fired fired
	r.mu.Lock()
	for w := range r.mu.tails {
		fired.waiters = append(fired.waiters, w)
	}
	clear(r.mu.tails)
	r.mu.Unlock()
	fired.run()
}

// leadingFor tells whether this replica leads in the epoch of another one's fetch.
func (r *Replica) leadingFor(q *FollowerRead) (terms uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.mu.machine
	switch err := m.CheckLeader(q.CurrentEpoch); {
	case r.mu.closed != nil:
		return 0, r.mu.closed
	case err != nil:
		return 0, err
	case q.CurrentEpoch == meta.NoEpoch:
		return 0, fmt.Errorf("a replica fetches without a leader epoch: %w", ErrFencedEpoch)
	case m.other(q.Broker) == nil:
		return 0, fmt.Errorf("broker %d has no replica in epoch %d: %w", q.Broker, m.Epoch(), ErrUnknownEpoch)
	}
	return r.mu.terms, nil
}

// watchTail parks another replica's fetch: it fires with the next append, with a newer high watermark, and when the terms
// change. The caller holds the lock and has checked the terms.
func (r *Replica) watchTailLocked(w *Waiter, seen seen) bool {
	if r.log.EndOffset() > seen.bound || r.mu.machine.HighWatermark() > seen.high {
		return false
	}
	if r.mu.tails == nil {
		r.mu.tails = make(map[*Waiter]int64, 1)
	}
	r.mu.tails[w] = seen.high
	return true
}

// logEnd tells where this copy ends, whatever its role.
func (r *Replica) logEnd() meta.LogEnd {
	epochs, end := r.log.Epochs(), r.log.EndOffset()
	epoch, known := epochs.At(end - 1)
	if !known || end <= r.log.StartOffset() {
		epoch = meta.NoEpoch
	}
	return meta.LogEnd{Epoch: epoch, End: end}
}

// raiseStart follows the leader's log start.
func (r *Replica) raiseStart(to int64) {
	if err := r.log.RaiseStart(to); err != nil {
		return // the log was cut or closed meanwhile; the next answer says it again
	}
	r.act(func(m *Machine) Effects { return m.StartRaised(to) })
}
