package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// offsetFetch tells how far groups have read (key 9). Since v8 it is about several groups; before, about one. Whatever
// cannot be told has an error code in a place where the version's clients look: it never looks like an offset that was
// not committed (U-115).
func (s *Server) offsetFetch(ctx context.Context, _ *client, req *kmsg.OffsetFetchRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, s.fetchOffsets(ctx, req.Version, &req.Groups[i]))
		}
		return resp, nil
	}
	only := kmsg.NewOffsetFetchRequestGroup()
	only.Group = req.Group
	if req.Topics != nil {
		only.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
		for i := range req.Topics {
			only.Topics[i].Topic, only.Topics[i].Partitions = req.Topics[i].Topic, req.Topics[i].Partitions
		}
	}
	group := s.fetchOffsets(ctx, req.Version, &only)
	resp.ErrorCode = group.ErrorCode
	for i := range group.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = group.Topics[i].Topic
		for _, p := range group.Topics[i].Partitions {
			topic.Partitions = append(topic.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp, nil
}

// fetchOffsets answers for one group. Topics that do not exist are not shown to clients that know topics by id.
func (s *Server) fetchOffsets(ctx context.Context, version int16, req *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	image := s.config.Image()
	unknown := make(map[meta.TopicID]bool)
	asked := *req
	if req.Topics != nil {
		asked.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, topic := range req.Topics {
		known, code := offsetsOf(image, version, topic.Topic, topic.TopicID)
		switch {
		case code == 0: // by its id, so that offsets of an earlier topic of the name are not told
			topic.Topic, topic.TopicID = known.Name, known.ID
		case version >= topicIDVersion:
			unknown[topic.TopicID] = true
			continue
		}
		asked.Topics = append(asked.Topics, topic)
	}
	resp := *s.config.Groups.Fetch(ctx, &asked)
	switch {
	case resp.ErrorCode != 0 && version < 2: // there is no place for the code but the partitions
		resp.Topics = failedOffsets(asked.Topics, resp.ErrorCode, func(meta.TopicID) bool { return true })
	case resp.ErrorCode != 0 || version < topicIDVersion:
	case req.Topics == nil:
		resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.OffsetFetchResponseGroupTopic) bool {
			_, found := image.Topic(t.Topic)
			return !found
		})
		for i := range resp.Topics {
			topic, _ := image.Topic(resp.Topics[i].Topic)
			resp.Topics[i].TopicID = topic.ID
		}
	default:
		resp.Topics = append(resp.Topics, failedOffsets(req.Topics, kerr.UnknownTopicID.Code, func(id meta.TopicID) bool { return unknown[id] })...)
	}
	return resp
}

// failedOffsets gives every partition of some topics a code.
func failedOffsets(topics []kmsg.OffsetFetchRequestGroupTopic, code int16, which func(meta.TopicID) bool) []kmsg.OffsetFetchResponseGroupTopic {
	var failed []kmsg.OffsetFetchResponseGroupTopic
	for i := range topics {
		if !which(topics[i].TopicID) {
			continue
		}
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = topics[i].Topic, topics[i].TopicID
		for _, partition := range topics[i].Partitions {
			p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = partition, -1, -1, kmsg.StringPtr(""), code
			topic.Partitions = append(topic.Partitions, p)
		}
		failed = append(failed, topic)
	}
	return failed
}
