package broker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// running is a broker that a test has started.
type running struct {
	*Broker
	t    *testing.T
	dir  string
	stop context.CancelFunc
	done chan error
}

// patience bounds every wait of these tests: it is only ever reached by a broker that hangs.
const patience = 60 * time.Second

// start runs a broker in a directory, on ports of its own, and waits until it serves.
func start(t *testing.T, dir string, settings map[string]string) *running {
	t.Helper()
	b := launch(t, dir, settings)
	select {
	case <-b.Ready():
	case err := <-b.done:
		t.Fatalf("the broker ended: %v", err)
	case <-time.After(patience):
		t.Fatalf("the broker is not ready: %+v", b.phases.Status())
	}
	return b
}

// launch runs a broker without waiting.
func launch(t *testing.T, dir string, settings map[string]string) *running {
	t.Helper()
	config, err := ParseConfig(settings)
	if err != nil {
		t.Fatal(err)
	}
	config.DataDir, config.Version = dir, "test"
	config.Listeners = []Listener{{Name: "PLAINTEXT", Address: Address{"localhost", 0}}}
	config.Admin = &Address{"127.0.0.1", 0}
	if os.Getenv("TIDEMARK_TEST_LOG") != "" {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	b, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Broker: b, t: t, dir: dir, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- b.Run(ctx) }()
	t.Cleanup(func() { r.close() })
	return r
}

// close stops the broker; a second call does nothing.
func (r *running) close() {
	r.t.Helper()
	r.stop()
	select {
	case err, open := <-r.done:
		if !open {
			return
		}
		close(r.done)
		if err != nil {
			r.t.Errorf("the broker stopped with: %v", err)
		}
	case <-time.After(patience):
		r.t.Fatal("the broker does not stop")
	}
}

// client connects franz-go to the broker.
func (r *running) client(options ...kgo.Opt) *kgo.Client {
	r.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.Addrs()[0].String())}, options...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.Close)
	return client
}

// create makes a topic of one partition.
func (r *running) create(topic string, config map[string]string) {
	r.t.Helper()
	settings := make(map[string]*string)
	for key, value := range config {
		settings[key] = &value
	}
	if _, err := kadm.NewClient(r.client()).CreateTopic(r.t.Context(), 1, 1, settings, topic); err != nil {
		r.t.Fatal(err)
	}
}

// TestProduceConsume proves the main job, with every codec and all acks.
func TestProduceConsume(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		b.create("codec-"+name, nil)
		for _, acks := range []kgo.Acks{kgo.AllISRAcks(), kgo.LeaderAck(), kgo.NoAck()} {
			options := []kgo.Opt{kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks), kgo.DefaultProduceTopic("codec-" + name)}
			if acks != kgo.AllISRAcks() {
				options = append(options, kgo.DisableIdempotentWrite())
			}
			producer := b.client(options...)
			for i := range 100 {
				producer.Produce(ctx, kgo.StringRecord(name+string(rune('a'+i%26))), func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			if err := producer.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		consumer := b.client(kgo.ConsumeTopics("codec-"+name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for offset := int64(0); offset < 300; {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if r.Offset != offset || string(r.Value) != name+string(rune('a'+int(offset)%100%26)) {
					t.Fatalf("%s: offset %d %q, want offset %d", name, r.Offset, r.Value, offset)
				}
				offset++
			})
		}
	}
}
