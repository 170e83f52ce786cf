package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// offsetForLeaderEpoch tells where a leader epoch ends in the leader's log (key 23, E-22 to E-26). The replica id is not
// believed and makes no difference: the look-up is bounded by the log end for everybody.
func (s *Server) offsetForLeaderEpoch(_ context.Context, _ *client, req *kmsg.OffsetForLeaderEpochRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	image := s.config.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, topicErr := topicByName(image, t.Topic)
		answer := kmsg.NewOffsetForLeaderEpochResponseTopic()
		answer.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			at := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			at.Partition, at.LeaderEpoch, at.EndOffset = p.Partition, -1, -1
			end, err := replica.EpochEnd{}, topicErr
			if err == nil {
				end, err = s.epochEnd(topic, p)
			}
			if err == nil {
				at.LeaderEpoch, at.EndOffset = int32(end.Epoch), end.End
			}
			at.ErrorCode = codeOf(err)
			answer.Partitions = append(answer.Partitions, at)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

func (s *Server) epochEnd(topic *meta.Topic, p *kmsg.OffsetForLeaderEpochRequestTopicPartition) (replica.EpochEnd, error) {
	r, err := s.replicaOf(topic, p.Partition)
	if err != nil {
		return replica.EpochEnd{}, err
	}
	return r.EpochEnd(meta.Epoch(p.LeaderEpoch), meta.Epoch(p.CurrentLeaderEpoch))
}
