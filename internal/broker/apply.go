package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// state is what this broker knows of the cluster, and the one path on which it learns: statements of the controller and
// changes of configurations come here, one at a time, and go to the replicas before the Image shows them.
type state struct {
	*images
	broker  meta.BrokerID
	cluster *registry.Cluster
	table   *replica.Table
	keys    lookups
	logger  *slog.Logger
	slot    chan struct{} // one slot: its holder changes the Image

	// topicsDeleted is told the names of topics that are gone from the Image; it does not block.
	topicsDeleted func(names map[string]bool)
}

// lookups says what was set for a broker key, given an Image.
type lookups interface {
	Lookup(*meta.Image) meta.ConfigLookup
}

func (s *state) acquire(ctx context.Context) error {
	select {
	case s.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *state) release() { <-s.slot }

// apply makes true what the controller states (D5): first the configurations that the statement relies on, then the
// replicas, then the Image.
func (s *state) apply(ctx context.Context, a *meta.Apply) (replica.Applied, error) {
	if err := s.acquire(ctx); err != nil {
		return replica.Applied{}, err
	}
	defer s.release()
	if a.ConfigRevision > s.load().ConfigRevision() {
		if err := s.readConfigs(ctx); err != nil {
			return replica.Applied{}, fmt.Errorf("read the configurations of revision %d: %w", a.ConfigRevision, err)
		}
	}
	applied, err := s.table.Apply(ctx, a)
	if err != nil {
		return replica.Applied{}, err
	}
	before := s.load()
	s.store(before.Apply(a))
	s.tellDeleted(before, a)
	return applied, nil
}

// tellDeleted names the topics that a statement says are deleted.
func (s *state) tellDeleted(before *meta.Image, a *meta.Apply) {
	names := make(map[string]bool)
	for _, update := range a.Topics {
		if topic, known := before.TopicByID(update.ID); known && update.Deleted {
			names[topic.Name] = true
		}
	}
	if len(names) > 0 && s.topicsDeleted != nil {
		s.topicsDeleted(names)
	}
}

// readConfigs reads all configurations anew. The caller holds the slot.
func (s *state) readConfigs(ctx context.Context) error {
	configs, revision, err := s.cluster.Configs(ctx)
	if err != nil {
		return err
	}
	s.configure(configs, revision, true)
	return nil
}

// watchConfigs is the single watch of configurations (D14). It runs until ctx ends. A watch that breaks is begun again
// where it ended.
func (s *state) watchConfigs(ctx context.Context) error {
	for {
		err := s.cluster.WatchConfigs(ctx, s.load().ConfigRevision()+1, func(changes []registry.ConfigChange, revision int64, full bool) error {
			if err := s.acquire(ctx); err != nil {
				return err
			}
			defer s.release()
			s.configure(changes, revision, full)
			return nil
		})
		if ctx.Err() != nil || errors.Is(err, registry.ErrFailed) {
			return err
		}
		s.logger.Warn("watch of configurations broke and is begun again", slog.Any("err", err))
		timer := time.NewTimer(watchPause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// watchPause is the time before a broken watch is begun again.
const watchPause = time.Second

// configure puts changed configurations into the Image and hands them down. What is known already, because a statement
// made this broker read ahead of its watch, is skipped. The caller holds the slot.
func (s *state) configure(changes []registry.ConfigChange, revision int64, full bool) {
	image := s.load()
	if revision <= image.ConfigRevision() {
		return
	}
	next := image
	if full {
		next = next.WithoutConfigs()
	}
	topics, brokers := make(map[meta.TopicID]bool), full
	for _, change := range changes {
		if change.Kind == meta.TopicResource {
			next = next.WithTopicConfig(change.Topic, change.Values, revision)
			topics[change.Topic] = true
			continue
		}
		next = next.WithConfig(meta.ConfigResource{Kind: meta.BrokerResource, Name: change.Broker}, change.Values, revision)
		brokers = true
	}
	next = next.WithConfigRevision(revision)
	s.hand(next, func(id meta.TopicID) bool { return brokers || topics[id] })
	s.store(next)
}

// hand gives the logs of topics their configurations as an Image has them.
func (s *state) hand(image *meta.Image, affected func(meta.TopicID) bool) {
	configs := make(map[meta.TopicID]commitlog.Config)
	for r := range s.table.All() {
		id := r.TopicID()
		if !affected(id) {
			continue
		}
		config, known := configs[id]
		if !known {
			config = s.parse(image, id, r.Topic())
			configs[id] = config
		}
		r.SetConfig(config)
		r.SetThrottled(replica.ParseThrottled(image.TopicConfig(id), s.broker))
	}
}

// throttled tells which replicas of a topic are throttled here.
func (s *state) throttled(id meta.TopicID) replica.Throttled {
	return replica.ParseThrottled(s.load().TopicConfig(id), s.broker)
}

// topicConfig is the configuration that a log of a topic is opened with.
func (s *state) topicConfig(id meta.TopicID, name string) commitlog.Config {
	return s.parse(s.load(), id, name)
}

// parse computes a topic's effective configuration. One that cannot be true, because somebody wrote it past the checks,
// does no harm to anybody: its topic gets the defaults (U-80).
func (s *state) parse(image *meta.Image, id meta.TopicID, name string) commitlog.Config {
	config, err := commitlog.ParseConfig(image.TopicConfig(id), s.keys.Lookup(image))
	if err == nil {
		return config
	}
	s.logger.Error("topic configuration is invalid: defaults count instead", slog.String("topic", name), slog.Any("err", err))
	return commitlog.DefaultConfig()
}

// WriteChanges implements replica.ISRWriter (D8): each change stands under this broker's live key, and those that add to an
// ISR under the live keys of whom they add.
func (s *state) WriteChanges(ctx context.Context, changes []replica.PartitionChange) ([]replica.ChangeOutcome, error) {
	self, found := s.load().Broker(s.broker)
	if !found || self.Fenced {
		return nil, errors.New("this broker is fenced")
	}
	writes := make([]registry.PartitionWrite, len(changes))
	for i, c := range changes {
		writes[i] = registry.PartitionWrite{TopicIDPartition: c.TopicIDPartition, Version: c.Value.Version, State: c.Value}
		for _, j := range c.Joining {
			writes[i].Joining = append(writes[i].Joining, registry.Joining(j))
		}
	}
	written, _, err := s.cluster.SetPartitions(ctx, registry.GuardLive(s.broker, self.Epoch), writes)
	outcomes := make([]replica.ChangeOutcome, len(written))
	for i, w := range written {
		if w.Current == nil {
			outcomes[i].Err = w.Err
		} else {
			outcomes[i].Current = *w.Current
		}
	}
	return outcomes, err
}

// ReadValue implements replica.ISRWriter.
func (s *state) ReadValue(ctx context.Context, partition meta.TopicIDPartition) (meta.Partition, error) {
	return s.cluster.Partition(ctx, partition)
}
