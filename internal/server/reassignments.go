package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// alterPartitionReassignments starts, replaces or gives up moves of replicas (key 45), each for itself.
func (s *Server) alterPartitionReassignments(ctx context.Context, c *client, req *kmsg.AlterPartitionAssignmentsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	var moves []controller.PartitionMove
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			move := controller.PartitionMove{Topic: req.Topics[i].Topic, Partition: p.Partition}
			if p.Replicas != nil {
				move.Replicas = brokerIDs(p.Replicas)
			}
			moves = append(moves, move)
		}
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	results := s.changed(ctx, len(moves), func() ([]error, int64, error) {
		return s.config.Admin.MovePartitions(ctx, moves, req.Version >= 1 && !req.AllowReplicationFactorChange)
	})
	at := 0
	for i := range req.Topics {
		topic := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		topic.Topic = req.Topics[i].Topic
		for range req.Topics[i].Partitions {
			refused := s.refusedBy(results[at])
			if refused.code == 0 {
				s.log.Info("partition is to move", slog.String("topic", topic.Topic), slog.Int("partition", int(moves[at].Partition)),
					slog.Any("replicas", moves[at].Replicas), slog.String("peer", c.remote.String()), slog.String("client", c.id))
			}
			answer := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			answer.Partition, answer.ErrorCode, answer.ErrorMessage = moves[at].Partition, refused.code, refused.text()
			topic.Partitions = append(topic.Partitions, answer)
			at++
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp, nil
}

// listPartitionReassignments tells of the moves that are in flight (key 46): all of them, or those among the given
// partitions.
func (s *Server) listPartitionReassignments(_ context.Context, _ *client, req *kmsg.ListPartitionReassignmentsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	image := s.config.Image()
	asked := req.Topics
	if asked == nil {
		for _, topic := range image.Topics() {
			all := kmsg.ListPartitionReassignmentsRequestTopic{Topic: topic.Name}
			for n := range topic.Partitions {
				all.Partitions = append(all.Partitions, int32(n))
			}
			asked = append(asked, all)
		}
	}
	for i := range asked {
		topic, found := image.Topic(asked[i].Topic)
		if !found {
			continue
		}
		answer := kmsg.NewListPartitionReassignmentsResponseTopic()
		answer.Topic = topic.Name
		for _, n := range asked[i].Partitions {
			if p := topic.Partition(n); p != nil && moving(p) {
				part := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
				part.Partition, part.Replicas, part.AddingReplicas, part.RemovingReplicas = n, ids(p.Replicas), ids(p.Adding), ids(p.Removing)
				answer.Partitions = append(answer.Partitions, part)
			}
		}
		if len(answer.Partitions) > 0 {
			resp.Topics = append(resp.Topics, answer)
		}
	}
	return resp, nil
}

// moving tells whether a reassignment of the partition is in flight.
func moving(p *meta.Partition) bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }
