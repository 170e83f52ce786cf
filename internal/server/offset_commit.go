package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// topicIDVersion is the version of OffsetCommit and OffsetFetch that names topics by id.
const topicIDVersion = 10

// offsetCommit stores how far a group has read (key 8). Partitions that do not exist are refused one by one, and come first
// in the answer; the others are committed together, and answered when they are.
func (s *Server) offsetCommit(ctx context.Context, _ *client, req *kmsg.OffsetCommitRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	image := s.config.Image()
	valid := *req
	valid.Topics = nil
	for i := range req.Topics {
		asked := &req.Topics[i]
		topic, code := offsetsOf(image, req.Version, asked.Topic, asked.TopicID)
		known, refused := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitResponseTopic()
		refused.Topic, refused.TopicID = asked.Topic, asked.TopicID
		if topic != nil {
			known.Topic, known.TopicID = topic.Name, topic.ID
		}
		for _, p := range asked.Partitions {
			if code == 0 && p.Partition >= 0 && int(p.Partition) < len(topic.Partitions) {
				known.Partitions = append(known.Partitions, p)
				continue
			}
			entry := kmsg.NewOffsetCommitResponseTopicPartition()
			entry.Partition, entry.ErrorCode = p.Partition, cmp.Or(code, kerr.UnknownTopicOrPartition.Code)
			refused.Partitions = append(refused.Partitions, entry)
		}
		if len(known.Partitions) > 0 {
			valid.Topics = append(valid.Topics, known)
		}
		if len(refused.Partitions) > 0 {
			resp.Topics = append(resp.Topics, refused)
		}
	}
	if len(valid.Topics) == 0 && len(req.Topics) > 0 {
		return resp, nil
	}
	for _, done := range s.config.Groups.Commit(ctx, &valid).Topics {
		if req.Version >= topicIDVersion {
			done.Topic = ""
		} else {
			done.TopicID = meta.TopicID{}
		}
		at := slices.IndexFunc(resp.Topics, func(t kmsg.OffsetCommitResponseTopic) bool {
			return t.Topic == done.Topic && t.TopicID == done.TopicID
		})
		if at < 0 {
			resp.Topics = append(resp.Topics, done)
			continue
		}
		resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, done.Partitions...)
	}
	return resp, nil
}

// offsetsOf finds the topic that a request about offsets names, or the code that says why it does not exist.
func offsetsOf(image *meta.Image, version int16, name string, id meta.TopicID) (*meta.Topic, int16) {
	if version >= topicIDVersion {
		topic, found := image.TopicByID(id)
		if !found {
			return nil, kerr.UnknownTopicID.Code
		}
		return topic, 0
	}
	topic, found := image.Topic(name)
	if !found {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	return topic, 0
}
