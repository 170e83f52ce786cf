package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// leaders is how this broker's followers fetch from other brokers: it implements replica.Leaders over the connections among
// brokers.
type leaders struct{ broker *Broker }

// Fetch implements replica.Leaders.
func (l leaders) Fetch(ctx context.Context, leader meta.BrokerID, lane int, request *replica.FetchRequest) (*replica.FetchResponse, error) {
	b := l.broker
	to, found := b.state.load().Broker(leader)
	if !found {
		return nil, fmt.Errorf("fetch from broker %s: it is not registered", leader)
	}
	known, err := b.peers.to(&to, lane)
	if err != nil {
		return nil, err
	}
	if known.fetched != nil {
		known.fetched.Release()
		known.fetched = nil
	}
	fetched, err := known.peer.Fetch(ctx, replicaFetch(request))
	if err != nil {
		b.peers.giveUp(connection{leader, lane}, known)
		return nil, fmt.Errorf("fetch from broker %s: %w", leader, err)
	}
	known.fetched = fetched
	return fetchResponse(fetched), nil
}

// replicaFetch puts a follower's request into the protocol's terms, topic by topic.
func replicaFetch(q *replica.FetchRequest) *wire.ReplicaFetch {
	slices.SortFunc(q.Partitions, func(a, b replica.FetchPartition) int { return byTopic(a.TopicIDPartition, b.TopicIDPartition) })
	slices.SortFunc(q.Forgotten, byTopic)
	f := &wire.ReplicaFetch{
		Replica: int32(q.Broker), BrokerEpoch: q.BrokerEpoch, MaxWait: q.WaitMax, BytesMin: q.BytesMin, BytesMax: q.BytesMax,
		SessionID: q.Session, SessionEpoch: q.SessionEpoch,
	}
	for i := range q.Partitions {
		p := &q.Partitions[i]
		f.Partitions = append(f.Partitions, wire.ReplicaFetchPartition{
			TopicPartition: wire.TopicPartition{Topic: p.Topic, Partition: p.Partition}, CurrentEpoch: int32(p.Epoch), Offset: p.Offset,
			LastFetchedEpoch: int32(p.LastEpoch), LogStart: p.LogStart, HighWatermark: p.HighWatermark, BytesMax: p.BytesMax,
		})
	}
	for _, p := range q.Forgotten {
		f.Forgotten = append(f.Forgotten, wire.TopicPartition{Topic: p.Topic, Partition: p.Partition})
	}
	return f
}

func byTopic(a, b meta.TopicIDPartition) int {
	return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// fetchResponse puts a leader's answer into a follower's terms.
func fetchResponse(f *wire.ReplicaFetched) *replica.FetchResponse {
	r := &replica.FetchResponse{Err: fetchError(f.Code), Session: f.SessionID, Partitions: make([]replica.FetchedPartition, len(f.Partitions))}
	for i := range f.Partitions {
		from, to := &f.Partitions[i], &r.Partitions[i]
		*to = replica.FetchedPartition{
			TopicIDPartition: meta.TopicIDPartition{Topic: from.Topic, Partition: from.Partition}, Err: fetchError(from.Code),
			HighWatermark: from.HighWatermark, LogStart: from.LogStart, Records: from.Records,
		}
		if from.DivergingEnd >= 0 {
			to.Diverging = &replica.EpochEnd{Epoch: meta.Epoch(from.DivergingEpoch), End: from.DivergingEnd}
		}
	}
	return r
}

// fetchError is the error that a code of a leader's answer stands for; nil for none.
func fetchError(code int16) error {
	switch code {
	case 0:
		return nil
	case wire.CodeFetchSessionIDNotFound, wire.CodeInvalidFetchSessionEpoch, wire.CodeFetchSessionTopicIDError:
		return replica.ErrSession
	case wire.CodeFencedLeaderEpoch:
		return replica.ErrFencedEpoch
	case wire.CodeUnknownLeaderEpoch:
		return replica.ErrUnknownEpoch
	case wire.CodeNotLeaderOrFollower:
		return replica.ErrNotLeader
	case wire.CodeOffsetOutOfRange:
		return replica.ErrOffsetOutOfRange
	default:
		return fmt.Errorf("the leader answers with error code %d", code)
	}
}
