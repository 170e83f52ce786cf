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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/commitlog"
)

// writeFixture makes the data directory that later builds must open. It is run once for each format version.
var writeFixture = flag.Bool("fixture", false, "write testdata/directory-VERSION.tar.gz instead of reading it")

const fixtureRecords = 30

// fixtureTopics are the topics of the fixture and what is set for them.
var fixtureTopics = map[string]map[string]string{
	"plain":      nil,
	"configured": {"retention.ms": "-1", "compression.type": "zstd"},
	"safe":       {"log.flush.acks": "true"},
	"table":      {"cleanup.policy": "compact"},
}

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
			b := start(t, dir, nil)
			if summary := b.logs.Summary(); summary.Partitions != len(fixtureTopics) || summary.Scanned != 0 {
				t.Errorf("opened %+v", summary)
			}
			for topic, config := range fixtureTopics {
				values := b.read(topic, 0, fixtureRecords)
				for i, value := range values {
					if value != fixtureValue(topic, i) {
						t.Fatalf("%s at %d: %q", topic, i, value)
					}
				}
				described, err := b.admin().DescribeTopicConfigs(t.Context(), topic)
				if err != nil {
					t.Fatal(err)
				}
				found := make(map[string]string)
				for _, c := range described[0].Configs {
					found[c.Key] = c.MaybeValue()
				}
				for key, value := range config {
					if found[key] != value {
						t.Errorf("%s has %s=%s, want %s", topic, key, found[key], value)
					}
				}
			}
			record := &kgo.Record{Key: []byte("k"), Value: []byte("new")}
			if err := b.client(kgo.DefaultProduceTopic("plain")).ProduceSync(t.Context(), record).FirstErr(); err != nil || record.Offset != fixtureRecords {
				t.Errorf("the next record: offset %d, %v", record.Offset, err)
			}
		})
	}
}

func fixtureValue(topic string, i int) string { return fmt.Sprintf("%s %d", topic, i) }

func makeFixture(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	b := startWith(t, dir, func(c *Config) { c.Host = "fixture" })
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for topic, config := range fixtureTopics {
		b.create(topic, config)
		for i := range fixtureRecords {
			record := &kgo.Record{Key: []byte{byte('a' + i)}, Value: []byte(fixtureValue(topic, i))}
			producer := b.client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[i%len(codecs)]))
			if err := producer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
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
