package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// deleteRecords moves log starts up (key 21, R-116). It is answered when every live replica has followed, or the request's
// time is over; the bytes go with the next round of retention.
func (s *Server) deleteRecords(ctx context.Context, _ *client, req *kmsg.DeleteRecordsRequest) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMillis)*time.Millisecond)
	defer cancel()
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	image := s.config.Image()
	var deletions []deletion
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, topicErr := topicByName(image, t.Topic)
		if topicErr == nil && topic.Internal() {
			topicErr = errInternalTopic
		}
		for _, p := range t.Partitions {
			d := deletion{err: topicErr}
			if d.err == nil {
				d.begin(s, topic, p.Partition, p.Offset)
			}
			deletions = append(deletions, d)
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		answer := kmsg.NewDeleteRecordsResponseTopic()
		answer.Topic = t.Topic
		for _, p := range t.Partitions {
			at := kmsg.NewDeleteRecordsResponseTopicPartition()
			at.Partition, at.LowWatermark = p.Partition, -1
			low, err := deletions[0].end(ctx)
			deletions = deletions[1:]
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

// deletion is one partition of a request: all begin before the first is waited for.
type deletion struct {
	replica *replica.Replica
	offset  int64
	err     error
}

func (d *deletion) begin(s *Server, topic *meta.Topic, partition int32, offset int64) {
	if d.replica, d.err = s.replicaOf(topic, partition); d.err == nil {
		d.offset, d.err = d.replica.DeleteRecords(offset)
	}
}

func (d *deletion) end(ctx context.Context) (lowWatermark int64, err error) {
	if d.err != nil {
		return -1, d.err
	}
	return d.replica.AwaitLowWatermark(ctx, d.offset)
}
