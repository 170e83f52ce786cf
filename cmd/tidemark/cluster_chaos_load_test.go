//go:build netns

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	chaosPartitions = 6
	chaosProducers  = 3
	chaosReaders    = 2

	// Each producer sends chaosBurst records in every chaosPause: enough that something is always in flight, and little
	// enough that the disk holds 200 cycles.
	chaosBurst = 4
	chaosPause = 10 * time.Millisecond
)

// chaosLoad is idempotent producers that wait for all acknowledgements, and readers that follow them.
type chaosLoad struct {
	t       *testing.T
	history *history
	ran     int32 // how many producers have been

	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		acked  [chaosPartitions]int
		next   [chaosReaders][chaosPartitions]int64
		failed error
	}
}

func newChaosLoad(t *testing.T) *chaosLoad {
	return &chaosLoad{t: t, history: newHistory(chaosPartitions)}
}

// start lets producers with ids of their own begin, and readers, each in the rack of another broker, from the first record.
func (l *chaosLoad) start(bootstrap string) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.t.Cleanup(func() { cancel(); l.running.Wait() })
	seeds := kgo.SeedBrokers(strings.Split(bootstrap, ",")...)
	for range chaosProducers {
		client := l.client(seeds, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.StopProducerOnDataLossDetected(),
			kgo.RecordRetries(1<<30), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
			kgo.ProduceRequestTimeout(5*time.Second), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(2_000))
		number := l.ran
		l.ran++
		l.running.Go(func() {
			defer client.Close()
			l.produce(ctx, client, number)
		})
	}
	for reader := range chaosReaders {
		offsets := make(map[int32]kgo.Offset)
		for p := range int32(chaosPartitions) {
			offsets[p] = kgo.NewOffset().At(0)
			l.mu.next[reader][p] = 0
		}
		client := l.client(seeds, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{crashTopic: offsets}),
			kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.Rack(fmt.Sprint(reader+1)), kgo.FetchMaxWait(500*time.Millisecond))
		l.running.Go(func() {
			defer client.Close()
			l.read(ctx, client, reader)
		})
	}
}

func (l *chaosLoad) client(options ...kgo.Opt) *kgo.Client {
	l.t.Helper()
	// A client that looks again for a leader at once measures the cluster, and not its own patience.
	client, err := kgo.NewClient(append(options, kgo.MetadataMinAge(50*time.Millisecond))...)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

func (l *chaosLoad) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.failed = errors.Join(l.mu.failed, err)
}

func (l *chaosLoad) produce(ctx context.Context, client *kgo.Client, producer int32) {
	padding := strings.Repeat("x", 500)
	again := time.NewTicker(chaosPause)
	defer again.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		if n%chaosBurst == 0 {
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
		p := int32(n % chaosPartitions)
		w := l.history.send(p, producer)
		record := &kgo.Record{Topic: crashTopic, Partition: p, Value: w.value(padding[:n*37%len(padding)])}
		client.Produce(context.Background(), record, func(r *kgo.Record, err error) { l.acknowledged(w, r, err) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), chaosPatience)
	defer cancel()
	if err := client.Flush(ctx); err != nil { // those in flight are waited for
		l.fail(fmt.Errorf("producer %d: the last records: %w", producer, err))
	}
}

func (l *chaosLoad) acknowledged(w writing, r *kgo.Record, err error) {
	if err != nil {
		l.fail(fmt.Errorf("partition %d, record %s: %w", r.Partition, w, err))
		return
	}
	l.history.ack(r.Partition, r.Offset, w)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.acked[r.Partition]++
}

func (l *chaosLoad) read(ctx context.Context, client *kgo.Client, reader int) {
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(_ string, p int32, err error) {
			l.fail(fmt.Errorf("reader %d, partition %d: %w", reader, p, err))
		})
		fetches.EachRecord(func(r *kgo.Record) {
			l.mu.Lock()
			next := l.mu.next[reader][r.Partition]
			l.mu.next[reader][r.Partition] = r.Offset + 1
			l.mu.Unlock()
			l.history.see(r.Partition, next, r.Offset, r.Value)
		})
	}
}

// counts is how many records each partition has taken.
func (l *chaosLoad) counts() [chaosPartitions]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.acked
}

// grown tells whether every partition has taken records since.
func (l *chaosLoad) grown(since [chaosPartitions]int) bool {
	for p, now := range l.counts() {
		if now <= since[p] {
			return false
		}
	}
	return true
}

// awaitAcks returns when so many records more are acknowledged, and fails the test when a client was told of an error.
func (l *chaosLoad) awaitAcks(n int) {
	l.t.Helper()
	for end := l.history.acked() + n; l.history.acked() < end; {
		l.wait("acknowledgements")
	}
}

// wait lets some time pass.
func (l *chaosLoad) wait(what string) {
	l.t.Helper()
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.t.Context().Done():
		l.t.Fatal(what)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed != nil {
		l.t.Fatalf("%s: %v", what, l.mu.failed)
	}
}

// stop ends producers and readers, and waits until what was in flight is acknowledged.
func (l *chaosLoad) stop() {
	l.t.Helper()
	l.cancel()
	l.running.Wait()
	if l.mu.failed != nil {
		l.t.Errorf("%v", l.mu.failed)
	}
}

// finish lets the readers come to the end of each partition, stops the load, and reads what stands in the log.
func (l *chaosLoad) finish(bootstrap string) {
	l.t.Helper()
	l.stop()
	client := l.client(kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	ctx, cancel := context.WithTimeout(context.Background(), chaosPatience)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, crashTopic)
	client.Close()
	if err != nil {
		l.t.Fatal(err)
	}
	for p := range int32(chaosPartitions) {
		end, _ := ends.Lookup(crashTopic, p)
		reader := l.client(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{crashTopic: {p: kgo.NewOffset().At(0)}}))
		for next := int64(0); next < end.Offset; {
			fetches := reader.PollFetches(ctx)
			if err := errors.Join(end.Err, fetches.Err()); err != nil {
				l.t.Fatalf("read partition %d from %d to %d: %v", p, next, end.Offset, err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				l.history.end(p, r.Offset, r.Value)
				next = r.Offset + 1
			})
		}
		reader.Close()
	}
}
