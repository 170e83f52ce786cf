package replica

import (
	"cmp"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Consumers read from the leader, or from a follower near them (KIP-392).

// CheckReader tells whether a consumer that believes in epoch current may read here: what CheckLeader says, but a follower that is
// fed serves too. It is, if the consumer takes followers, and the leader answers its fetches: what it knows is not old.
func (m *Machine) CheckReader(current meta.Epoch, fed bool) error {
	if fed && m.role == RoleFollower && m.follower.state == FollowerFetches && m.value.Leader != meta.NoBroker {
		return m.CheckEpoch(current)
	}
	return m.CheckLeader(current)
}

// Reader is the replica among those that are near a consumer from which it should read at offset: a live member of the ISR
// that has the offset; of several the one that has most, then the one that had everything last, then the highest id, as in
// Kafka. NoBroker if there is none, or this broker is near itself.
func (m *Machine) Reader(offset int64, near func(meta.BrokerID) bool) meta.BrokerID {
	if m.role != RoleLeader || near(m.self) {
		return meta.NoBroker
	}
	var best *progress
	for i := range m.leader.others {
		p := &m.leader.others[i]
		has := p.current && m.value.InSync(p.broker) && !p.unproven && p.end >= offset && p.start >= 0 && p.start <= offset
		if has && near(p.broker) && (best == nil || better(p, best)) {
			best = p
		}
	}
	if best == nil {
		return meta.NoBroker
	}
	return best.broker
}

func better(p, q *progress) bool {
	return cmp.Or(cmp.Compare(p.end, q.end), p.caughtUp.Compare(q.caughtUp), cmp.Compare(p.broker, q.broker)) > 0
}
