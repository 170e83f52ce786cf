package server

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/replica"
)

// describeLogDirs answers what the data directory holds (key 35): the bytes of each partition, and the space of the
// disk. Null asks for all partitions; those that are not here are left out.
func (s *Server) describeLogDirs(_ context.Context, _ *client, req *kmsg.DescribeLogDirsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = s.config.LogDir, -1, -1
	if s.config.FreeBytes != nil {
		if free, total, err := s.config.FreeBytes(s.config.LogDir); err == nil {
			dir.TotalBytes, dir.UsableBytes = int64(min(total, math.MaxInt64)), int64(min(free, math.MaxInt64))
		}
	}
	byTopic := make(map[string][]kmsg.DescribeLogDirsResponseDirTopicPartition)
	if s.config.Table != nil {
		asked := askedPartitions(req)
		for r := range s.config.Table.All() {
			if asked(r.Topic(), r.Partition()) {
				byTopic[r.Topic()] = append(byTopic[r.Topic()], describeLog(r))
			}
		}
	}
	dir.Topics = []kmsg.DescribeLogDirsResponseDirTopic{}
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		topic := kmsg.NewDescribeLogDirsResponseDirTopic()
		topic.Topic, topic.Partitions = name, byTopic[name]
		slices.SortFunc(topic.Partitions, func(x, y kmsg.DescribeLogDirsResponseDirTopicPartition) int {
			return cmp.Compare(x.Partition, y.Partition)
		})
		dir.Topics = append(dir.Topics, topic)
	}
	resp.Dirs = []kmsg.DescribeLogDirsResponseDir{dir}
	return resp, nil
}

// askedPartitions tells which partitions a request asks for.
func askedPartitions(req *kmsg.DescribeLogDirsRequest) func(topic string, partition int32) bool {
	type key struct {
		topic     string
		partition int32
	}
	asked := make(map[key]bool)
	for _, topic := range req.Topics {
		for _, partition := range topic.Partitions {
			asked[key{topic.Topic, partition}] = true
		}
	}
	return func(topic string, partition int32) bool {
		return req.Topics == nil || asked[key{topic, partition}]
	}
}

// describeLog answers one partition. The lag is what is committed and not yet here.
func describeLog(r *replica.Replica) kmsg.DescribeLogDirsResponseDirTopicPartition {
	p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	p.Partition, p.Size, p.OffsetLag = r.Partition(), r.Size(), max(0, r.HighWatermark()-r.EndOffset())
	return p
}
