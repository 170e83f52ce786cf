package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// RequestsConfig configures Requests.
type RequestsConfig struct {
	Cluster *registry.Cluster
	Image   func() *meta.Image // what this broker knows now
	Random  io.Reader          // for topic ids: crypto/rand.Reader

	Keys     *meta.ConfigKeys
	Settings meta.ConfigLookup // what the properties file sets for broker keys
}

// Requests turns what clients ask for into registry writes, on whatever broker they ask. The server has judged the
// requests; what is decided here is where replicas go, and what only the registry knows. Its methods may be called
// concurrently. Each returns one result per item with the revision that shows it: the broker answers when its Image
// reflects it (D13). An error of a call, rather than of an item, means that the registry did not answer: the outcome is
// unknown.
type Requests struct{ config RequestsConfig }

// NewRequests makes a Requests.
func NewRequests(c RequestsConfig) *Requests { return &Requests{config: c} }

// CreateTopics creates topics, each atomically and independently of the others; the results are in their order. With
// validateOnly it writes nothing and says what it would have said.
func (r *Requests) CreateTopics(ctx context.Context, topics []TopicSpec, validateOnly bool) ([]TopicResult, error) {
	image := r.config.Image()
	results := make([]TopicResult, len(topics))
	var create []registry.NewTopic
	var index []int
	for i := range topics {
		t := &topics[i]
		assignment, err := r.place(image, t.Assignment, int(t.Partitions), int(t.Replication), rand.IntN(1<<16))
		if err != nil {
			results[i].Err = err
			continue
		}
		topic := registry.NewTopic{Name: t.Name, Config: t.Config}
		if topic.ID, err = meta.NewTopicID(r.config.Random); err != nil {
			return nil, err
		}
		topic.Partitions = r.firstStates(image, t.Name, t.Config, assignment)
		results[i].ID = topic.ID
		create, index = append(create, topic), append(index, i)
	}
	if validateOnly || len(create) == 0 {
		return results, nil
	}
	outcomes, err := r.config.Cluster.CreateTopics(ctx, create)
	if err != nil {
		return nil, err
	}
	for at, o := range outcomes {
		results[index[at]].Revision, results[index[at]].Err = o.Revision, o.Err
	}
	return results, nil
}

// place is where partitions go: as assigned, else where there is room.
func (r *Requests) place(image *meta.Image, assigned [][]meta.BrokerID, partitions, replicas, start int) ([][]meta.BrokerID, error) {
	if assigned != nil {
		return assigned, nil
	}
	placed, refusal := Place(image.Brokers(), partitions, replicas, start)
	if refusal != nil {
		return nil, placementError{refusal}
	}
	return placed, nil
}

// placementError has Kafka's words and is ErrReplicationFactor.
type placementError struct{ *Refusal }

// Is makes errors.Is(e, ErrReplicationFactor) true.
func (e placementError) Is(target error) bool { return target == ErrReplicationFactor }

// firstStates are the first values of a topic's new partitions.
func (r *Requests) firstStates(image *meta.Image, topic string, values map[string]string, assignment [][]meta.BrokerID) []meta.Partition {
	minISR, flush := wanted(r.config.Keys, topic, values, func(key string) (string, bool) {
		if value, set := image.Config(meta.DefaultBrokerConfig)[key]; set {
			return value, true
		}
		return r.config.Settings(key)
	})
	partitions := make([]meta.Partition, len(assignment))
	for i, brokers := range assignment {
		partitions[i] = firstState(image, brokers, minISR, flush)
	}
	return partitions
}

// DeleteTopics deletes topics, each atomically and independently of the others.
func (r *Requests) DeleteTopics(ctx context.Context, ids []meta.TopicID) ([]TopicResult, error) {
	outcomes, err := r.config.Cluster.DeleteTopics(ctx, ids)
	if err != nil {
		return nil, err
	}
	results := make([]TopicResult, len(ids))
	for i, o := range outcomes {
		results[i] = TopicResult{ID: ids[i], Revision: o.Revision, Err: o.Err}
	}
	return results, nil
}

// CreatePartitions adds partitions to topics, each atomically and independently of the others.
func (r *Requests) CreatePartitions(ctx context.Context, growths []Growth, validateOnly bool) ([]TopicResult, error) {
	image := r.config.Image()
	results := make([]TopicResult, len(growths))
	for i := range growths {
		g := &growths[i]
		count := int32(len(g.Topic.Partitions))
		results[i].ID = g.Topic.ID
		assignment, err := r.place(image, g.Assignment, int(g.Count-count), len(g.Topic.Partitions[0].Replicas), int(count))
		if err != nil || validateOnly {
			results[i].Err = err
			continue
		}
		partitions := r.firstStates(image, g.Topic.Name, image.TopicConfig(g.Topic.ID), assignment)
		revision, err := r.config.Cluster.AddPartitions(ctx, g.Topic.ID, count, partitions)
		switch {
		case errors.Is(err, registry.ErrConflict), errors.Is(err, registry.ErrUnknownTopic):
			results[i].Err = fmt.Errorf("%w: %w", ErrNotThisState, err)
		case err != nil:
			return nil, err
		default:
			results[i].Revision = revision
		}
	}
	return results, nil
}

// EditConfig replaces what is set for a resource by what edit returns for what is set now; edit may be called more than
// once, and its error is returned as it is.
func (r *Requests) EditConfig(
	ctx context.Context, resource meta.ConfigResource, edit func(map[string]string) (map[string]string, error),
) (revision int64, err error) {
	change := registry.ConfigEdit{Kind: resource.Kind, Broker: resource.Name, Edit: edit}
	if resource.Kind == meta.TopicResource {
		topic, found := r.config.Image().Topic(resource.Name)
		if !found {
			return 0, registry.ErrUnknownTopic
		}
		change.Topic, change.Broker = topic.ID, ""
	}
	results, revision, err := r.config.Cluster.EditConfigs(ctx, []registry.ConfigEdit{change})
	if err != nil {
		return 0, err
	}
	return revision, results[0]
}
