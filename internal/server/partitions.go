package server

import (
	"fmt"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// topicByName finds a topic as the Image has it, or says errUnknownPartition.
func topicByName(image *meta.Image, name string) (*meta.Topic, error) {
	topic, found := image.Topic(name)
	if !found {
		return nil, errUnknownPartition
	}
	return topic, nil
}

// topicByID finds a topic by its id, or says errUnknownTopicID.
func topicByID(image *meta.Image, id meta.TopicID) (*meta.Topic, error) {
	topic, found := image.TopicByID(id)
	if !found {
		return nil, errUnknownTopicID
	}
	return topic, nil
}

// replicaOf finds this broker's replica of a partition, or says why there is none: the topic has no such partition, its
// log is broken, or another broker has it.
func (s *Server) replicaOf(topic *meta.Topic, partition int32) (*replica.Replica, error) {
	if r, found := s.config.Table.Get(topic.ID, partition); found {
		return r, nil
	}
	if partition < 0 || int(partition) >= len(topic.Partitions) {
		return nil, errUnknownPartition
	}
	if err := s.config.Table.Offline(topic.ID, partition); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no replica here: %w", replica.ErrNotLeader)
}

// leaderOf is where a client that came to the wrong broker should go: leader and epoch, -1 if there is none.
func leaderOf(topic *meta.Topic, partition int32) (leader, epoch int32) {
	if topic == nil || partition < 0 || int(partition) >= len(topic.Partitions) {
		return -1, -1
	}
	p := &topic.Partitions[partition]
	return int32(p.Leader), int32(p.LeaderEpoch)
}

// endpointOf is where a client of this connection reaches a broker, and the broker's rack.
func (s *Server) endpointOf(image *meta.Image, c *client, id meta.BrokerID) (at address, rack string, found bool) {
	b, found := image.Broker(id)
	if !found {
		return address{}, "", false
	}
	at, found = s.brokerAddress(c, &b)
	return at, b.Rack, found
}
