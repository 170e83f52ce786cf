package replica

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// journal is what happened to the partitions of a table, and why. Its lock is a leaf.
type journal struct {
	since time.Time // nothing is known of what was before

	mu struct {
		sync.Mutex
		meta.Journal[meta.TopicIDPartition]
	}
}

// note adds events; those without a time get the present one.
func (j *journal) note(p meta.TopicIDPartition, events ...meta.Event) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range events {
		if e.At.IsZero() {
			e.At = now
		}
		j.mu.Note(p, e)
	}
}

func (j *journal) of(p meta.TopicIDPartition) []meta.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.Of(p)
}

func (j *journal) forget(p meta.TopicIDPartition) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.Forget(p)
}

// name is the replica's partition.
func (r *Replica) name() meta.TopicIDPartition {
	return meta.TopicIDPartition{Topic: r.id, Partition: r.partition}
}

// note adds an event to the journal of the replica's partition.
func (r *Replica) note(kind meta.EventKind, broker meta.BrokerID, format string, args ...any) {
	r.table.journal.note(r.name(), meta.Event{Kind: kind, Broker: broker, Why: fmt.Sprintf(format, args...)})
}

// Account is what this broker knows about why a partition is as it is.
type Account struct {
	// Since is when this broker's journal begins.
	Since time.Time `json:"since"`
	// Role is what this broker does for the partition: "leader", "follower", or "none".
	Role string `json:"role"`
	// LeaderEpoch and Version say which value it has applied; LogEnd and HighWatermark are of its copy. All are -1 without one.
	LeaderEpoch   meta.Epoch `json:"leader_epoch"`
	Version       int64      `json:"version"`
	LogStart      int64      `json:"log_start"`
	LogEnd        int64      `json:"log_end"`
	HighWatermark int64      `json:"high_watermark"`
	// Offline says why its copy is not served; empty while it is.
	Offline string `json:"offline,omitempty"`
	// Others are the other replicas, as the leader knows them.
	Others []Standing `json:"others,omitempty"`
	// Following is what a follower does.
	Following *Following `json:"following,omitempty"`
	// Events are the last ones, the oldest first.
	Events []meta.Event `json:"events"`
}

// Following is what a follower does.
type Following struct {
	Leader meta.BrokerID `json:"leader"`
	State  string        `json:"state"` // of FollowerState
	// ThrottledTo is the bound of its fetches while it is not in sync, in bytes per second; 0 for none.
	ThrottledTo int64 `json:"throttled_to,omitempty"`
	// Failing says why fetches from the leader fail, and FailingSince since when; both are unset while they work.
	Failing      string    `json:"failing,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
}

// Account tells what this broker knows about why a partition is as it is.
func (t *Table) Account(p meta.TopicIDPartition) Account {
	a := Account{Since: t.journal.since, Role: RoleNone.String(), LeaderEpoch: meta.NoEpoch, Version: -1, LogStart: -1, LogEnd: -1, HighWatermark: -1}
	a.Events = t.journal.of(p)
	if a.Events == nil {
		a.Events = []meta.Event{}
	}
	r, found := t.Get(p.Topic, p.Partition)
	if !found {
		if err := t.Offline(p.Topic, p.Partition); err != nil {
			a.Offline = err.Error()
		}
		return a
	}
	r.mu.Lock()
	m := &r.mu.machine
	a.Role, a.LeaderEpoch, a.Version, a.HighWatermark = m.Role().String(), m.Epoch(), m.value.Version, m.HighWatermark()
	a.Others = m.Standings(time.Now())
	if m.Role() == RoleFollower {
		a.Following = &Following{Leader: m.value.Leader, State: m.Follower().String()}
	}
	if r.mu.closed != nil {
		a.Offline = r.mu.closed.Error()
	}
	r.mu.Unlock()
	for i := range a.Others {
		if o := &a.Others[i]; r.throttledLeader.Load() && t.sent.bound() < math.MaxInt64 && !o.InSync && o.Why != "" {
			o.Why += fmt.Sprintf("; replicas of it are throttled to %d bytes per second on broker %d", t.sent.bound(), t.config.Broker)
		}
	}
	if a.Following != nil && r.throttledFollower.Load() && t.received.bound() < math.MaxInt64 {
		a.Following.ThrottledTo = t.received.bound()
	}
	a.LogStart, a.LogEnd = r.log.StartOffset(), r.log.EndOffset()
	if a.Following != nil {
		a.Following.Failing, a.Following.FailingSince = t.fetchers.failing(r)
	}
	return a
}

// failing tells why fetches on a replica's lane fail, and since when.
func (f *fetchers) failing(r *Replica) (string, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	place := f.mu.where[r]
	if place == nil {
		return "", time.Time{}
	}
	l := place.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failing == nil {
		return "", time.Time{}
	}
	return l.mu.failing.Error(), l.mu.failingSince
}
