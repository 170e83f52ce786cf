package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// deleteTopics deletes topics by name, from version 6 on also by id (key 20), each for itself. Topics that brokers keep
// for themselves are refused (U-113, D15).
func (s *Server) deleteTopics(ctx context.Context, c *client, req *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	topics := req.Topics
	if req.Version < 6 {
		topics = nil
		for i := range req.TopicNames {
			topics = append(topics, kmsg.DeleteTopicsRequestTopic{Topic: &req.TopicNames[i]})
		}
	}
	image := s.config.Image()
	asked, times := firstMentions(topics, topicKey)
	refused := make([]refusedItem, len(asked))
	var doomed []controller.OldTopic
	for i, t := range asked {
		switch {
		case times[topicKey(t)] > 1 && t.Topic == nil:
			refused[i] = invalidRequest("Duplicate topic id.")
		case times[topicKey(t)] > 1:
			refused[i] = invalidRequest("Duplicate topic name.")
		default:
			refused[i] = undeletable(image, t)
		}
		if refused[i].code == 0 {
			doomed = append(doomed, oldTopic(t))
		}
	}

	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	deleted := s.remove(ctx, doomed)
	for i, t := range asked {
		answer := kmsg.NewDeleteTopicsResponseTopic()
		answer.Topic, answer.TopicID = t.Topic, t.TopicID
		if refused[i].code == 0 {
			if refused[i] = s.refusedBy(deleted[0].Err); refused[i].code == 0 {
				answer.Topic, answer.TopicID = &deleted[0].Name, deleted[0].ID
				s.log.Info("topic deleted", slog.Any("topic", deleted[0].Name), slog.Any("id", deleted[0].ID.String()), slog.Any("peer", c.remote.String()), slog.Any("client", c.id))
			}
			deleted = deleted[1:]
		}
		if refused[i].code == kerr.TopicDeletionDisabled.Code {
			refused[i].message = "" // Kafka leaves it to the code
			if req.Version < 3 {
				refused[i].code = kerr.InvalidRequest.Code
			}
		}
		answer.ErrorCode, answer.ErrorMessage = refused[i].code, refused[i].text()
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

// topicKey is equal for two mentions of one topic.
func topicKey(t *kmsg.DeleteTopicsRequestTopic) string {
	if t.Topic != nil {
		return "name " + *t.Topic
	}
	return "id " + meta.TopicID(t.TopicID).String()
}

// undeletable refuses what may not be deleted whatever it is.
func undeletable(image *meta.Image, t *kmsg.DeleteTopicsRequestTopic) refusedItem {
	topic, found := image.TopicByID(t.TopicID)
	if t.Topic != nil {
		if *t.Topic == "" {
			return refusedItem{kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicOrPartition.Description}
		}
		topic, found = image.Topic(*t.Topic)
	}
	if found && topic.Internal() {
		return refusedItem{kerr.InvalidTopicException.Code, "Cannot delete internal topic " + topic.Name + "."}
	}
	return refusedItem{}
}

func oldTopic(t *kmsg.DeleteTopicsRequestTopic) controller.OldTopic {
	old := controller.OldTopic{ID: t.TopicID}
	if t.Topic != nil {
		old.Name = *t.Topic
	}
	return old
}

// remove lets the controller's side delete topics, and waits until this broker's Image no longer shows them.
func (s *Server) remove(ctx context.Context, topics []controller.OldTopic) []controller.DeletedTopic {
	if len(topics) == 0 {
		return nil
	}
	deleted, revision, err := s.config.Admin.DeleteTopics(ctx, topics)
	if err == nil {
		err = s.waitFor(ctx, revision)
	}
	if err != nil {
		deleted = make([]controller.DeletedTopic, len(topics))
		for i := range deleted {
			deleted[i].Err = err
		}
	}
	return deleted
}
