//go:build diskfull

package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestDiskFull fills a file system of 512 MiB: produce is refused, consuming and admin go on, a start with no free byte
// works, and deleting a topic brings produce back. It mounts a tmpfs, so it wants root: `make disk-full`. (U-72, U-73)
func TestDiskFull(t *testing.T) {
	mount := filepath.Join(t.TempDir(), "small")
	if err := os.MkdirAll(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", mount).CombinedOutput(); err != nil {
		t.Fatalf("mount a tmpfs (this test wants root): %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	dir := filepath.Join(mount, "data")
	broker, err := startChild(t, dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broker.createTopic(t, "fills", "--partitions", "1", "--set", "segment.bytes=16777216")
	broker.createTopic(t, "keeps", "--partitions", "1")
	if err := produceOne(t, broker, "keeps", []byte("kept")); err != nil {
		t.Fatal(err)
	}

	value := make([]byte, 256<<10)
	if _, err := rand.Read(value); err != nil {
		t.Fatal(err)
	}
	refused := fill(t, broker, value)
	if !errors.Is(refused, kerr.KafkaStorageError) {
		t.Fatalf("produce on the full disk: got %v, want KAFKA_STORAGE_ERROR\n%s", refused, broker.log())
	}
	t.Logf("refused with %v, %d MiB free", refused, freeMiB(t, mount))
	stillServes(t, broker)

	// Somebody else takes the last byte.
	if err := takeAll(filepath.Join(mount, "ballast-of-somebody-else")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB free after somebody else filled the rest", freeMiB(t, mount))
	stillServes(t, broker)
	if err := broker.stop(); err != nil {
		t.Errorf("stop on the full disk: %v\n%s", err, broker.log())
	}
	// What the broker gave back to stay alive is taken too: it starts with no reserve of its own.
	if err := takeAll(filepath.Join(mount, "and-the-rest")); err != nil {
		t.Fatal(err)
	}
	if free := freeBytes(t, mount); free != 0 {
		t.Fatalf("%d bytes are free, want 0", free)
	}
	if broker, err = startChild(t, dir, "127.0.0.1:0"); err != nil {
		t.Fatalf("start with no free byte: %v", err)
	}
	t.Cleanup(func() {
		if err := broker.stop(); err != nil {
			t.Errorf("stop: %v\n%s", err, broker.log())
		}
	})
	stillServes(t, broker)
	if err := produceOne(t, broker, "keeps", []byte("too early")); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce after a start on the full disk: got %v, want KAFKA_STORAGE_ERROR", err)
	}

	if _, stderr, code := command(t, "", "topic", "delete", "fills", "--bootstrap-server", broker.addr); code != 0 {
		t.Fatalf("delete on the full disk: %s\n%s", stderr, broker.log())
	}
	ctx := withTimeout(t, 45*time.Second) // less than file.delete.delay.ms, which a full disk does not wait for
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for err = errors.New("not tried"); err != nil; err = produceOne(t, broker, "keeps", []byte("after")) {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("produce does not come back: %v; %d MiB free\n%s", err, freeMiB(t, mount), broker.log())
		}
	}
	records := readAll(t, broker, "keeps", 0)
	if len(records) != 2 || string(records[0].Value) != "kept" || string(records[1].Value) != "after" {
		t.Errorf("the kept topic holds %d records", len(records))
	}
}

func produceOne(t *testing.T, broker *child, topic string, value []byte) error {
	t.Helper()
	cl := broker.client(t, kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	defer cl.Close()
	return cl.ProduceSync(withTimeout(t, 30*time.Second), &kgo.Record{Topic: topic, Value: value}).FirstErr()
}

func fill(t *testing.T, broker *child, value []byte) error {
	t.Helper()
	cl := broker.client(t, kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	defer cl.Close()
	for range 4096 {
		if err := cl.ProduceSync(withTimeout(t, 30*time.Second), &kgo.Record{Topic: "fills", Value: value}).FirstErr(); err != nil {
			return err
		}
	}
	return errors.New("1 GiB went onto a disk of 512 MiB")
}

// stillServes checks that reading and admin work.
func stillServes(t *testing.T, broker *child) {
	t.Helper()
	if records := readAll(t, broker, "keeps", 0); len(records) == 0 || !bytes.Equal(records[0].Value, []byte("kept")) {
		t.Errorf("the kept topic holds %d records", len(records))
	}
	admin := kadm.NewClient(broker.client(t))
	if _, err := admin.ListTopics(withTimeout(t, 30*time.Second)); err != nil {
		t.Errorf("list topics: %v", err)
	}
	answers, err := admin.DeleteRecords(withTimeout(t, 30*time.Second), kadm.Offsets{})
	if err != nil || answers.Error() != nil {
		t.Errorf("admin on the full disk: %v", err)
	}
}

func takeAll(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := file.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			return fmt.Errorf("take all space: %w", err)
		}
	}
	return nil
}

func freeMiB(t *testing.T, dir string) uint64 {
	t.Helper()
	return freeBytes(t, dir) >> 20
}

func freeBytes(t *testing.T, dir string) uint64 {
	t.Helper()
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Bavail * uint64(stat.Bsize)
}
