package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testKeys are the keys that controller itself reads, and a list.
func testKeys(t testing.TB) *meta.ConfigKeys {
	t.Helper()
	keys, err := meta.NewConfigKeys([]meta.ConfigKey{
		{Name: minISRKey, Type: meta.IntType, Topic: true, Broker: true, HasDefault: true, Default: "1", Synonym: minISRKey, Valid: meta.AtLeast(1)},
		{Name: flushKey, Type: meta.BoolType, Topic: true, Broker: true, HasDefault: true, Default: "false", Synonym: flushKey},
		{Name: "retention.ms", Type: meta.LongType, Topic: true, HasDefault: true, Default: "604800000"},
		{Name: "cleanup.policy", Type: meta.ListType, Topic: true, HasDefault: true, Default: "delete", Valid: meta.ListOf("compact", "delete")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// balanceInterval is the time between looks at preferred leaders in these tests: longer than the others last.
const balanceInterval = 20 * time.Minute

// harness is a cluster of brokers that only listen, over one registry.
type harness struct {
	t       *testing.T
	store   registry.Store
	cluster *registry.Cluster
	keys    *meta.ConfigKeys

	mu struct {
		sync.Mutex
		images map[meta.BrokerID]*meta.Image
		sent   map[meta.BrokerID][]*meta.Apply
		fail   map[meta.BrokerID]error
		hold   map[meta.TopicID]bool
	}
}

func newHarness(t *testing.T) *harness {
	store := registry.NewMemory()
	h := &harness{t: t, store: store, cluster: registry.NewCluster(store, "1.0", nil), keys: testKeys(t)}
	h.mu.images = make(map[meta.BrokerID]*meta.Image)
	h.mu.sent = make(map[meta.BrokerID][]*meta.Apply)
	h.mu.fail = make(map[meta.BrokerID]error)
	h.mu.hold = make(map[meta.TopicID]bool)
	if _, err := h.cluster.Initialize(t.Context(), "", "cluster"); err != nil {
		t.Fatal(err)
	}
	return h
}

// Send implements Channel.
func (h *harness) Send(_ context.Context, to meta.Broker, a *meta.Apply) (Answer, error) {
	broker := to.ID
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.mu.fail[broker]; err != nil {
		return Answer{}, err
	}
	if h.mu.images[broker] == nil {
		h.mu.images[broker] = meta.NewImage("cluster")
	}
	h.mu.images[broker] = h.mu.images[broker].WithConfigRevision(a.ConfigRevision).Apply(a) // it has read them
	h.mu.sent[broker] = append(h.mu.sent[broker], a)
	answer := Answer{}
	for _, topic := range a.Topics {
		if topic.Deleted && h.mu.hold[topic.ID] {
			answer.Holding = append(answer.Holding, topic.ID)
		}
	}
	return answer, nil
}

func (h *harness) image(broker meta.BrokerID) *meta.Image {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.images[broker] == nil {
		return meta.NewImage("cluster")
	}
	return h.mu.images[broker]
}

func (h *harness) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *harness) register(id meta.BrokerID, clean bool) registry.Registered {
	h.t.Helper()
	me, err := h.cluster.Register(h.t.Context(), id, registry.Registration{
		Directories: []meta.DirectoryID{{15: byte(id)}}, Clean: clean,
	}, time.Hour)
	if err != nil {
		h.t.Fatal(err)
	}
	return me
}

// run starts a controller on a broker; stop ends it and returns what Run returned.
func (h *harness) run(id meta.BrokerID, me registry.Registered) (stop func() error) {
	return h.runOn(h.cluster, id, me)
}

func (h *harness) runOn(cluster *registry.Cluster, id meta.BrokerID, me registry.Registered) (stop func() error) {
	ctx, cancel := context.WithCancel(h.t.Context())
	result := make(chan error, 1)
	c := New(Config{Cluster: cluster, Broker: id, Channel: h, Keys: h.keys, BalanceEvery: balanceInterval, Logger: slog.New(slog.NewTextHandler(h.t.Output(), nil))})
	go func() { result <- c.Run(ctx, me) }()
	return func() error {
		cancel()
		return <-result
	}
}

func (h *harness) admin(broker meta.BrokerID) *Admin {
	return NewAdmin(AdminConfig{
		Cluster: h.cluster, Broker: broker, Image: func() *meta.Image { return h.image(broker) }, Random: rand.Reader, Keys: h.keys, Partitions: 1, Replication: 1,
	})
}

func (h *harness) create(broker meta.BrokerID, topics ...NewTopic) (revision int64) {
	h.t.Helper()
	results, revision, err := h.admin(broker).CreateTopics(h.t.Context(), topics, false)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := range results {
		if results[i].Err != nil {
			h.t.Fatalf("create %s: %v", topics[i].Name, results[i].Err)
		}
	}
	return revision
}

func (h *harness) state() *registry.State {
	h.t.Helper()
	synctest.Wait()
	s, err := h.cluster.Snapshot(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// settled says that a broker has been told exactly what the registry holds.
func (h *harness) settled(broker meta.BrokerID) {
	h.t.Helper()
	image, state := h.image(broker), h.state()
	want := meta.NewImage("cluster").Apply(statement(state, state.Seat, 0, marks{full: true}))
	if got, want := show(image), show(want); got != want || !image.Reflects(state.Revision) {
		h.t.Errorf("broker %d, revision %d of %d, knows\n%s\nthe registry holds\n%s", broker, image.Revision(), state.Revision, got, want)
	}
}

// joins lets the leader of a topic's first partition take a broker into the ISR.
func (h *harness) joins(topic string, id meta.BrokerID) {
	h.t.Helper()
	state := h.state()
	tp := meta.TopicIDPartition{Topic: state.Names[topic]}
	value := state.Partition(tp)
	next := value.Clone()
	next.ChangeISR(with(next.ISR, id))
	outcomes, _, err := h.cluster.SetPartitions(h.t.Context(), registry.GuardSeat(state.Seat), []registry.PartitionWrite{
		{TopicIDPartition: tp, Version: value.Version, State: next},
	})
	if err != nil || outcomes[0].Err != nil {
		h.t.Fatalf("%+v, %v", outcomes, err)
	}
}

func show(im *meta.Image) string {
	var out strings.Builder
	for _, b := range im.Brokers() {
		fmt.Fprintf(&out, "broker %d fenced=%t epoch=%d\n", b.ID, b.Fenced, b.Epoch)
	}
	for _, topic := range im.Topics() {
		fmt.Fprintf(&out, "topic %s %s config=%d\n", topic.Name, topic.ID, topic.ConfigRevision)
		for n, p := range topic.Partitions {
			fmt.Fprintf(&out, "  %d: leader %d epoch %d isr %v v%d\n", n, p.Leader, p.LeaderEpoch, p.ISR, p.Version)
		}
	}
	return out.String()
}

func partition(im *meta.Image, topic string, n int32) meta.Partition {
	t, found := im.Topic(topic)
	if !found || t.Partition(n) == nil {
		return meta.Partition{Leader: meta.NoBroker}
	}
	return *t.Partition(n)
}

// The life of a lone broker: registered fenced, unfenced after its first full statement, told everything that it asks for.
func TestLoneBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		if b, found := h.image(1).Broker(1); !found || b.Fenced || b.Epoch == 0 {
			t.Fatalf("not unfenced: %+v", b)
		}
		if !h.mu.sent[1][0].Full || !h.mu.sent[1][0].Brokers[0].Fenced {
			t.Errorf("the first statement: %+v", h.mu.sent[1][0])
		}
		revision := h.create(1, NewTopic{Name: "a", Partitions: 3, Replication: 1}, NewTopic{Name: "b", Partitions: -1, Replication: -1})
		if im := h.image(1); !im.Reflects(revision) || im.PartitionCount() != 4 || partition(im, "a", 2).Leader != 1 {
			t.Errorf("after creation: %s", show(im))
		}
		h.settled(1)
		if _, _, err := h.admin(1).CreatePartitions(t.Context(), []MorePartitions{{Name: "a", Count: 5}}, false); err != nil {
			t.Fatal(err)
		}
		if im := h.image(1); im.PartitionCount() != 6 {
			t.Errorf("after addition: %s", show(im))
		}
		if results, _, err := h.admin(1).DeleteTopics(t.Context(), []OldTopic{{Name: "a"}}); err != nil || results[0].Err != nil {
			t.Fatal(results, err)
		}
		h.settled(1)
		if s := h.state(); len(s.Deleted) != 0 || h.image(1).PartitionCount() != 1 {
			t.Errorf("after deletion: %+v", s.Deleted)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// D6, D9, E-8: a clean restart writes nothing, an unclean one raises the epoch before the broker is unfenced.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		h.create(1, NewTopic{Name: "a", Partitions: 130, Replication: 1})
		h.settled(1)
		for i, clean := range []bool{true, false, false, true} {
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			before := partition(h.image(1), "a", 129)
			h.set(func() { h.mu.sent[1] = nil })
			stop = h.run(1, h.register(1, clean))
			after := partition(h.image(1), "a", 129)
			if clean != (after.Version == before.Version) || clean != (after.LeaderEpoch == before.LeaderEpoch) || after.Leader != 1 {
				t.Errorf("restart %d, clean %t: %+v, then %+v", i, clean, before, after)
			}
			for _, a := range h.mu.sent[1] {
				for _, p := range a.Partitions {
					if p.State.LeaderEpoch != after.LeaderEpoch {
						t.Errorf("restart %d: told of epoch %d, the last is %d", i, p.State.LeaderEpoch, after.LeaderEpoch)
					}
				}
			}
			h.settled(1)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A broker that is fenced and comes back under the same registration is not swept as unclean a second time.
func TestRefencedIsNotSweptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, false))
		h.create(1, NewTopic{Name: "a", Partitions: 1, Replication: 1})
		s := h.state()
		if err := h.cluster.Fence(t.Context(), s.Seat, *s.Brokers[1]); err != nil {
			t.Fatal(err)
		}
		if b := h.state().Brokers[1]; b.Live == 0 || b.Live == s.Brokers[1].Live {
			t.Errorf("a wrong fencing does not heal: %+v", b)
		}
		if p := partition(h.image(1), "a", 0); p.LeaderEpoch != 0 || p.Version != 1 {
			t.Errorf("swept again: %+v", p)
		}
		h.settled(1)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Failover: the leader's broker goes, a member of the ISR leads; the controller's broker goes, another one governs.
func TestThreeBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		registered := make(map[meta.BrokerID]registry.Registered)
		stops := make(map[meta.BrokerID]func() error)
		for id := meta.BrokerID(1); id <= 3; id++ {
			registered[id] = h.register(id, true)
			stops[id] = h.run(id, registered[id])
			synctest.Wait()
		}
		h.create(2, NewTopic{Name: "a", Partitions: 30, Replication: 3})
		for id := range meta.BrokerID(3) {
			h.settled(id + 1)
		}
		first := h.state().Seat
		if first.Broker != 1 {
			t.Fatalf("seat %+v", first)
		}
		// Broker 1 dies: its lease takes registration, liveness and seat with it.
		if err := h.cluster.Unregister(t.Context(), registered[1]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := stops[1](); !errors.Is(err, registry.ErrLeaseGone) {
			t.Errorf("the dead broker's controller: %v", err)
		}
		s := h.state()
		if s.Seat.Broker == 1 || s.Seat.Epoch != first.Epoch+1 {
			t.Errorf("seat %+v", s.Seat)
		}
		for n := range int32(30) {
			p := partition(h.image(3), "a", n)
			if p.Leader == 1 || p.Leader == meta.NoBroker || p.InSync(1) || len(p.ISR) != 2 {
				t.Errorf("partition %d: %+v", n, p)
			}
		}
		h.settled(2)
		h.settled(3)
		// It comes back: unfenced, but in no ISR until a leader takes it in.
		stops[1] = h.run(1, h.register(1, true))
		if b := h.state().Brokers[1]; b.Live == 0 {
			t.Errorf("not unfenced: %+v", b)
		}
		h.settled(1)
		for id, stop := range stops {
			if err := stop(); err != nil {
				t.Errorf("broker %d: %v", id, err)
			}
		}
	})
}

// D5: what a broker was not told it is told later, all of it, in one statement of current values.
func TestUnreachableBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		h.register(2, true)
		h.create(1, NewTopic{Name: "a", Partitions: 2, Replication: 2})
		h.settled(2)
		h.set(func() { h.mu.fail[2] = errors.New("connection refused") })
		h.create(1, NewTopic{Name: "b", Partitions: 2, Replication: 1})
		if _, _, err := h.admin(1).DeleteTopics(t.Context(), []OldTopic{{Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		if s := h.state(); len(s.Deleted) != 1 {
			t.Errorf("tombstones %+v", s.Deleted)
		}
		h.settled(1)
		h.set(func() { h.mu.fail[2] = nil })
		time.Sleep(2 * retryMax)
		h.settled(2)
		if s := h.state(); len(s.Deleted) != 0 {
			t.Errorf("tombstones %+v", s.Deleted)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// D11: a tombstone stays while a broker still holds bytes; the broker is asked again.
func TestHoldingBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		h.create(1, NewTopic{Name: "a", Partitions: 2, Replication: 1})
		topic, _ := h.image(1).Topic("a")
		h.set(func() { h.mu.hold[topic.ID] = true })
		if _, _, err := h.admin(1).DeleteTopics(t.Context(), []OldTopic{{Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		if s := h.state(); !slices.Equal(s.Deleted[topic.ID].Unconfirmed, []meta.BrokerID{1}) {
			t.Errorf("tombstones %+v", s.Deleted)
		}
		// Neither another topic nor a restart waits for it.
		h.create(1, NewTopic{Name: "b", Partitions: 1, Replication: 1})
		h.settled(1)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		stop = h.run(1, h.register(1, true))
		if b := h.state().Brokers[1]; b.Live == 0 {
			t.Errorf("not unfenced: %+v", b)
		}
		h.set(func() { delete(h.mu.hold, topic.ID) })
		time.Sleep(2 * retryMax)
		if s := h.state(); len(s.Deleted) != 0 {
			t.Errorf("tombstones %+v", s.Deleted)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// D8: every new controller repairs min_isr and flush, and a running one follows the configuration.
func TestConfigurationReachesPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		h.create(1, NewTopic{Name: "a", Partitions: 1, Replication: 1})
		value := func(text string) *string { return &text }
		alter := func(r meta.ConfigResource, name, text string) {
			t.Helper()
			results, _, err := h.admin(1).AlterConfigs(t.Context(), []AlterConfig{{Resource: r, Changes: []Alteration{{Name: name, Value: value(text)}}}}, false)
			if err != nil || results[0] != nil {
				t.Fatal(results, err)
			}
		}
		alter(meta.TopicConfig("a"), flushKey, "true")
		if p := partition(h.image(1), "a", 0); !p.Flush || p.LeaderEpoch != 1 {
			t.Errorf("flush: %+v", p)
		}
		alter(meta.DefaultBrokerConfig, minISRKey, "2")
		if p := partition(h.image(1), "a", 0); p.MinISR != 2 {
			t.Errorf("the default of min_isr: %+v", p)
		}
		if topic, _ := h.image(1).Topic("a"); topic.ConfigRevision == 0 || h.image(1).ConfigRequired() <= topic.ConfigRevision {
			t.Errorf("configuration revisions: %d, %d", topic.ConfigRevision, h.image(1).ConfigRequired())
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		alter(meta.TopicConfig("a"), minISRKey, "3")
		stop = h.run(1, h.register(1, true))
		if p := partition(h.image(1), "a", 0); p.MinISR != 3 {
			t.Errorf("after a restart: %+v", p)
		}
		h.settled(1)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What an unfinished creation left is never told to anybody, and is collected after a while.
func TestOrphansAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		synctest.Wait()
		id := meta.TopicID{15: 9}
		_, err := h.store.Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.Put("/topics/"+id.String(), []byte(`{"name":"x","partitions":1}`)),
			registry.Put("/topics/"+id.String()+"/p/0", []byte(`{"replicas":[1],"leader":1,"leader_epoch":0,"isr":[1],"min_isr":1}`)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(h.image(1).Topics()); got != 0 {
			t.Errorf("%d topics are told", got)
		}
		time.Sleep(orphanAge / 3)
		if s := h.state(); s.Topics[id] == nil {
			t.Error("collected too early")
		}
		time.Sleep(2 * orphanAge)
		if s := h.state(); s.Topics[id] != nil {
			t.Error("not collected")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// crashing ends a controller's registry calls after a number of writes, in the middle of whatever it does.
type crashing struct {
	registry.Store
	mu   sync.Mutex
	left int
}

var errCrash = errors.New("crash")

func (c *crashing) Txn(ctx context.Context, t registry.Txn) (registry.TxnResult, error) {
	c.mu.Lock()
	c.left--
	dead := c.left < 0
	c.mu.Unlock()
	if dead {
		return registry.TxnResult{}, fmt.Errorf("%w: %w", registry.ErrFailed, errCrash)
	}
	return c.Store.Txn(ctx, t)
}

// A controller that dies after any number of its writes leaves a registry from which the next one brings every broker
// to the same end.
func TestCrashAtEveryStep(t *testing.T) {
	for steps := 0; ; steps++ {
		crashed := false
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			stop := h.run(1, h.register(1, true))
			synctest.Wait()
			h.register(2, true)
			h.create(1, NewTopic{Name: "a", Partitions: 70, Replication: 2}, NewTopic{Name: "b", Partitions: 3, Replication: 1})
			synctest.Wait()
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			// Both restart uncleanly, a topic goes and one comes, while the controller lives for some writes only.
			store := &crashing{Store: h.store, left: steps}
			me := h.register(1, false)
			h.register(2, false)
			if _, _, err := h.admin(1).DeleteTopics(t.Context(), []OldTopic{{Name: "b"}}); err != nil {
				t.Fatal(err)
			}
			stop = h.runOn(registry.NewCluster(store, "1.0", nil), 1, me)
			synctest.Wait()
			crashed = errors.Is(stop(), errCrash)
			stop = h.run(1, h.register(1, true))
			time.Sleep(retryMax) // sweeps of several brokers meet each other's values
			h.settled(1)
			h.settled(2)
			s := h.state()
			if len(s.Deleted) != 0 || s.Brokers[1].Live == 0 || s.Brokers[2].Live == 0 {
				t.Errorf("after %d steps: tombstones %v, brokers %+v %+v", steps, s.Deleted, s.Brokers[1], s.Brokers[2])
			}
			for n := range int32(70) {
				if p := partition(h.image(2), "a", n); p.LeaderEpoch == 0 && (p.Leader == 2 || p.InSync(2)) {
					t.Errorf("after %d steps: broker 2 leads on after an unclean start: %+v", steps, p)
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
		if !crashed || t.Failed() {
			if steps < 5 {
				t.Errorf("only %d steps", steps)
			}
			return
		}
	}
}
