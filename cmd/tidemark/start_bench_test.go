package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkStartEmpty measures from the exec of the program to its first acknowledged produce, on an empty directory.
func BenchmarkStartEmpty(b *testing.B) {
	for range b.N {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		broker := startAndProduce(b, dir, "first")
		b.StopTimer()
		stopOrFail(b, broker)
		b.StartTimer()
	}
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
	b.ResetTimer()
	for i := range b.N {
		broker := startAndProduce(b, dir, fmt.Sprintf("after-%d", i))
		b.StopTimer()
		stopOrFail(b, broker)
		b.StartTimer()
	}
}

func startAndProduce(b *testing.B, dir, topic string) *child {
	b.Helper()
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
	cl.Close()
	return broker
}

func stopOrFail(b *testing.B, broker *child) {
	b.Helper()
	if err := broker.stop(); err != nil {
		b.Fatalf("stop: %v\n%s", err, broker.log())
	}
}
