package replica

import (
	"context"
	"errors"
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
	disk    vfs.FS
	broken  bool // the test breaks the disk: the stop may fail
	logs    *commitlog.Manager
	table   *Table
	flagged atomic.Int32 // times that `flushed` was written

	revision, version int64
	ids               byte
}

// WriteChanges counts the writes of `flushed`, and makes every change.
func (n *node) WriteChanges(_ context.Context, changes []PartitionChange) ([]ChangeOutcome, error) {
	var outcomes []ChangeOutcome
	for _, c := range changes {
		if c.Value.Flushed {
			n.flagged.Add(1)
		}
		current := c.Value
		n.version++
		current.Version = n.version
		outcomes = append(outcomes, ChangeOutcome{Current: current})
	}
	return outcomes, nil
}

// ReadValue knows nothing.
func (n *node) ReadValue(context.Context, meta.TopicIDPartition) (meta.Partition, error) {
	return meta.Partition{}, errors.New("no registry")
}

func newNode(t testing.TB) *node { return newNodeOn(t, vfs.NewMemory(1)) }

// newNodeOn is a node on a disk that may hold what an earlier one left.
func newNodeOn(t testing.TB, disk vfs.FS) *node { return newNodeIn(t, disk, "data") }

func newNodeIn(t testing.TB, disk vfs.FS, dir string) *node {
	t.Helper()
	n := &node{disk: disk}
	logs, err := commitlog.OpenManager(commitlog.ManagerOptions{
		FS: disk, Dir: dir, NodeID: 1, OnError: func(error) { n.table.LogFailed() },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := logs.SetCluster("test-cluster"); err != nil {
		t.Fatal(err)
	}
	config := commitlog.DefaultConfig()
	if _, err := logs.Load(t.Context(), func(string) commitlog.Config { return config }); err != nil {
		t.Fatal(err)
	}
	n.logs = logs
	n.table, err = NewTable(Config{
		Broker: 1, Logs: logs, ISR: n, TopicConfig: func(meta.TopicID, string) commitlog.Config { return config },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.table.Registered(7)
	t.Cleanup(func() { n.close(t) })
	return n
}

// close stops the node as a broker does.
func (n *node) close(t testing.TB) {
	t.Helper()
	n.table.Close()
	if err := n.logs.Close(-1); err != nil && !n.broken {
		t.Error(err)
	}
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
	for len(n.table.wanted) > 0 {
		n.table.exchange(ctx, []wanted{<-n.table.wanted})
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
