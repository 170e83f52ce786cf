package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestCommonPowerCut: all brokers lose power at once, and two of three lose records. Nobody leads until all are back; then
// the longest copy does, and the others copy what they lost. (D9, E-2)
func TestCommonPowerCut(t *testing.T) {
	brokers := startCluster(t, 3)
	client := brokers[0].client(kgo.RequiredAcks(kgo.AllISRAcks()))
	min3 := "3"
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 3, map[string]*string{"min.insync.replicas": &min3}, "kept"); err != nil {
		t.Fatal(err)
	}
	const records = 10
	for i := range records {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()

	var all sync.WaitGroup
	for _, b := range brokers {
		all.Go(b.close)
	}
	all.Wait()
	for i, b := range brokers {
		loseBoot(t, b.dir)
		if i != 1 {
			loseTail(t, filepath.Join(b.dir, "kept-0", "00000000000000000000.log"))
		}
	}

	again := make([]*running, len(brokers))
	for i, b := range brokers {
		again[i] = launch(t, b.dir, nil, func(c *Config) {
			c.BrokerID, c.Cluster, c.Registry = b.config.BrokerID, b.config.Cluster, b.config.Registry
		})
	}
	for _, b := range again {
		b.wait()
		if err := b.state.until(t.Context(), func(image *meta.Image) bool {
			topic, known := image.Topic("kept")
			return known && len(topic.Partitions[0].ISR) == 3
		}); err != nil {
			t.Fatal(err)
		}
	}
	topic, _ := again[0].state.load().Topic("kept")
	if p := topic.Partitions[0]; p.Leader != 2 || p.UncleanEpoch != p.LeaderEpoch {
		t.Errorf("leader %d in epoch %d, last unclean epoch %d", p.Leader, p.LeaderEpoch, p.UncleanEpoch)
	}
	if got := again[0].read("kept", 0, records); len(got) != records {
		t.Errorf("%d of %d records are left", len(got), records)
	}
}

// loseBoot makes a data directory that of a machine which has lost its power since.
func loseBoot(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".tidemark-boot-id"), []byte("another boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// loseTail cuts the second half of a segment.
func loseTail(t *testing.T, segment string) {
	t.Helper()
	info, err := os.Stat(segment)
	if err == nil {
		err = os.Truncate(segment, info.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}
