package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// fetchedFrom counts the bytes of fetches by broker: a hook of a client.
type fetchedFrom struct {
	mu    sync.Mutex
	bytes map[int32]int
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (f *fetchedFrom) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key == wire.KeyFetch {
		f.bytes[broker.NodeID] += e2e.BytesRead
	}
}

func (f *fetchedFrom) of(id meta.BrokerID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes[int32(id)]
}

// A consumer that tells its rack reads from the replica in it, sees records as soon as they are committed, and one
// that comes when that replica's broker has gone reads from the leader. Metadata tells the racks. (KIP-392)
func TestClusterServesConsumersInTheirRack(t *testing.T) {
	brokers := startClusterWith(t, 3, func(c *Config) { c.Rack, c.RackAware = "rack"+c.BrokerID.String(), true })
	seeds := kgo.SeedBrokers(brokers[0].Addrs()[0].String(), brokers[1].Addrs()[0].String(), brokers[2].Addrs()[0].String())
	client := brokers[0].client(seeds, kgo.DefaultProduceTopic("near"), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 1, 3, nil, "near"); err != nil {
		t.Fatal(err)
	}
	for _, b := range brokers {
		if err := b.state.until(t.Context(), func(image *meta.Image) bool { _, known := image.Topic("near"); return known }); err != nil {
			t.Fatal(err)
		}
	}
	metadata, err := admin.Metadata(t.Context(), "near")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range metadata.Brokers {
		if want := fmt.Sprint("rack", b.NodeID); b.Rack == nil || *b.Rack != want {
			t.Errorf("rack of broker %d: %v", b.NodeID, b.Rack)
		}
	}
	leader := meta.BrokerID(metadata.Topics["near"].Partitions[0].Leader)
	follower := leader%3 + 1
	const records, size = 20, 10_000
	produce := func(n int) {
		t.Helper()
		for range n {
			if err := client.ProduceSync(t.Context(), kgo.StringRecord(strings.Repeat("x", size))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(records)
	var consumer *kgo.Client
	var seen *fetchedFrom
	start := func() {
		seen = &fetchedFrom{bytes: make(map[int32]int)}
		consumer = brokers[leader-1].client(seeds, kgo.ConsumeTopics("near"), kgo.Rack("rack"+follower.String()), kgo.WithHooks(seen),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	consume := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for n > 0 {
			fetches := consumer.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%d records are missing", n)
			}
			n -= fetches.NumRecords()
		}
	}
	start()
	consume(records)
	if near, far := seen.of(follower), seen.of(leader); near < records*size || far > size {
		t.Errorf("%d bytes from the replica in the rack, %d from the leader", near, far)
	}
	produce(records)
	consume(records)
	if near, far := seen.of(follower), seen.of(leader); near < 2*records*size || far > size {
		t.Errorf("later: %d bytes from the replica in the rack, %d from the leader", near, far)
	}

	// Who comes when the replica's broker has gone is not sent there.
	brokers[follower-1].close()
	produce(records)
	start()
	consume(3 * records)
	if far := seen.of(leader); far < 3*records*size {
		t.Errorf("%d bytes from the leader after the replica in the rack has gone", far)
	}
}
