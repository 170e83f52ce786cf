package controller

import (
	"errors"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Errors of admin requests.
var (
	// ErrReplicationFactor is returned for a topic that wants more replicas of a partition than there are brokers to hold
	// them. Its text is Kafka's: "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be
	// reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
	ErrReplicationFactor = errors.New("replication factor cannot be reached")
	// ErrNotThisState is returned when a topic has changed since the request was judged: it has other partitions, or is
	// gone.
	ErrNotThisState = errors.New("the topic has changed meanwhile")
)

// TopicSpec is a topic to create. Its name, numbers and configuration have been judged; where its replicas go has not,
// unless they are assigned.
type TopicSpec struct {
	Name        string
	Partitions  int32
	Replication int16
	Assignment  [][]meta.BrokerID // of each partition, registered brokers; nil lets the controller place them
	Config      map[string]string
}

// Growth is partitions to add to a topic.
type Growth struct {
	Topic      *meta.Topic       // as the request saw it
	Count      int32             // partitions that the topic shall have
	Assignment [][]meta.BrokerID // of each new partition; nil lets the controller place them
}

// TopicResult is what became of one topic of a request.
type TopicResult struct {
	ID       meta.TopicID
	Revision int64 // the revision that shows it; 0 on error, and if it was only to be checked
	Err      error
}
