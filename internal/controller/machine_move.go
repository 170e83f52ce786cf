package controller

import (
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// finishMove ends a reassignment once every new replica is in sync: the replicas that were to go leave the assignment,
// the ISR and every list in one write, with a new epoch, so that none of them counts again (R-88, D8). It waits while nobody
// of the new assignment could lead.
func (d *decision) finishMove() {
	if len(d.Adding) == 0 && len(d.Removing) == 0 {
		return
	}
	for _, id := range d.Adding {
		if !d.InSync(id) {
			return
		}
	}
	target := difference(d.Replicas, d.Removing)
	leader := d.Leader
	if !slices.Contains(target, leader) || !d.facts.Unfenced(leader) {
		if leader = d.first(intersection(d.ISR, target)); leader == meta.NoBroker {
			return
		}
	}
	d.because("reassignment is complete")
	d.raise = d.raise || leader != d.Leader || len(d.Removing) > 0
	d.Leader = leader
	d.assign(target, nil, nil)
	d.followMinISR()
}

// Grow is the assignment that a partition of an internal topic is to have: as many replicas as are wanted and live brokers
// can hold, the present ones first (D15). It is nil when there is nothing to do, or a move is in flight.
func Grow(value *meta.Partition, partition int32, factor int, live []meta.BrokerID) []meta.BrokerID {
	if len(value.Adding) > 0 || len(value.Removing) > 0 {
		return nil
	}
	others := difference(live, value.Replicas)
	missing := min(factor-len(value.Replicas), len(others))
	if missing <= 0 {
		return nil
	}
	target := slices.Clone(value.Replicas)
	for i := range missing {
		target = append(target, others[(int(partition)+i)%len(others)])
	}
	return target
}

// assign changes the assignment; who is no longer in it leaves every list.
func (d *decision) assign(replicas, adding, removing []meta.BrokerID) {
	var dirs []meta.DirectoryID
	for _, id := range replicas {
		dir := meta.DirectoryID{}
		if i := slices.Index(d.Replicas, id); i >= 0 && i < len(d.Dirs) {
			dir = d.Dirs[i]
		}
		dirs = append(dirs, dir)
	}
	if d.Dirs != nil {
		d.Dirs = dirs
	}
	d.Replicas, d.Adding, d.Removing = replicas, adding, removing
	old := intersection(d.ISR, replicas)
	d.ISR = old
	d.ELR, d.LastKnownISR = intersection(d.ELR, replicas), intersection(d.LastKnownISR, replicas)
	d.SettleISR(old)
}

// Move decides on a new assignment of one partition: the value then names the wanted replicas first, in their order,
// and after them those that stay until every new one is in sync. A nil target gives up the move that is in flight. A target
// may replace one that is in flight: replicas that were being added and are not wanted any more are dropped. The
// refusals have Kafka's words.
func Move(value *meta.Partition, target []meta.BrokerID, f Facts) (meta.Partition, *Refusal) {
	d := decision{Partition: value.Clone(), facts: f}
	original := difference(d.Replicas, d.Adding)
	if target == nil {
		if len(d.Adding) == 0 && len(d.Removing) == 0 {
			return meta.Partition{}, refuse(ErrNoMove, "No partition reassignment is in progress.")
		}
		target = original
	}
	adding, removing := difference(target, original), difference(original, target)
	replicas := append(slices.Clone(target), removing...)
	dropped := difference(d.Replicas, replicas)
	if len(intersection(d.ISR, replicas)) == 0 {
		return meta.Partition{}, refuse(ErrInvalidReplicaAssignment,
			"Unable to change the partition assignment because none of the replicas in sync would be left.")
	}
	d.raise = len(dropped) > 0
	led := d.Leader
	d.assign(replicas, orNil(adding), orNil(removing))
	if slices.Contains(dropped, led) {
		d.Leader = meta.NoBroker
	}
	d.elect()
	d.finishMove()
	if d.Leader == meta.NoBroker && led != meta.NoBroker {
		return meta.Partition{}, refuse(ErrInvalidReplicaAssignment,
			"Unable to change the partition assignment because no replica that is left could lead.")
	}
	if d.raise {
		d.LeaderEpoch++
	}
	return d.Partition, nil
}

// Elect makes the preferred replica the leader of one partition, or with unclean set any live replica of a partition
// that has no leader and nobody eligible: what only others had is then lost, and their logs follow.
func Elect(value *meta.Partition, unclean bool, f Facts) (meta.Partition, *Refusal) {
	d := decision{Partition: value.Clone(), facts: f}
	if !unclean {
		preferred := value.Replicas[0]
		switch {
		case value.Leader == preferred:
			return meta.Partition{}, refuse(ErrElectionNotNeeded, "Leader election not needed for topic partition.")
		case !value.InSync(preferred) || !f.Unfenced(preferred):
			return meta.Partition{}, refuse(ErrPreferredNotAvailable, "The preferred leader was not available.")
		}
		d.Leader = preferred
		d.LeaderEpoch++
		return d.Partition, nil
	}
	if value.Leader != meta.NoBroker && f.Unfenced(value.Leader) {
		return meta.Partition{}, refuse(ErrElectionNotNeeded, "Leader election not needed for topic partition.")
	}
	d.elect()
	if !d.raise {
		leader := d.first(d.Replicas)
		if leader == meta.NoBroker {
			return meta.Partition{}, refuse(ErrEligibleNotAvailable, "Eligible topic partition leaders are not available.")
		}
		d.LastKnownISR = nil
		d.leadUncleanly(leader)
	}
	d.LeaderEpoch++
	return d.Partition, nil
}

// difference is what a has and b has not, in a's order.
func difference(a, b []meta.BrokerID) []meta.BrokerID {
	return slices.DeleteFunc(slices.Clone(a), func(id meta.BrokerID) bool { return slices.Contains(b, id) })
}

// intersection is what both have, in a's order.
func intersection(a, b []meta.BrokerID) []meta.BrokerID {
	return slices.DeleteFunc(slices.Clone(a), func(id meta.BrokerID) bool { return !slices.Contains(b, id) })
}

// orNil makes an empty list nil, as a value without a move has it.
func orNil(ids []meta.BrokerID) []meta.BrokerID {
	if len(ids) == 0 {
		return nil
	}
	return ids
}
