package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	crashCycles = flag.Int("crash.cycles", 3, "how often the crash test kills the broker")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the crash test; 0 draws one")
)

const (
	crashTopic      = "crash"
	crashPartitions = 3
)

// TestCrash kills a broker with SIGKILL again and again under the load of one idempotent producer that waits for all
// acknowledgements, without any fsync, and lets the same producer go on with the restarted broker. Nothing acknowledged
// may be lost or stand elsewhere than acknowledged, nothing may stand twice, and the order of each partition is the order
// of production. At the end every index, snapshot and checkpoint must agree with its log. (I1, I5, U-103)
func TestCrash(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d -crash.cycles=%d", seed, *crashCycles)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	broker, err := startChild(t, dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := broker.addr
	broker.createTopic(t, crashTopic, "--partitions", fmt.Sprint(crashPartitions), "--set", "segment.bytes=1048576",
		"--set", "log.flush.acks=false")

	load := newCrashLoad(t, broker)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- load.produce(ctx) }()

	for cycle := range *crashCycles {
		// The moment of the kill is a number of acknowledgements, not a time: the test means the same on any machine.
		load.awaitAcks(load.acked() + 200 + random.IntN(2_000))
		broker.kill()
		if broker, err = startChild(t, dir, addr); err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
	}
	load.awaitAcks(load.acked() + 1)
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("produce: %v\n%s", err, broker.log())
	}
	t.Logf("%d records acknowledged over %d kills", load.acked(), *crashCycles)
	load.verify(t, broker)
	if err := broker.stop(); err != nil {
		t.Fatalf("stop: %v\n%s", err, broker.log())
	}
	verifyFiles(t, dir)
}

// verifyFiles has `log dump` check every file of the topic.
func verifyFiles(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, crashTopic+"-*", "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files of %s in %s: %v", crashTopic, dir, err)
	}
	if _, stderr, code := command(t, "", append([]string{"log", "dump", "--verify"}, names...)...); code != 0 {
		t.Errorf("log dump --verify: exit %d\n%s", code, stderr)
	}
	t.Logf("%d files verified", len(names))
}

// crashLoad is one idempotent producer and what it was promised.
type crashLoad struct {
	client *kgo.Client

	mu struct {
		sync.Mutex
		changed *sync.Cond
		acks    [crashPartitions]map[int64]int64 // offset → number of the record
		count   int
		ahead   int // how many records may be produced beyond those that are waited for; 0 for any number
		waited  int // the number of acknowledgements waited for last
		err     error
	}
}

func newCrashLoad(t *testing.T, broker *child, options ...kgo.Opt) *crashLoad {
	load := &crashLoad{client: broker.client(t, append([]kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordRetries(1 << 30),
		kgo.RetryTimeout(5 * time.Minute),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(512),
	}, options...)...)}
	load.mu.changed = sync.NewCond(&load.mu)
	for p := range load.mu.acks {
		load.mu.acks[p] = map[int64]int64{}
	}
	return load
}

// produce sends numbered records until the context ends, then waits for those in flight.
func (l *crashLoad) produce(ctx context.Context) error {
	padding := strings.Repeat("x", 1500)
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		l.mu.changed.Broadcast()
		l.mu.Unlock()
	})()
	for n := int64(0); l.mayProduce(ctx, n); n++ {
		value := fmt.Appendf(nil, "%d %s", n, padding[:n*37%int64(len(padding))]) // enough that segments roll
		record := &kgo.Record{Topic: crashTopic, Partition: int32(n % crashPartitions), Value: value}
		// The records must outlive ctx: those in flight when it ends are still waited for.
		l.client.Produce(context.WithoutCancel(ctx), record, func(r *kgo.Record, err error) { l.acknowledged(n, r, err) })
	}
	return errors.Join(l.client.Flush(context.WithoutCancel(ctx)), l.failure())
}

// mayProduce tells whether record n is to be produced, as soon as it may be.
func (l *crashLoad) mayProduce(ctx context.Context, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.ahead > 0 && n >= int64(l.mu.waited+l.mu.ahead) && l.mu.err == nil && ctx.Err() == nil {
		l.mu.changed.Wait()
	}
	return l.mu.err == nil && ctx.Err() == nil
}

func (l *crashLoad) acknowledged(n int64, r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch before, twice := l.mu.acks[r.Partition][r.Offset]; {
	case err != nil:
		l.mu.err = errors.Join(l.mu.err, fmt.Errorf("record %d: %w", n, err))
	case twice:
		l.mu.err = errors.Join(l.mu.err, fmt.Errorf("offset %d of partition %d was acknowledged for record %d and for record %d",
			r.Offset, r.Partition, before, n))
	default:
		l.mu.acks[r.Partition][r.Offset] = n
		l.mu.count++
	}
	l.mu.changed.Broadcast()
}

func (l *crashLoad) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

func (l *crashLoad) acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.count
}

// awaitAcks waits until so many records are acknowledged, or one failed.
func (l *crashLoad) awaitAcks(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waited = max(l.mu.waited, n)
	l.mu.changed.Broadcast()
	for l.mu.count < n && l.mu.err == nil {
		l.mu.changed.Wait()
	}
}

// verify reads everything back and holds it against the promises.
func (l *crashLoad) verify(t *testing.T, broker *child) {
	t.Helper()
	for p := range int32(crashPartitions) {
		found := map[int64]int64{}
		last := int64(-1)
		for _, r := range readAll(t, broker, crashTopic, p) {
			var n int64
			if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
				t.Fatalf("partition %d offset %d holds %.20q, which was never produced", p, r.Offset, r.Value)
			}
			if n <= last {
				t.Errorf("partition %d offset %d: record %d after record %d: doubled or out of order", p, r.Offset, n, last)
			}
			last = n
			found[r.Offset] = n
		}
		for offset, n := range l.mu.acks[p] {
			if got, there := found[offset]; !there {
				t.Errorf("partition %d: record %d was acknowledged at offset %d and is lost", p, n, offset)
			} else if got != n {
				t.Errorf("partition %d: record %d was acknowledged at offset %d, where record %d stands", p, n, offset, got)
			}
		}
	}
}

// readAll consumes a partition from its beginning to the end that it has now.
func readAll(t *testing.T, broker *child, topic string, partition int32) []*kgo.Record {
	t.Helper()
	ctx := withTimeout(t, 2*time.Minute)
	cl := broker.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {partition: kgo.NewOffset().AtStart()},
	}))
	defer cl.Close()
	end := endOffset(t, broker, topic, partition)
	var out []*kgo.Record
	for next := int64(0); next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s-%d: %v\n%s", topic, partition, err, broker.log())
		}
		for _, r := range fetches.Records() {
			out = append(out, r)
			next = r.Offset + 1
		}
	}
	return out
}
