package controller

import (
	"cmp"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Place assigns replicas to new partitions: first replicas go round the unfenced brokers from the one at position start,
// the others follow with a shift that changes each round, and racks alternate while there are several. A broker that is
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
	assignments := make([][]meta.BrokerID, partitions)
	for n := range assignments {
		first := (start + n) % len(live)
		shift := (start + n) / len(live)
		assignment := make([]meta.BrokerID, 0, replicas)
		assignment = append(assignment, live[first])
		for i := range min(replicas, len(live)) - 1 {
			step := 1 + (shift+i)%(len(live)-1)
			assignment = append(assignment, live[(first+step)%len(live)])
		}
		for i := range replicas - len(assignment) {
			assignment = append(assignment, fenced[(start+n+i)%len(fenced)])
		}
		assignments[n] = assignment
	}
	return assignments, nil
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
