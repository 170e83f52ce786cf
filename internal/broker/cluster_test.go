package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// startCluster starts brokers 1 to n on ports of their own, over one registry in memory, and waits until all of them serve.
func startCluster(t *testing.T, n int) []*running {
	t.Helper()
	return startClusterWith(t, n, func(*Config) {})
}

// startClusterWith is startCluster of brokers whose configuration has more in it.
func startClusterWith(t *testing.T, n int, configure func(*Config)) []*running {
	t.Helper()
	store := registry.NewMemory()
	t.Cleanup(func() { _ = store.Close() })
	members := make([]ClusterBroker, n)
	for i := range members {
		members[i] = ClusterBroker{ID: meta.BrokerID(i + 1), Internal: Address{"127.0.0.1", 0}}
	}
	dir := t.TempDir()
	brokers := make([]*running, n)
	for i := range brokers {
		brokers[i] = launch(t, filepath.Join(dir, fmt.Sprint(i+1)), nil, func(c *Config) {
			c.BrokerID, c.Cluster, c.Registry = members[i].ID, members, store
			configure(c)
		})
	}
	for _, b := range brokers {
		b.wait()
	}
	for _, b := range brokers { // a broker serves once it is live itself; that all are may reach it later
		if err := b.state.until(t.Context(), func(image *meta.Image) bool {
			fenced := slices.ContainsFunc(image.Brokers(), func(other meta.Broker) bool { return other.Fenced })
			return len(image.Brokers()) == n && !fenced
		}); err != nil {
			t.Fatal(err)
		}
	}
	return brokers
}

// Partitions of a topic without replicas are spread over the brokers, each broker tells of all, and when the controller goes
// another one takes its place. (D5, D6)
func TestClusterServesFromEveryBroker(t *testing.T) {
	brokers := startCluster(t, 3)
	admin := kadm.NewClient(brokers[1].client())
	if _, err := admin.CreateTopic(t.Context(), 6, 1, nil, "spread"); err != nil {
		t.Fatal(err)
	}
	for _, b := range brokers {
		if err := b.state.until(t.Context(), func(image *meta.Image) bool {
			topic, known := image.Topic("spread")
			return known && len(topic.Partitions) == 6
		}); err != nil {
			t.Fatal(err)
		}
	}
	leaders := make(map[int32]int)
	details, err := kadm.NewClient(brokers[2].client()).ListTopics(t.Context(), "spread")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range details["spread"].Partitions {
		leaders[p.Leader]++
	}
	if len(leaders) != 3 || leaders[1] != 2 || leaders[2] != 2 || leaders[3] != 2 {
		t.Fatalf("partitions led by broker: %v", leaders)
	}
	client := brokers[0].client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(6) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "spread", Partition: p, Value: []byte{byte(p)}}).FirstErr(); err != nil {
			t.Errorf("produce to partition %d: %v", p, err)
		}
	}

	controller := brokers[0].state.load().Controller()
	brokers[controller-1].close()
	for i, b := range brokers {
		if b.config.BrokerID == controller {
			continue
		}
		if err := b.state.until(t.Context(), func(image *meta.Image) bool {
			self, found := image.Broker(b.config.BrokerID)
			return image.Controller() != controller && found && !self.Fenced
		}); err != nil {
			t.Fatalf("broker %d: %v", i+1, err)
		}
	}
	next := kadm.NewClient(brokers[controller%3].client())
	if _, err := next.CreateTopic(t.Context(), 2, 1, nil, "later"); err != nil {
		t.Errorf("under the next controller: %v", err)
	}
}

// A broker of a cluster that is asked to command a lone one says what is missing.
func TestPeerWithoutListener(t *testing.T) {
	p := newPeers(1, nil)
	if _, err := p.to(&meta.Broker{ID: 2}, commands); err == nil || err.Error() != "broker 2 has no listener for brokers; it was started without cluster.brokers" {
		t.Error(err)
	}
}

// Replicas change their order and leadership follows when it is asked to.
func TestClusterMovesLeadership(t *testing.T) {
	brokers := startCluster(t, 3)
	client := brokers[0].client()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 1, 2, nil, "moved"); err != nil {
		t.Fatal(err)
	}
	// A change is seen at once by whoever made it; clients ask any broker, so every one must have heard.
	awaitPartition := func(what string, satisfied func(*meta.Partition) bool) {
		t.Helper()
		for _, b := range brokers {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := b.state.until(ctx, func(image *meta.Image) bool {
				topic, known := image.Topic("moved")
				return known && topic.Partition(0) != nil && satisfied(topic.Partition(0))
			}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	var before meta.Partition
	awaitPartition("creation", func(p *meta.Partition) bool { before = p.Clone(); return true })
	turned := []int32{int32(before.Replicas[1]), int32(before.Replicas[0])}
	reassign := func(replicas []int32) error {
		t.Helper()
		var move kadm.AlterPartitionAssignmentsReq
		if replicas == nil {
			move.CancelAssign("moved", 0)
		} else {
			move.Assign("moved", 0, replicas)
		}
		results, err := admin.AlterPartitionAssignments(t.Context(), move)
		if err != nil {
			t.Fatal(err)
		}
		return results["moved"][0].Err
	}
	elect := func() error {
		t.Helper()
		results, err := admin.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, kadm.TopicsSet{"moved": {0: {}}})
		if err != nil {
			t.Fatal(err)
		}
		return results["moved"][0].Err
	}
	if err := elect(); !errors.Is(err, kerr.ElectionNotNeeded) {
		t.Errorf("elect the leader: %v", err)
	}
	if err := reassign(nil); !errors.Is(err, kerr.NoReassignmentInProgress) {
		t.Errorf("give up no move: %v", err)
	}
	if err := reassign([]int32{1, 9}); !errors.Is(err, kerr.InvalidReplicaAssignment) {
		t.Errorf("move to an unknown broker: %v", err)
	}
	if err := reassign(turned); err != nil {
		t.Fatal(err)
	}
	awaitPartition("the order changes", func(p *meta.Partition) bool {
		return p.Replicas[0] == before.Replicas[1] && p.Replicas[1] == before.Replicas[0] && p.Leader == before.Leader
	})
	if err := elect(); err != nil {
		t.Fatal(err)
	}
	awaitPartition("election", func(p *meta.Partition) bool {
		return p.Leader == p.Replicas[0] && p.LeaderEpoch == before.LeaderEpoch+1
	})
	// A move to the third broker ends by itself, and the old replica is deleted.
	third := 6 - turned[0] - turned[1]
	if err := reassign([]int32{third, turned[0]}); err != nil {
		t.Fatal(err)
	}
	awaitPartition("the move", func(p *meta.Partition) bool {
		return len(p.Adding)+len(p.Removing) == 0 && len(p.Replicas) == 2 && p.Replicas[0] == meta.BrokerID(third) && len(p.ISR) == 2
	})
	topic, _ := brokers[0].state.load().Topic("moved")
	for _, b := range brokers {
		if _, here := b.table.Get(topic.ID, 0); here == (b.config.BrokerID == meta.BrokerID(turned[1])) {
			t.Errorf("broker %d has a replica: %v", b.config.BrokerID, here)
		}
	}
	if err := reassign(nil); !errors.Is(err, kerr.NoReassignmentInProgress) {
		t.Errorf("give up a move that has ended: %v", err)
	}
}

// A broker that is about to stop gives its leadership away first, and stays registered until it has.
func TestClusterHandsOff(t *testing.T) {
	brokers := startCluster(t, 3)
	if _, err := kadm.NewClient(brokers[0].client()).CreateTopic(t.Context(), 6, 3, nil, "handed"); err != nil {
		t.Fatal(err)
	}
	leaving := brokers[1]
	if err := leaving.state.until(t.Context(), func(image *meta.Image) bool {
		_, known := image.Topic("handed")
		return known
	}); err != nil {
		t.Fatal(err)
	}
	if led := ledWithSuccessor(leaving.state.load(), 2); led != 2 {
		t.Fatalf("broker 2 leads %d of 6 partitions", led)
	}
	leaving.member.handOff(t.Context())
	image := leaving.state.load()
	if topic, _ := image.Topic("handed"); ledWithSuccessor(image, 2) != 0 || len(topic.Partitions[0].ISR) != 2 {
		t.Errorf("after the hand-off: %+v", topic.Partitions)
	}
	if self, found := image.Broker(2); !found || self.Fenced {
		t.Errorf("the leaving broker is %+v", self)
	}
}

// Three replicas hold the same; what was acknowledged by all of them survives the death of the leader, and the one that comes
// back catches up and enters the ISR again.
func TestClusterReplicates(t *testing.T) {
	brokers := startCluster(t, 3)
	seeds := kgo.SeedBrokers(brokers[0].Addrs()[0].String(), brokers[1].Addrs()[0].String(), brokers[2].Addrs()[0].String())
	client := brokers[0].client(seeds, kgo.DefaultProduceTopic("copied"), kgo.RequiredAcks(kgo.AllISRAcks()))
	two := "2"
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 3, map[string]*string{"min.insync.replicas": &two}, "copied"); err != nil {
		t.Fatal(err)
	}
	produce := func(from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			if err := client.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(n))).FirstErr(); err != nil {
				t.Fatalf("record %d: %v", n, err)
			}
		}
	}
	await := func(what string, b *running, satisfied func(*meta.Partition) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := b.state.until(ctx, func(image *meta.Image) bool {
			topic, known := image.Topic("copied")
			return known && topic.Partition(0) != nil && satisfied(topic.Partition(0))
		}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	produce(0, 50)
	var leader meta.BrokerID
	await("a leader", brokers[0], func(p *meta.Partition) bool { leader = p.Leader; return len(p.ISR) == 3 })
	dead := brokers[leader-1]
	witness := brokers[leader%3]
	dead.close()
	await("another leader", witness, func(p *meta.Partition) bool {
		return p.Leader != leader && p.Leader != meta.NoBroker && len(p.ISR) == 2
	})
	produce(50, 100)

	again := launch(t, dead.dir, nil, func(c *Config) { c.BrokerID, c.Cluster, c.Registry = leader, dead.config.Cluster, dead.config.Registry })
	again.wait()
	await("the old leader is in sync again", witness, func(p *meta.Partition) bool { return len(p.ISR) == 3 })
	produce(100, 150)
	brokers[leader-1] = again
	ends := make(map[int64]int)
	for _, b := range brokers {
		topic, _ := witness.state.load().Topic("copied")
		r, found := b.table.Get(topic.ID, 0)
		if !found {
			t.Fatalf("broker %d has no replica", b.config.BrokerID)
		}
		ends[r.EndOffset()]++
	}
	if ends[150] != 3 {
		t.Errorf("replicas by log end: %v", ends)
	}
	for i, value := range witness.read("copied", 0, 150) {
		if value != fmt.Sprint(i) {
			t.Fatalf("at %d: %q", i, value)
		}
	}
}

// A listener of a cluster's broker on every address is told as the host that the list has for the broker, unless another
// one is advertised.
func TestClusterAdvertisesItsList(t *testing.T) {
	store := registry.NewMemory()
	t.Cleanup(func() { _ = store.Close() })
	b := launch(t, filepath.Join(t.TempDir(), "1"), nil, func(c *Config) {
		c.Registry, c.Cluster = store, []ClusterBroker{{ID: 1, Internal: Address{"127.0.0.1", 0}}}
		c.Listeners = []Listener{
			{Name: "EVERY", Address: Address{"", 0}}, {Name: "TOLD", Address: Address{"", 0}, Advertised: &Address{"name", 1}}, {Name: "LOCAL", Address: Address{"::1", 0}},
		}
	}).wait()
	hosts := make(map[string]string)
	for _, e := range b.endpoints() {
		hosts[e.Listener] = e.Host
	}
	if hosts["EVERY"] != "127.0.0.1" || hosts["TOLD"] != "name" || hosts["LOCAL"] != "::1" {
		t.Errorf("told %v", hosts)
	}
}
