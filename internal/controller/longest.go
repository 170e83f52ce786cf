package controller

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// copyEnds is where the copies of a partition end that waits for the longest of them, as their brokers have told.
type copyEnds map[meta.BrokerID]copyEnd

// copyEnd is what one registration of a broker has told, of a copy under one version of the value. A later registration may
// have lost more, and under another version somebody may have led.
type copyEnd struct {
	registration, version int64
	end                   meta.LogEnd
}

// noteEnds takes what a broker has told of partitions that wait for the longest copy, and elects where all have told.
func (t *term) noteEnds(ctx context.Context, o *outbox, a *meta.Apply, ends []meta.PartitionEnd) error {
	if len(ends) == 0 {
		return nil
	}
	versions := make(map[meta.TopicIDPartition]int64)
	for i := range a.Partitions {
		u := &a.Partitions[i]
		versions[meta.TopicIDPartition{Topic: u.ID, Partition: u.Partition}] = u.State.Version
	}
	t.mu.Lock()
	dirty := &registry.Dirty{Partitions: make(map[meta.TopicIDPartition]bool)}
	for _, end := range ends {
		if t.mu.ends[end.TopicIDPartition] == nil {
			t.mu.ends[end.TopicIDPartition] = make(copyEnds)
		}
		t.mu.ends[end.TopicIDPartition][o.broker] = copyEnd{o.registration, versions[end.TopicIDPartition], end.LogEnd}
		dirty.Partitions[end.TopicIDPartition] = true
	}
	p := t.planLocked(dirty)
	t.mu.Unlock()
	_, _, err := t.commit(ctx, p.writes) // a conflict means that the watch will tell
	return err
}

// endOfLocked is what Plan may know of the copies of a partition: nothing, unless the value waits for the longest.
func (t *term) endOfLocked(tp meta.TopicIDPartition, value *meta.Partition) func(meta.BrokerID) (meta.LogEnd, bool) {
	if !value.WaitsForLongest() {
		delete(t.mu.ends, tp)
		return nil
	}
	return func(id meta.BrokerID) (meta.LogEnd, bool) {
		told, found := t.mu.ends[tp][id]
		b := t.mu.state.Brokers[id]
		return told.end, found && told.version == value.Version && b != nil && b.Registration == told.registration
	}
}
