package server

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// createPartitions adds partitions to topics (key 37), each for itself; there is one answer for each topic.
func (s *Server) createPartitions(ctx context.Context, _ *client, req *kmsg.CreatePartitionsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	expansion := expansion{server: s, image: s.config.Image(), validateOnly: req.ValidateOnly}
	times := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		asked := &req.Topics[i]
		switch times[asked.Topic] {
		case 0: // answered at its first mention
		case 1:
			expansion.topics = append(expansion.topics, grownTopic{asked: asked})
		default:
			times[asked.Topic] = 0
			expansion.topics = append(expansion.topics, grownTopic{asked: asked, refused: invalidRequest("Duplicate topic name.")})
		}
	}
	expansion.run(ctx)
	for i := range expansion.topics {
		t := &expansion.topics[i]
		answer := kmsg.NewCreatePartitionsResponseTopic()
		answer.Topic, answer.ErrorCode, answer.ErrorMessage = t.asked.Topic, t.refused.code, t.refused.text()
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

// expansion is topics to add partitions to.
type expansion struct {
	server       *Server
	image        *meta.Image // as of the request
	validateOnly bool
	topics       []grownTopic
}

// grownTopic is one topic to add partitions to, and what became of it.
type grownTopic struct {
	asked   *kmsg.CreatePartitionsRequestTopic
	growth  controller.Growth
	refused refusedResource
}

func (e *expansion) run(ctx context.Context) {
	var growths []controller.Growth
	var at []int
	for i := range e.topics {
		t := &e.topics[i]
		if t.refused.code == 0 {
			t.refused = e.judge(t)
		}
		if t.refused.code == 0 {
			growths = append(growths, t.growth)
			at = append(at, i)
		}
	}
	if len(growths) == 0 {
		return
	}
	results, err := e.server.config.Admin.CreatePartitions(ctx, growths, e.validateOnly)
	for j, i := range at {
		if err != nil {
			e.topics[i].refused = refusedOf(err)
			continue
		}
		e.topics[i].refused = refusedOf(results[j].Err)
	}
	if err := e.server.waitFor(ctx, results); err != nil {
		for _, i := range at {
			if e.topics[i].refused.code == 0 {
				e.topics[i].refused = refusedOf(err)
			}
		}
	}
}

// judge refuses what can be judged from the Image, with the words of Kafka.
func (e *expansion) judge(t *grownTopic) refusedResource {
	topic, found := e.image.Topic(t.asked.Topic)
	if !found {
		return refusedResource{code: kerr.UnknownTopicOrPartition.Code}
	}
	have := int32(len(topic.Partitions))
	added := int64(t.asked.Count) - int64(have)
	switch {
	case added == 0:
		return refusedResource{kerr.InvalidPartitions.Code, fmt.Sprintf("Topic already has %d partition(s).", have)}
	case added < 0:
		return refusedResource{kerr.InvalidPartitions.Code, fmt.Sprintf(
			"The topic %s currently has %d partition(s); %d would not be an increase.", topic.Name, have, t.asked.Count)}
	case added > partitionsPerRequestMax:
		return refusedResource{kerr.PolicyViolation.Code, "Excessively large number of additional partitions per request."}
	}
	t.growth = controller.Growth{Topic: topic, Count: t.asked.Count}
	if t.asked.Assignment == nil {
		return refusedResource{}
	}
	if int64(len(t.asked.Assignment)) != added {
		return invalidAssignment(fmt.Sprintf("Attempted to add %d additional partition(s), but only %d assignment(s) were specified.",
			added, len(t.asked.Assignment)))
	}
	replication := 1
	if first := topic.Partition(0); first != nil {
		replication = len(first.Replicas)
	}
	for i := range t.asked.Assignment {
		replicas, refused := checkReplicas(e.image, t.asked.Assignment[i].Replicas, replication)
		if refused.code != 0 {
			return refused
		}
		t.growth.Assignment = append(t.growth.Assignment, replicas)
	}
	return refusedResource{}
}
