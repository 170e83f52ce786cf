package groups

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/coordinator"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// CoordinatorConfig is what a Coordinator needs to know and whom it may ask. All fields but the last three are needed.
type CoordinatorConfig struct {
	// Broker is this broker's id.
	Broker meta.BrokerID
	// Table is the replicas that this broker hosts.
	Table *replica.Table
	// Image is what this broker knows of the cluster, and WaitImage waits until it shows a revision.
	Image     func() *meta.Image
	WaitImage func(ctx context.Context, revision int64) error
	// Admin creates __consumer_offsets when the first group is looked for.
	Admin *controller.Admin
	// Topic is how it is created.
	Topic OffsetsTopic
	// Machine decides over groups.
	Machine Config
	// Codec compresses the records (offsets.topic.compression.codec).
	Codec record.Codec
	// CommitTimeout bounds the wait for a write (offsets.commit.timeout.ms).
	CommitTimeout time.Duration
	// LoadBytes are read at once when a partition is loaded (offsets.load.buffer.size).
	LoadBytes int32

	// Now is the clock; default time.Now.
	Now func() time.Time
	// Logger hears of partitions that have to be loaded anew.
	Logger *slog.Logger
	// Registerer takes the metrics; nil means that they are not shown.
	Registerer prometheus.Registerer
}

// OffsetsTopic is how __consumer_offsets is created.
type OffsetsTopic struct {
	Partitions   int32 // offsets.topic.num.partitions
	Replication  int16 // offsets.topic.replication.factor, if there are as many brokers
	SegmentBytes int32 // offsets.topic.segment.bytes
}

// Coordinator coordinates the groups whose partitions of __consumer_offsets this broker leads. Make one with New, run it,
// and let it hear of leadership.
type Coordinator struct {
	config CoordinatorConfig
	logger *slog.Logger

	dirty    chan struct{} // one slot: something is in mu.changed
	creating chan struct{} // one slot: who holds it creates the topic

	mu struct {
		sync.RWMutex
		changed map[meta.TopicIDPartition]bool // leadership may have changed
		shards  map[meta.TopicIDPartition]*shard
		news    chan struct{} // closed and replaced when a shard has come
	}
}

// shard is a partition that is led here.
type shard struct {
	epoch  meta.Epoch
	cancel context.CancelFunc
	done   chan struct{}

	mu struct {
		sync.RWMutex
		runner *coordinator.Runner[*Machine] // of the current attempt
	}
}

// New makes a Coordinator. It starts nothing. The error is of the metrics' registration.
func New(config CoordinatorConfig) (*Coordinator, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{
		config: config, logger: config.Logger, dirty: make(chan struct{}, 1), creating: make(chan struct{}, 1),
	}
	c.mu.changed = make(map[meta.TopicIDPartition]bool)
	c.mu.shards = make(map[meta.TopicIDPartition]*shard)
	c.mu.news = make(chan struct{})
	if config.Registerer != nil {
		if err := config.Registerer.Register(collector{c}); err != nil {
			return nil, fmt.Errorf("register metrics of groups: %w", err)
		}
	}
	return c, nil
}

// RoleChanged implements replica.RoleListener.
func (c *Coordinator) RoleChanged(topic string, partition meta.TopicIDPartition) {
	if topic != meta.OffsetsTopic {
		return
	}
	c.mu.Lock()
	c.mu.changed[partition] = true
	c.mu.Unlock()
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// Run keeps a runner for each partition that is led here, until ctx ends.
func (c *Coordinator) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		c.mu.Lock()
		changed := c.mu.changed
		c.mu.changed = make(map[meta.TopicIDPartition]bool)
		c.mu.Unlock()
		for partition := range changed {
			c.reconcile(ctx, partition, &group)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.dirty:
		}
	}
}

// reconcile makes the shard of a partition what its replica's role asks for.
func (c *Coordinator) reconcile(ctx context.Context, partition meta.TopicIDPartition, group *sync.WaitGroup) {
	r, epoch := c.led(partition)
	c.mu.RLock()
	old := c.mu.shards[partition]
	c.mu.RUnlock()
	if old != nil && r != nil && old.epoch == epoch {
		return
	}
	if old != nil {
		old.cancel()
		<-old.done
		c.mu.Lock()
		delete(c.mu.shards, partition)
		c.mu.Unlock()
	}
	if r == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &shard{epoch: epoch, cancel: cancel, done: make(chan struct{})}
	s.set(c.newRunner(r, epoch))
	c.mu.Lock()
	c.mu.shards[partition] = s
	close(c.mu.news)
	c.mu.news = make(chan struct{})
	c.mu.Unlock()
	group.Go(func() {
		defer close(s.done)
		defer cancel()
		c.runShard(ctx, s, r)
	})
}

// led is the replica of a partition and its epoch, if this broker leads it.
func (c *Coordinator) led(partition meta.TopicIDPartition) (*replica.Replica, meta.Epoch) {
	r, found := c.config.Table.Get(partition.Topic, partition.Partition)
	if !found {
		return nil, meta.NoEpoch
	}
	state := r.State()
	if state.Failed != nil || state.Role != replica.RoleLeader {
		return nil, meta.NoEpoch
	}
	return r, state.Value.LeaderEpoch
}

func (c *Coordinator) newRunner(r *replica.Replica, epoch meta.Epoch) *coordinator.Runner[*Machine] {
	return coordinator.New(NewMachine(c.config.Machine), coordinator.Config{
		Log: &partitionLog{replica: r, epoch: epoch, readSize: c.config.LoadBytes}, Codec: c.config.Codec,
		CommitTimeout: c.config.CommitTimeout, Now: c.config.Now,
		Logger: c.logger.With(slog.String("topic", r.Topic()), slog.Int("partition", int(r.Partition()))),
	})
}

// reloadPause is the time before a partition that could not be loaded, or that lost track of its writes, is loaded again.
const reloadPause = time.Second

// runShard runs a shard until ctx ends, which is when the partition is led elsewhere.
func (c *Coordinator) runShard(ctx context.Context, s *shard, r *replica.Replica) {
	for {
		err := s.runner().Run(ctx)
		if ctx.Err() != nil {
			return
		}
		c.logger.Error("groups of a partition are loaded anew", slog.Int("partition", int(r.Partition())), slog.Any("err", err))
		s.set(c.newRunner(r, s.epoch)) // says that it is loading
		timer := time.NewTimer(reloadPause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *shard) set(r *coordinator.Runner[*Machine]) {
	s.mu.Lock()
	s.mu.runner = r
	s.mu.Unlock()
}

func (s *shard) runner() *coordinator.Runner[*Machine] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.runner
}

// partitionOf is the partition of __consumer_offsets that a group belongs to: Kafka's choice, the absolute hash of the
// name's UTF-16 units as Java computes it.
func partitionOf(group string, partitions int) int32 {
	hash := int32(0)
	for _, unit := range utf16.Encode([]rune(group)) {
		hash = 31*hash + int32(unit)
	}
	if hash == -1<<31 {
		return 0
	}
	return max(hash, -hash) % int32(partitions)
}

// runnerOf finds the runner of a group, or says why there is none here.
func (c *Coordinator) runnerOf(group string) (*coordinator.Runner[*Machine], error) {
	image := c.config.Image()
	topic, found := image.Topic(meta.OffsetsTopic)
	if !found || len(topic.Partitions) == 0 {
		return nil, errNotHere // looking for the coordinator creates the topic
	}
	n := partitionOf(group, len(topic.Partitions))
	return c.runnerAt(topic, n)
}

func (c *Coordinator) runnerAt(topic *meta.Topic, n int32) (*coordinator.Runner[*Machine], error) {
	c.mu.RLock()
	s := c.mu.shards[meta.TopicIDPartition{Topic: topic.ID, Partition: n}]
	c.mu.RUnlock()
	switch {
	case s != nil:
		return s.runner(), nil
	case topic.Partitions[n].Leader == c.config.Broker:
		return nil, coordinator.ErrLoading
	}
	return nil, errNotHere
}

// runners are those of all partitions that are led here; an error if one of them is not loaded.
func (c *Coordinator) runners() ([]*coordinator.Runner[*Machine], error) {
	topic, found := c.config.Image().Topic(meta.OffsetsTopic)
	if !found {
		return nil, nil
	}
	var all []*coordinator.Runner[*Machine]
	for n := range topic.Partitions {
		r, err := c.runnerAt(topic, int32(n))
		switch {
		case err == nil:
			all = append(all, r)
		case !errors.Is(err, errNotHere):
			return nil, err
		}
	}
	return all, nil
}

// TopicsDeleted tells the groups that topics are gone: their offsets go too. It does not wait.
func (c *Coordinator) TopicsDeleted(names map[string]bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, s := range c.mu.shards {
		s.runner().Tell(func(m *Machine, _ coordinator.Call, now time.Time) coordinator.Effects {
			return m.TopicsDeleted(names, now)
		})
	}
}

// Locate tells which broker coordinates a group, or with code COORDINATOR_NOT_AVAILABLE that there is none at the moment.
// The first call creates __consumer_offsets.
func (c *Coordinator) Locate(ctx context.Context, group string) (broker meta.BrokerID, code int16) {
	topic, found := c.config.Image().Topic(meta.OffsetsTopic)
	if !found {
		if err := c.create(ctx); err != nil {
			c.logger.Warn("the topic of the groups' offsets could not be created", slog.Any("err", err))
			return meta.NoBroker, codeOf(errNoTopic)
		}
		if topic, found = c.config.Image().Topic(meta.OffsetsTopic); !found {
			return meta.NoBroker, codeOf(errNoTopic)
		}
		c.awaitLoaded(ctx, topic, group)
	}
	leader := topic.Partitions[partitionOf(group, len(topic.Partitions))].Leader
	if leader == meta.NoBroker {
		return meta.NoBroker, codeOf(errNoTopic)
	}
	return leader, 0
}

// create makes __consumer_offsets, unless somebody else does.
func (c *Coordinator) create(ctx context.Context) error {
	select {
	case c.creating <- struct{}{}:
		defer func() { <-c.creating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	image := c.config.Image()
	if _, found := image.Topic(meta.OffsetsTopic); found {
		return nil
	}
	live := 0
	for _, b := range image.Brokers() {
		if !b.Fenced {
			live++
		}
	}
	text := func(s string) *string { return &s }
	results, revision, err := c.config.Admin.CreateTopics(ctx, []controller.NewTopic{{
		Name: meta.OffsetsTopic, Partitions: c.config.Topic.Partitions,
		Replication: min(c.config.Topic.Replication, int16(max(live, 1))), // an absent broker must not keep groups from working
		Configs: []controller.Setting{
			{Name: "cleanup.policy", Value: text("compact")},
			{Name: "segment.bytes", Value: text(fmt.Sprint(c.config.Topic.SegmentBytes))},
			{Name: "compression.type", Value: text("producer")},
		},
	}}, false)
	if err == nil {
		err = results[0].Err
	}
	if err != nil && !errors.Is(err, controller.ErrTopicExists) {
		return fmt.Errorf("create %s: %w", meta.OffsetsTopic, err)
	}
	return c.config.WaitImage(ctx, revision)
}

// firstLoadPatience bounds how long the first look for a coordinator waits for its partition: it is empty.
const firstLoadPatience = time.Second

// awaitLoaded waits until the new partition of a group is loaded here, so that the group's first request need not be sent
// twice.
func (c *Coordinator) awaitLoaded(ctx context.Context, topic *meta.Topic, group string) {
	ctx, cancel := context.WithTimeout(ctx, firstLoadPatience)
	defer cancel()
	n := partitionOf(group, len(topic.Partitions))
	for topic.Partitions[n].Leader == c.config.Broker {
		c.mu.RLock()
		news := c.mu.news
		c.mu.RUnlock()
		r, err := c.runnerAt(topic, n)
		if err == nil {
			r.AwaitLoaded(ctx)
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// newMemberID is a random UUID as text, as Kafka ends the ids of members.
func newMemberID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
