package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// PartitionMove asks for another assignment of one partition; nil Replicas give up the move that is in flight.
type PartitionMove struct {
	Topic     string
	Partition int32
	Replicas  []meta.BrokerID
}

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// MovePartitions starts, replaces or gives up reassignments, each independently of the others. It returns one error for each:
// a *Refusal, or nil. A move ends by itself when its new replicas are in sync. Unless sameFactor is false, the number of
// replicas must stay.
func (a *Admin) MovePartitions(ctx context.Context, moves []PartitionMove, sameFactor bool) (results []error, revision int64, err error) {
	image := a.config.Image()
	partitions := make([]TopicPartition, len(moves))
	for i := range moves {
		partitions[i] = TopicPartition{moves[i].Topic, moves[i].Partition}
	}
	return a.rewrite(ctx, image, partitions, func(i int, value *meta.Partition, f Facts) (meta.Partition, *Refusal) {
		target := moves[i].Replicas
		if target != nil {
			if refusal := checkAssignment(image, Assignment{moves[i].Partition, target}, 0); refusal != nil {
				return meta.Partition{}, refusal
			}
			if factor := len(difference(value.Replicas, value.Adding)); sameFactor && len(target) != factor {
				return meta.Partition{}, refuse(ErrInvalidReplicationFactor, "The replication factor is changed from %d to %d", factor, len(target))
			}
		}
		next, refusal := Move(value, target, f)
		for at, id := range next.Replicas {
			if broker, _ := image.Broker(id); at < len(next.Dirs) && next.Dirs[at].IsZero() && len(broker.Directories) > 0 {
				next.Dirs[at] = broker.Directories[0]
			}
		}
		return next, refusal
	})
}

// ElectLeaders elects the preferred leader of partitions, or with unclean set any live replica of those without an eligible
// one, each independently of the others; never of an internal topic that is always flushed (D9). It returns one error for each:
// a *Refusal, or nil.
func (a *Admin) ElectLeaders(ctx context.Context, partitions []TopicPartition, unclean bool) (results []error, revision int64, err error) {
	return a.rewrite(ctx, a.config.Image(), partitions, func(i int, value *meta.Partition, f Facts) (meta.Partition, *Refusal) {
		if unclean && meta.AlwaysFlushed(partitions[i].Topic) {
			return meta.Partition{}, refuse(ErrEligibleNotAvailable, "Eligible topic partition leaders are not available.")
		}
		return Elect(value, unclean, f)
	})
}

// rewriteTries bounds how often one value is decided upon again because somebody else has changed it.
const rewriteTries = 8

// rewrite decides about partitions and writes what was decided, under this broker's own live key.
func (a *Admin) rewrite(ctx context.Context, image *meta.Image, partitions []TopicPartition,
	decide func(i int, value *meta.Partition, f Facts) (meta.Partition, *Refusal),
) (results []error, revision int64, err error) {
	results = make([]error, len(partitions))
	self, found := image.Broker(a.config.Broker)
	if !found || self.Fenced {
		return nil, 0, registry.ErrDeposed
	}
	var writes []registry.PartitionWrite
	var index []int // of the writes, in partitions
	add := func(i int, tp meta.TopicIDPartition, value *meta.Partition) {
		next, refusal := decide(i, value, Facts{
			Unclean: meta.NoBroker, Wants: Wants{MinISR: value.MinISR, Flush: value.Flush},
			Unfenced: func(id meta.BrokerID) bool { b, found := image.Broker(id); return found && !b.Fenced },
		})
		if refusal != nil {
			results[i] = refusal
			return
		}
		writes = append(writes, registry.PartitionWrite{TopicIDPartition: tp, Version: value.Version, State: next})
		index = append(index, i)
	}
	seen := make(map[TopicPartition]bool)
	for i, p := range partitions {
		topic, found := image.Topic(p.Topic)
		switch {
		case !found || topic.Partition(p.Partition) == nil:
			results[i] = refuse(ErrUnknownTopic, "This server does not host this topic-partition.")
		case seen[p]:
			results[i] = refuse(ErrInvalidRequest, "Partition %s-%d is named twice.", p.Topic, p.Partition)
		default:
			add(i, meta.TopicIDPartition{Topic: topic.ID, Partition: p.Partition}, topic.Partition(p.Partition))
		}
		seen[p] = true
	}
	for try := 1; len(writes) > 0; try++ {
		outcomes, shown, err := a.config.Cluster.SetPartitions(ctx, registry.GuardLive(self.ID, self.Epoch), writes)
		if err != nil {
			return nil, 0, err
		}
		revision = max(revision, shown)
		again, tps := slices.Clone(index), slices.Clone(writes)
		writes, index = nil, nil
		for at, o := range outcomes {
			switch i := again[at]; {
			case o.Err == nil:
			case errors.Is(o.Err, registry.ErrConflict) && o.Current != nil && try < rewriteTries:
				add(i, tps[at].TopicIDPartition, o.Current)
			default:
				results[i] = topicRefusal(o.Err, partitions[i].Topic)
			}
		}
	}
	return results, revision, nil
}
