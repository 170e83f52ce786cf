package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/meta"
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
	return launch(t, dir, settings, nil).wait()
}

// startWith is start with a configuration that the test changes.
func startWith(t *testing.T, dir string, change func(*Config)) *running {
	t.Helper()
	return launch(t, dir, nil, change).wait()
}

// wait returns when the broker serves.
func (r *running) wait() *running {
	t := r.t
	t.Helper()
	select {
	case <-r.Ready():
	case err := <-r.done:
		t.Fatalf("the broker ended: %v", err)
	case <-time.After(patience):
		t.Fatalf("the broker is not ready: %+v", r.phases.Status())
	}
	return r
}

// launch runs a broker without waiting.
func launch(t *testing.T, dir string, settings map[string]string, change func(*Config)) *running {
	t.Helper()
	config, err := ParseConfig(settings)
	if err != nil {
		t.Fatal(err)
	}
	config.DataDir, config.Version = dir, "test"
	config.Listeners = []Listener{{Name: "PLAINTEXT", Address: Address{"localhost", 0}}}
	config.Admin = &Address{"127.0.0.1", 0}
	if change != nil {
		change(&config)
	}
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
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.Addrs()[0].String()), kgo.MetadataMinAge(20 * time.Millisecond)}, options...)...)
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

// produceOne produces one record and returns its offset.
func (r *running) produceOne(topic, value string, options ...kgo.Opt) int64 {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	record, err := r.client(append(options, kgo.DefaultProduceTopic(topic))...).ProduceSync(ctx, kgo.StringRecord(value)).First()
	if err != nil {
		r.t.Fatal(err)
	}
	return record.Offset
}

// read consumes the values of a topic's partition 0 from an offset on, n of them.
func (r *running) read(topic string, from int64, n int) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	consumer := r.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))
	var values []string
	for len(values) < n {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			r.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func (r *running) admin() *kadm.Client { return kadm.NewClient(r.client()) }

// TestRestartKeepsEverything proves that a clean restart serves what was there, in the same leader epoch, without a scan,
// and that nothing was written into the registry about partitions. D8 D9
func TestRestartKeepsEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := start(t, dir, nil)
	b.create("kept", map[string]string{"retention.ms": "123456789"})
	for i := range 10 {
		if offset := b.produceOne("kept", string(rune('0'+i))); offset != int64(i) {
			t.Fatalf("record %d got offset %d", i, offset)
		}
	}
	before, _ := b.state.load().Topic("kept")
	b.close()
	if _, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Errorf("no mark of a clean shutdown: %v", err)
	}

	again := start(t, dir, nil)
	if summary := again.logs.Summary(); summary.Partitions != 1 || summary.Scanned != 0 {
		t.Errorf("a clean start scanned: %+v", summary)
	}
	after, found := again.state.load().Topic("kept")
	if !found || after.ID != before.ID || after.Partitions[0].Version != before.Partitions[0].Version || after.Partitions[0].LeaderEpoch != before.Partitions[0].LeaderEpoch {
		t.Errorf("after the restart %+v, before %+v", after, before)
	}
	if values := again.read("kept", 0, 10); values[0] != "0" || values[9] != "9" {
		t.Errorf("read %v", values)
	}
	if offset := again.produceOne("kept", "a"); offset != 10 {
		t.Errorf("the next record got offset %d", offset)
	}
	configs, err := again.admin().DescribeTopicConfigs(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() != "123456789" {
			t.Errorf("retention.ms is %q", c.MaybeValue())
		}
	}
}

// TestTopicLife proves creation with defaults and by metadata, deletion, a second life of the same name, more partitions,
// and DeleteRecords.
func TestTopicLife(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), map[string]string{"num.partitions": "3"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	admin := b.admin()
	b.produceOne("auto", "created by its first record", kgo.AllowAutoTopicCreation())
	if topics, err := admin.ListTopics(ctx, "auto"); err != nil || len(topics["auto"].Partitions) != 3 {
		t.Fatalf("auto-created: %v %v", topics, err)
	}
	b.create("lives", nil)
	b.produceOne("lives", "first life")
	first, _ := b.state.load().Topic("lives")
	for range 3 {
		if _, err := admin.DeleteTopic(ctx, "lives"); err != nil {
			t.Fatal(err)
		}
		b.create("lives", nil)
	}
	second, _ := b.state.load().Topic("lives")
	if second.ID == first.ID || second.Partitions[0].LeaderEpoch <= first.Partitions[0].LeaderEpoch {
		t.Errorf("the second life is %+v, the first was %+v", second, first) // U-61
	}
	if offset := b.produceOne("lives", "second life"); offset != 0 {
		t.Errorf("the second life starts at offset %d", offset)
	}
	if values := b.read("lives", 0, 1); values[0] != "second life" {
		t.Errorf("read %q", values)
	}
	if _, err := admin.CreatePartitions(ctx, 2, "lives"); err != nil {
		t.Fatal(err)
	}
	if topics, err := admin.ListTopics(ctx, "lives"); err != nil || len(topics["lives"].Partitions) != 3 {
		t.Errorf("after adding two: %v %v", topics, err)
	}

	b.create("cut", nil)
	for range 5 {
		b.produceOne("cut", "x")
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "cut", Partition: 0, At: 3})
	if answers, err := admin.DeleteRecords(ctx, offsets); err != nil || answers.Error() != nil {
		t.Fatalf("delete records: %v %v", answers, err)
	}
	if starts, err := admin.ListStartOffsets(ctx, "cut"); err != nil || starts["cut"][0].Offset != 3 {
		t.Errorf("start offsets: %v %v", starts, err)
	}
}

// TestConfigsReachTheLogs proves that a change of a topic's, and of the cluster's, configuration counts for the next
// append, and that log append time is stamped.
func TestConfigsReachTheLogs(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	admin := b.admin()
	b.create("tuned", nil)
	set := func(key, value string) []kadm.AlterConfig {
		return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
	}
	if answers, err := admin.AlterTopicConfigs(ctx, set("max.message.bytes", "500"), "tuned"); err != nil || answers[0].Err != nil {
		t.Fatalf("%v %v", answers, err)
	}
	big := func() *kgo.Record { return kgo.SliceRecord(make([]byte, 1000)) }
	producer := b.client(kgo.DefaultProduceTopic("tuned"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := producer.ProduceSync(ctx, big()).FirstErr(); err == nil {
		t.Error("a record above max.message.bytes was taken")
	}
	if answers, err := admin.AlterTopicConfigs(ctx, set("max.message.bytes", "5000"), "tuned"); err != nil || answers[0].Err != nil {
		t.Fatalf("%v %v", answers, err)
	}
	if answers, err := admin.AlterTopicConfigs(ctx, set("message.timestamp.type", "LogAppendTime"), "tuned"); err != nil || answers[0].Err != nil {
		t.Fatalf("%v %v", answers, err)
	}
	old := &kgo.Record{Value: []byte("x"), Timestamp: time.Unix(1000, 0)}
	if err := b.client(kgo.DefaultProduceTopic("tuned")).ProduceSync(ctx, old).FirstErr(); err != nil {
		t.Fatal(err)
	}
	consumer := b.client(kgo.ConsumeTopics("tuned"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := consumer.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	fetches.EachRecord(func(r *kgo.Record) {
		if r.Timestamp.Unix() == 1000 || r.Attrs.TimestampType() != 1 {
			t.Errorf("the record has the producer's time %v, type %d", r.Timestamp, r.Attrs.TimestampType())
		}
	})

	b.create("plain", nil)
	if answers, err := admin.AlterBrokerConfigs(ctx, set("message.max.bytes", "500")); err != nil || answers[0].Err != nil {
		t.Fatalf("%v %v", answers, err)
	}
	if err := b.client(kgo.DefaultProduceTopic("plain"), kgo.ProducerBatchCompression(kgo.NoCompression())).ProduceSync(ctx, big()).FirstErr(); err == nil {
		t.Error("a record above the cluster's message.max.bytes was taken")
	}
}

// TestFlushAcks proves that a partition with log.flush.acks answers after the group commit, that its leader marks the
// value as flushed, and that switching it off and on begins new epochs. D9
func TestFlushAcks(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.create("safe", map[string]string{"log.flush.acks": "true"})
	for _, acks := range []kgo.Acks{kgo.AllISRAcks(), kgo.LeaderAck()} {
		b.produceOne("safe", "x", kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
		topic, _ := b.state.load().Topic("safe")
		r, _ := b.table.Get(topic.ID, 0)
		if state := r.State(); r.SyncedOffset() != state.End || state.HighWatermark != state.End {
			t.Errorf("answered with end %d, synced %d, high watermark %d", state.End, r.SyncedOffset(), state.HighWatermark)
		}
	}
	topic, _ := b.state.load().Topic("safe")
	epoch := topic.Partitions[0].LeaderEpoch
	if !topic.Partitions[0].Flush {
		t.Error("the value does not say flush")
	}
	off := "false"
	if _, err := b.admin().AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.flush.acks", Value: &off}}, "safe"); err != nil {
		t.Fatal(err)
	}
	b.produceOne("safe", "x")
	if topic, _ := b.state.load().Topic("safe"); topic.Partitions[0].Flush || topic.Partitions[0].LeaderEpoch <= epoch {
		t.Errorf("after switching off: %+v", topic.Partitions[0])
	}
	if values := b.read("safe", 0, 3); len(values) != 3 {
		t.Errorf("read %v", values)
	}
}

// TestRefusals proves that what this version does not do is refused at once, not after a time-out.
func TestRefusals(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.create("t", nil)
	producer := b.client(kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("t"))
	err := producer.BeginTransaction()
	if err == nil {
		err = producer.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr()
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a transactional record: %v", err)
	}
}

// TestStartErrors proves that a start which cannot succeed explains itself.
func TestStartErrors(t *testing.T) {
	fault := func(r *running) StartFault {
		t.Helper()
		defer close(r.done)
		select {
		case err := <-r.done:
			var start *StartError
			if !errors.As(err, &start) {
				t.Fatalf("not a StartError: %v", err)
			}
			if start.Fix == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("no help: %v", err)
			}
			t.Log(err)
			return start.Fault
		case <-time.After(patience):
			t.Fatal("no end")
			return 0
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	b := start(t, dir, nil)
	if got := fault(launch(t, dir, nil, nil)); got != DirectoryLocked {
		t.Errorf("locked directory: %v", got)
	}
	b.close()
	if got := fault(launch(t, dir, map[string]string{"node.id": "2"}, nil)); got != OtherCluster {
		t.Errorf("other broker's directory: %v", got)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fault(launch(t, filepath.Join(file, "data"), nil, nil)); got != DirectoryUnusable {
		t.Errorf("a file in the path: %v", got)
	}
	b = start(t, dir, nil)
	b.create("kept", nil)
	if err := b.client().ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte("one")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.close()
	if err := os.Rename(filepath.Join(dir, registryDir), filepath.Join(t.TempDir(), "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if got := fault(launch(t, dir, nil, nil)); got != OtherCluster {
		t.Errorf("the registry is lost: %v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept-0")); err != nil {
		t.Errorf("a partition was touched: %v", err)
	}
	properties := filepath.Join(dir, "meta.properties")
	text, err := os.ReadFile(properties)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(text), "tidemark.format.version=1", "tidemark.format.version=99", 1)
	if err := os.WriteFile(properties, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := fault(launch(t, dir, nil, nil)); got != NewerFormat {
		t.Errorf("newer format: %v", got)
	}
}

// TestDiskFullEndToEnd proves that a nearly full disk refuses produce while everything else goes on, and that produce
// comes back by itself. U-72
func TestDiskFullEndToEnd(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 40)
	b := startWith(t, filepath.Join(t.TempDir(), "data"), func(c *Config) {
		c.FreeBytes = func(string) (uint64, uint64, error) { return free.Load(), 1 << 40, nil }
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.create("full", nil)
	b.produceOne("full", "x")
	free.Store(100 << 20)
	producer := b.client(kgo.DefaultProduceTopic("full"), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	for producer.ProduceSync(ctx, kgo.StringRecord("y")).FirstErr() == nil {
		if ctx.Err() != nil {
			t.Fatal("produce goes on with 100 MiB free")
		}
	}
	if values := b.read("full", 0, 1); values[0] != "x" {
		t.Errorf("read %v", values)
	}
	b.create("other", nil)
	if _, err := b.admin().DeleteTopic(ctx, "other"); err != nil {
		t.Errorf("delete: %v", err)
	}
	free.Store(1 << 40)
	for producer.ProduceSync(ctx, kgo.StringRecord("z")).FirstErr() != nil {
		if ctx.Err() != nil {
			t.Fatal("produce does not come back")
		}
	}
}

// leaderEpoch is the leader epoch of partition 0 of a topic.
func (r *running) leaderEpoch(topic string) meta.Epoch {
	r.t.Helper()
	found, ok := r.state.load().Topic(topic)
	if !ok {
		r.t.Fatalf("no topic %s", topic)
	}
	return found.Partitions[0].LeaderEpoch
}

// TestCompaction proves that a compacted topic is compacted while the broker runs, that the last record of each key stays
// where it was, and that records without a key are refused.
func TestCompaction(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), map[string]string{"log.cleaner.backoff.ms": "10"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.create("table", map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"})
	producer := b.client(kgo.DefaultProduceTopic("table"), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(100_000))
	if err := producer.ProduceSync(ctx, kgo.StringRecord("no key")).FirstErr(); err == nil {
		t.Error("a record without a key was taken")
	}
	value := make([]byte, 10_000)
	const records = 300 // three segments
	for i := range records {
		record := &kgo.Record{Key: []byte{byte(i % 3)}, Value: value}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	topic, _ := b.state.load().Topic("table")
	r, _ := b.table.Get(topic.ID, 0)
	admin := b.admin()
	for r.Size() > 2<<20 {
		if _, err := admin.ListEndOffsets(ctx, "table"); err != nil { // a round trip, so as not to spin
			t.Fatalf("%d bytes are left: %v", r.Size(), err)
		}
	}
	consumer := b.client(kgo.ConsumeTopics("table"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	last := make(map[byte]int64)
	for end := int64(0); end < records; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { last[r.Key[0]], end = r.Offset, r.Offset+1 })
	}
	for key := range byte(3) {
		if want := int64(records - 3 + int(key)); last[key] != want {
			t.Errorf("the last record of key %d is at %d, want %d", key, last[key], want)
		}
	}
}
