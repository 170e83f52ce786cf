package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// The kinds of elections of ElectLeaders.
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

// electLeaders elects preferred leaders, or leaders of partitions without an eligible one (key 43). Null topics are all
// partitions; of those, the ones that need no election are not answered, as in Kafka.
func (s *Server) electLeaders(ctx context.Context, _ *client, req *kmsg.ElectLeadersRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if req.ElectionType != electPreferred && req.ElectionType != electUnclean {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil
	}
	var asked []controller.TopicPartition
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			asked = append(asked, controller.TopicPartition{Topic: req.Topics[i].Topic, Partition: p})
		}
	}
	all := req.Topics == nil
	if all {
		asked = everyPartition(s.config.Image())
	}
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	results := s.changed(ctx, len(asked), func() ([]error, int64, error) {
		return s.config.Admin.ElectLeaders(ctx, asked, req.ElectionType == electUnclean)
	})
	for i, p := range asked {
		refused := s.refusedBy(results[i])
		if all && refused.code == kerr.ElectionNotNeeded.Code {
			continue
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != p.Topic {
			topic := kmsg.NewElectLeadersResponseTopic()
			topic.Topic = p.Topic
			resp.Topics = append(resp.Topics, topic)
		}
		answer := kmsg.NewElectLeadersResponseTopicPartition()
		answer.Partition, answer.ErrorCode, answer.ErrorMessage = p.Partition, refused.code, refused.text()
		topic := &resp.Topics[len(resp.Topics)-1]
		topic.Partitions = append(topic.Partitions, answer)
	}
	return resp, nil
}

func everyPartition(image *meta.Image) []controller.TopicPartition {
	var all []controller.TopicPartition
	for _, topic := range image.Topics() {
		for n := range topic.Partitions {
			if topic.Partitions[n].Known() {
				all = append(all, controller.TopicPartition{Topic: topic.Name, Partition: int32(n)})
			}
		}
	}
	return all
}

// changed lets the controller's side change n things, and waits until this broker's Image shows them.
func (s *Server) changed(ctx context.Context, n int, change func() (results []error, revision int64, err error)) []error {
	results, revision, err := change()
	if err == nil {
		err = s.waitFor(ctx, revision)
	}
	if err != nil {
		results = make([]error, n)
		for i := range results {
			results[i] = err
		}
	}
	return results
}
