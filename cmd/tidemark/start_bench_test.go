package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/yardstick"
)

// BenchmarkStartEmpty measures from the exec of the program to its first acknowledged produce, on an empty directory: the
// median of the starts in ms, and of the CPU time that the broker used in its life. Aim: 300 ms.
func BenchmarkStartEmpty(b *testing.B) {
	var t startTimes
	for range b.N {
		dir := b.TempDir()
		t.startAndProduce(b, dir, "first")
	}
	t.report(b)
}

// BenchmarkStart1000Partitions measures the same on a clean restart with 1,000 partitions that hold data.
func BenchmarkStart1000Partitions(b *testing.B) {
	dir := b.TempDir()
	broker, err := startChild(b, dir, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	broker.createTopic(b, "many", "--partitions", "1000")
	cl := broker.client(b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(1000) {
		cl.Produce(b.Context(), &kgo.Record{Topic: "many", Partition: p, Value: []byte("x")}, nil)
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	cl.Close()
	stopOrFail(b, broker)
	var t startTimes
	for i := range b.N {
		t.startAndProduce(b, dir, fmt.Sprintf("after-%d", i))
	}
	t.report(b)
}

// startTimes are the milliseconds of each start, and those of CPU that the broker used until it was stopped again.
type startTimes struct{ wall, cpu []float64 }

func (t *startTimes) startAndProduce(b *testing.B, dir, topic string) {
	b.Helper()
	started := time.Now()
	broker, err := startChild(b, dir, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	cl := broker.client(b, kgo.MetadataMinAge(10*time.Millisecond), kgo.ProducerLinger(0))
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
		b.Fatalf("produce: %v\n%s", err, broker.log())
	}
	t.wall = append(t.wall, float64(time.Since(started).Microseconds())/1000)
	cl.Close()
	stopOrFail(b, broker)
	used := broker.cmd.ProcessState
	t.cpu = append(t.cpu, float64((used.UserTime() + used.SystemTime()).Milliseconds()))
}

func (t *startTimes) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // it would count the stops too
	b.ReportMetric(yardstick.Median(t.wall), "ms-to-first-ack")
	b.ReportMetric(yardstick.Median(t.cpu), "cpu-ms")
}

func stopOrFail(b *testing.B, broker *child) {
	b.Helper()
	if err := broker.stop(); err != nil {
		b.Fatalf("stop: %v\n%s", err, broker.log())
	}
}
