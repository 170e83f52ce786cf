// Package replicatest gives tests of packages above replica one broker's worth of real replicas: a table over real logs
// on a disk of the test's choice, and an image that agrees with it. Only tests import it.
package replicatest

import (
	"context"
	"path/filepath"
	"strconv"
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
	logs  *logs
	image atomic.Pointer[meta.Image]

	revision, version int64
	ids               byte
}

// New is a broker without topics whose data lie in dir on fs. Its logs are closed when the test ends. In a synctest
// bubble its group commits do not run by themselves.
func New(t testing.TB, fs vfs.FS, dir string) *Broker {
	t.Helper()
	syncer := commitlog.NewSyncer(fs, dir)
	b := &Broker{t: t, logs: &logs{fs: fs, dir: dir, syncer: syncer, open: map[meta.TopicIDPartition]*commitlog.Log{}}}
	b.logs.configs = map[string]commitlog.Config{}
	table, err := replica.NewTable(replica.Config{
		Broker: ID, Logs: b.logs, Syncer: syncer, ISR: b, TopicConfig: b.topicConfig,
	})
	if err != nil {
		t.Fatal(err)
	}
	table.Registered(7)
	b.Table = table
	b.image.Store(meta.NewImage("test-cluster"))
	t.Cleanup(b.logs.closeAll)
	return b
}

// Image is the cluster as the broker knows it.
func (b *Broker) Image() *meta.Image { return b.image.Load() }

// WriteFlushed implements replica.ISRWriter; nothing is written.
func (b *Broker) WriteFlushed(context.Context, meta.TopicIDPartition, meta.Partition) error {
	return nil
}

func (b *Broker) topicConfig(_ meta.TopicID, name string) commitlog.Config {
	b.logs.mu.Lock()
	defer b.logs.mu.Unlock()
	if config, found := b.logs.configs[name]; found {
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
	b.logs.mu.Lock()
	b.logs.configs[name] = parsed
	b.logs.mu.Unlock()
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

// logs is the least directory of logs.
type logs struct {
	fs     vfs.FS
	dir    string
	syncer *commitlog.Syncer

	mu      sync.Mutex
	open    map[meta.TopicIDPartition]*commitlog.Log
	configs map[string]commitlog.Config
}

func (l *logs) Partitions() []meta.TopicIDPartition {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []meta.TopicIDPartition
	for p := range l.open {
		all = append(all, p)
	}
	return all
}

func (l *logs) Open(topic string, p meta.TopicIDPartition, config commitlog.Config) (*commitlog.Log, error) {
	log, _, err := commitlog.Open(commitlog.Options{
		FS: l.fs, Dir: filepath.Join(l.dir, topic+"-"+strconv.Itoa(int(p.Partition))), Topic: topic, TopicID: p.Topic,
		Partition: p.Partition, Config: config, Syncer: l.syncer,
	})
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[p] = log
	return log, nil
}

func (l *logs) Delete(p meta.TopicIDPartition) error {
	l.mu.Lock()
	log, found := l.open[p]
	delete(l.open, p)
	l.mu.Unlock()
	if !found {
		return nil
	}
	return log.Close()
}

func (l *logs) Stray(p meta.TopicIDPartition) error { return l.Delete(p) }

func (l *logs) HighWatermark(string, int32) int64 { return 0 }

func (l *logs) closeAll() {
	for _, p := range l.Partitions() {
		_ = l.Delete(p) // the disk goes with the test
	}
}
