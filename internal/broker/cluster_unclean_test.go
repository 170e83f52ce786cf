package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/meta"
)

const keptRecords = 10

// TestCommonPowerCut: all brokers lose power at once, and two of three lose records. Nobody leads until all are back; then
// the longest copy does, and the others copy what they lost. (D9, E-2)
func TestCommonPowerCut(t *testing.T) {
	value := commonPowerCut(t, nil, func(brokers []*running) {
		for _, i := range []int{0, 2} {
			loseTail(t, filepath.Join(brokers[i].dir, "kept-0", "00000000000000000000.log"))
		}
	})
	if value.Leader != 2 || value.UncleanEpoch != value.LeaderEpoch {
		t.Errorf("leader %d in epoch %d, last unclean epoch %d", value.Leader, value.LeaderEpoch, value.UncleanEpoch)
	}
}

// TestCommonPowerCutWithFlush: with log.flush.acks nobody has lost anything that was acknowledged, so everybody keeps its
// place, and no election gives anything up. (D9)
func TestCommonPowerCutWithFlush(t *testing.T) {
	value := commonPowerCut(t, map[string]string{"log.flush.acks": "true"}, func([]*running) {})
	if value.UncleanEpoch != 0 && bootID() != "" {
		t.Errorf("epoch %d began with an unclean election", value.UncleanEpoch)
	}
}

// commonPowerCut writes records to a topic on three brokers, cuts the power of all, loses what lose takes, and starts them
// again. When all are in sync it reads the records and returns the partition's value.
func commonPowerCut(t *testing.T, configs map[string]string, lose func(brokers []*running)) meta.Partition {
	t.Helper()
	brokers := startCluster(t, 3)
	client := brokers[0].client(kgo.RequiredAcks(kgo.AllISRAcks()))
	min3 := "3"
	all := map[string]*string{"min.insync.replicas": &min3}
	for key, value := range configs {
		all[key] = &value
	}
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 3, all, "kept"); err != nil {
		t.Fatal(err)
	}
	for i := range keptRecords {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()
	awaitKept(t, brokers, func(p *meta.Partition) bool { return p.Flush == p.Flushed })

	var stops sync.WaitGroup
	for _, b := range brokers {
		stops.Go(b.close)
	}
	stops.Wait()
	for _, b := range brokers {
		loseBoot(t, b.dir)
	}
	lose(brokers)

	again := make([]*running, len(brokers))
	for i, b := range brokers {
		again[i] = launch(t, b.dir, nil, func(c *Config) {
			c.BrokerID, c.Cluster, c.Registry = b.config.BrokerID, b.config.Cluster, b.config.Registry
		})
	}
	for _, b := range again {
		b.wait()
	}
	value := awaitKept(t, again, func(p *meta.Partition) bool { return len(p.ISR) == 3 && p.Leader != meta.NoBroker })
	if got := again[0].read("kept", 0, keptRecords); len(got) != keptRecords {
		t.Errorf("%d of %d records are left", len(got), keptRecords)
	}
	return value
}

// awaitKept waits until every broker has heard of a value that satisfies.
func awaitKept(t *testing.T, brokers []*running, satisfied func(*meta.Partition) bool) (value meta.Partition) {
	t.Helper()
	for _, b := range brokers {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := b.state.until(ctx, func(image *meta.Image) bool {
			topic, known := image.Topic("kept")
			if !known || topic.Partition(0) == nil {
				return false
			}
			value = topic.Partition(0).Clone()
			return satisfied(&value)
		})
		cancel()
		if err != nil {
			t.Fatalf("%v; the value is %+v", err, value)
		}
	}
	return value
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
