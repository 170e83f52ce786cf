package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// balanceFirst is when the first look at preferred leaders takes place: soon, but after the brokers of a cluster that starts
// have come.
const balanceFirst = 5 * time.Second

// balance gives leadership back to preferred replicas that are in sync, so that after a rolling restart the load is where it
// was planned.
func (t *term) balance(ctx context.Context) error {
	for wait := min(balanceFirst, t.balanceEvery); ; wait = t.balanceEvery {
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		writes := t.unbalanced()
		if len(writes) == 0 {
			continue
		}
		conflicts, _, err := t.commit(ctx, writes)
		if err != nil {
			return err
		}
		t.logger.Info("leadership returns to preferred replicas", slog.Int("partitions", len(writes)-len(conflicts)))
	}
}

// unbalanced lists elections of preferred leaders that would succeed.
func (t *term) unbalanced() []decided {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.newPlannerLocked(meta.NoBroker)
	var writes []decided
	for id, topic := range t.mu.state.Topics {
		for n := int32(0); n < topic.Count && t.mu.state.Committed(id); n++ {
			tp := meta.TopicIDPartition{Topic: id, Partition: n}
			value := t.mu.state.Partition(tp)
			if value == nil {
				continue
			}
			if next, refusal := Elect(value, false, p.facts); refusal == nil {
				write := registry.PartitionWrite{TopicIDPartition: tp, Version: value.Version, State: next}
				writes = append(writes, decided{write, *value, []string{"leadership returns to the preferred replica"}})
			}
		}
	}
	return writes
}
