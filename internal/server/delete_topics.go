package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// deleteTopics deletes topics by name, from version 6 on also by id (key 20), each for itself. Topics that brokers keep
// for themselves are refused (U-113, D15).
func (s *Server) deleteTopics(ctx context.Context, _ *client, req *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	deletion := deletion{server: s, image: s.config.Image(), namesOnly: req.Version < 6}
	for i := range req.TopicNames {
		if deletion.namesOnly {
			deletion.add(&req.TopicNames[i], meta.TopicID{})
		}
	}
	for i := range req.Topics {
		if !deletion.namesOnly {
			deletion.add(req.Topics[i].Topic, req.Topics[i].TopicID)
		}
	}
	deletion.run(ctx)
	for i := range deletion.topics {
		t := &deletion.topics[i]
		answer := kmsg.NewDeleteTopicsResponseTopic()
		answer.Topic, answer.TopicID = t.name, t.id
		answer.ErrorCode, answer.ErrorMessage = t.refused.code, t.refused.text()
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

// deletion is topics to delete together.
type deletion struct {
	server    *Server
	image     *meta.Image // as of the request
	namesOnly bool
	topics    []doomedTopic
}

// doomedTopic is one topic to delete, and what became of it.
type doomedTopic struct {
	name    *string
	id      meta.TopicID
	topic   *meta.Topic
	refused refusedResource
}

func (d *deletion) add(name *string, id meta.TopicID) {
	d.topics = append(d.topics, doomedTopic{name: name, id: id})
}

func (d *deletion) run(ctx context.Context) {
	d.check()
	var doomed []meta.TopicID
	var at []int
	for i := range d.topics {
		if d.topics[i].refused.code == 0 {
			doomed = append(doomed, d.topics[i].topic.ID)
			at = append(at, i)
		}
	}
	if len(doomed) == 0 {
		return
	}
	results, err := d.server.config.Admin.DeleteTopics(ctx, doomed)
	for j, i := range at {
		if err != nil {
			d.topics[i].refused = refusedOf(err)
			continue
		}
		d.topics[i].refused = refusedOf(results[j].Err)
	}
	if err := d.server.waitFor(ctx, results); err != nil {
		for _, i := range at {
			if d.topics[i].refused.code == 0 {
				d.topics[i].refused = refusedOf(err)
			}
		}
	}
}

// check finds the topics and refuses what cannot be deleted. A topic that is named twice is refused once.
func (d *deletion) check() {
	enabled := d.server.config.Configs.Bool(d.image, "delete.topic.enable")
	times := make(map[string]int, len(d.topics))
	for i := range d.topics {
		times[d.topics[i].key()]++
	}
	kept := d.topics[:0]
	for _, t := range d.topics {
		key := t.key()
		switch times[key] {
		case 0:
			continue
		case 1:
			t.refused = d.judge(&t, enabled)
		default:
			times[key] = 0
			t.refused = invalidRequest("Duplicate topic name.")
			if t.name == nil {
				t.refused = invalidRequest("Duplicate topic id.")
			}
		}
		kept = append(kept, t)
	}
	d.topics = kept
}

// key is equal for two mentions of one topic.
func (t *doomedTopic) key() string {
	if t.name != nil {
		return "name " + *t.name
	}
	return "id " + t.id.String()
}

func (d *deletion) judge(t *doomedTopic, enabled bool) refusedResource {
	switch {
	case t.name != nil && !t.id.IsZero():
		return invalidRequest("You may not specify both topic name and topic id.")
	case t.name == nil && t.id.IsZero():
		return invalidRequest("Neither topic name nor id were specified.")
	case !enabled:
		return refusedResource{kerr.TopicDeletionDisabled.Code, kerr.TopicDeletionDisabled.Description}
	}
	var found bool
	if t.name != nil {
		if t.topic, found = d.image.Topic(*t.name); !found {
			return refusedResource{kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicOrPartition.Description}
		}
	} else if t.topic, found = d.image.TopicByID(t.id); !found {
		return refusedResource{kerr.UnknownTopicID.Code, kerr.UnknownTopicID.Description}
	}
	if t.topic.Internal() {
		return refusedResource{kerr.InvalidTopicException.Code, "Cannot delete internal topic " + t.topic.Name}
	}
	t.name, t.id = &t.topic.Name, t.topic.ID
	return refusedResource{}
}
