package server

import (
	"fmt"
	"net"

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

// endpointOf is the address at which a client of this connection reaches a broker: that of the listener which the
// client used. This broker itself is where the client dialled, unless an address is advertised (U-132).
func (s *Server) endpointOf(image *meta.Image, c *client, id meta.BrokerID) (host string, port int32, rack string, found bool) {
	b, found := image.Broker(id)
	if id == s.config.Broker && c.listener.Host == "" {
		if local, ok := c.local.(*net.TCPAddr); ok {
			return hostOf(local.IP), int32(local.Port), b.Rack, true
		}
	}
	if !found {
		return "", 0, "", false
	}
	for _, e := range b.Endpoints {
		if e.Listener == c.listener.Name {
			return e.Host, e.Port, b.Rack, true
		}
	}
	return "", 0, "", false
}

// hostOf writes an address as clients are told it.
func hostOf(ip net.IP) string {
	if ip.IsLoopback() {
		return "localhost"
	}
	return ip.String()
}
