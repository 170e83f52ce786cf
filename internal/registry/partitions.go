package registry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Guard is the condition that a whole batch of partition writes stands under (D3): the controller's seat, or the
// writer's own live key.
type Guard struct{ cond Cond }

// GuardSeat lets a batch pass while the seat is still the writer's.
func GuardSeat(s Seat) Guard { return Guard{s.cond()} }

// GuardLive lets a batch pass while the broker is live in the epoch.
func GuardLive(id meta.BrokerID, epoch int64) Guard { return Guard{CreatedAt(liveKey(id), epoch)} }

// PartitionWrite replaces the value of one partition.
type PartitionWrite struct {
	meta.TopicIDPartition
	Version int64          // of the value that the new one was decided on; must be positive
	State   meta.Partition // its Version is ignored
	Joining []Joining      // brokers that the write adds to the ISR (D8)
}

// Joining is a broker that enters an ISR on the strength of fetches that it sent in a broker epoch.
type Joining struct {
	Broker meta.BrokerID
	Epoch  int64
}

// PartitionOutcome is what happened to one write.
type PartitionOutcome struct {
	Err     error           // nil, ErrConflict, or ErrUnknownTopic when the partition has no value any more
	Current *meta.Partition // the value now, written or found; nil when there is none, or it is unreadable
}

// SetPartitions writes partitions by compare-and-set, up to 64 in one transaction and several transactions under way, each
// write independently of the others. The revision shows everything that was written. ErrDeposed: the guard does not hold
// any more. On that and any other error the outcome of the writes without an outcome is unknown.
func (c *Cluster) SetPartitions(ctx context.Context, guard Guard, writes []PartitionWrite) (outcomes []PartitionOutcome, revision int64, err error) {
	chunks := slices.Collect(slices.Chunk(writes, nestedMax))
	results := make([]TxnResult, len(chunks))
	err = inFlight(len(chunks), func(n int) error {
		outer := Txn{Conds: []Cond{guard.cond}}
		for i := range chunks[n] {
			nested, err := writeOf(&chunks[n][i])
			if err != nil {
				return err
			}
			outer.Then = append(outer.Then, Nest(nested))
		}
		result, err := c.store.Txn(ctx, outer)
		if err == nil && !result.Succeeded {
			err = ErrDeposed
		}
		if err != nil {
			return fmt.Errorf("write partitions: %w", err)
		}
		results[n] = result
		return nil
	})
	outcomes = make([]PartitionOutcome, 0, len(writes))
	for n, result := range results {
		if !result.Succeeded {
			break
		}
		revision = max(revision, result.Revision)
		for i, r := range result.Results {
			outcomes = append(outcomes, c.outcome(&chunks[n][i], r.Txn))
		}
	}
	return outcomes, revision, err
}

// writeOf is the nested transaction of one write.
func writeOf(w *PartitionWrite) (Txn, error) {
	key := partitionKey(w.Topic, w.Partition)
	if err := checkPartition(key, &w.State); err != nil {
		return Txn{}, err
	}
	nested := Txn{Conds: []Cond{HasVersion(key, w.Version)}, Then: []Op{Put(key, encode(&w.State))}, Else: []Op{Get(key)}}
	for _, j := range w.Joining {
		nested.Conds = append(nested.Conds, CreatedAt(liveKey(j.Broker), j.Epoch))
	}
	return nested, nil
}

func (c *Cluster) outcome(w *PartitionWrite, nested *TxnResult) PartitionOutcome {
	if nested.Succeeded {
		written := w.State
		written.Version = w.Version + 1
		return PartitionOutcome{Current: &written}
	}
	entry := nested.Results[0].Entry
	if entry == nil {
		return PartitionOutcome{Err: ErrUnknownTopic}
	}
	current, err := decodePartition(*entry)
	if err != nil {
		c.logger.Error("registry value is unreadable and left out", slog.Any("key", entry.Key), slog.Any("err", err))
		return PartitionOutcome{Err: ErrConflict}
	}
	return PartitionOutcome{Err: ErrConflict, Current: &current}
}

// Partition reads one value linearizably; ErrUnknownTopic when there is none.
func (c *Cluster) Partition(ctx context.Context, tp meta.TopicIDPartition) (meta.Partition, error) {
	entry, err := c.get(ctx, partitionKey(tp.Topic, tp.Partition))
	if err != nil {
		return meta.Partition{}, fmt.Errorf("read partition %s: %w", tp, err)
	}
	if entry.Version == 0 {
		return meta.Partition{}, fmt.Errorf("read partition %s: %w", tp, ErrUnknownTopic)
	}
	return decodePartition(entry)
}
