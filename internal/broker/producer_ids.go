package broker

import (
	"context"
	"errors"
	"math"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// producerIDBlock is how many producer ids a broker takes from the registry at a time, as Kafka's controller gives out.
const producerIDBlock = 1000

// errProducerIDs is returned when the 2^63 producer ids of a cluster are used up.
var errProducerIDs = errors.New("no producer ids are left")

// producerIDs hands out producer ids from blocks that the registry gives to this broker alone. Ids of a block that were
// not handed out when the broker stops are lost.
type producerIDs struct {
	cluster *registry.Cluster
	broker  meta.BrokerID
	slot    chan struct{} // one slot: its holder owns what follows
	next    int64
	end     int64 // of the block
}

func newProducerIDs(cluster *registry.Cluster, broker meta.BrokerID) *producerIDs {
	return &producerIDs{cluster: cluster, broker: broker, slot: make(chan struct{}, 1)}
}

// take returns an id that nobody else gets.
func (p *producerIDs) take(ctx context.Context) (int64, error) {
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-ctx.Done():
		return -1, ctx.Err()
	}
	if p.next == p.end {
		first, err := p.cluster.NextProducerIDs(ctx, p.broker, producerIDBlock)
		if err != nil {
			return -1, err
		}
		if first < 0 || first > math.MaxInt64-producerIDBlock {
			return -1, errProducerIDs
		}
		p.next, p.end = first, first+producerIDBlock
	}
	id := p.next
	p.next++
	return id, nil
}
