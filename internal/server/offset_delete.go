package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetDelete deletes committed offsets of topics that the group does not read (key 47). Partitions that
// do not exist come first in the answer.
func (s *Server) offsetDelete(ctx context.Context, _ *client, req *kmsg.OffsetDeleteRequest) (kmsg.Response, error) {
	image := s.config.Image()
	valid := *req
	valid.Topics = nil
	var failed []kmsg.OffsetDeleteResponseTopic
	for i := range req.Topics {
		known, unknown := kmsg.NewOffsetDeleteRequestTopic(), kmsg.NewOffsetDeleteResponseTopic()
		known.Topic, unknown.Topic = req.Topics[i].Topic, req.Topics[i].Topic
		topic, found := image.Topic(known.Topic)
		for _, p := range req.Topics[i].Partitions {
			if found && p.Partition >= 0 && int(p.Partition) < len(topic.Partitions) {
				known.Partitions = append(known.Partitions, p)
				continue
			}
			entry := kmsg.NewOffsetDeleteResponseTopicPartition()
			entry.Partition, entry.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
			unknown.Partitions = append(unknown.Partitions, entry)
		}
		if len(known.Partitions) > 0 {
			valid.Topics = append(valid.Topics, known)
		}
		if len(unknown.Partitions) > 0 {
			failed = append(failed, unknown)
		}
	}
	resp := s.config.Groups.DeleteOffsets(ctx, &valid)
	if resp.ErrorCode != 0 {
		return resp, nil
	}
	for _, done := range resp.Topics {
		at := slices.IndexFunc(failed, func(t kmsg.OffsetDeleteResponseTopic) bool { return t.Topic == done.Topic })
		if at < 0 {
			failed = append(failed, done)
			continue
		}
		failed[at].Partitions = append(failed[at].Partitions, done.Partitions...)
	}
	resp.Topics = failed
	return resp, nil
}
