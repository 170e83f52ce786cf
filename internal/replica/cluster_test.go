package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// cluster is some tables over disks in memory, whose followers fetch from each other directly, and a registry of values.
// Tests are the controller. It runs in a synctest bubble.
type cluster struct {
	t       *testing.T
	members map[meta.BrokerID]*member

	produced uint64

	mu       sync.Mutex
	values   map[meta.TopicIDPartition]meta.Partition
	names    map[meta.TopicID]string
	live     map[meta.BrokerID]int64
	revision int64
	silent   atomic.Bool  // the registry answers no writer
	changes  atomic.Int32 // that were written

	leaderRate, followerRate atomic.Int64 // bounds of throttled replicas
	fetches                  atomic.Int64
}

// fetchesMax is far above the fetches of any of these tests: more come of a lane that asks without a pause.
const fetchesMax = 1_000_000

type member struct {
	*cluster
	id       meta.BrokerID
	disk     *vfs.Memory
	logs     *commitlog.Manager
	table    *Table
	stop     context.CancelFunc
	stopSync func() // ends its group commits
	stopped  chan struct{}
	severed  atomic.Bool // nobody reaches it, and it reaches nobody
	sessions map[laneKey]*servedSession
	begun    map[laneKey]int // sessions that it began as a follower
}

var errSevered = errors.New("connection refused")

func newCluster(t *testing.T, brokers int) *cluster {
	c := &cluster{
		t: t, members: map[meta.BrokerID]*member{}, values: map[meta.TopicIDPartition]meta.Partition{}, names: map[meta.TopicID]string{},
		live: map[meta.BrokerID]int64{},
	}
	for i := range brokers {
		id := meta.BrokerID(i + 1)
		c.members[id] = &member{cluster: c, id: id, disk: vfs.NewMemory(uint64(id)), begun: map[laneKey]int{}}
		c.start(id)
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.kill()
			_ = m.logs.Close(-1)
		}
	})
	return c
}

// start starts a broker on what its disk holds, and unfences it in a new epoch.
func (c *cluster) start(id meta.BrokerID) {
	c.t.Helper()
	m := c.members[id]
	logs, err := commitlog.OpenManager(commitlog.ManagerOptions{FS: m.disk, Dir: "data", NodeID: id, BootID: "boot"})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := logs.SetCluster("test-cluster"); err != nil {
		c.t.Fatal(err)
	}
	config := commitlog.DefaultConfig()
	if _, err := logs.Load(c.t.Context(), func(string) commitlog.Config { return config }); err != nil {
		c.t.Fatal(err)
	}
	table, err := NewTable(Config{
		Broker: id, Logs: logs, ISR: m, Leaders: m, TopicConfig: func(meta.TopicID, string) commitlog.Config { return config },
		Throttle: ThrottleConfig{LeaderRate: c.leaderRate.Load, FollowerRate: c.followerRate.Load},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	table.Registered(7)
	c.mu.Lock()
	m.logs, m.table, m.sessions = logs, table, map[laneKey]*servedSession{}
	m.severed.Store(false)
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.stopped = cancel, make(chan struct{})
	go func() {
		defer close(m.stopped)
		_ = table.Run(ctx)
		m.stopSync()
	}()
	m.startSync()
	c.mu.Lock()
	c.revision++
	c.live[id] = c.revision
	c.mu.Unlock()
	c.broadcast()
}

// startSync lets a broker make group commits, until its stopSync.
func (m *member) startSync() {
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = m.logs.Syncer().Run(ctx) })
	m.stopSync = func() { cancel(); run.Wait() }
}

// kill ends a broker's process. The page cache survives.
func (m *member) kill() {
	m.severed.Store(true)
	m.table.Close()
	m.stop()
	<-m.stopped
}

// restart kills a broker and starts it again; lose says that its power failed in between.
func (c *cluster) restart(id meta.BrokerID, lose bool) {
	c.t.Helper()
	m := c.members[id]
	m.kill()
	if lose {
		m.disk = m.disk.Crash(vfs.Prefix)
	} else {
		_ = m.logs.Close(-1)
	}
	c.start(id)
}

// set writes a value as a controller would, and states it to everybody.
func (c *cluster) set(tp meta.TopicIDPartition, change func(*meta.Partition)) {
	c.mu.Lock()
	value := c.values[tp]
	next := value.Clone()
	change(&next)
	next.Version = value.Version + 1
	c.values[tp] = next
	c.mu.Unlock()
	c.broadcast()
	synctest.Wait()
}

// elect makes a broker leader, with this ISR.
func (c *cluster) elect(tp meta.TopicIDPartition, leader meta.BrokerID, isr ...meta.BrokerID) {
	c.set(tp, func(p *meta.Partition) { p.Leader, p.ISR = leader, isr; p.LeaderEpoch++ })
}

func (c *cluster) create(value meta.Partition) meta.TopicIDPartition {
	tp := meta.TopicIDPartition{Topic: meta.TopicID{byte(len(c.names) + 1)}}
	c.mu.Lock()
	c.names[tp.Topic] = fmt.Sprintf("topic%d", len(c.names))
	value.LeaderEpoch = -1
	c.values[tp] = value
	c.mu.Unlock()
	c.elect(tp, value.Leader, value.ISR...)
	settle(100 * time.Millisecond) // the first fetch may come before the leader knows its role
	return tp
}

// broadcast states everything to everybody that can be reached.
func (c *cluster) broadcast() {
	c.mu.Lock()
	c.revision++
	a := meta.Apply{Controller: 1, ControllerEpoch: 1, Registration: 7, Revision: c.revision}
	for id, name := range c.names {
		a.Topics = append(a.Topics, meta.TopicUpdate{ID: id, Name: name})
	}
	for tp, value := range c.values {
		a.Partitions = append(a.Partitions, meta.PartitionUpdate{ID: tp.Topic, Partition: tp.Partition, State: value.Clone()})
	}
	for id, epoch := range c.live {
		a.Brokers = append(a.Brokers, meta.Broker{ID: id, Epoch: epoch})
	}
	tables := map[meta.BrokerID]*Table{}
	for _, m := range c.members {
		if m.table != nil && !m.severed.Load() {
			tables[m.id] = m.table
		}
	}
	c.mu.Unlock()
	for id, table := range tables {
		if applied, err := table.Apply(context.Background(), &a); err != nil || len(applied.Failed) > 0 {
			c.t.Errorf("broker %d: apply: %v, failed %v", id, err, applied.Failed)
		}
	}
}

// WriteChanges is the registry's compare-and-set.
func (m *member) WriteChanges(_ context.Context, changes []PartitionChange) ([]ChangeOutcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.severed.Load() || m.silent.Load() {
		return nil, errSevered
	}
	var outcomes []ChangeOutcome
	for _, change := range changes {
		current := m.values[change.TopicIDPartition]
		ok := current.Version == change.Value.Version
		for _, j := range change.Joining {
			ok = ok && m.live[j.Broker] == j.Epoch
		}
		if ok {
			current = change.Value.Clone()
			current.Version++
			m.values[change.TopicIDPartition] = current
			m.changes.Add(1)
			go m.broadcast()
		}
		outcomes = append(outcomes, ChangeOutcome{Current: current.Clone()})
	}
	return outcomes, nil
}

// ReadValue reads the registry.
func (m *member) ReadValue(_ context.Context, tp meta.TopicIDPartition) (meta.Partition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value := m.values[tp]
	return value.Clone(), nil
}

// servedSession is the leader's half of a fetch session.
type servedSession struct {
	epoch      int32
	partitions map[meta.TopicIDPartition]FetchPartition
}

// Fetch asks another member's table, as a server would: with sessions, and parked until there is something to answer.
func (m *member) Fetch(ctx context.Context, leader meta.BrokerID, lane int, q *FetchRequest) (*FetchResponse, error) {
	to := m.members[leader]
	if m.fetches.Add(1) > fetchesMax {
		m.t.Error("fetches without an end")
		<-ctx.Done() // virtual time would not go on
		return nil, ctx.Err()
	}
	if m.severed.Load() || to.severed.Load() {
		return nil, errSevered
	}
	key := laneKey{m.id, lane}
	m.mu.Lock()
	s, table := to.sessions[key], to.table
	if q.Session == 0 {
		s = &servedSession{partitions: map[meta.TopicIDPartition]FetchPartition{}}
		to.sessions[key] = s
		m.begun[laneKey{leader, lane}]++
	}
	m.mu.Unlock()
	if s == nil || q.SessionEpoch != s.epoch {
		return &FetchResponse{Err: ErrSession}, nil
	}
	s.epoch++
	for _, p := range q.Partitions {
		s.partitions[p.TopicIDPartition] = p
	}
	for _, p := range q.Forgotten {
		delete(s.partitions, p)
	}
	deadline := time.Now().Add(q.WaitMax)
	for {
		response := &FetchResponse{Session: 1}
		answer := false
		waiter := make(chan struct{})
		w := NewWaiter(1, func() { close(waiter) })
		for _, p := range s.partitions {
			fetched, replica, result := serve(table, q, p)
			news := fetched.Err != nil || fetched.Diverging != nil || len(fetched.Records) > 0 || result.News
			answer = answer || news
			if news || q.SessionEpoch == 0 {
				response.Partitions = append(response.Partitions, fetched)
			}
			if !news {
				if !replica.Watch(w, result) {
					w.Fire()
				}
				defer replica.Unwatch(w)
			}
		}
		left := time.Until(deadline)
		if answer || left <= 0 {
			if m.severed.Load() || to.severed.Load() {
				return nil, errSevered
			}
			return response, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-waiter:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

func serve(table *Table, q *FetchRequest, p FetchPartition) (FetchedPartition, *Replica, ReadResult) {
	fetched := FetchedPartition{TopicIDPartition: p.TopicIDPartition}
	replica, found := table.Get(p.Topic, p.Partition)
	if !found {
		fetched.Err = ErrNotLeader
		return fetched, nil, ReadResult{}
	}
	result, err := replica.ReadForFollower(FollowerRead{
		Broker: q.Broker, BrokerEpoch: q.BrokerEpoch, Offset: p.Offset, LogStart: p.LogStart, CurrentEpoch: p.Epoch,
		LastFetchedEpoch: p.LastEpoch, KnownHigh: p.HighWatermark, BytesMax: p.BytesMax, MinOne: true,
	})
	fetched.Err, fetched.Diverging, fetched.HighWatermark, fetched.LogStart = err, result.Diverging, result.HighWatermark, result.LogStart
	fetched.Records = make([]byte, result.Records.Bytes())
	if err := result.Records.CopyTo(fetched.Records); err != nil {
		fetched.Err = err
	}
	replica.CountReplicated(result.Records.Bytes())
	result.Records.Release()
	return fetched, replica, result
}

// replica is a broker's replica.
func (c *cluster) replica(tp meta.TopicIDPartition, id meta.BrokerID) *Replica {
	c.t.Helper()
	r, found := c.members[id].table.Get(tp.Topic, tp.Partition)
	if !found {
		c.t.Fatalf("broker %d has no replica of %v", id, tp)
	}
	return r
}

// produce appends n records to the leader, each different from all others.
func (c *cluster) produce(tp meta.TopicIDPartition, leader meta.BrokerID, acks int16, n int) *Pending {
	c.t.Helper()
	return c.produceCompressed(tp, leader, acks, n, record.None)
}

// produceCompressed appends one batch of n records to the leader.
func (c *cluster) produceCompressed(tp meta.TopicIDPartition, leader meta.BrokerID, acks int16, n int, codec record.Codec) *Pending {
	c.t.Helper()
	b := record.NewBuilder(record.BuilderOptions{LeaderEpoch: -1, Codec: codec})
	for range n {
		c.produced++
		b.Append(time.Now().UnixMilli(), nil, binary.BigEndian.AppendUint64(nil, c.produced))
	}
	batch, err := b.Batch()
	if err != nil {
		c.t.Fatal(err)
	}
	p, err := c.replica(tp, leader).Append(c.t.Context(), AppendRequest{Batches: batch, CurrentEpoch: meta.NoEpoch, Acks: acks})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// bytesOf is a broker's whole log.
func (c *cluster) bytesOf(tp meta.TopicIDPartition, id meta.BrokerID) []byte {
	c.t.Helper()
	log := c.replica(tp, id).log
	var all []byte
	for offset := log.StartOffset(); offset < log.EndOffset(); {
		s, err := log.Read(offset, 1<<20, log.EndOffset(), true)
		if err != nil {
			c.t.Fatal(err)
		}
		buf := make([]byte, s.Bytes())
		if err := s.CopyTo(buf); err != nil {
			c.t.Fatal(err)
		}
		s.Release()
		all = append(all, buf...)
		offset = lastOffset(c.t, buf) + 1
	}
	return all
}

// equal checks that these brokers hold the same log, which ends at end, and know all of it as committed.
func (c *cluster) equal(tp meta.TopicIDPartition, end int64, ids ...meta.BrokerID) {
	c.t.Helper()
	want := c.bytesOf(tp, ids[0])
	for _, id := range ids {
		r := c.replica(tp, id)
		if r.EndOffset() != end || r.HighWatermark() != end {
			c.t.Errorf("broker %d: end %d, high watermark %d, want %d", id, r.EndOffset(), r.HighWatermark(), end)
		}
		if got := c.bytesOf(tp, id); !bytes.Equal(got, want) {
			c.t.Errorf("broker %d: %d bytes differ from broker %d's %d", id, len(got), ids[0], len(want))
		}
	}
}

// value is what the registry holds.
func (c *cluster) value(tp meta.TopicIDPartition) meta.Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	value := c.values[tp]
	return value.Clone()
}

// lastOffset is the last offset of whole batches.
func lastOffset(t *testing.T, batches []byte) int64 {
	t.Helper()
	last := int64(-1)
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if err != nil {
			t.Fatal(err)
		}
		last, batches = b.LastOffset(), rest
	}
	return last
}

func (c *cluster) isr(tp meta.TopicIDPartition) []meta.BrokerID {
	return slices.Sorted(slices.Values(c.value(tp).ISR))
}

var three = []meta.BrokerID{1, 2, 3}

// settle lets the cluster come to rest for a while.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// E-36, R-94…R-97: followers copy the leader's bytes; acks=all waits for all of them, consumers see what is committed.
func TestReplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		tp := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 2})
		for i := range 20 {
			p := c.produce(tp, 1, AcksAll, 1+i%3)
			settle(time.Millisecond)
			if !p.Completed() || p.Err() != nil {
				t.Fatalf("append %d: completed %v, %v", i, p.Completed(), p.Err())
			}
		}
		settle(time.Second)
		c.equal(tp, c.replica(tp, 1).EndOffset(), three...)
		if n := c.changes.Load(); n > 0 {
			t.Errorf("%d values were written", n)
		}
	})
}

// E-1: a follower that restarts with an old high watermark truncates nothing, so that it may lead.
func TestRestartedFollowerLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		tp := c.create(meta.Partition{Replicas: three[:2], Leader: 2, ISR: three[:2], MinISR: 1})
		p := c.produce(tp, 2, AcksAll, 2)
		settle(time.Second)
		if !p.Completed() {
			t.Fatal("not committed")
		}
		c.restart(1, false)
		c.members[2].kill()
		c.elect(tp, 1, 1)
		if end := c.replica(tp, 1).EndOffset(); end != 2 {
			t.Fatalf("the new leader's log ends at %d, want 2", end)
		}
		_ = c.members[2].logs.Close(-1)
		c.start(2)
		settle(time.Second)
		c.equal(tp, 2, 1, 2)
		if got := c.isr(tp); !slices.Equal(got, three[:2]) {
			t.Errorf("ISR %v", got)
		}
	})
}

// E-4, E-36, R-104: a leader that was cut off takes acks=1 records that nobody else has; they go when it follows again. An
// acks=all record is never acknowledged by it.
func TestOldLeaderRejoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		tp := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 2})
		c.produce(tp, 1, AcksAll, 4)
		settle(time.Second)
		c.members[1].severed.Store(true)
		c.produce(tp, 1, AcksLeader, 3)
		lost := c.produce(tp, 1, AcksAll, 3)
		c.elect(tp, 2, 2, 3)
		c.produce(tp, 2, AcksAll, 2)
		settle(time.Minute)
		if lost.Completed() {
			t.Fatalf("the old leader answered: %v", lost.Err())
		}
		c.members[1].severed.Store(false)
		c.broadcast()
		settle(2 * time.Second)
		if !errors.Is(lost.Err(), ErrNotLeader) {
			t.Errorf("the old leader answered %v", lost.Err())
		}
		c.equal(tp, 6, three...)
		if got := c.isr(tp); !slices.Equal(got, three) {
			t.Errorf("ISR %v", got)
		}
	})
}

// E-5, KIP-279: two leaders in quick succession, each with records of its own.
func TestFastFailoverDiverges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 1})
		c.produce(tp, 1, AcksAll, 10)
		settle(time.Second)
		c.members[1].severed.Store(true)
		c.elect(tp, 2, 2)
		c.produce(tp, 2, AcksLeader, 10) // 10-19 of epoch 1
		c.members[2].severed.Store(true)
		c.members[1].severed.Store(false)
		c.set(tp, func(p *meta.Partition) { p.Leader, p.ISR, p.UncleanEpoch = 1, three[:1], 2; p.LeaderEpoch++ })
		c.produce(tp, 1, AcksLeader, 5) // 10-14 of epoch 2
		c.members[1].severed.Store(true)
		c.members[2].severed.Store(false)
		c.set(tp, func(p *meta.Partition) { p.Leader, p.ISR, p.UncleanEpoch = 2, []meta.BrokerID{2}, 3; p.LeaderEpoch++ })
		c.members[1].severed.Store(false)
		c.broadcast()
		settle(2 * time.Second)
		c.equal(tp, 20, 1, 2)
	})
}

// E-3: batches of several records, whose bounds differ on both sides: the end of the follower's log, or of its lineage, lies
// within a batch of the leader, and it goes on all the same.
func TestBoundsOfBatchesDiffer(t *testing.T) {
	for _, c := range []struct{ old, fresh []int }{
		{[]int{3}, []int{5, 4}},    // the old leader's log ends within the new one's first batch
		{[]int{3, 4}, []int{2, 3}}, // and within its second, after a batch of its own that spans both
		{[]int{7}, []int{2, 2}},    // the old one has more
		{[]int{1, 1, 1}, []int{3}}, // the same offsets, in another number of batches
	} {
		for codec := record.None; codec <= record.Zstd; codec++ {
			t.Run(fmt.Sprintf("%v to %v in %s", c.old, c.fresh, codec), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { boundsDiffer(t, c.old, c.fresh, codec) })
			})
		}
	}
}

func boundsDiffer(t *testing.T, old, fresh []int, codec record.Codec) {
	c := newCluster(t, 2)
	tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 1})
	c.produceCompressed(tp, 1, AcksAll, 2, codec)
	settle(time.Second)
	c.members[1].severed.Store(true)
	for _, n := range old {
		c.produceCompressed(tp, 1, AcksLeader, n, codec)
	}
	c.elect(tp, 2, 2)
	end := int64(2)
	for _, n := range fresh {
		c.produceCompressed(tp, 2, AcksLeader, n, codec)
		end += int64(n)
	}
	c.members[1].severed.Store(false)
	c.broadcast()
	settle(2 * time.Second)
	c.equal(tp, end, 1, 2)
	if got := c.isr(tp); !slices.Contains(got, 1) {
		t.Errorf("ISR %v", got)
	}
}

// D9: a replica never cuts off what was committed without an unclean election that gave it up; with one it does.
func TestCommittedIsNotCutOff(t *testing.T) {
	for _, unclean := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2)
			tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 1})
			c.produce(tp, 1, AcksAll, 2)
			settle(time.Second)
			c.members[2].severed.Store(true)
			settle(time.Minute) // 2 leaves the ISR
			c.produce(tp, 1, AcksAll, 2)
			settle(time.Second)
			c.members[1].severed.Store(true)
			c.members[2].severed.Store(false)
			c.set(tp, func(p *meta.Partition) {
				p.Leader, p.ISR = 2, []meta.BrokerID{2}
				p.LeaderEpoch++
				if unclean {
					p.UncleanEpoch = p.LeaderEpoch
				}
			})
			c.produce(tp, 2, AcksAll, 1)
			c.members[1].severed.Store(false)
			c.broadcast()
			settle(2 * time.Second)
			if unclean {
				c.equal(tp, 3, 1, 2)
				return
			}
			if end := c.replica(tp, 1).EndOffset(); end != 4 {
				t.Errorf("the refusing replica's log ends at %d, want 4", end)
			}
			if got := c.isr(tp); !slices.Equal(got, []meta.BrokerID{2}) {
				t.Errorf("ISR %v", got)
			}
		})
	}
}

// KIP-966: a follower that lags leaves the ISR after replica.lag.time.max.ms, stays eligible while too few
// are in sync, and comes back when it has caught up.
func TestISRShrinksAndExpands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 2})
		c.members[2].severed.Store(true)
		waits := c.produce(tp, 1, AcksAll, 3)
		settle(29 * time.Second)
		if got := c.isr(tp); len(got) != 2 {
			t.Fatalf("ISR %v too early", got)
		}
		settle(5 * time.Second)
		if got := c.isr(tp); !slices.Equal(got, three[:1]) || !slices.Equal(c.value(tp).ELR, three[1:2]) {
			t.Fatalf("ISR %v, ELR %v", got, c.value(tp).ELR)
		}
		if waits.Completed() {
			t.Fatal("acknowledged with one replica of two")
		}
		c.members[2].severed.Store(false)
		settle(2 * time.Second)
		if got := c.isr(tp); !slices.Equal(got, three[:2]) || len(c.value(tp).ELR) > 0 {
			t.Fatalf("ISR %v, ELR %v", got, c.value(tp).ELR)
		}
		if !waits.Completed() || waits.Err() != nil {
			t.Fatalf("completed %v, %v", waits.Completed(), waits.Err())
		}
		c.equal(tp, 3, 1, 2)
	})
}

// D8: while the registry is silent, nothing is decided, and the change is made when it answers.
func TestSilentRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 1})
		c.members[2].severed.Store(true)
		c.silent.Store(true)
		waits := c.produce(tp, 1, AcksAll, 3)
		settle(time.Minute)
		if waits.Completed() {
			t.Fatal("the old member does not count while the change is not known to be made")
		}
		c.silent.Store(false)
		settle(5 * time.Second)
		if !waits.Completed() || !slices.Equal(c.isr(tp), three[:1]) {
			t.Fatalf("completed %v, ISR %v", waits.Completed(), c.isr(tp))
		}
	})
}

// D9: with log.flush.acks what is acknowledged survives a power cut of every replica at once.
func TestFlushedSurvivesPowerCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		tp := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 2, Flush: true})
		for range 5 {
			p := c.produce(tp, 1, AcksAll, 2)
			settle(10 * time.Millisecond)
			if !p.Completed() || p.Err() != nil {
				t.Fatalf("completed %v, %v", p.Completed(), p.Err())
			}
		}
		if !c.value(tp).Flushed {
			t.Error("the value is not marked as flushed")
		}
		for _, id := range three {
			c.restart(id, true)
		}
		c.elect(tp, 2, three...)
		settle(time.Second)
		c.equal(tp, 10, three...)
	})
}

// D9: in a flush partition a follower's fetch acknowledges what it has synced, not what it has written: while it makes no group
// commit, nothing new is acknowledged, although its log has it.
func TestFollowerAcknowledgesWhatIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 2, Flush: true})
		p := c.produce(tp, 1, AcksAll, 3)
		settle(100 * time.Millisecond)
		if !p.Completed() || p.Err() != nil {
			t.Fatalf("completed %v, %v", p.Completed(), p.Err())
		}
		m := c.members[2]
		m.stopSync()
		p = c.produce(tp, 1, AcksAll, 4)
		settle(5 * time.Second)
		follower := c.replica(tp, 2)
		if follower.EndOffset() != 7 || follower.SyncedOffset() != 3 {
			t.Fatalf("the follower has written up to %d and synced up to %d", follower.EndOffset(), follower.SyncedOffset())
		}
		if other := c.members[1].table.Account(tp).Others[0]; other.End != 3 || p.Completed() || c.replica(tp, 1).HighWatermark() != 3 {
			t.Errorf("the leader counts up to %d; acknowledged: %v", other.End, p.Completed())
		}
		m.startSync()
		settle(time.Second)
		if !p.Completed() || p.Err() != nil || c.replica(tp, 1).HighWatermark() != 7 {
			t.Errorf("after the group commit: completed %v, %v", p.Completed(), p.Err())
		}
	})
}

// E-47, R-116: a follower far behind starts over where the leader's log starts, also inside a batch.
func TestFollowerStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		tp := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:1], MinISR: 1})
		c.members[2].severed.Store(true)
		settle(time.Minute)
		for range 5 {
			c.produce(tp, 1, AcksAll, 4)
		}
		settle(time.Second)
		if _, err := c.replica(tp, 1).DeleteRecords(14); err != nil {
			t.Fatal(err)
		}
		c.members[2].severed.Store(false)
		settle(5 * time.Second)
		if r := c.replica(tp, 2); r.StartOffset() != 14 || r.EndOffset() != 20 || r.HighWatermark() != 20 {
			t.Fatalf("start %d, end %d, high watermark %d", r.StartOffset(), r.EndOffset(), r.HighWatermark())
		}
	})
}

// the low watermark is that of all live replicas; who waits for it hears when the last one has followed.
func TestDeleteRecordsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		tp := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 2})
		c.produce(tp, 1, AcksAll, 1)
		c.produce(tp, 1, AcksAll, 9)
		settle(time.Second)
		c.members[3].severed.Store(true)
		leader := c.replica(tp, 1)
		if offset, err := leader.DeleteRecords(4); err != nil || offset != 4 {
			t.Fatalf("offset %d, %v", offset, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if low, err := leader.AwaitLowWatermark(ctx, 4); !errors.Is(err, ErrTimedOut) || low != 0 {
			t.Errorf("with a silent replica: low watermark %d, %v", low, err)
		}
		c.members[3].severed.Store(false)
		if low, err := leader.AwaitLowWatermark(t.Context(), 4); err != nil || low != 4 {
			t.Errorf("low watermark %d, %v", low, err)
		}
		for _, id := range three {
			if start := c.replica(tp, id).StartOffset(); start != 4 {
				t.Errorf("broker %d's log starts at %d", id, start)
			}
		}
	})
}

// Many partitions share one fetch; each broker leads some of them.
func TestManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		all := map[meta.TopicIDPartition]meta.BrokerID{}
		for i := range 30 {
			leader := three[i%3]
			all[c.create(meta.Partition{Replicas: three, Leader: leader, ISR: three, MinISR: 2})] = leader
		}
		for tp, leader := range maps.All(all) {
			c.produce(tp, leader, AcksAll, 3)
		}
		settle(2 * time.Second)
		for tp := range all {
			c.equal(tp, 3, three...)
		}
	})
}

// A statement gives up the fetches of those lanes only whose partitions or terms it changes; a lane without partitions ends.
func TestStatementsDisturbWhomTheyConcern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		begun := func(follower, leader meta.BrokerID) int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.members[follower].begun[laneKey{leader, 0}]
		}
		first := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 2})
		settle(2 * time.Second)
		before := begun(3, 1)
		second := c.create(meta.Partition{Replicas: three[:2], Leader: 2, ISR: three[:2], MinISR: 1})
		c.set(first, func(p *meta.Partition) { p.MinISR = 1 })
		p := c.produce(first, 1, AcksAll, 1)
		settle(2 * time.Second)
		if got := begun(3, 1); got != before || !p.Completed() {
			t.Errorf("broker 3 began %d sessions with broker 1, then %d; committed %v", before, got, p.Completed())
		}
		c.elect(second, 1, three[:2]...)
		c.elect(first, 1, three...)
		settle(2 * time.Second)
		c.equal(first, 1, three...)
		if n := len(c.members[1].table.fetchers.mu.lanes); n != 0 {
			t.Errorf("broker 1, which leads everything, has %d lanes", n)
		}
	})
}
