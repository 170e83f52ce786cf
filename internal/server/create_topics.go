package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// createTopics creates topics (key 19), each for itself: one may be refused while others are created. With
// validate_only the answer is the same, and nothing is written (U-121). It answers once this broker's Image shows what
// was created (D13).
func (s *Server) createTopics(ctx context.Context, c *client, req *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	asked, times := firstMentions(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	var topics []controller.NewTopic
	for _, t := range asked {
		if times[t.Topic] == 1 && !reservedTopic(t.Topic) {
			topics = append(topics, newTopic(t))
		}
	}
	created := s.create(ctx, c, topics, req.ValidateOnly)
	d := describer{server: s, image: s.config.Image(), req: kmsg.NewPtrDescribeConfigsRequest()}
	for _, t := range asked {
		answer := kmsg.NewCreateTopicsResponseTopic()
		answer.Topic = t.Topic
		switch {
		case times[t.Topic] > 1:
			answer.ErrorCode, answer.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("Duplicate topic name.")
		case reservedTopic(t.Topic):
			answer.ErrorCode = kerr.InvalidRequest.Code
			answer.ErrorMessage = kmsg.StringPtr("Creation of internal topic " + t.Topic + " is prohibited.")
		default:
			d.created(&answer, &created[0])
			created = created[1:]
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

// reservedTopic tells whether brokers alone create the topic, since what it holds decides about the bytes of others
// (D10, D11).
func reservedTopic(name string) bool { return meta.AlwaysFlushed(name) }

// adminPatience is how long an admin request may take that names no time itself.
const adminPatience = 30 * time.Second

// adminTimeout bounds an admin request by the time that it names; what is not done by then is answered
// REQUEST_TIMED_OUT, and may happen later.
func adminTimeout(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	patience := adminPatience
	if millis > 0 {
		patience = time.Duration(millis) * time.Millisecond
	}
	return context.WithTimeout(ctx, patience)
}

// newTopic translates the request.
func newTopic(asked *kmsg.CreateTopicsRequestTopic) controller.NewTopic {
	t := controller.NewTopic{Name: asked.Topic, Partitions: asked.NumPartitions, Replication: asked.ReplicationFactor}
	for _, a := range asked.ReplicaAssignment {
		t.Assignments = append(t.Assignments, controller.Assignment{Partition: a.Partition, Brokers: brokerIDs(a.Replicas)})
	}
	for _, c := range asked.Configs {
		t.Configs = append(t.Configs, controller.Setting{Name: c.Name, Value: c.Value})
	}
	return t
}

// brokerIDs converts ids from the wire; the result is never nil.
func brokerIDs(ids []int32) []meta.BrokerID {
	brokers := make([]meta.BrokerID, len(ids))
	for i, id := range ids {
		brokers[i] = meta.BrokerID(id)
	}
	return brokers
}

// create lets the controller's side create topics, and waits until this broker's Image shows them.
func (s *Server) create(ctx context.Context, c *client, topics []controller.NewTopic, validateOnly bool) []controller.CreatedTopic {
	if len(topics) == 0 {
		return nil
	}
	created, revision, err := s.config.Admin.CreateTopics(ctx, topics, validateOnly)
	if err == nil {
		err = s.waitFor(ctx, revision)
	}
	if err != nil {
		created = make([]controller.CreatedTopic, len(topics))
		for i := range created {
			created[i].Err = err
		}
	}
	for i := range created {
		if created[i].Err == nil && !validateOnly {
			s.log.Info("topic created", slog.Any("topic", topics[i].Name), slog.Any("partitions", created[i].Partitions),
				slog.Any("replicas", created[i].Replication), slog.Any("peer", c.remote.String()), slog.Any("client", c.id))
		}
	}
	return created
}

// waitFor waits until this broker's Image shows a revision; 0 is shown already.
func (s *Server) waitFor(ctx context.Context, revision int64) error {
	if revision == 0 {
		return nil
	}
	return s.config.WaitImage(ctx, revision)
}

// created answers one topic: its id, size and configuration, or why it was refused.
func (d *describer) created(answer *kmsg.CreateTopicsResponseTopic, t *controller.CreatedTopic) {
	if refused := d.server.refusedBy(t.Err); refused.code != 0 {
		answer.ErrorCode, answer.ErrorMessage = refused.code, refused.text()
		return
	}
	answer.TopicID, answer.NumPartitions, answer.ReplicationFactor = t.ID, t.Partitions, t.Replication
	for _, entry := range d.topicEntries(t.Config) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly = entry.Name, entry.Value, entry.ReadOnly
		c.Source, c.IsSensitive = int8(entry.Source), entry.IsSensitive
		answer.Configs = append(answer.Configs, c)
	}
}
