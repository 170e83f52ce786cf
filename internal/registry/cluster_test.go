package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

func overClusters(t *testing.T, test func(t *testing.T, c *Cluster)) {
	overBackends(t, func(t *testing.T, s Store) { test(t, NewCluster(s, "1.0", testLogger(t))) })
}

func topicID(n int) meta.TopicID { return meta.TopicID{0: 4, 14: byte(n >> 8), 15: byte(n)} }

func directory(n byte) meta.DirectoryID { return meta.DirectoryID{0: 8, 15: n} }

func newTopic(n int, name string, partitions int) NewTopic {
	t := NewTopic{ID: topicID(n), Name: name}
	for range partitions {
		t.Partitions = append(t.Partitions, meta.Partition{
			Replicas: []meta.BrokerID{1}, Leader: 1, ISR: []meta.BrokerID{1}, MinISR: 1, Dirs: []meta.DirectoryID{directory(1)},
		})
	}
	return t
}

func create(t testing.TB, c *Cluster, topics ...NewTopic) (revision int64) {
	t.Helper()
	outcomes, err := c.CreateTopics(t.Context(), topics)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Err != nil {
			t.Fatalf("create %s: %v", topics[i].Name, o.Err)
		}
		revision = max(revision, o.Revision)
	}
	return revision
}

func remove(t testing.TB, c *Cluster, ids ...meta.TopicID) {
	t.Helper()
	outcomes, err := c.DeleteTopics(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Err != nil {
			t.Fatalf("delete %s: %v", ids[i], o.Err)
		}
	}
}

func snapshot(t testing.TB, c *Cluster) *State {
	t.Helper()
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func register(t testing.TB, c *Cluster, id meta.BrokerID, dir byte) Registered {
	t.Helper()
	r, err := c.Register(t.Context(), id, Registration{
		Directories: []meta.DirectoryID{directory(dir)},
		Endpoints:   []meta.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9092, Protocol: "PLAINTEXT"}}, Host: "box",
	}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func elect(t testing.TB, c *Cluster, id meta.BrokerID, r Registered) Seat {
	t.Helper()
	seat, won, err := c.Elect(t.Context(), id, r)
	if err != nil || !won {
		t.Fatalf("elect: %v, %t, %v", seat, won, err)
	}
	return seat
}

// An older build refuses a newer registry, by name; a data directory of another cluster is refused too.
func TestInitialize(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		for range 2 { // a refusal founds nothing
			if _, err := c.Initialize(t.Context(), "known", ""); !errors.Is(err, ErrNotFounded) {
				t.Fatalf("a lost registry: %v", err)
			}
		}
		for i, fresh := range []string{"first", "second", ""} {
			if id, err := c.Initialize(t.Context(), "", fresh); err != nil || id != "first" {
				t.Fatalf("start %d: %s, %v", i, id, err)
			}
		}
		if _, err := c.Initialize(t.Context(), "other", "x"); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("other cluster: %v", err)
		}
		put(t, c.store, formatKey, `{"version":2,"written_by":"9.9"}`)
		_, err := c.Initialize(t.Context(), "first", "x")
		want := "registry has a newer format: version 2, written by tidemark 9.9; this is tidemark 1.0, which reads up to version 1"
		if !errors.Is(err, ErrNewerFormat) || err.Error() != want {
			t.Errorf("newer: %v", err)
		}
	})
}

// A level is finalised only when every registered broker has it, and a broker that lacks what is finalised does not register;
// both errors name both sides. A broker that slipped in with the former levels takes the new ones back. (D16)
func TestFeatureLevels(t *testing.T) {
	overClusters(t, func(t *testing.T, old *Cluster) {
		next := NewCluster(old.store, "2.0", nil)
		next.features = []Feature{{TidemarkLevel, 1, 2}, {"metadata.version", 7, 33}, {"eligible.leader.replicas.version", 1, 1}}
		founded, err := old.Features(t.Context())
		if err != nil || founded.Revision != 0 || founded.Finalized[TidemarkLevel] != 1 {
			t.Fatalf("before anything was finalised: %+v, %v", founded, err)
		}
		first, err := old.Finalize(t.Context(), founded, old.newest())
		if err != nil {
			t.Fatal(err)
		}
		one := register(t, old, 1, 1)
		register(t, next, 2, 2)
		var lacking *FeatureError
		if _, err := next.Finalize(t.Context(), first, next.newest()); !errors.As(err, &lacking) ||
			err.Error() != "feature tidemark.version is at level 2 in this cluster, and broker 1 with tidemark 1.0 has the levels 1 to 1" {
			t.Errorf("a broker lacks the level: %v", err)
		}
		if now, err := old.Features(t.Context()); err != nil || now.Revision != first.Revision {
			t.Errorf("after a refusal: %+v, %v", now, err)
		}
		if err := old.Unregister(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if _, err := next.Finalize(t.Context(), founded, next.newest()); !errors.Is(err, ErrConflict) {
			t.Errorf("upon levels that have changed: %v", err)
		}
		second, err := next.Finalize(t.Context(), first, next.newest())
		if err != nil || second.Finalized[TidemarkLevel] != 2 {
			t.Fatalf("%+v, %v", second, err)
		}
		r := Registration{Directories: []meta.DirectoryID{directory(1)}}
		if _, err := old.Register(t.Context(), 1, r, time.Minute); !errors.As(err, &lacking) || lacking.Broker != 1 || lacking.Level != 2 {
			t.Errorf("a broker without the level joins: %v", err)
		}
		slipped := &interposed{Store: old.store, after: func() { put(t, old.store, registrationKey(3), `{"features":{"tidemark.version":1}}`) }}
		racing := NewCluster(slipped, "2.0", nil)
		if _, err := racing.Finalize(t.Context(), second, map[string]int16{TidemarkLevel: 2, "metadata.version": 32}); !errors.As(err, &lacking) || lacking.Broker != 3 {
			t.Errorf("a broker slipped in: %v", err)
		}
		if now, err := old.Features(t.Context()); err != nil || now.Finalized["metadata.version"] != 33 {
			t.Errorf("a broker that slipped in: %+v, %v", now, err)
		}

		var view FeatureView
		view.Advance(second)
		view.Advance(first)
		if view.Load().Revision != second.Revision {
			t.Error("the view went back")
		}
	})
}

// interposed does something after the first write through it.
type interposed struct {
	Store
	after func()
}

func (s *interposed) Txn(ctx context.Context, txn Txn) (TxnResult, error) {
	result, err := s.Store.Txn(ctx, txn)
	if s.after != nil {
		s.after()
		s.after = nil
	}
	return result, err
}

func TestInitializeKeepsKnownID(t *testing.T) {
	c := NewCluster(NewMemory(), "1.0", nil)
	if id, err := c.Initialize(t.Context(), "mine", "fresh"); err != nil || id != "mine" {
		t.Errorf("%s, %v", id, err)
	}
}

func TestProducerIDs(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		for i, want := range []int64{0, 1000, 2000} {
			if got, err := c.NextProducerIDs(t.Context(), meta.BrokerID(i), 1000); err != nil || got != want {
				t.Errorf("block %d: %d, %v", i, got, err)
			}
		}
	})
}

// D4: the keys and values that people see with etcdctl, and the commit points.
func TestKeysAndValues(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		topic := newTopic(1, "orders", 2)
		topic.Config = map[string]string{"retention.ms": "5"}
		create(t, c, topic)
		if got, want := list(t, c.store, Range{}), strings.Join([]string{
			`/config/topics/BAAAAAAAAAAAAAAAAAAAAQ={"retention.ms":"5"}`,
			`/names/orders={"id":"BAAAAAAAAAAAAAAAAAAAAQ"}`,
			`/topics/BAAAAAAAAAAAAAAAAAAAAQ={"name":"orders","partitions":2}`,
			`/topics/BAAAAAAAAAAAAAAAAAAAAQ/p/0={"replicas":[1],"leader":1,"leader_epoch":0,"isr":[1],"min_isr":1,"dirs":["CAAAAAAAAAAAAAAAAAAAAQ"]}`,
			`/topics/BAAAAAAAAAAAAAAAAAAAAQ/p/1={"replicas":[1],"leader":1,"leader_epoch":0,"isr":[1],"min_isr":1,"dirs":["CAAAAAAAAAAAAAAAAAAAAQ"]}`,
		}, " "); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		remove(t, c, topic.ID)
		if got, want := list(t, c.store, Range{}), strings.Join([]string{
			`/deleted/BAAAAAAAAAAAAAAAAAAAAQ={"name":"orders","partitions":2,"unconfirmed":[1]}`,
			`/epochs/orders={"leader_epoch":0}`,
		}, " "); got != want {
			t.Errorf("after deletion\n%s\nwant\n%s", got, want)
		}
	})
}

// U-92: creating a topic that exists changes nothing, and the others of the batch are created.
func TestCreateTopicsIndependently(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		create(t, c, newTopic(1, "a", 1))
		before := snapshot(t, c)
		outcomes, err := c.CreateTopics(t.Context(), []NewTopic{newTopic(2, "a", 1), newTopic(3, "b", 1)})
		if err != nil || !errors.Is(outcomes[0].Err, ErrTopicExists) || outcomes[1].Err != nil {
			t.Fatalf("got %+v, %v", outcomes, err)
		}
		after := snapshot(t, c)
		if !reflect.DeepEqual(before.Topics[topicID(1)], after.Topics[topicID(1)]) || after.Topics[topicID(2)] != nil {
			t.Errorf("the existing topic changed: %+v", after.Topics)
		}
		if after.Revision != outcomes[1].Revision+1 && after.Revision != outcomes[1].Revision {
			t.Errorf("revision %d, outcome %+v", after.Revision, outcomes[1])
		}
	})
}

// Many partitions are staged in batches and seen only when the name is there; a taken name leaves nothing behind.
func TestCreateBigTopic(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		create(t, c, newTopic(1, "big", 1000))
		s := snapshot(t, c)
		if topic := s.Topics[topicID(1)]; !s.Committed(topicID(1)) || topic.Count != 1000 || len(topic.Partitions) != 1000 {
			t.Fatalf("got %+v", topic)
		}
		for n := range int32(1000) {
			if s.Partition(meta.TopicIDPartition{Topic: topicID(1), Partition: n}) == nil {
				t.Fatalf("partition %d is missing", n)
			}
		}
		outcomes, err := c.CreateTopics(t.Context(), []NewTopic{newTopic(2, "big", 500)})
		if err != nil || !errors.Is(outcomes[0].Err, ErrTopicExists) {
			t.Fatalf("got %+v, %v", outcomes, err)
		}
		if got := list(t, c.store, Range{Prefix: topicKey(topicID(2))}); got != "" {
			t.Errorf("left behind: %s", got)
		}
	})
}

func TestCreateManyTopics(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		var topics []NewTopic
		var ids []meta.TopicID
		for i := range 300 {
			topics = append(topics, newTopic(i+1, fmt.Sprint("t", i), 1+i%3))
			ids = append(ids, topicID(i+1))
		}
		before := snapshot(t, c).Revision
		create(t, c, topics...)
		s := snapshot(t, c)
		if len(s.Names) != 300 || s.Revision-before > 5 {
			t.Errorf("%d topics in %d transactions", len(s.Names), s.Revision-before)
		}
		remove(t, c, ids...)
		if s := snapshot(t, c); len(s.Names) != 0 || len(s.Topics) != 0 || len(s.Deleted) != 300 {
			t.Errorf("left: %d names, %d topics; %d tombstones", len(s.Names), len(s.Topics), len(s.Deleted))
		}
	})
}

// U-61: a topic that is created again begins above the last leader epoch of its name.
func TestRecreatedTopicStartsAbove(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		seat := elect(t, c, 1, register(t, c, 1, 1))
		want := meta.Epoch(0)
		for life := range 3 {
			create(t, c, newTopic(life+1, "t", 2))
			tp := meta.TopicIDPartition{Topic: topicID(life + 1), Partition: 1}
			p, err := c.Partition(t.Context(), tp)
			if err != nil || p.LeaderEpoch != want {
				t.Fatalf("life %d begins with epoch %d, %v; want %d", life, p.LeaderEpoch, err, want)
			}
			p.LeaderEpoch += 4
			want = p.LeaderEpoch + 1
			if _, _, err := c.SetPartitions(t.Context(), GuardSeat(seat), []PartitionWrite{{TopicIDPartition: tp, Version: p.Version, State: p}}); err != nil {
				t.Fatal(err)
			}
			remove(t, c, tp.Topic)
		}
	})
}

// A topic whose values change while it is being deleted is read again: the kept epoch is the last one.
func TestDeleteSeesLastEpoch(t *testing.T) {
	memory := NewMemory()
	racing := &racer{Store: memory}
	c := NewCluster(racing, "1.0", nil)
	create(t, c, newTopic(1, "t", 1))
	racing.before = func() {
		p := newTopic(1, "t", 1).Partitions[0]
		p.LeaderEpoch = 9
		put(t, memory, partitionKey(topicID(1), 0), string(encode(&p)))
	}
	remove(t, c, topicID(1))
	if got := list(t, memory, Range{Prefix: epochPrefix}); got != `/epochs/t={"leader_epoch":9}` {
		t.Errorf("kept %s", got)
	}
}

// racer runs a function once, before the next transaction that deletes.
type racer struct {
	Store
	before func()
}

func (r *racer) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	if before := r.before; before != nil && len(t.Then) > 0 && t.Then[0].kind == opNest {
		r.before = nil
		before()
	}
	return r.Store.Txn(ctx, t)
}

func TestDeleteUnknownTopic(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		create(t, c, newTopic(1, "a", 1))
		outcomes, err := c.DeleteTopics(t.Context(), []meta.TopicID{topicID(7), {}, topicID(1)})
		if err != nil || !errors.Is(outcomes[0].Err, ErrUnknownTopic) || !errors.Is(outcomes[1].Err, ErrUnknownTopic) || outcomes[2].Err != nil {
			t.Fatalf("got %+v, %v", outcomes, err)
		}
	})
}

func TestAddPartitions(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		create(t, c, newTopic(1, "a", 2))
		more := newTopic(1, "a", 250).Partitions
		if _, err := c.AddPartitions(t.Context(), topicID(1), 3, more); !errors.Is(err, ErrConflict) {
			t.Errorf("wrong count: %v", err)
		}
		if _, err := c.AddPartitions(t.Context(), topicID(9), 2, more); !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("no topic: %v", err)
		}
		if s := snapshot(t, c); s.Topics[topicID(1)].Count != 2 || len(s.Topics[topicID(1)].Partitions) != 2 {
			t.Errorf("a refused call changed %+v", s.Topics[topicID(1)])
		}
		revision, err := c.AddPartitions(t.Context(), topicID(1), 2, more)
		s := snapshot(t, c)
		if err != nil || s.Topics[topicID(1)].Count != 252 || len(s.Topics[topicID(1)].Partitions) != 252 || s.Revision != revision {
			t.Errorf("got %v, %d partitions", err, s.Topics[topicID(1)].Count)
		}
	})
}

// Partitions beyond the count are being added: nobody sees them, and a later addition overwrites them.
func TestUnfinishedAddition(t *testing.T) {
	c := NewCluster(NewMemory(), "1.0", nil)
	create(t, c, newTopic(1, "a", 1))
	put(t, c.store, partitionKey(topicID(1), 1), string(encode(&newTopic(1, "a", 1).Partitions[0])))
	tp := meta.TopicIDPartition{Topic: topicID(1), Partition: 1}
	if snapshot(t, c).Partition(tp) != nil {
		t.Error("seen")
	}
	if _, err := c.AddPartitions(t.Context(), topicID(1), 1, newTopic(1, "a", 1).Partitions); err != nil {
		t.Fatal(err)
	}
	if snapshot(t, c).Partition(tp) == nil {
		t.Error("not seen")
	}
}

// D3, D8: one conflict does not undo the others; a deposed controller writes nothing; an added member must still be in
// the epoch of its fetch.
func TestSetPartitions(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		me := register(t, c, 1, 1)
		seat := elect(t, c, 1, me)
		create(t, c, newTopic(1, "a", 100))
		s := snapshot(t, c)
		epoch, err := c.Unfence(t.Context(), seat, *s.Brokers[1])
		if err != nil {
			t.Fatal(err)
		}
		write := func(n int32, version int64) PartitionWrite {
			p := s.Topics[topicID(1)].Partitions[n].Clone()
			p.LeaderEpoch++
			return PartitionWrite{TopicIDPartition: meta.TopicIDPartition{Topic: topicID(1), Partition: n}, Version: version, State: p}
		}
		writes := []PartitionWrite{write(0, 1), write(1, 5), {TopicIDPartition: meta.TopicIDPartition{Topic: topicID(3)}, Version: 1, State: write(0, 1).State}}
		for n := int32(2); n < 100; n++ {
			writes = append(writes, write(n, 1))
		}
		writes[3].Joining = []Joining{{Broker: 1, Epoch: epoch}}
		writes[4].Joining = []Joining{{Broker: 1, Epoch: epoch - 1}}
		outcomes, revision, err := c.SetPartitions(t.Context(), GuardSeat(seat), writes)
		if err != nil || len(outcomes) != len(writes) {
			t.Fatalf("%d outcomes, %v", len(outcomes), err)
		}
		for i, o := range outcomes {
			switch i {
			case 1, 4:
				if !errors.Is(o.Err, ErrConflict) || o.Current == nil || o.Current.Version != 1 || o.Current.LeaderEpoch != 0 {
					t.Errorf("write %d: %+v", i, o)
				}
			case 2:
				if !errors.Is(o.Err, ErrUnknownTopic) || o.Current != nil {
					t.Errorf("write %d: %+v", i, o)
				}
			default:
				if o.Err != nil || o.Current.Version != 2 || o.Current.LeaderEpoch != 1 {
					t.Errorf("write %d: %+v", i, o)
				}
			}
		}
		after := snapshot(t, c)
		if after.Revision != revision || !reflect.DeepEqual(*outcomes[0].Current, after.Topics[topicID(1)].Partitions[0]) {
			t.Errorf("stored %+v", after.Topics[topicID(1)].Partitions[0])
		}
		if outcomes, _, err := c.SetPartitions(t.Context(), GuardLive(1, epoch), []PartitionWrite{write(0, 2)}); err != nil || outcomes[0].Err != nil {
			t.Errorf("a live leader: %v, %v", outcomes, err)
		}
		for name, guard := range map[string]Guard{"deposed": GuardSeat(Seat{Revision: seat.Revision - 1}), "fenced": GuardLive(1, epoch-1)} {
			if _, _, err := c.SetPartitions(t.Context(), guard, []PartitionWrite{write(5, 2)}); !errors.Is(err, ErrDeposed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		bad := write(6, 2)
		bad.State.Leader = 9
		if _, _, err := c.SetPartitions(t.Context(), GuardSeat(seat), []PartitionWrite{bad}); err == nil {
			t.Error("a leader that is no replica was written")
		}
	})
}

// D11: a tombstone goes when every replica has confirmed.
func TestConfirmDeleted(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		seat := elect(t, c, 1, register(t, c, 1, 1))
		topic := newTopic(1, "a", 1)
		topic.Partitions[0].Replicas, topic.Partitions[0].Dirs = []meta.BrokerID{1, 2}, nil
		create(t, c, topic, newTopic(2, "b", 1))
		remove(t, c, topicID(1), topicID(2))
		if err := c.ConfirmDeleted(t.Context(), seat, snapshot(t, c).Deleted, 1); err != nil {
			t.Fatal(err)
		}
		left := snapshot(t, c).Deleted
		if len(left) != 1 || !slices.Equal(left[topicID(1)].Unconfirmed, []meta.BrokerID{2}) {
			t.Fatalf("left %+v", left)
		}
		if err := c.ConfirmDeleted(t.Context(), Seat{Revision: 1}, left, 2); !errors.Is(err, ErrDeposed) {
			t.Errorf("deposed: %v", err)
		}
		if err := c.ConfirmDeleted(t.Context(), seat, left, 2); err != nil {
			t.Fatal(err)
		}
		if got := list(t, c.store, Range{Prefix: deletedPrefix}); got != "" {
			t.Errorf("left %s", got)
		}
	})
}

// D4: what an unfinished creation left is collected; what was finished meanwhile is not.
func TestCollect(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		seat := elect(t, c, 1, register(t, c, 1, 1))
		put(t, c.store, topicKey(topicID(1)), `{"name":"a","partitions":1}`, topicConfigKey(topicID(1)), `{}`,
			partitionKey(topicID(1), 0), string(encode(&newTopic(1, "a", 1).Partitions[0])))
		s := snapshot(t, c)
		if s.Committed(topicID(1)) {
			t.Fatal("a topic without a name is committed")
		}
		put(t, c.store, nameKey("a"), string(encode(nameValue{ID: topicID(1)})))
		if err := c.Collect(t.Context(), seat, s.Topics[topicID(1)]); !errors.Is(err, ErrConflict) {
			t.Errorf("finished meanwhile: %v", err)
		}
		commit(t, c.store, Txn{Then: []Op{Delete(nameKey("a"))}})
		if err := c.Collect(t.Context(), seat, s.Topics[topicID(1)]); err != nil {
			t.Error(err)
		}
		if got := list(t, c.store, Range{Prefix: "/topics/"}) + list(t, c.store, Range{Prefix: configPrefix}); got != "" {
			t.Errorf("left %s", got)
		}
	})
}

func TestEditConfigs(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		create(t, c, newTopic(1, "a", 1))
		refused := errors.New("refused")
		set := func(key, value string) func(map[string]string) (map[string]string, error) {
			return func(values map[string]string) (map[string]string, error) {
				values[key] = value
				return values, nil
			}
		}
		results, revision, err := c.EditConfigs(t.Context(), []ConfigEdit{
			{Kind: meta.TopicResource, Topic: topicID(1), Edit: set("k", "1")},
			{Kind: meta.TopicResource, Topic: topicID(2), Edit: set("k", "1")},
			{Kind: meta.BrokerResource, Broker: "1", Edit: set("b", "2")},
			{Kind: meta.BrokerResource, Edit: set("d", "3")},
			{Kind: meta.BrokerResource, Broker: "7", Edit: func(map[string]string) (map[string]string, error) { return nil, refused }},
		})
		if err != nil || results[0] != nil || !errors.Is(results[1], ErrUnknownTopic) || results[2] != nil || results[3] != nil || !errors.Is(results[4], refused) {
			t.Fatalf("got %v, %v", results, err)
		}
		configs, at, err := c.Configs(t.Context())
		want := []ConfigChange{
			{Kind: meta.BrokerResource, Broker: "1", Values: map[string]string{"b": "2"}},
			{Kind: meta.BrokerResource, Values: map[string]string{"d": "3"}},
			{Kind: meta.TopicResource, Topic: topicID(1), Values: map[string]string{"k": "1"}},
		}
		if err != nil || at != revision || !reflect.DeepEqual(configs, want) {
			t.Errorf("got %+v at %d, %v; want %+v at %d", configs, at, err, want, revision)
		}
		clear := func(map[string]string) (map[string]string, error) { return nil, nil }
		if results, _, err := c.EditConfigs(t.Context(), []ConfigEdit{{Kind: meta.TopicResource, Topic: topicID(1), Edit: clear}}); err != nil || results[0] != nil {
			t.Error(results, err)
		}
		if got := list(t, c.store, Range{Prefix: topicConfigPrefix}); got != "" {
			t.Errorf("left %s", got)
		}
	})
}

// A watcher that fell behind the compaction reads everything anew.
func TestWatchAfterCompaction(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		s := snapshot(t, c)
		create(t, c, newTopic(1, "a", 1), newTopic(2, "b", 1))
		remove(t, c, topicID(2))
		_, revision, err := c.EditConfigs(t.Context(), []ConfigEdit{{Kind: meta.BrokerResource, Edit: func(map[string]string) (map[string]string, error) {
			return map[string]string{"k": "v"}, nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		compact(t, c.store, revision)
		var all []bool
		err = c.Watch(t.Context(), s, func(fold func() *Dirty) error {
			dirty := fold()
			if all = append(all, dirty.All); dirty.All {
				create(t, c, newTopic(3, "c", 1))
				return nil
			}
			return errEnough
		})
		if !errors.Is(err, errEnough) || !slices.Equal(all, []bool{true, false}) {
			t.Errorf("got %v, %v", all, err)
		}
		want := snapshot(t, c)
		if want.ConfigRevision = s.ConfigRevision; !reflect.DeepEqual(s, want) {
			t.Errorf("got %+v, want %+v", s, want)
		}
		err = c.WatchConfigs(t.Context(), 2, func(changes []ConfigChange, _ int64, full bool) error {
			if !full || len(changes) != 1 {
				t.Errorf("configurations: %+v, %t", changes, full)
			}
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			t.Error(err)
		}
	})
}

// Folding every change gives what a fresh reading gives, whatever happened.
func TestWatchEqualsSnapshot(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		s := snapshot(t, c)
		me := register(t, c, 1, 1)
		seat := elect(t, c, 1, me)
		create(t, c, newTopic(1, "a", 150), newTopic(2, "b", 2))
		if _, err := c.Unfence(t.Context(), seat, *snapshot(t, c).Brokers[1]); err != nil {
			t.Fatal(err)
		}
		put(t, c.store, "/topics/nonsense", "x", "/brokers/ids/-1", "{}", partitionKey(topicID(1), 0), "{}", "/other", "y", "/config/x", "z")
		remove(t, c, topicID(2))
		if _, err := c.AddPartitions(t.Context(), topicID(1), 150, newTopic(1, "a", 3).Partitions); err != nil {
			t.Fatal(err)
		}
		register(t, c, 1, 1)
		last := put(t, c.store, "/other", "end")
		err := c.Watch(t.Context(), s, func(fold func() *Dirty) error {
			fold()
			if s.Revision >= last {
				return errEnough
			}
			return nil
		})
		want := snapshot(t, c)
		// A reading never sees the unreadable value's predecessor; a watcher keeps what it knew.
		want.ConfigRevision = s.ConfigRevision
		want.Topics[topicID(1)].Partitions[0] = s.Topics[topicID(1)].Partitions[0]
		if !errors.Is(err, errEnough) || !reflect.DeepEqual(s, want) {
			t.Errorf("%v\ngot  %s\nwant %s", err, show(s), show(want))
		}
	})
}

func show(s *State) string {
	text, err := json.Marshal(struct {
		Names   map[string]meta.TopicID
		Brokers map[meta.BrokerID]*BrokerState
		Deleted []meta.TopicID
		Seat    Seat
		Rev     int64
		Topics  int
	}{s.Names, s.Brokers, slices.Collect(maps.Keys(s.Deleted)), s.Seat, s.Revision, len(s.Topics)})
	return fmt.Sprint(string(text), err)
}

func BenchmarkCreate10kPartitions(b *testing.B) {
	for _, backend := range backends[:2] {
		b.Run(backend.name, func(b *testing.B) {
			c := NewCluster(backend.open(b), "1.0", nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				create(b, c, newTopic(i, fmt.Sprint("t", i), 10_000))
			}
			b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "partitions/s")
		})
	}
}

// BenchmarkSnapshot10k is what a new controller reads.
func BenchmarkSnapshot10k(b *testing.B) {
	for _, backend := range backends {
		b.Run(backend.name, func(b *testing.B) {
			c := NewCluster(backend.open(b), "1.0", nil)
			create(b, c, newTopic(1, "t", 10_000))
			for b.Loop() {
				if s := snapshot(b, c); len(s.Topics[topicID(1)].Partitions) != 10_000 {
					b.Fatal("incomplete")
				}
			}
		})
	}
}
