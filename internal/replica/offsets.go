package replica

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// The special timestamps of ListOffsets.
const (
	Latest                = -1 // the end of what the isolation level may read
	Earliest              = -2 // the log's start
	MaxTimestamp          = -3 // the record with the largest timestamp
	EarliestLocal         = -4 // the start of what is on the local disk
	LatestTiered          = -5 // the end of what is in the remote tier
	EarliestPendingUpload = -6 // the first offset that is to go to the remote tier and has not
)

// Producer is one producer that a log remembers.
type Producer = commitlog.Producer

// ListedOffset is the answer to ListOffset. Unknown parts are -1.
type ListedOffset struct {
	Offset    int64
	Timestamp int64      // of the record found
	Epoch     meta.Epoch // of the record found (U-68)
}

// nothingListed is the answer when no record fits.
var nothingListed = ListedOffset{-1, -1, meta.NoEpoch}

// ListOffset finds an offset by time: the first record whose timestamp is at least spec, or what a special (negative)
// timestamp stands for. It never names an offset beyond what the isolation level may read. While a new leader has not
// committed up to the start of its epoch it returns ErrOffsetNotAvailable for what it cannot know.
func (r *Replica) ListOffset(spec int64, isolation Isolation, current meta.Epoch) (ListedOffset, error) {
	leader, err := r.leading(current)
	if err != nil {
		return nothingListed, err
	}
	bound := leader.high
	if isolation == ReadCommitted {
		bound = r.log.LastStableOffset(leader.high)
	}
	switch spec {
	case Latest:
		if !leader.latestKnown {
			return nothingListed, ErrOffsetNotAvailable
		}
		return ListedOffset{bound, -1, leader.epoch}, nil
	case Earliest, EarliestLocal:
		start := r.log.StartOffset()
		epoch, known := r.log.Epochs().At(start)
		if !known {
			epoch = meta.NoEpoch
		}
		return ListedOffset{start, -1, epoch}, nil
	case LatestTiered, EarliestPendingUpload:
		return nothingListed, nil // nothing is in a remote tier
	}
	found, err := r.find(spec, bound)
	if err == nil && found.Offset < 0 && !leader.latestKnown {
		return nothingListed, ErrOffsetNotAvailable
	}
	return found, err
}

func (r *Replica) find(spec, bound int64) (ListedOffset, error) {
	look := r.log.MaxTimestamp
	if spec != MaxTimestamp {
		look = func(end int64) (commitlog.TimeOffset, bool, error) { return r.log.OffsetForTimestamp(spec, end) }
	}
	at, found, err := look(bound)
	if err != nil || !found {
		return nothingListed, err
	}
	return ListedOffset(at), nil
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch of the log not above requested, and its end. Both parts are
// -1 when the log has no such epoch.
func (r *Replica) EpochEnd(requested, current meta.Epoch) (EpochEnd, error) {
	if _, err := r.leading(current); err != nil {
		return EpochEnd{meta.NoEpoch, -1}, err
	}
	epoch, end := r.log.EpochEnd(requested)
	return EpochEnd{epoch, end}, nil
}

// DeleteRecords moves the log's start up to offset, -1 standing for the high watermark, and returns the offset. Other
// replicas follow with their next fetches: AwaitLowWatermark waits for them. It returns ErrOffsetOutOfRange for an offset
// above the high watermark, and ErrPolicy if the topic's cleanup.policy keeps records.
func (r *Replica) DeleteRecords(offset int64) (int64, error) {
	leader, err := r.leading(meta.NoEpoch)
	if err != nil {
		return -1, err
	}
	if !r.log.Config().CleanupDelete {
		return -1, ErrPolicy
	}
	if offset == -1 {
		offset = leader.high
	}
	if offset < 0 || offset > leader.high {
		return -1, fmt.Errorf("offset %d is not between 0 and the high watermark %d: %w", offset, leader.high, ErrOffsetOutOfRange)
	}
	if offset > r.log.StartOffset() {
		if err := r.log.RaiseStart(offset); err != nil {
			return -1, err
		}
		r.act(func(m *Machine) Effects { return m.StartRaised(offset) })
		r.wakeTails()
	}
	return offset, nil
}

// AwaitLowWatermark waits until the logs of all live replicas start at offset or above, and returns the lowest start
// . It returns ErrTimedOut when ctx ends before, and ErrNotLeader when this broker does not lead any more.
func (r *Replica) AwaitLowWatermark(ctx context.Context, offset int64) (int64, error) {
	for {
		if _, err := r.leading(meta.NoEpoch); err != nil {
			return -1, err
		}
		r.mu.Lock()
		low := r.mu.machine.LowWatermark(r.log.StartOffset())
		if low >= offset {
			r.mu.Unlock()
			return low, nil
		}
		if r.mu.moved == nil {
			r.mu.moved = make(chan struct{})
		}
		moved := r.mu.moved
		r.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return low, ErrTimedOut
		}
	}
}

// Producers lists the producers that the leader's log remembers (DescribeProducers).
func (r *Replica) Producers() ([]Producer, error) {
	if _, err := r.leading(meta.NoEpoch); err != nil {
		return nil, err
	}
	return r.log.Producers(), nil
}
