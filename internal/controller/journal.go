package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// Account is what a broker that holds the controller's seat knows about why a partition is as it is.
type Account struct {
	// Since is when its term began: nothing is known of what was before.
	Since time.Time `json:"since"`
	// Leaderless says why nobody can lead at present; empty while somebody does.
	Leaderless string `json:"leaderless,omitempty"`
	// Brokers are those that hold replicas of the partition.
	Brokers []BrokerAccount `json:"brokers"`
	// Events are what it has decided about the partition, the oldest first.
	Events []meta.Event `json:"events"`
}

// BrokerAccount is what a controller knows of a broker.
type BrokerAccount struct {
	Broker meta.BrokerID `json:"broker"`
	// State is "live", "fenced", "leaving" or "gone".
	State string `json:"state"`
	// Epoch is its broker epoch, the last one unless it is live; 0 when it was never live.
	Epoch int64 `json:"epoch"`
	// Unclean says that its present start may have lost what its disk had not synced.
	Unclean bool `json:"unclean,omitempty"`
	// Events are what has become of it in this term, the oldest first.
	Events []meta.Event `json:"events,omitempty"`
}

// journal is what a controller has decided, and what became of brokers, in its present term.
type journal struct {
	mu struct {
		sync.Mutex
		since      time.Time
		term       *term // nil while this broker is not controller
		partitions meta.Journal[meta.TopicIDPartition]
		brokers    meta.Journal[meta.BrokerID]
	}
}

// begin begins the journal of a term.
func (j *journal) begin(t *term) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.since, j.mu.term = time.Now(), t
	j.mu.partitions, j.mu.brokers = meta.Journal[meta.TopicIDPartition]{}, meta.Journal[meta.BrokerID]{}
}

func (j *journal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.term = nil
}

// decided is a value that the controller wants written, and why.
type decided struct {
	registry.PartitionWrite
	before  meta.Partition
	reasons []string
}

// decided notes a decision that was written.
func (j *journal) decided(d *decided) {
	e := meta.Event{At: time.Now(), Kind: meta.EventLeader, Broker: d.State.Leader}
	why := strings.Join(d.reasons, ", ")
	left := difference(d.before.ISR, d.State.ISR)
	switch {
	case d.State.UncleanEpoch > d.before.UncleanEpoch:
		e.Kind = meta.EventUnclean
	case d.State.Leader != d.before.Leader || d.State.LeaderEpoch != d.before.LeaderEpoch:
	case len(left) > 0:
		e.Kind, e.Broker = meta.EventShrink, left[0]
	case !slices.Equal(d.State.Replicas, d.before.Replicas):
		e.Kind = meta.EventAssigned
	default:
		e.Kind = meta.EventConfig
	}
	e.Why = fmt.Sprintf("the controller decided: %s: %s", why, changesOf(&d.before, &d.State))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.partitions.Note(d.TopicIDPartition, e)
}

// changesOf lists what two values differ in.
func changesOf(before, after *meta.Partition) string {
	var parts []string
	differ := func(what string, changed bool, from, to any) {
		if changed {
			parts = append(parts, fmt.Sprintf("%s %v → %v", what, from, to))
		}
	}
	differ("leader", before.Leader != after.Leader, before.Leader, after.Leader)
	differ("epoch", before.LeaderEpoch != after.LeaderEpoch, before.LeaderEpoch, after.LeaderEpoch)
	differ("ISR", !slices.Equal(before.ISR, after.ISR), before.ISR, after.ISR)
	differ("ELR", !slices.Equal(before.ELR, after.ELR), before.ELR, after.ELR)
	differ("last known ISR", !slices.Equal(before.LastKnownISR, after.LastKnownISR), before.LastKnownISR, after.LastKnownISR)
	differ("replicas", !slices.Equal(before.Replicas, after.Replicas), before.Replicas, after.Replicas)
	differ("min.insync.replicas", before.MinISR != after.MinISR, before.MinISR, after.MinISR)
	differ("log.flush.acks", before.Flush != after.Flush, before.Flush, after.Flush)
	return strings.Join(parts, ", ")
}

// standing is what a term last knew of a broker.
type standing struct {
	registration, live int64
	leaving            bool
}

// noteBrokersLocked notes what has become of brokers since the last look. In a term's first look only those are news that are
// not live. The caller holds the term's lock.
func (t *term) noteBrokersLocked(dirty *registry.Dirty) {
	first := t.mu.standings == nil
	if first {
		t.mu.standings = make(map[meta.BrokerID]standing)
	}
	look := func(id meta.BrokerID) {
		b := t.mu.state.Brokers[id]
		if b == nil {
			b = &registry.BrokerState{ID: id}
		}
		now, was := standing{b.Registration, b.Live, b.Info.Leaving && b.Registration != 0}, t.mu.standings[id]
		t.mu.standings[id] = now
		why := ""
		switch {
		case now == was, first && now.live != 0:
			return
		case now.registration == 0:
			why = fmt.Sprintf("broker %s is gone: its registration ended, because it stopped, its lease ran out, or others are refused at its port", id)
		case now.registration != was.registration && now.live == 0:
			why = fmt.Sprintf("broker %s registered and is fenced until it has heard everything", id)
			if !b.Info.Clean {
				why += "; its last stop may have lost what its disk had not synced"
			}
		case now.live != 0 && now.live != was.live:
			why = fmt.Sprintf("broker %s is live, in broker epoch %d", id, now.live)
		case now.leaving && !was.leaving:
			why = fmt.Sprintf("broker %s is about to stop: others lead in its place", id)
		case now.live == 0:
			why = fmt.Sprintf("broker %s is fenced", id)
		}
		if why != "" {
			t.journal.broker(id, why)
		}
	}
	if dirty.All {
		for id := range t.mu.state.Brokers {
			look(id)
		}
		return
	}
	for id := range dirty.Brokers {
		look(id)
	}
}

func (j *journal) broker(id meta.BrokerID, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.brokers.Note(id, meta.Event{At: time.Now(), Kind: meta.EventBroker, Broker: id, Why: why})
}

// Account tells what this broker knows as controller about why a partition is as it is; false while it is not controller, or
// for a partition that the registry does not have.
func (c *Controller) Account(tp meta.TopicIDPartition) (Account, bool) {
	c.journal.mu.Lock()
	t, a := c.journal.mu.term, Account{Since: c.journal.mu.since, Events: c.journal.mu.partitions.Of(tp)}
	c.journal.mu.Unlock()
	if t == nil {
		return Account{}, false
	}
	if a.Events == nil {
		a.Events = []meta.Event{}
	}
	t.mu.Lock()
	value := t.mu.state.Partition(tp)
	if value == nil {
		t.mu.Unlock()
		return Account{}, false
	}
	for _, id := range value.Replicas {
		a.Brokers = append(a.Brokers, t.brokerLocked(id))
	}
	a.Leaderless = leaderless(value, t.newPlannerLocked(meta.NoBroker).facts.Unfenced, t.endOfLocked(tp, value))
	t.mu.Unlock()
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	for i := range a.Brokers {
		a.Brokers[i].Events = c.journal.mu.brokers.Of(a.Brokers[i].Broker)
	}
	return a, true
}

func (t *term) brokerLocked(id meta.BrokerID) BrokerAccount {
	b := t.mu.state.Brokers[id]
	switch {
	case b == nil:
		return BrokerAccount{Broker: id, State: "gone"}
	case b.Registration == 0:
		return BrokerAccount{Broker: id, State: "gone", Epoch: b.Epoch}
	}
	a := BrokerAccount{Broker: id, State: "live", Epoch: b.Epoch, Unclean: !b.Info.Clean && b.Unfenced != b.Registration}
	switch {
	case b.Live == 0:
		a.State = "fenced"
	case b.Info.Leaving:
		a.State = "leaving"
	}
	return a
}

// leaderless says why nobody can lead a partition (D6, D9); empty if somebody does. end is nil unless the value waits for the
// longest copy.
func leaderless(value *meta.Partition, unfenced func(meta.BrokerID) bool, end func(meta.BrokerID) (meta.LogEnd, bool)) string {
	if value.Leader != meta.NoBroker && unfenced(value.Leader) {
		return ""
	}
	if value.WaitsForLongest() {
		var missing, told []string
		for _, id := range value.LastKnownISR {
			switch at, known := end(id); {
			case known && unfenced(id):
				told = append(told, fmt.Sprintf("broker %s has up to %d, of epoch %d", id, at.End, at.Epoch))
			default:
				missing = append(missing, id.String())
			}
		}
		s := "all who may have every committed record restarted uncleanly; the longest copy will lead once all have told where theirs ends: waiting for broker " + strings.Join(missing, ", ")
		if len(told) > 0 {
			s += " (" + strings.Join(told, "; ") + ")"
		}
		return s
	}
	eligible := slices.Clone(value.ISR)
	for _, id := range value.ELR {
		eligible = with(eligible, id)
	}
	if len(eligible) == 0 {
		return "no replica is known to have every committed record; `partition elect --unclean` would accept the loss of some"
	}
	for _, id := range eligible {
		if unfenced(id) {
			return fmt.Sprintf("broker %s is about to be elected", id)
		}
	}
	names := make([]string, len(eligible))
	for i, id := range eligible {
		names[i] = id.String()
	}
	return "nobody who has every committed record is live: waiting for broker " + strings.Join(names, " or ")
}
