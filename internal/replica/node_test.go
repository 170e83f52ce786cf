package replica

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a table over real logs on a disk in memory, and a controller's hand: tests say what the registry holds.
type node struct {
	table   *Table
	logs    *logs
	flagged atomic.Int32 // times that `flushed` was written

	revision, version int64
	ids               byte
}

// logs is the least directory of logs.
type logs struct {
	fs     vfs.FS
	dir    string
	syncer *commitlog.Syncer
	clean  bool
	broken string // topic whose logs cannot be opened

	mu     sync.Mutex
	open   map[meta.TopicIDPartition]*commitlog.Log
	strays []meta.TopicIDPartition
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
	if topic == l.broken {
		return nil, context.DeadlineExceeded
	}
	log, _, err := commitlog.Open(commitlog.Options{
		FS: l.fs, Dir: filepath.Join(l.dir, topic+"-"+strconv.Itoa(int(p.Partition))), Topic: topic, TopicID: p.Topic, Partition: p.Partition,
		Config: config, Clean: l.clean, Syncer: l.syncer,
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

func (l *logs) Stray(p meta.TopicIDPartition) error {
	l.mu.Lock()
	l.strays = append(l.strays, p)
	l.mu.Unlock()
	return l.Delete(p)
}

func (l *logs) HighWatermark(string, int32) int64 { return 0 }

// WriteFlushed counts.
func (n *node) WriteFlushed(context.Context, meta.TopicIDPartition, meta.Partition) error {
	n.flagged.Add(1)
	return nil
}

func newNode(t testing.TB) *node {
	disk := vfs.NewMemory(1)
	dir := "data"
	return newNodeOn(t, &logs{fs: disk, dir: dir, syncer: commitlog.NewSyncer(disk, dir), open: map[meta.TopicIDPartition]*commitlog.Log{}})
}

func newNodeOn(t testing.TB, l *logs) *node {
	t.Helper()
	n := &node{logs: l}
	var err error
	n.table, err = NewTable(Config{
		Broker: 1, Logs: l, Syncer: l.syncer, ISR: n,
		TopicConfig: func(meta.TopicID, string) commitlog.Config { return commitlog.DefaultConfig() },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.table.Registered(7)
	return n
}

// commit does the group commits that are asked for, and the writes of `flushed`.
func (n *node) commit(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	for r := range n.table.All() {
		if _, err := r.log.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for len(n.table.flags) > 0 {
		n.table.writeFlushed(ctx, <-n.table.flags)
	}
	cancel()
}

// statement is an Apply for this node, of the next revision.
func (n *node) statement() *meta.Apply {
	n.revision++
	return &meta.Apply{Controller: 1, ControllerEpoch: 1, Registration: 7, Revision: n.revision}
}

func (n *node) apply(t testing.TB, a *meta.Apply) Applied {
	t.Helper()
	applied, err := n.table.Apply(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// create makes a topic of one partition with this value, or what is missing in it: broker 1 leads alone.
func (n *node) create(t testing.TB, topic string, value meta.Partition) *Replica {
	t.Helper()
	n.ids++
	id := meta.TopicID{n.ids}
	a := n.statement()
	a.Topics = []meta.TopicUpdate{{ID: id, Name: topic}}
	a.Partitions = []meta.PartitionUpdate{{ID: id, State: n.value(value)}}
	if applied := n.apply(t, a); len(applied.Failed) > 0 {
		t.Fatalf("create: %v", applied.Failed)
	}
	r, found := n.table.Get(id, 0)
	if !found {
		t.Fatal("the replica is not there")
	}
	return r
}

func (n *node) value(value meta.Partition) meta.Partition {
	if value.Leader == 0 {
		value.Leader = 1
	}
	if value.Replicas == nil {
		value.Replicas = []meta.BrokerID{1}
	}
	if value.ISR == nil {
		value.ISR = []meta.BrokerID{1}
	}
	value.MinISR = max(value.MinISR, 1)
	n.version++
	value.Version = n.version
	return value
}

// update states a new value of a replica's partition.
func (n *node) update(r *Replica, value meta.Partition) *meta.Apply {
	a := n.statement()
	a.Partitions = []meta.PartitionUpdate{{ID: r.id, Partition: r.partition, State: n.value(value)}}
	return a
}
