// Package replicatest gives tests of packages above replica one broker's worth of real replicas: a table over real logs
// on a disk of the test's choice, and an image that agrees with it. Only tests import it.
package replicatest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// ID is the broker's id.
const ID meta.BrokerID = 1

// Broker is a table with replicas, as a broker would have it after an Apply.
type Broker struct {
	Table *replica.Table

	t     testing.TB
	logs  *commitlog.Manager
	image atomic.Pointer[meta.Image]

	mu      sync.Mutex
	configs map[string]commitlog.Config

	revision, version int64
	ids               byte
}

// New is a broker without topics whose data lie in dir on fs. Its logs are closed when the test ends. In a synctest
// bubble its group commits do not run by themselves.
func New(t testing.TB, fs vfs.FS, dir string) *Broker {
	t.Helper()
	logs, err := commitlog.OpenManager(commitlog.ManagerOptions{FS: fs, Dir: dir, NodeID: ID})
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{t: t, logs: logs, configs: map[string]commitlog.Config{}}
	table, err := replica.NewTable(replica.Config{Broker: ID, Logs: logs, ISR: b, TopicConfig: b.topicConfig})
	if err != nil {
		t.Fatal(err)
	}
	table.Registered(7)
	b.Table = table
	b.image.Store(meta.NewImage("test-cluster"))
	t.Cleanup(func() {
		table.Close()
		_ = logs.Close(-1) // the disk goes with the test
	})
	return b
}

// Image is the cluster as the broker knows it.
func (b *Broker) Image() *meta.Image { return b.image.Load() }

// WriteChanges implements replica.ISRWriter; nothing is written.
func (b *Broker) WriteChanges(context.Context, []replica.PartitionChange) ([]replica.ChangeOutcome, error) {
	return nil, errNoRegistry
}

// ReadValue implements replica.ISRWriter.
func (b *Broker) ReadValue(context.Context, meta.TopicIDPartition) (meta.Partition, error) {
	return meta.Partition{}, errNoRegistry
}

var errNoRegistry = errors.New("no registry")

func (b *Broker) topicConfig(_ meta.TopicID, name string) commitlog.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	if config, found := b.configs[name]; found {
		return config
	}
	return commitlog.DefaultConfig()
}

// Create makes a topic of which this broker leads every partition alone. The configuration holds topic keys.
func (b *Broker) Create(name string, partitions int, config map[string]string) *meta.Topic {
	b.t.Helper()
	parsed, err := commitlog.ParseConfig(config, func(string) (string, bool) { return "", false })
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.configs[name] = parsed
	b.mu.Unlock()
	b.ids++
	id := meta.TopicID{b.ids, 1}
	b.apply(func(a *meta.Apply) {
		a.Topics = []meta.TopicUpdate{{ID: id, Name: name}}
		for p := range partitions {
			a.Partitions = append(a.Partitions, meta.PartitionUpdate{ID: id, Partition: int32(p), State: b.value(meta.Partition{})})
		}
	})
	topic, found := b.Image().Topic(name)
	if !found {
		b.t.Fatalf("topic %s is not in the image", name)
	}
	return topic
}

// Set gives a partition another value; zero fields mean that this broker leads alone.
func (b *Broker) Set(topic *meta.Topic, partition int32, value meta.Partition) {
	b.t.Helper()
	b.apply(func(a *meta.Apply) {
		a.Partitions = []meta.PartitionUpdate{{ID: topic.ID, Partition: partition, State: b.value(value)}}
	})
}

// Delete removes a topic and its replicas.
func (b *Broker) Delete(topic *meta.Topic) {
	b.t.Helper()
	b.apply(func(a *meta.Apply) {
		a.Topics = []meta.TopicUpdate{{ID: topic.ID, Name: topic.Name, Deleted: true}}
		for p := range topic.Partitions {
			a.Partitions = append(a.Partitions, meta.PartitionUpdate{ID: topic.ID, Partition: int32(p), Absent: true})
		}
	})
}

// Live says that another broker is live in a broker epoch: its fetches count.
func (b *Broker) Live(broker meta.BrokerID, epoch int64) {
	b.t.Helper()
	b.apply(func(a *meta.Apply) { a.Brokers = []meta.Broker{{ID: broker, Epoch: epoch}} })
}

func (b *Broker) apply(fill func(*meta.Apply)) {
	b.t.Helper()
	b.revision++
	a := &meta.Apply{Controller: ID, ControllerEpoch: 1, Registration: 7, Revision: b.revision}
	fill(a)
	b.image.Store(b.Image().Apply(a))
	applied, err := b.Table.Apply(b.t.Context(), a)
	if err != nil || len(applied.Failed) > 0 {
		b.t.Fatalf("apply: %v, failed %v", err, applied.Failed)
	}
}

func (b *Broker) value(value meta.Partition) meta.Partition {
	if value.Leader == 0 {
		value.Leader = ID
	}
	if value.Replicas == nil {
		value.Replicas = []meta.BrokerID{ID}
	}
	if value.ISR == nil {
		value.ISR = []meta.BrokerID{ID}
	}
	value.MinISR = max(value.MinISR, 1)
	b.version++
	value.Version = b.version
	return value
}
