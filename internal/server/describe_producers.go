package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// describeProducers lists the idempotent and transactional producers that a leader remembers (key 61).
func (s *Server) describeProducers(_ context.Context, _ *client, req *kmsg.DescribeProducersRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	image := s.config.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, topicErr := topicByName(image, t.Topic)
		answer := kmsg.NewDescribeProducersResponseTopic()
		answer.Topic = t.Topic
		for _, partition := range t.Partitions {
			at := kmsg.NewDescribeProducersResponseTopicPartition()
			at.Partition = partition
			var producers []replica.Producer
			err := topicErr
			if err == nil {
				producers, err = s.producersOf(topic, partition)
			}
			if err != nil {
				message := err.Error()
				at.ErrorCode, at.ErrorMessage = codeOf(err), &message
			}
			for _, p := range producers {
				active := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				active.ProducerID, active.ProducerEpoch = p.ID, int32(p.Epoch)
				active.LastSequence, active.LastTimestamp = p.LastSequence, p.LastTimestamp
				active.CoordinatorEpoch, active.CurrentTxnStartOffset = p.CoordinatorEpoch, p.TxnStart
				at.ActiveProducers = append(at.ActiveProducers, active)
			}
			answer.Partitions = append(answer.Partitions, at)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

func (s *Server) producersOf(topic *meta.Topic, partition int32) ([]replica.Producer, error) {
	r, err := s.replicaOf(topic, partition)
	if err != nil {
		return nil, err
	}
	return r.Producers()
}
