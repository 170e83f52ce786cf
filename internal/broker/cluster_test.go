package broker

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// startCluster starts brokers 1 to n on ports of their own, over one registry in memory, and waits until all of them serve.
func startCluster(t *testing.T, n int) []*running {
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
		})
	}
	for _, b := range brokers {
		b.wait()
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
	if _, err := p.to(&meta.Broker{ID: 2}); err == nil || err.Error() != "broker 2 has no listener for brokers; it was started without cluster.brokers" {
		t.Error(err)
	}
}
