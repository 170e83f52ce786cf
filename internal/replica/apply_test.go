package replica

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// TestApplyRefusesWhole proves that an older controller, and a statement for another registration, change nothing. R-118
func TestApplyRefusesWhole(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "kept", meta.Partition{})
	newer := n.statement()
	newer.ControllerEpoch = 5
	n.apply(t, newer)
	for _, test := range []struct {
		spoil func(*meta.Apply)
		want  error
	}{
		{func(a *meta.Apply) { a.ControllerEpoch = 4 }, ErrStaleController},
		{func(a *meta.Apply) { a.ControllerEpoch, a.Registration = 6, 8 }, ErrOtherRegistration},
	} {
		a := n.statement()
		a.Topics = []meta.TopicUpdate{{ID: r.id, Deleted: true}}
		test.spoil(a)
		if _, err := n.table.Apply(t.Context(), a); !errors.Is(err, test.want) {
			t.Errorf("%v, want %v", err, test.want)
		}
	}
	n.produce(t, r, AcksAll, 1)
}

// TestApplyIgnoresOlderValues proves the order of values of one partition: (leader epoch, version). D5 D8
func TestApplyIgnoresOlderValues(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "ordered", meta.Partition{LeaderEpoch: 3})
	elsewhere := meta.Partition{Leader: 2, LeaderEpoch: 2, Replicas: []meta.BrokerID{2}, ISR: []meta.BrokerID{2}}
	if applied := n.apply(t, n.update(r, elsewhere)); len(applied.Gone) != 0 {
		t.Errorf("an older value took the replica away: %v", applied.Gone)
	}
	n.produce(t, r, AcksAll, 1)
	elsewhere.LeaderEpoch = 4
	if applied := n.apply(t, n.update(r, elsewhere)); len(applied.Gone) != 1 {
		t.Errorf("a newer value that assigns the partition elsewhere left the replica: %+v", applied)
	}
	if _, found := n.table.Get(r.id, 0); found {
		t.Error("the replica is still served")
	}
}

// TestDeletion proves that a deletion answers whoever waits, confirms by id, and is idempotent; and that a topic of the
// same name has a life of its own. U-55 U-59 R-122
func TestDeletion(t *testing.T) {
	n := newNode(t)
	old := n.create(t, "again", meta.Partition{Flush: true})
	p := n.produce(t, old, AcksAll, 1)
	_, fired := watchEnd(t, old)
	a := n.statement()
	a.Topics = []meta.TopicUpdate{{ID: old.id, Name: "again", Deleted: true}}
	a.Partitions = []meta.PartitionUpdate{{ID: old.id, Absent: true}}
	want := meta.TopicIDPartition{Topic: old.id}
	for range 2 {
		if applied := n.apply(t, a); !slices.Contains(applied.Gone, want) || len(applied.Failed) > 0 {
			t.Errorf("not confirmed: %+v", applied)
		}
	}
	if !errors.Is(p.Err(), ErrGone) || fired.Load() != 1 {
		t.Errorf("produce %v, fetch fired %d times", p.Err(), fired.Load())
	}
	if _, err := old.Append(t.Context(), AppendRequest{Batches: plain(t, 1), CurrentEpoch: meta.NoEpoch}); !errors.Is(err, ErrGone) {
		t.Errorf("append to the deleted replica: %v", err)
	}
	fresh := n.create(t, "again", meta.Partition{LeaderEpoch: 1})
	if _, found := n.table.Get(old.id, 0); found || fresh.id == old.id {
		t.Error("the old life is still served")
	}
	n.produce(t, fresh, AcksAll, 1)
}

// TestStrays proves that silence deletes nothing: what a complete statement does not mention is kept as a stray, and an
// incomplete or older one says nothing by its silence. U-54 U-57 U-64
func TestStrays(t *testing.T) {
	n := newNode(t)
	mentioned, silent := n.create(t, "mentioned", meta.Partition{}), n.create(t, "silent", meta.Partition{})
	n.produce(t, silent, AcksAll, 1)
	full := func() *meta.Apply {
		a := n.update(mentioned, meta.Partition{})
		a.Topics = []meta.TopicUpdate{{ID: mentioned.id, Name: "mentioned"}}
		a.Full = true
		return a
	}
	partial := full()
	partial.Full = false
	n.apply(t, partial)
	if _, found := n.table.Get(silent.id, 0); !found {
		t.Fatal("an incomplete statement took a replica away")
	}
	older := full()
	n.apply(t, &meta.Apply{ControllerEpoch: 1, Registration: 7, Revision: n.revision + 10, Full: true, Partitions: []meta.PartitionUpdate{
		{ID: mentioned.id, State: n.value(meta.Partition{})}, {ID: silent.id, State: n.value(meta.Partition{})},
	}})
	n.apply(t, older)
	if _, found := n.table.Get(silent.id, 0); !found {
		t.Fatal("a full statement of an older revision took a replica away")
	}
	n.revision += 20
	if applied := n.apply(t, full()); len(applied.Strays) != 1 || len(applied.Gone) != 0 {
		t.Errorf("strays %v, gone %v", applied.Strays, applied.Gone)
	}
	if kept := n.logs.Strays(); len(kept) != 1 || !strings.Contains(kept[0], "silent-0.") || !strings.HasSuffix(kept[0], "-stray") {
		t.Errorf("kept as strays: %v", kept)
	}
	if _, found := n.table.Get(mentioned.id, 0); !found {
		t.Error("what was mentioned is gone")
	}
}

// TestOneBadPartition proves that a log which cannot be opened stops nobody else, is reported, and comes back. U-56
func TestOneBadPartition(t *testing.T) {
	disk := vfs.NewMemory(1)
	// A file stands where the directory of the partition is to be.
	if err := disk.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	file, err := disk.Open("data/bad-0", os.O_RDWR|os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	n := newNodeOn(t, disk)
	id := meta.TopicID{200}
	a := n.statement()
	a.Topics = []meta.TopicUpdate{{ID: id, Name: "bad"}, {ID: meta.TopicID{201}, Name: "good"}}
	a.Partitions = []meta.PartitionUpdate{{ID: id, State: n.value(meta.Partition{})}, {ID: meta.TopicID{201}, State: n.value(meta.Partition{})}}
	if applied := n.apply(t, a); len(applied.Failed) != 1 {
		t.Errorf("failed: %v", applied.Failed)
	}
	if err := n.table.Offline(id, 0); !errors.Is(err, ErrStorage) {
		t.Errorf("offline: %v", err)
	}
	if good, found := n.table.Get(meta.TopicID{201}, 0); !found {
		t.Error("the good one is not served")
	} else {
		n.produce(t, good, AcksAll, 1)
	}
	if err := disk.Remove("data/bad-0"); err != nil {
		t.Fatal(err)
	}
	n.table.retryOffline(t.Context())
	if _, found := n.table.Get(id, 0); !found || n.table.Offline(id, 0) != nil {
		t.Error("it did not come back")
	}
}

// TestRestartResumes proves that a clean restart serves what was there, in the same epoch, without a new epoch entry. D8
func TestRestartResumes(t *testing.T) {
	n := newNode(t)
	r := n.create(t, "resumed", meta.Partition{LeaderEpoch: 3})
	n.produce(t, r, AcksAll, 4)
	value := r.State().Value
	n.close(t)
	if _, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), CurrentEpoch: meta.NoEpoch}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("append after Close: %v", err)
	}
	again := newNodeOn(t, n.disk)
	if again.logs.Summary().Scanned != 0 {
		t.Errorf("a clean start scanned logs: %+v", again.logs.Summary())
	}
	a := again.statement()
	a.Topics = []meta.TopicUpdate{{ID: r.id, Name: "resumed"}}
	a.Partitions = []meta.PartitionUpdate{{ID: r.id, State: value}}
	again.apply(t, a)
	resumed, found := again.table.Get(r.id, 0)
	if !found || resumed.HighWatermark() != 4 || len(resumed.log.Epochs()) != 1 {
		t.Fatalf("found %v, high watermark %d, epochs %v", found, resumed.HighWatermark(), resumed.log.Epochs())
	}
	again.produce(t, resumed, AcksAll, 1)
}

// TestFailedLog proves that a log which fails answers whoever waits, takes its partition offline, and nobody else. U-77
func TestFailedLog(t *testing.T) {
	disk := vfs.NewMemory(1)
	n := newNodeOn(t, disk)
	n.broken = true
	r, other := n.create(t, "fails", meta.Partition{Flush: true}), n.create(t, "other", meta.Partition{})
	n.produce(t, other, AcksAll, 1)
	p := n.produce(t, r, AcksAll, 1)
	_, fired := watchEnd(t, r)
	disk.FailAfter(0, syscall.EIO)
	if _, err := r.log.Sync(t.Context()); !errors.Is(err, ErrStorage) {
		t.Fatalf("sync on a broken disk: %v", err)
	}
	disk.FailAfter(0, nil)
	if len(n.table.failing) != 1 {
		t.Fatal("the table was not told")
	}
	n.table.failBroken()
	if !errors.Is(p.Err(), ErrStorage) || fired.Load() != 1 {
		t.Errorf("produce %v, fetch fired %d times", p.Err(), fired.Load())
	}
	if _, err := r.Append(t.Context(), AppendRequest{Batches: plain(t, 1), CurrentEpoch: meta.NoEpoch}); !errors.Is(err, ErrStorage) {
		t.Errorf("append to the failed replica: %v", err)
	}
	if served, offline := n.table.Len(); served != 1 || offline != 1 {
		t.Errorf("%d served, %d offline", served, offline)
	}
	n.produce(t, other, AcksAll, 1)
}
