package broker

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/commitlog"
)

// writeFixture makes the data directory that later builds must open. It is run once for each format version.
var writeFixture = flag.Bool("fixture", false, "write testdata/directory-VERSION.tar.gz instead of reading it")

const fixtureRecords = 30

// fixtureTopic is a topic of the fixture: what is set for it, and the values that it still holds, by their number.
type fixtureTopic struct {
	name   string
	config map[string]string
	first  int // of the values that are left
}

// fixtureTopics leave every kind of file behind: several segments, what compaction writes, a raised log start, a name that
// was used before.
var fixtureTopics = []fixtureTopic{
	{name: "plain"},
	{name: "configured", config: map[string]string{"retention.ms": "-1", "compression.type": "zstd"}},
	{name: "safe", config: map[string]string{"log.flush.acks": "true"}},
	{name: "rolled", config: map[string]string{"segment.ms": "1"}, first: 5},
	{name: "compacted", config: map[string]string{"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}, first: 17},
	{name: "again"},
}

// fixtureBrokerConfig is set at run time, for all brokers.
var fixtureBrokerConfig = map[string]string{"message.max.bytes": "2000000"}

// TestFixture proves that this build opens the data directories that earlier builds have left, and finds everything.
func TestFixture(t *testing.T) {
	if *writeFixture {
		makeFixture(t)
	}
	fixtures, err := filepath.Glob("testdata/directory-*.tar.gz")
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, fixture := range fixtures {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := unpack(fixture, dir); err != nil {
				t.Fatal(err)
			}
			openFixture(t, dir)
		})
	}
}

func openFixture(t *testing.T, dir string) {
	t.Helper()
	b := start(t, dir, map[string]string{"log.retention.ms": "-1"}) // the fixture gets old
	if summary := b.logs.Summary(); summary.Partitions != len(fixtureTopics) || summary.Scanned != 0 || len(summary.Quarantined) != 0 {
		t.Errorf("opened %+v", summary)
	}
	admin := b.admin()
	for _, topic := range fixtureTopics {
		for i, value := range b.read(topic.name, int64(topic.first), fixtureRecords-topic.first) {
			if want := fixtureValue(topic.name, topic.first+i); value != want {
				t.Fatalf("%s at %d: %q, want %q", topic.name, topic.first+i, value, want)
			}
		}
		described, err := admin.DescribeTopicConfigs(t.Context(), topic.name)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, topic.name, described, topic.config)
	}
	described, err := admin.DescribeBrokerConfigs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	checkConfig(t, "the broker", described, fixtureBrokerConfig)
	starts, err := admin.ListStartOffsets(t.Context(), "rolled")
	if err != nil {
		t.Fatal(err)
	}
	if start, _ := starts.Lookup("rolled", 0); start.Offset != 5 {
		t.Errorf("rolled starts at %d, want 5", start.Offset)
	}
	if epoch := b.leaderEpoch("again"); epoch < 1 {
		t.Errorf("the topic that was created again has leader epoch %d", epoch) // U-61
	}
	record := &kgo.Record{Key: []byte("k"), Value: []byte("new")}
	if err := b.client(kgo.DefaultProduceTopic("plain")).ProduceSync(t.Context(), record).FirstErr(); err != nil || record.Offset != fixtureRecords {
		t.Errorf("the next record: offset %d, %v", record.Offset, err)
	}
}

func checkConfig(t *testing.T, of string, described kadm.ResourceConfigs, want map[string]string) {
	t.Helper()
	found := make(map[string]string)
	for _, c := range described[0].Configs {
		found[c.Key] = c.MaybeValue()
	}
	for key, value := range want {
		if found[key] != value {
			t.Errorf("%s has %s=%s, want %s", of, key, found[key], value)
		}
	}
}

func fixtureValue(topic string, i int) string { return fmt.Sprintf("%s %d", topic, i) }

func makeFixture(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	b := launch(t, dir, map[string]string{"log.cleaner.backoff.ms": "10", "log.retention.ms": "-1"}, func(c *Config) { c.Host = "fixture" }).wait()
	ctx, admin := t.Context(), b.admin()
	b.create("again", nil)
	b.produceOne("again", "of the first life")
	if _, err := admin.DeleteTopics(ctx, "again"); err != nil {
		t.Fatal(err)
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for _, topic := range fixtureTopics {
		b.create(topic.name, topic.config)
		for i := range fixtureRecords {
			// Ten records are a segment where segment.ms is 1. Three keys are in use.
			record := &kgo.Record{Key: []byte{byte('a' + i%3)}, Value: []byte(fixtureValue(topic.name, i)), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i/10)*1000)}
			producer := b.client(kgo.DefaultProduceTopic(topic.name), kgo.ProducerBatchCompression(codecs[i%len(codecs)]))
			if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for b.read("compacted", 0, 1)[0] != fixtureValue("compacted", 17) {
		t.Log("not compacted yet")
	}
	remove := make(kadm.Offsets)
	remove.AddOffset("rolled", 0, 5, -1)
	if _, err := admin.DeleteRecords(ctx, remove); err != nil {
		t.Fatal(err)
	}
	var alter []kadm.AlterConfig
	for key, value := range fixtureBrokerConfig {
		alter = append(alter, kadm.AlterConfig{Name: key, Value: &value})
	}
	if _, err := admin.AlterBrokerConfigs(ctx, alter); err != nil {
		t.Fatal(err)
	}
	b.close()
	if err := pack(dir, fmt.Sprintf("testdata/directory-%d.tar.gz", commitlog.FormatVersion)); err != nil {
		t.Fatal(err)
	}
}

// notPacked are files that say nothing: the lock, the registry's ballast of zeros, and the name of a kernel that has
// stopped.
var notPacked = map[string]bool{".lock": true, "ballast": true, ".tidemark-boot-id": true}

// pack archives the regular files of a directory.
func pack(dir, name string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, compressed.Close()) }()
	archive := tar.NewWriter(compressed)
	defer func() { err = errors.Join(err, archive.Close()) }()
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || notPacked[entry.Name()] {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: filepath.ToSlash(rest), Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
}

func unpack(name, dir string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	archive := tar.NewReader(compressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
}
