package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// topicIDVersion is the version of OffsetCommit and OffsetFetch that names topics by id.
const topicIDVersion = 10

// offsetCommit stores how far a group has read (key 8). Partitions that do not exist are refused one by one; the others
// are committed together, and answered when they are.
func (s *Server) offsetCommit(ctx context.Context, _ *client, req *kmsg.OffsetCommitRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	image := s.config.Image()
	valid := *req
	valid.Topics = nil
	var into []*kmsg.OffsetCommitResponseTopicPartition // of the valid partitions, in order
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		asked, answer := &req.Topics[i], &resp.Topics[i]
		answer.Topic, answer.TopicID = asked.Topic, asked.TopicID
		answer.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(asked.Partitions))
		topic, code := offsetsOf(image, req.Version, asked.Topic, asked.TopicID)
		known := kmsg.NewOffsetCommitRequestTopic()
		if topic != nil {
			known.Topic = topic.Name
			if req.Version >= topicIDVersion {
				known.TopicID = topic.ID
			}
		}
		for j := range asked.Partitions {
			p, at := &asked.Partitions[j], &answer.Partitions[j]
			at.Partition, at.ErrorCode = p.Partition, code
			switch {
			case code != 0:
			case p.Partition < 0 || int(p.Partition) >= len(topic.Partitions):
				at.ErrorCode = kerr.UnknownTopicOrPartition.Code
			default:
				known.Partitions = append(known.Partitions, *p)
				into = append(into, at)
			}
		}
		if len(known.Partitions) > 0 {
			valid.Topics = append(valid.Topics, known)
		}
	}
	if len(into) == 0 && len(req.Topics) > 0 {
		return resp, nil
	}
	done := s.config.Groups.Commit(ctx, &valid)
	for i := range done.Topics {
		for j := range done.Topics[i].Partitions {
			into[0].ErrorCode = done.Topics[i].Partitions[j].ErrorCode
			into = into[1:]
		}
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
