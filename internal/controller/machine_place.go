package controller

import (
	"cmp"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Place assigns replicas to new partitions: first replicas go round the unfenced brokers from the one at position start,
// the others follow with a shift that changes each round. Racks alternate, and none gets a second replica of a
// partition while another has none: Kafka's rule, with brokers without a rack in one of their own. A broker that is
// fenced is used only when the unfenced ones do not suffice, and never first. The refusal has Kafka's words.
func Place(brokers []meta.Broker, partitions, replicas, start int) ([][]meta.BrokerID, *Refusal) {
	live, fenced := ring(brokers, false), ring(brokers, true)
	switch {
	case len(live) == 0:
		return nil, refuse(ErrInvalidReplicationFactor, "Unable to replicate the partition %d time(s): "+
			"All brokers are currently fenced, or have all their log directories cordoned.", replicas)
	case replicas > len(live)+len(fenced):
		return nil, refuse(ErrInvalidReplicationFactor, "Unable to replicate the partition %d time(s): "+
			"The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers "+
			"have all their log directories cordoned.", replicas, replicas, len(live)+len(fenced))
	}
	rackOf := make(map[meta.BrokerID]string, len(brokers))
	for i := range brokers {
		rackOf[brokers[i].ID] = brokers[i].Rack
	}
	assignments := make([][]meta.BrokerID, partitions)
	for n := range assignments {
		assignment := placeLive(live, rackOf, start+n, min(replicas, len(live)))
		for i := range replicas - len(assignment) {
			assignment = append(assignment, fenced[(start+n+i)%len(fenced)])
		}
		assignments[n] = assignment
	}
	return assignments, nil
}

// placeLive places the replicas of the partition at a position on as many brokers of the ring.
func placeLive(ring []meta.BrokerID, rackOf map[meta.BrokerID]string, position, replicas int) []meta.BrokerID {
	all := make(map[string]bool)
	for _, id := range ring {
		all[rackOf[id]] = true
	}
	first, shift := position%len(ring), position/len(ring)*len(all)
	assignment := append(make([]meta.BrokerID, 0, replicas), ring[first])
	used := map[string]bool{rackOf[ring[first]]: true}
	for i := 0; len(assignment) < replicas; i++ {
		id := ring[(first+1+(shift+i)%(len(ring)-1))%len(ring)]
		if !slices.Contains(assignment, id) && (!used[rackOf[id]] || len(used) == len(all)) {
			assignment, used[rackOf[id]] = append(assignment, id), true
		}
	}
	return assignment
}

// ring orders the brokers of one kind so that racks alternate.
func ring(brokers []meta.Broker, fenced bool) []meta.BrokerID {
	racks := make(map[string][]meta.BrokerID)
	var names []string
	for i := range brokers {
		if brokers[i].Fenced != fenced {
			continue
		}
		if racks[brokers[i].Rack] == nil {
			names = append(names, brokers[i].Rack)
		}
		racks[brokers[i].Rack] = append(racks[brokers[i].Rack], brokers[i].ID)
	}
	slices.Sort(names)
	for _, ids := range racks {
		slices.SortFunc(ids, func(x, y meta.BrokerID) int { return cmp.Compare(x, y) })
	}
	var order []meta.BrokerID
	for round := 0; ; round++ {
		before := len(order)
		for _, name := range names {
			if ids := racks[name]; round < len(ids) {
				order = append(order, ids[round])
			}
		}
		if len(order) == before {
			return order
		}
	}
}
