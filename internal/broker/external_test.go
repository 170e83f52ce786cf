package broker

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// externalEtcd runs an etcd that belongs to no broker, and returns its endpoint.
func externalEtcd(t *testing.T) string {
	t.Helper()
	etcd, err := registry.StartEmbedded(t.Context(), registry.EmbeddedConfig{Dir: filepath.Join(t.TempDir(), "r"), BallastBytes: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Errorf("close etcd: %v", err)
		}
	})
	return "unix://" + etcd.SocketPath()
}

// Three brokers may keep their cluster in an etcd that somebody else runs: they replicate, another one leads when one stops,
// and nobody embeds a member. (issue 4, Build 1; D3)
func TestClusterOnExternalRegistry(t *testing.T) {
	endpoint := externalEtcd(t)
	dir := t.TempDir()
	list := make([]ClusterBroker, 3)
	for i := range list {
		list[i] = ClusterBroker{ID: meta.BrokerID(i + 1), Internal: Address{"127.0.0.1", 0}}
	}
	var brokers []*running
	for _, b := range list {
		brokers = append(brokers, launch(t, filepath.Join(dir, b.ID.String()), nil, func(c *Config) {
			c.BrokerID, c.Cluster, c.RegistryEndpoints = b.ID, list, []string{endpoint}
		}))
	}
	for _, b := range brokers {
		b.wait()
		if b.embedded != nil {
			t.Errorf("broker %s embeds a member", b.config.BrokerID)
		}
	}
	for _, b := range brokers {
		if err := b.state.until(t.Context(), func(image *meta.Image) bool {
			fenced := slices.ContainsFunc(image.Brokers(), func(other meta.Broker) bool { return other.Fenced })
			return len(image.Brokers()) == 3 && !fenced
		}); err != nil {
			t.Fatal(err)
		}
	}
	client := brokers[0].client(kgo.RetryTimeout(patience / 2))
	minISR := "2"
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 3, 3, map[string]*string{"min.insync.replicas": &minISR}, "outside"); err != nil {
		t.Fatal(err)
	}
	produce := func() {
		t.Helper()
		for p := range int32(3) {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "outside", Key: []byte{byte(p)}, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce()
	brokers[2].close()
	if err := brokers[0].state.until(t.Context(), func(image *meta.Image) bool {
		topic, found := image.Topic("outside")
		return found && !slices.ContainsFunc(topic.Partitions, func(p meta.Partition) bool { return p.Leader == 3 || slices.Contains(p.ISR, 3) })
	}); err != nil {
		t.Fatal(err)
	}
	produce()
	quorum, err := kmsg.NewPtrDescribeQuorumRequest().RequestWith(t.Context(), client)
	if err != nil || quorum.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("the quorum of a registry that is no broker's: %v, %v", quorum, err)
	}
}
