package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// row is one line of the matrix.
type row struct {
	id, what, unit, better string
	recordBytes            int
	codec                  kgo.CompressionCodec
	run                    func(context.Context, row, *stage) (measurement, error)
	null                   func(context.Context, row, *options) (float64, error)
}

// stage is one run of a row against one peer.
type stage struct {
	peer    peer
	home    string
	options *options
}

const (
	benchTopic      = "bench"
	benchPartitions = 6
	latencyRate     = 1000 // records a second of B-L1
)

// table is the matrix; the ids are those of the project's performance page.
var table = []row{
	{id: "B-P1", what: "produce 100 B, acks=1", unit: "records/s", better: "more", recordBytes: 100, run: produceRow, null: produceNull},
	{id: "B-P2", what: "produce 1 KiB, acks=1", unit: "MiB/s", better: "more", recordBytes: 1 << 10, run: produceRow, null: produceNull},
	{id: "B-P3", what: "produce 10 KiB, acks=1", unit: "MiB/s", better: "more", recordBytes: 10 << 10, run: produceRow, null: produceNull},
	{id: "B-P8", what: "produce 1 KiB, lz4", unit: "MiB/s", better: "more", recordBytes: 1 << 10, codec: kgo.Lz4Compression(), run: produceRow, null: produceNull},
	{id: "B-C2", what: "catch up 1 KiB, page cache", unit: "MiB/s", better: "more", recordBytes: 1 << 10, run: consumeRow},
	{id: "B-L1", what: "end to end p99, 1 KiB at 1,000/s", unit: "ms", better: "less", recordBytes: 1 << 10, run: latencyRow},
	{id: "B-S3", what: "create 1 topic of 1,000 partitions", unit: "partitions/s", better: "more", run: createRow},
	{id: "B-R1", what: "clean restart, 1,000 partitions", unit: "ms", better: "less", run: restartRow},
}

// unitValue turns records in a time into the row's unit.
func (r row) unitValue(records int64, took time.Duration) float64 {
	perSecond := float64(records) / took.Seconds()
	if r.unit == "MiB/s" {
		return perSecond * float64(r.recordBytes) / (1 << 20)
	}
	return perSecond
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

func (s *stage) withBroker(do func(broker) error) error {
	b, err := s.peer.start(s.home)
	if err != nil {
		return err
	}
	return errors.Join(do(b), b.Stop())
}

func createTopic(ctx context.Context, addr, topic string, partitions int32) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	answer, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, nil, topic)
	return errors.Join(err, answer.Err)
}

func produceRow(ctx context.Context, r row, s *stage) (m measurement, err error) {
	return m, s.withBroker(func(b broker) error {
		if err := createTopic(ctx, b.addr(), benchTopic, benchPartitions); err != nil {
			return err
		}
		var before float64
		records, took, err := load(ctx, r, b.addr(), s.options, func() (err error) {
			before, err = cpuSeconds(b.PID())
			return err
		})
		if err != nil {
			return err
		}
		return m.fill(r, b, before, records, took)
	})
}

// fill completes a throughput measurement.
func (m *measurement) fill(r row, b broker, cpuBefore float64, records int64, took time.Duration) error {
	after, err := cpuSeconds(b.PID())
	if err != nil {
		return err
	}
	m.Bytes = records * int64(r.recordBytes)
	m.Value = r.unitValue(records, took)
	m.CPUPerGiB = (after - cpuBefore) / (float64(m.Bytes) / (1 << 30))
	m.PeakMiB, err = peakMiB(b.PID())
	return err
}

// produceNull is the same load against a mock broker in this process: what the client can do at most.
func produceNull(ctx context.Context, r row, o *options) (float64, error) {
	mock, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(benchPartitions, benchTopic))
	if err != nil {
		return 0, err
	}
	defer mock.Close()
	short := *o
	short.warmUp, short.during = o.warmUp/4, o.during/4 // the mock keeps all of it on the heap
	records, took, err := load(ctx, r, mock.ListenAddrs()[0], &short, func() error { return nil })
	return r.unitValue(records, took), err
}

// load produces as fast as it goes and counts what is acknowledged in the measured time.
func load(ctx context.Context, r row, addr string, o *options, measured func() error) (records int64, took time.Duration, err error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(benchTopic), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),
		kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchMaxBytes(1_000_000), kgo.MaxBufferedRecords(1 << 20),
		kgo.MaxBufferedBytes(64 << 20), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if r.codec != (kgo.CompressionCodec{}) {
		opts = append(opts, kgo.ProducerBatchCompression(r.codec))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	var acked atomic.Int64
	var failed atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
			return
		}
		acked.Add(1)
	}
	values := payloads(r.recordBytes)
	began := time.Now()
	var start time.Time
	var before int64
	for i := 0; ctx.Err() == nil && failed.Load() == nil; i++ {
		cl.Produce(ctx, &kgo.Record{Value: values[i%len(values)]}, done)
		if i%256 != 0 {
			continue
		}
		switch now := time.Now(); {
		case start.IsZero() && now.Sub(began) >= o.warmUp:
			if err := measured(); err != nil {
				return 0, 0, err
			}
			start, before = time.Now(), acked.Load()
		case !start.IsZero() && now.Sub(start) >= o.during:
			return acked.Load() - before, now.Sub(start), nil
		}
	}
	if p := failed.Load(); p != nil {
		return 0, 0, fmt.Errorf("produce: %w", *p)
	}
	return 0, 0, ctx.Err()
}

// consumeRow reads back what a produce load of the warm-up and the measurement left, once to warm and once measured.
func consumeRow(ctx context.Context, r row, s *stage) (m measurement, err error) {
	return m, s.withBroker(func(b broker) error {
		if err := createTopic(ctx, b.addr(), benchTopic, benchPartitions); err != nil {
			return err
		}
		if _, _, err := load(ctx, r, b.addr(), s.options, func() error { return nil }); err != nil {
			return err
		}
		if _, err := readAll(ctx, b.addr()); err != nil {
			return err
		}
		before, err := cpuSeconds(b.PID())
		if err != nil {
			return err
		}
		started := time.Now()
		records, err := readAll(ctx, b.addr())
		if err != nil {
			return err
		}
		return m.fill(r, b, before, records, time.Since(started))
	})
}

func readAll(ctx context.Context, addr string) (records int64, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(benchTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxBytes(50<<20))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, benchTopic)
	if err != nil {
		return 0, err
	}
	var want int64
	ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
	for records < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return records, err
		}
		records += int64(fetches.NumRecords())
	}
	return records, nil
}

// latencyRow sends at a fixed rate and measures each record from the moment at which it should have been sent, so that a
// stall counts for all the records that it delays.
func latencyRow(ctx context.Context, r row, s *stage) (m measurement, err error) {
	return m, s.withBroker(func(b broker) error {
		if err := createTopic(ctx, b.addr(), benchTopic, 1); err != nil {
			return err
		}
		before, err := cpuSeconds(b.PID())
		if err != nil {
			return err
		}
		latencies, err := endToEnd(ctx, r, b.addr(), s.options)
		if err != nil {
			return err
		}
		slices.Sort(latencies)
		at := func(q float64) float64 {
			return float64(latencies[int(q*float64(len(latencies)-1))].Microseconds()) / 1000
		}
		if err := m.fill(r, b, before, int64(len(latencies)), s.options.during); err != nil {
			return err
		}
		m.P50, m.P99, m.Value = at(0.5), at(0.99), at(0.99)
		return nil
	})
}

func endToEnd(ctx context.Context, r row, addr string, o *options) ([]time.Duration, error) {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(benchTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(benchTopic), kgo.RequiredAcks(kgo.LeaderAck()),
		kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	defer producer.Close()

	total := int((o.warmUp + o.during).Seconds() * latencyRate)
	skip := int(o.warmUp.Seconds() * latencyRate)
	base := time.Now()
	go func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for sent := 0; sent < total; {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				for ; sent < total && base.Add(time.Duration(sent)*time.Second/latencyRate).Before(now); sent++ {
					value := make([]byte, r.recordBytes)
					binary.BigEndian.PutUint64(value, uint64(time.Duration(sent)*time.Second/latencyRate))
					producer.Produce(ctx, &kgo.Record{Value: value}, nil)
				}
			}
		}
	}()
	var latencies []time.Duration
	for seen := 0; seen < total; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		now := time.Since(base)
		for _, record := range fetches.Records() {
			if seen++; seen > skip {
				latencies = append(latencies, now-time.Duration(binary.BigEndian.Uint64(record.Value)))
			}
		}
	}
	return latencies, nil
}

func createRow(ctx context.Context, _ row, s *stage) (m measurement, err error) {
	return m, s.withBroker(func(b broker) error {
		started := time.Now()
		if err := createTopic(ctx, b.addr(), "many", 1000); err != nil {
			return err
		}
		m.Value = 1000 / time.Since(started).Seconds()
		m.PeakMiB, err = peakMiB(b.PID())
		return err
	})
}

// restartRow is from the exec of the process to the first answered request, after a clean stop.
func restartRow(ctx context.Context, _ row, s *stage) (m measurement, err error) {
	if err := s.withBroker(func(b broker) error { return createTopic(ctx, b.addr(), "many", 1000) }); err != nil {
		return m, err
	}
	started := time.Now()
	return m, s.withBroker(func(b broker) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr()))
		if err != nil {
			return err
		}
		defer cl.Close()
		if _, err := kadm.NewClient(cl).ListEndOffsets(ctx, "many"); err != nil {
			return err
		}
		m.Value = float64(time.Since(started).Milliseconds())
		m.PeakMiB, err = peakMiB(b.PID())
		return err
	})
}
