package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// What happened, for people: the machine knows why it decides, so it says so in the effects of the event. Nothing here
// changes what is decided.

// ignored says why the last fetch of a replica did not count.
type ignored uint8

const (
	counted          ignored = iota
	ignoredNoEpoch           // it named no broker epoch
	ignoredNotLive           // it named one in which the broker is not known to be live
	ignoredEarlier           // it was sent in an earlier life of the broker
	ignoredReasonMax         // how many there are
)

func (i ignored) text(broker meta.BrokerID) string {
	return fmt.Sprintf([ignoredReasonMax]string{
		ignoredNoEpoch: "broker %d fetches without a broker epoch: it is fenced, or has not heard yet that it is live",
		ignoredNotLive: "broker %d fetches in a broker epoch in which it is not known to be live: it is fenced, or was restarted",
		ignoredEarlier: "a fetch of broker %d from before its restart came late",
	}[i], broker)
}

// ignore leaves a fetch out of account; the journal hears of it once for each reason.
func (m *Machine) ignore(p *progress, f *FollowerFetch, now time.Time) Effects {
	why := ignoredNotLive
	switch {
	case f.BrokerEpoch < 0:
		why = ignoredNoEpoch
	case f.Current:
		why = ignoredEarlier
	}
	e := Effects{Ignored: true}
	if p.ignored != why {
		p.ignored = why
		e.note(now, meta.EventRefused, p.broker, "%s; its fetch asks for offset %d of %d and does not count", why.text(p.broker), f.Offset, f.LeaderEnd)
	}
	return e
}

// Lag is why a leader takes a member out of the ISR.
type Lag struct {
	Broker         meta.BrokerID
	End, LeaderEnd int64     // of the follower's copy, -1 if unknown; of the leader's log
	CaughtUp       time.Time // when it last had all that there was
	Fetched        time.Time // its last fetch that counted in this term; zero if there was none
	Live           bool      // in the broker epoch in which it fetched
	At             time.Time // when the leader looked
	Bound          time.Duration
}

func (m *Machine) lag(p *progress, now time.Time) Lag {
	return Lag{p.broker, p.end, m.written, p.caughtUp, p.fetched, p.current, now, m.lagMax}
}

// String is a sentence.
func (l Lag) String() string {
	s := fmt.Sprintf("broker %d left the ISR: it had not caught up for %s (bound %s); ", l.Broker, seconds(l.At.Sub(l.CaughtUp)), seconds(l.Bound))
	if l.Fetched.IsZero() {
		s += "it has not fetched in this leader epoch"
	} else {
		s += fmt.Sprintf("its last fetch, %s before, asked for offset %d of %d", seconds(l.At.Sub(l.Fetched)), l.End, l.LeaderEnd)
		if !l.Live {
			s += ", and it is not live any more"
		}
	}
	return s
}

// seconds is a duration as people read it in a sentence.
func seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// note adds an event for the journal. A zero time stands for the present, which the runner knows.
func (e *Effects) note(at time.Time, kind meta.EventKind, broker meta.BrokerID, format string, args ...any) {
	e.Journal = append(e.Journal, meta.Event{At: at, Kind: kind, Broker: broker, Why: fmt.Sprintf(format, args...)})
}

// explainValue says what a newer value changed, and as far as is known here, why. change is what this leader wanted written.
func (m *Machine) explainValue(before *meta.Partition, change *Change, e *Effects, now time.Time) {
	v := &m.value
	own := change != nil && v.LeaderEpoch == change.Value.LeaderEpoch && v.Version == change.Value.Version+1 && slices.Equal(v.ISR, change.Value.ISR)
	if change != nil && !own {
		e.note(now, meta.EventConflict, meta.NoBroker, "the change to ISR %v was overtaken by version %d of the partition's value, which somebody else wrote", change.Value.ISR, v.Version)
	}
	m.explainTerm(before, e, now)
	if !slices.Equal(v.Replicas, before.Replicas) {
		e.note(now, meta.EventAssigned, meta.NoBroker, "the replicas are %v, before %v; adding %v, removing %v", v.Replicas, before.Replicas, v.Adding, v.Removing)
	}
	if v.MinISR != before.MinISR {
		e.note(now, meta.EventConfig, meta.NoBroker, "min.insync.replicas is %d, before %d", v.MinISR, before.MinISR)
	}
	for _, id := range before.ISR {
		if !v.InSync(id) {
			e.note(now, meta.EventShrink, id, "%s%s", m.whyLeft(id, before, change, own, now), eligibility(v, id))
		}
	}
	for _, id := range v.ISR {
		if before.InSync(id) {
			continue
		}
		why := fmt.Sprintf("broker %d is in the ISR", id)
		if p := m.other(id); own && p != nil {
			why = fmt.Sprintf("broker %d entered the ISR: it has everything up to %d, in broker epoch %d", id, p.end, p.life)
		}
		e.note(now, meta.EventExpand, id, "%s", why)
	}
}

// explainOutcome says that a change of the value was not written, or perhaps not.
func (m *Machine) explainOutcome(c *Change, outcome Outcome, e *Effects, now time.Time) {
	switch {
	case outcome == OutcomeUnknown:
		e.note(now, meta.EventConflict, meta.NoBroker, "whether the change to ISR %v is written is not known: the registry did not answer; old and new members both count meanwhile", c.Value.ISR)
	case len(c.Joining) == 0:
		e.note(now, meta.EventConflict, meta.NoBroker, "the registry refused the change to ISR %v", c.Value.ISR)
	}
	for _, j := range c.Joining {
		if outcome == OutcomeRefused {
			e.note(now, meta.EventRefused, j.Broker, "broker %d did not enter the ISR: it does not live any more in broker epoch %d, in which it had caught up", j.Broker, j.Epoch)
		}
	}
}

// explainTerm says what a newer value changed about leadership.
func (m *Machine) explainTerm(before *meta.Partition, e *Effects, now time.Time) {
	v := &m.value
	if v.UncleanEpoch > before.UncleanEpoch {
		e.note(now, meta.EventUnclean, v.Leader, "broker %d was elected although it may lack committed records: what others have beyond its end is given up from epoch %d on", v.Leader, v.UncleanEpoch)
	}
	switch {
	case v.Leader == before.Leader && v.LeaderEpoch == before.LeaderEpoch:
	case v.Leader == meta.NoBroker:
		e.note(now, meta.EventLeader, meta.NoBroker, "nobody leads in epoch %d, after broker %d; ISR %v, ELR %v, last known ISR %v", v.LeaderEpoch, before.Leader, v.ISR, v.ELR, v.LastKnownISR)
	case v.Leader != before.Leader:
		e.note(now, meta.EventLeader, v.Leader, "broker %d leads in epoch %d, after %s in epoch %d", v.Leader, v.LeaderEpoch, leaderText(before.Leader), before.LeaderEpoch)
	default:
		why := "the leader restarted uncleanly"
		switch {
		case v.Flush != before.Flush:
			why = "log.flush.acks changed"
		case !slices.Equal(v.Replicas, before.Replicas):
			why = "replicas left the assignment"
		}
		e.note(now, meta.EventLeader, v.Leader, "broker %d goes on to lead in epoch %d: %s", v.Leader, v.LeaderEpoch, why)
	}
}

// whyLeft says why a broker is not in the ISR any more.
func (m *Machine) whyLeft(id meta.BrokerID, before *meta.Partition, change *Change, own bool, now time.Time) string {
	if own {
		for _, lag := range change.leaving {
			if lag.Broker == id {
				return lag.String()
			}
		}
	}
	switch p := m.other(id); {
	case !m.value.HasReplica(id):
		return fmt.Sprintf("broker %d left the ISR with the assignment", id)
	case id == before.Leader && m.value.Leader != id:
		return fmt.Sprintf("broker %d left the ISR when it lost the leadership", id)
	case m.role == RoleLeader && p != nil && !p.fetched.IsZero():
		return fmt.Sprintf("broker %d was taken out of the ISR by the controller; its last fetch here, %s before, asked for offset %d of %d",
			id, seconds(now.Sub(p.fetched)), p.end, m.written)
	default:
		return fmt.Sprintf("broker %d left the ISR", id)
	}
}

// eligibility says what somebody outside the ISR is good for.
func eligibility(v *meta.Partition, id meta.BrokerID) string {
	switch {
	case slices.Contains(v.ELR, id):
		return "; it stays eligible to lead"
	case slices.Contains(v.LastKnownISR, id):
		return "; it may have lost committed records"
	}
	return ""
}

func leaderText(id meta.BrokerID) string {
	if id == meta.NoBroker {
		return "nobody"
	}
	return fmt.Sprintf("broker %d", id)
}

// Standing is what a leader knows of another replica.
type Standing struct {
	Broker      meta.BrokerID `json:"broker"`
	InSync      bool          `json:"in_sync"`
	BrokerEpoch int64         `json:"broker_epoch"` // in which it fetched; 0 for never
	End         int64         `json:"end"`          // everything below is on its disk; -1 if unknown
	Fetched     time.Time     `json:"fetched,omitzero"`
	CaughtUp    time.Time     `json:"caught_up,omitzero"`
	// Why says what keeps it out of the ISR at present; empty for a member that does its part.
	Why string `json:"why,omitempty"`
}

// Standings tells what a leader knows of the other replicas; nil for whoever does not lead.
func (m *Machine) Standings(now time.Time) []Standing {
	if m.role != RoleLeader {
		return nil
	}
	standings := make([]Standing, 0, len(m.leader.others))
	for i := range m.leader.others {
		p := &m.leader.others[i]
		standings = append(standings, Standing{
			Broker: p.broker, InSync: m.value.InSync(p.broker), BrokerEpoch: p.life, End: p.end, Fetched: p.fetched, CaughtUp: p.caughtUp,
			Why: m.whyOutside(p, now),
		})
	}
	return standings
}

// whyOutside is the first of the conditions for membership that a replica does not meet (R-101, D6, D8).
func (m *Machine) whyOutside(p *progress, now time.Time) string {
	switch c := m.leader.change; {
	case p.ignored != counted:
		return p.ignored.text(p.broker)
	case m.value.InSync(p.broker) && !p.fetched.IsZero() && p.end < m.written && now.Sub(p.caughtUp) > m.lagMax/2:
		return fmt.Sprintf("it is about to leave: it has not caught up for %s, and has up to %d of %d", seconds(now.Sub(p.caughtUp)), p.end, m.written)
	case m.value.InSync(p.broker):
		return ""
	case p.fetched.IsZero():
		return fmt.Sprintf("it has not fetched in leader epoch %d", m.value.LeaderEpoch)
	case !p.current:
		return fmt.Sprintf("it is not live in broker epoch %d, in which it fetched", p.life)
	case p.end < m.high:
		return fmt.Sprintf("it is catching up: it has up to %d, and %d is committed", p.end, m.high)
	case p.end < m.leader.epochStart:
		return fmt.Sprintf("it is catching up: it has up to %d, and the leader's epoch starts at %d", p.end, m.leader.epochStart)
	case c != nil && slices.Contains(c.Value.ISR, p.broker):
		return "the change that adds it is being written to the registry"
	case c != nil:
		return "another change of the value is being written to the registry"
	case now.Before(m.leader.notBefore):
		return fmt.Sprintf("the last change was refused or lost; tried again in %s", seconds(m.leader.notBefore.Sub(now)))
	default:
		return fmt.Sprintf("it was caught up %s ago and must fetch again", seconds(now.Sub(p.caughtUp)))
	}
}
