package server

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Admin changes the cluster. Its calls return as soon as the registry holds the change, with the revision that shows
// it; the server then waits until this broker's Image has applied that revision (D13).
type Admin interface {
	// CreateTopics creates topics, each for itself; the results are in the order of the topics. With validateOnly it
	// writes nothing and returns what it would have returned.
	CreateTopics(ctx context.Context, topics []TopicSpec, validateOnly bool) ([]TopicResult, error)
	// DeleteTopics deletes topics, each for itself.
	DeleteTopics(ctx context.Context, ids []meta.TopicID) ([]TopicResult, error)
	// CreatePartitions adds partitions to topics, each for itself.
	CreatePartitions(ctx context.Context, growths []Growth, validateOnly bool) ([]TopicResult, error)
	// EditConfig replaces what is set for a resource by what edit returns for what is set now; edit may be called more
	// than once. Its error is returned as it is.
	EditConfig(
		ctx context.Context, resource meta.ConfigResource, edit func(map[string]string) (map[string]string, error),
	) (revision int64, err error)
}

// TopicSpec is a topic to create.
type TopicSpec struct {
	Name        string
	Partitions  int32
	Replication int16
	Assignment  [][]meta.BrokerID // of each partition; nil lets the controller place Partitions × Replication
	Config      map[string]string
}

// Growth is partitions to add to a topic.
type Growth struct {
	Topic      *meta.Topic
	Count      int32             // partitions that the topic shall have
	Assignment [][]meta.BrokerID // of each new partition; nil lets the controller place them
}

// TopicResult is what became of one topic.
type TopicResult struct {
	ID       meta.TopicID
	Revision int64
	Err      error
}
