package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// metadata answers where brokers and partition leaders are (key 3). Version 0 asks for all topics by an empty list,
// later ones by null, and an empty list asks for none (U-136). Topics that do not exist are created if the broker and
// the request allow it, and answered ready. Topic ids may be asked for from version 12 on.
func (s *Server) metadata(ctx context.Context, c *client, req *kmsg.MetadataRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	byID, fault := metadataByID(req)
	if fault != 0 {
		return refuseMetadata(resp, req, fault), nil
	}
	if !byID && (req.Version < 4 || req.AllowAutoTopicCreation) {
		s.createAsked(ctx, c, req)
	}

	v := s.viewFor(c)
	resp.ClusterID = kmsg.StringPtr(v.image.ClusterID())
	resp.ControllerID = s.controllerID(v.image)
	resp.Brokers = v.metadataBrokers()
	resp.Topics = []kmsg.MetadataResponseTopic{}
	resp.AuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
	topicBits := operations(req.IncludeTopicAuthorizedOperations, topicOperations)
	answer := func(t kmsg.MetadataResponseTopic) {
		t.AuthorizedOperations = topicBits
		resp.Topics = append(resp.Topics, t)
	}
	switch {
	case req.Topics == nil || req.Version == 0 && len(req.Topics) == 0:
		for _, t := range v.image.Topics() {
			answer(v.metadataTopic(t, req.Version))
		}
	case byID:
		seen := make(map[meta.TopicID]bool, len(req.Topics))
		for i := range req.Topics {
			if id := meta.TopicID(req.Topics[i].TopicID); !id.IsZero() && !seen[id] {
				seen[id] = true
				answer(v.metadataByID(id, req.Version))
			}
		}
	default:
		seen := make(map[string]bool, len(req.Topics))
		for i := range req.Topics {
			if name := *req.Topics[i].Topic; !seen[name] {
				seen[name] = true
				answer(v.metadataByName(name, req.Version))
			}
		}
	}
	return resp, nil
}

// metadataByID tells whether topics are asked for by id: one id decides for all of the request. It returns an error
// code for what is neither.
func metadataByID(req *kmsg.MetadataRequest) (byID bool, fault int16) {
	nameless := false
	for i := range req.Topics {
		byID = byID || req.Topics[i].TopicID != [16]byte{}
		nameless = nameless || req.Topics[i].Topic == nil
	}
	if byID && req.Version < 12 || !byID && nameless {
		return byID, kerr.InvalidRequest.Code
	}
	return byID, 0
}

// refuseMetadata answers every topic with the same error.
func refuseMetadata(resp *kmsg.MetadataResponse, req *kmsg.MetadataRequest, code int16) kmsg.Response {
	resp.ErrorCode = code
	for i := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.ErrorCode, t.Topic, t.TopicID = code, req.Topics[i].Topic, req.Topics[i].TopicID
		if t.Topic == nil && req.Version < 12 {
			t.Topic = kmsg.StringPtr("")
		}
		t.Partitions = []kmsg.MetadataResponseTopicPartition{}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (v *view) metadataBrokers() []kmsg.MetadataResponseBroker {
	brokers := []kmsg.MetadataResponseBroker{}
	for _, b := range v.image.Brokers() {
		at, reachable := v.server.brokerAddress(v.client, &b)
		if b.Fenced || !reachable {
			continue
		}
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(b.ID), at.host, at.port, rack(&b)
		brokers = append(brokers, broker)
	}
	return brokers
}

// rack is a broker's rack, nil for none.
func rack(b *meta.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}

func (v *view) metadataByName(name string, version int16) kmsg.MetadataResponseTopic {
	if t, found := v.image.Topic(name); found {
		return v.metadataTopic(t, version)
	}
	code := kerr.UnknownTopicOrPartition.Code
	if meta.ValidateTopicName(name) != nil {
		code = kerr.InvalidTopicException.Code
	}
	return noTopic(code, &name, meta.TopicID{}, meta.IsInternalTopic(name))
}

func (v *view) metadataByID(id meta.TopicID, version int16) kmsg.MetadataResponseTopic {
	if t, found := v.image.TopicByID(id); found {
		return v.metadataTopic(t, version)
	}
	return noTopic(kerr.UnknownTopicID.Code, nil, id, false)
}

func noTopic(code int16, name *string, id meta.TopicID, internal bool) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.Topic, t.TopicID, t.IsInternal = code, name, id, internal
	t.Partitions = []kmsg.MetadataResponseTopicPartition{}
	return t
}

func (v *view) metadataTopic(topic *meta.Topic, version int16) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID, t.IsInternal = &topic.Name, topic.ID, topic.Internal()
	t.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(topic.Partitions))
	for n := range topic.Partitions {
		state := topic.Partition(int32(n))
		if state == nil {
			continue
		}
		p := kmsg.NewMetadataResponseTopicPartition()
		leader, fault := v.leader(state)
		p.ErrorCode = fault.code(version >= 6)
		p.Partition, p.Leader, p.LeaderEpoch = int32(n), int32(leader), int32(state.LeaderEpoch)
		p.Replicas, p.ISR, p.OfflineReplicas = ids(state.Replicas), ids(state.ISR), v.offline(state)
		t.Partitions = append(t.Partitions, p)
	}
	return t
}

// code is what a client is told; only newer ones know that the listener is at fault.
func (f leaderFault) code(knowsListeners bool) int16 {
	switch {
	case f == leaderKnown:
		return 0
	case f == noListener && knowsListeners:
		return kerr.ListenerNotFound.Code
	}
	return kerr.LeaderNotAvailable.Code
}

// creationPatience is how long a Metadata request waits for the topics that it creates; the client asks again anyway.
const creationPatience = 5 * time.Second

// createAsked creates the topics of a request that do not exist and may be created. Failures are not reported: the
// answer then says that the topic is unknown, and the client asks again.
func (s *Server) createAsked(ctx context.Context, c *client, req *kmsg.MetadataRequest) {
	image := s.config.Image()
	var topics []controller.NewTopic
	listed := make(map[string]bool)
	for i := range req.Topics {
		name := *req.Topics[i].Topic
		_, found := image.Topic(name)
		if !found && meta.ValidateTopicName(name) == nil && !meta.IsInternalTopic(name) && !listed[name] {
			listed[name] = true
			topics = append(topics, controller.NewTopic{Name: name, Partitions: -1, Replication: -1})
		}
	}
	if len(topics) == 0 || !s.config.Configs.Bool(image, "auto.create.topics.enable") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, creationPatience)
	defer cancel()
	failed, example, reason := 0, "", error(nil)
	for i, created := range s.create(ctx, c, topics, false) {
		if created.Err != nil && !errors.Is(created.Err, controller.ErrTopicExists) {
			failed, example, reason = failed+1, topics[i].Name, created.Err
		}
	}
	if failed > 0 {
		s.log.Warn("topics that a client asked for could not be created", slog.Any("count", failed), slog.Any("topic", example), slog.Any("err", reason),
			slog.Any("peer", c.remote.String()), slog.Any("client", c.id))
	}
}
