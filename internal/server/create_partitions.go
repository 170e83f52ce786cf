package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// createPartitions adds partitions to topics (key 37), each for itself; there is one answer for each topic.
func (s *Server) createPartitions(ctx context.Context, c *client, req *kmsg.CreatePartitionsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	asked, times := firstMentions(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	var topics []controller.MorePartitions
	for _, t := range asked {
		if times[t.Topic] == 1 {
			topics = append(topics, morePartitions(t))
		}
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	results := s.expand(ctx, topics, req.ValidateOnly)
	for _, t := range asked {
		refused := invalidRequest("Duplicate topic name.")
		if times[t.Topic] == 1 {
			refused = s.refusedBy(results[0])
			results = results[1:]
		}
		if refused.code == 0 && !req.ValidateOnly {
			s.log.Info("partitions added", slog.Any("topic", t.Topic), slog.Any("partitions", t.Count), slog.Any("peer", c.remote.String()), slog.Any("client", c.id))
		}
		if refused.code == kerr.UnknownTopicOrPartition.Code {
			refused.message = "" // Kafka leaves it to the code here
		}
		answer := kmsg.NewCreatePartitionsResponseTopic()
		answer.Topic, answer.ErrorCode, answer.ErrorMessage = t.Topic, refused.code, refused.text()
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

func morePartitions(asked *kmsg.CreatePartitionsRequestTopic) controller.MorePartitions {
	t := controller.MorePartitions{Name: asked.Topic, Count: asked.Count}
	if asked.Assignment != nil {
		t.Assignments = [][]meta.BrokerID{}
	}
	for _, a := range asked.Assignment {
		t.Assignments = append(t.Assignments, brokerIDs(a.Replicas))
	}
	return t
}

// expand lets the controller's side add partitions, and waits until this broker's Image shows them.
func (s *Server) expand(ctx context.Context, topics []controller.MorePartitions, validateOnly bool) []error {
	if len(topics) == 0 {
		return nil
	}
	return s.changed(ctx, len(topics), func() ([]error, int64, error) {
		return s.config.Admin.CreatePartitions(ctx, topics, validateOnly)
	})
}
