package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// describeTopicPartitions answers the partitions of topics in pages (key 75, KIP-966): topics in the order of their
// names, at most so many partitions as the request or the broker allows, and a cursor to where the next page begins.
func (s *Server) describeTopicPartitions(
	_ context.Context, c *client, req *kmsg.DescribeTopicPartitionsRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	resp.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{}
	v := s.viewFor(c)
	names := v.pagedNames(req)
	if cursor := req.Cursor; cursor != nil {
		if cursor.Partition < 0 || len(req.Topics) > 0 && !slices.Contains(names, cursor.Topic) {
			return refuseTopicPartitions(resp, req), nil
		}
		at, _ := slices.BinarySearch(names, cursor.Topic)
		names = names[at:]
	}

	limit := min(s.config.Configs.Int(v.image, "max.request.partition.size.limit"), int64(req.ResponsePartitionLimit))
	left := int(max(1, limit))
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = cursorTo(name, 0)
			break
		}
		first := 0
		if req.Cursor != nil && req.Cursor.Topic == name {
			first = int(req.Cursor.Partition)
		}
		topic, next := v.topicPage(name, first, left)
		resp.Topics = append(resp.Topics, topic)
		left -= len(topic.Partitions)
		if next >= 0 {
			resp.NextCursor = cursorTo(name, next)
			break
		}
	}
	if asksForAccounts(req) {
		s.addAccounts(v.image, resp)
	}
	return resp, nil
}

// pagedNames lists the names asked for, all without any, sorted and each once.
func (v *view) pagedNames(req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	if len(req.Topics) == 0 {
		for _, t := range v.image.Topics() {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func refuseTopicPartitions(
	resp *kmsg.DescribeTopicPartitionsResponse, req *kmsg.DescribeTopicPartitionsRequest,
) kmsg.Response {
	for i := range req.Topics {
		t := kmsg.NewDescribeTopicPartitionsResponseTopic()
		t.ErrorCode, t.Topic = kerr.InvalidRequest.Code, &req.Topics[i].Topic
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func cursorTo(topic string, partition int) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	cursor := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	cursor.Topic, cursor.Partition = topic, int32(partition)
	return &cursor
}

// topicPage describes partitions first to at most first+limit-1 of a topic, and returns where to go on, -1 for nowhere.
func (v *view) topicPage(name string, first, limit int) (kmsg.DescribeTopicPartitionsResponseTopic, int) {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.AuthorizedOperations = &name, topicOperations
	t.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	topic, found := v.image.Topic(name)
	if !found {
		t.ErrorCode = kerr.UnknownTopicOrPartition.Code
		if meta.ValidateTopicName(name) != nil {
			t.ErrorCode = kerr.InvalidTopicException.Code
		}
		return t, -1
	}
	t.TopicID, t.IsInternal = topic.ID, topic.Internal()
	end := min(first+limit, len(topic.Partitions))
	for n := min(first, end); n < end; n++ {
		if state := topic.Partition(int32(n)); state != nil {
			t.Partitions = append(t.Partitions, v.describePartition(n, state))
		}
	}
	if end < len(topic.Partitions) {
		return t, end
	}
	return t, -1
}

func (v *view) describePartition(n int, state *meta.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	leader, fault := v.leader(state)
	p.ErrorCode = fault.code(true)
	p.Partition, p.LeaderID, p.LeaderEpoch = int32(n), int32(leader), int32(state.LeaderEpoch)
	p.Replicas, p.ISR, p.OfflineReplicas = ids(state.Replicas), ids(state.ISR), v.offline(state)
	p.EligibleLeaderReplicas, p.LastKnownELR = ids(state.ELR), ids(state.LastKnownISR)
	return p
}
