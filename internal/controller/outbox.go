package controller

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// outbox is what one broker has not been told. It is guarded by the term's lock; wake has room for one signal, so that
// signalling never waits.
type outbox struct {
	broker       meta.BrokerID
	registration int64
	wake         chan struct{}

	full       bool // everything
	topics     map[meta.TopicID]bool
	partitions map[meta.TopicIDPartition]bool
	brokers    bool
	told       int64          // registry revision of the last delivered statement
	holding    []meta.TopicID // deleted topics of which the broker said that it still holds something

	// swept: the partitions of this registration have been swept, so that it may be unfenced once it has heard everything.
	swept bool
	todo  []meta.TopicIDPartition // partitions that the sweep must look at again; nil before the first look
	after int64                   // what the sweep wrote is in statements of this revision on
}

func newOutbox(b *registry.BrokerState) *outbox {
	return &outbox{
		broker: b.ID, registration: b.Registration, wake: make(chan struct{}, 1), full: true,
		topics: make(map[meta.TopicID]bool), partitions: make(map[meta.TopicIDPartition]bool),
	}
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// mark notes what a change of the state touched.
func (o *outbox) mark(dirty *registry.Dirty) {
	if dirty.All {
		o.full = true
	}
	maps.Copy(o.partitions, dirty.Partitions)
	for id, existence := range dirty.Topics {
		o.topics[id] = o.topics[id] || existence
	}
	o.brokers = o.brokers || len(dirty.Brokers) > 0
}

// empty tells whether there is nothing to say but the revision.
func (o *outbox) empty() bool {
	return !o.full && !o.brokers && len(o.topics) == 0 && len(o.partitions) == 0
}

// marks is what a statement says, kept until it is delivered.
type marks struct {
	full       bool
	topics     map[meta.TopicID]bool
	partitions map[meta.TopicIDPartition]bool
	brokers    bool
}

// take empties the outbox.
func (o *outbox) take() marks {
	m := marks{o.full, o.topics, o.partitions, o.brokers}
	o.full, o.brokers = false, false
	o.topics, o.partitions = make(map[meta.TopicID]bool), make(map[meta.TopicIDPartition]bool)
	return m
}

// putBack marks again what was not delivered.
func (o *outbox) putBack(m marks) {
	o.full, o.brokers = o.full || m.full, o.brokers || m.brokers
	maps.Copy(o.partitions, m.partitions)
	for id, existence := range m.topics {
		o.topics[id] = o.topics[id] || existence
	}
}

// statement says the current value of everything marked, in one Apply.
func statement(s *registry.State, seat registry.Seat, registration int64, m marks) *meta.Apply {
	a := &meta.Apply{
		Controller: seat.Broker, ControllerEpoch: seat.Epoch, Registration: registration,
		Revision: s.Revision, ConfigRevision: s.ConfigRevision, Full: m.full,
	}
	if m.full || m.brokers {
		a.Brokers = brokersOf(s)
	}
	w := &writer{state: s, apply: a, stated: make(map[meta.TopicIDPartition]bool)}
	if m.full {
		for _, id := range sortedIDs(s.Topics) {
			w.topic(id, true)
		}
		for _, id := range sortedIDs(s.Deleted) {
			w.topic(id, true)
		}
		return a
	}
	for _, id := range sortedIDs(m.topics) {
		w.topic(id, m.topics[id])
	}
	for tp := range m.partitions {
		w.partition(tp)
	}
	return a
}

// writer fills one statement.
type writer struct {
	state  *registry.State
	apply  *meta.Apply
	stated map[meta.TopicIDPartition]bool
}

// topic states a topic and, if its existence is news, all its partitions. Topics that are being created are not stated.
func (w *writer) topic(id meta.TopicID, all bool) {
	t, tombstone := w.state.Topics[id], w.state.Deleted[id]
	switch {
	case w.state.Committed(id):
		w.apply.Topics = append(w.apply.Topics, meta.TopicUpdate{ID: id, Name: t.Name, ConfigRevision: w.state.TopicConfigs[id].Revision})
		for n := int32(0); all && n < t.Count; n++ {
			w.partition(meta.TopicIDPartition{Topic: id, Partition: n})
		}
	case t == nil:
		w.apply.Topics = append(w.apply.Topics, meta.TopicUpdate{ID: id, Name: tombstone.Name, Deleted: true})
		for n := range tombstone.Partitions {
			w.apply.Partitions = append(w.apply.Partitions, meta.PartitionUpdate{ID: id, Partition: n, Absent: true})
		}
	}
}

// partition states one partition of a topic that exists.
func (w *writer) partition(tp meta.TopicIDPartition) {
	p := w.state.Partition(tp)
	if p == nil || w.stated[tp] || !w.state.Committed(tp.Topic) {
		return
	}
	w.stated[tp] = true
	w.apply.Partitions = append(w.apply.Partitions, meta.PartitionUpdate{ID: tp.Topic, Partition: tp.Partition, State: *p})
}

// brokersOf lists the brokers that are registered, and after them those that are down and on record (D6).
func brokersOf(s *registry.State) []meta.Broker {
	var brokers []meta.Broker
	for _, b := range s.Registered() {
		brokers = append(brokers, brokerOf(b))
	}
	if len(brokers) == 0 {
		return nil // an empty list says nothing, and so does one of absent brokers
	}
	for _, id := range slices.Sorted(maps.Keys(s.Brokers)) {
		b := s.Brokers[id]
		if endpoints, rack, known := b.Last(); known && b.Registration == 0 {
			brokers = append(brokers, meta.Broker{ID: id, Epoch: b.Epoch, Endpoints: endpoints, Rack: rack, Fenced: true})
		}
	}
	return brokers
}

func brokerOf(b *registry.BrokerState) meta.Broker {
	return meta.Broker{
		ID: b.ID, Registration: b.Registration, Epoch: b.Epoch, Endpoints: b.Info.Endpoints, Rack: b.Info.Rack,
		Directories: b.Info.Directories, Fenced: b.Live == 0,
	}
}

// sortedIDs makes statements repeatable.
func sortedIDs[V any](m map[meta.TopicID]V) []meta.TopicID {
	return slices.SortedFunc(maps.Keys(m), func(x, y meta.TopicID) int { return cmp.Compare(string(x[:]), string(y[:])) })
}
