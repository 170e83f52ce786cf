package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// deleteRecords moves log starts up (key 21, R-116). The records are gone for readers when the answer leaves; their
// bytes go with the next round of retention.
func (s *Server) deleteRecords(_ context.Context, _ *client, req *kmsg.DeleteRecordsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	image := s.config.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, topicErr := topicByName(image, t.Topic)
		if topicErr == nil && topic.Internal() {
			topicErr = errInternalTopic
		}
		answer := kmsg.NewDeleteRecordsResponseTopic()
		answer.Topic = t.Topic
		for _, p := range t.Partitions {
			at := kmsg.NewDeleteRecordsResponseTopicPartition()
			at.Partition, at.LowWatermark = p.Partition, -1
			low, err := int64(-1), topicErr
			if err == nil {
				low, err = s.deleteBefore(topic, p.Partition, p.Offset)
			}
			if err == nil {
				at.LowWatermark = low
			}
			at.ErrorCode = codeOf(err)
			if unexpected(at.ErrorCode) {
				s.log.Error("delete records failed", slog.String("topic", t.Topic), slog.Int("partition", int(p.Partition)), slog.Any("err", err))
			}
			answer.Partitions = append(answer.Partitions, at)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

func (s *Server) deleteBefore(topic *meta.Topic, partition int32, offset int64) (int64, error) {
	r, err := s.replicaOf(topic, partition)
	if err != nil {
		return -1, err
	}
	return r.DeleteRecords(offset)
}
