package server

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// Admin changes the cluster: *controller.Admin. Its calls return as soon as the registry holds the change, with the revision that shows
// it; the server then waits until this broker's Image has applied that revision (D13).
type Admin interface {
	// CreateTopics creates topics, each for itself; the results are in the order of the topics. With validateOnly it
	// writes nothing and returns what it would have returned.
	CreateTopics(ctx context.Context, topics []controller.TopicSpec, validateOnly bool) ([]controller.TopicResult, error)
	// DeleteTopics deletes topics, each for itself.
	DeleteTopics(ctx context.Context, ids []meta.TopicID) ([]controller.TopicResult, error)
	// CreatePartitions adds partitions to topics, each for itself.
	CreatePartitions(ctx context.Context, growths []controller.Growth, validateOnly bool) ([]controller.TopicResult, error)
	// EditConfig replaces what is set for a resource by what edit returns for what is set now; edit may be called more
	// than once. Its error is returned as it is.
	EditConfig(
		ctx context.Context, resource meta.ConfigResource, edit func(map[string]string) (map[string]string, error),
	) (revision int64, err error)
}
