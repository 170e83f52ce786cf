package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	benchTopic      = "bench"
	benchPartitions = 6
)

// topic is what a client creates before a load.
type topic struct {
	name       string
	partitions int
	replicas   int     // of each partition; 0 is 1
	placement  []int32 // the brokers of every partition, the one to lead it first; nil leaves it to the peer
	configs    map[string]*string
}

// load is what a producer is to do for as long as it is left alone.
type load struct {
	topic       topic
	recordBytes int
	codec       codec
	rate        int  // records a second, evenly; 0 for as many as go
	acksAll     bool // acks=all; else acks=1
	idempotent  bool // which wants acks=all
}

// codec is what a producer compresses with, by Kafka's name.
type codec string

// franz is the codec as franz-go takes it; the empty name is none.
func (c codec) franz() (kgo.CompressionCodec, error) {
	switch c {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, errors.New("unknown codec " + string(c))
}

// client drives a broker.
type client interface {
	// create makes a topic.
	create(ctx context.Context, addr string, t topic) error
	// produce starts a load over a topic that exists; it returns at once.
	produce(ctx context.Context, addr string, l load) (*generator, error)
}

// generator is a load that runs.
type generator struct {
	count func(context.Context) (int64, error) // records acknowledged so far
	pids  []int                                // its processes, where it is not in this one
	stop  func() error                         // ends it; an error if it had ended before, or a record was refused
}

// payloads are values a quarter of whose bytes are random, so that a codec has something to do.
func payloads(size int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, 64)
	for i := range out {
		out[i] = make([]byte, size)
		for j := range size / 4 {
			out[i][j] = byte(random.Uint32())
		}
	}
	return out
}
