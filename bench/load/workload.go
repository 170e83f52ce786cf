package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// workload is what is done with each peer.
type workload struct {
	length     time.Duration
	bytesMax   int64
	partitions int
	rate       int
	rounds     int
}

// row is one line of the comparison.
type row struct {
	name string
	run  func(ctx context.Context, p peer) (measured, error)
}

func (w *workload) rows() []row {
	var rows []row
	for _, size := range []int{100, 1 << 10, 10 << 10} {
		filled := map[string]string{} // the topic that the produce row has filled last, by peer
		rows = append(rows, row{fmt.Sprintf("produce %d B acks=1", size), func(ctx context.Context, p peer) (measured, error) {
			topic := fmt.Sprintf("load-%d-%d", size, time.Now().UnixNano())
			filled[p.name] = topic
			return w.produce(ctx, p, topic, size)
		}}, row{fmt.Sprintf("consume %d B", size), func(ctx context.Context, p peer) (measured, error) {
			return w.consume(ctx, p, filled[p.name])
		}})
	}
	return append(rows, row{fmt.Sprintf("end to end, 1 KiB, %d/s, linger 0", w.rate), w.latency})
}

// client connects with the same congestion control to every peer: the system's default may be bbr, which paces loopback
// as if it were a network and hides what brokers differ in.
func client(p peer, opts ...kgo.Opt) (*kgo.Client, error) {
	dialer := net.Dialer{Control: cubic}
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(p.address), kgo.Dialer(dialer.DialContext), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.MaxBufferedRecords(200_000), kgo.MaxBufferedBytes(64 << 20), kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
}

func (w *workload) create(ctx context.Context, cl *kgo.Client, topic string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, int32(w.partitions), 1
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// payload is a quarter random, so that nobody's compression can cheat, and the same for all peers.
func payload(size int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(size)))
	value := make([]byte, size)
	for i := range value {
		if value[i] = 'x'; i%4 == 0 {
			value[i] = byte(random.Uint32())
		}
	}
	return value
}

// produce sends as fast as the client can.
func (w *workload) produce(ctx context.Context, p peer, topic string, size int) (measured, error) {
	cl, err := client(p, kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return measured{}, err
	}
	defer cl.Close()
	if err := w.create(ctx, cl, topic); err != nil {
		return measured{}, err
	}
	value := payload(size)
	var failure atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failure.CompareAndSwap(nil, &err)
		}
	}
	m := measured{}
	stop := begin(p, &m)
	for started := time.Now(); m.bytes < w.bytesMax && failure.Load() == nil; m.records++ {
		if m.records%1000 == 0 && time.Since(started) > w.length {
			break
		}
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, done)
		m.bytes += int64(size)
	}
	err = cl.Flush(ctx)
	stop()
	if first := failure.Load(); first != nil {
		err = errors.Join(*first, err)
	}
	return m, err
}

// consume reads the topic from its start to its end.
func (w *workload) consume(ctx context.Context, p peer, topic string) (measured, error) {
	cl, err := client(p, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return measured{}, err
	}
	defer cl.Close()
	m := measured{}
	stop := begin(p, &m)
	open := map[int32]bool{} // partitions that have been heard of and not read to their end
	for len(open) > 0 || m.records == 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return m, err
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			for _, r := range f.Records {
				m.bytes += int64(len(r.Value))
				m.records++
			}
			if n := len(f.Records); n > 0 {
				open[f.Partition] = true
				if f.Records[n-1].Offset+1 >= f.HighWatermark {
					delete(open, f.Partition)
				}
			}
		})
	}
	stop()
	return m, nil
}

// latency sends at a fixed rate and measures from the time at which each record was due until a consumer has it.
func (w *workload) latency(ctx context.Context, p peer) (measured, error) {
	const size = 1 << 10
	topic := fmt.Sprintf("load-latency-%d", time.Now().UnixNano())
	producer, err := client(p, kgo.ProducerLinger(0))
	if err != nil {
		return measured{}, err
	}
	defer producer.Close()
	if err := w.create(ctx, producer, topic); err != nil {
		return measured{}, err
	}
	consumer, err := client(p, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return measured{}, err
	}
	defer consumer.Close()
	warm := w.rate / 2 // the first half second is not counted
	total := warm + int(w.length.Seconds()*float64(w.rate))
	ctx, cancel := context.WithTimeout(ctx, w.length+30*time.Second)
	defer cancel()

	var group sync.WaitGroup
	var sent error
	value := payload(size)
	m := measured{bytes: int64(total) * size, records: int64(total)}
	stop := begin(p, &m)
	group.Go(func() {
		started := time.Now()
		for i := range total {
			due := started.Add(time.Duration(i) * time.Second / time.Duration(w.rate))
			time.Sleep(time.Until(due))
			// The time at which it was due travels as the record's timestamp would, but in nanoseconds.
			headers := []kgo.RecordHeader{{Key: "due", Value: []byte(due.Format(time.RFC3339Nano))}}
			producer.Produce(ctx, &kgo.Record{Topic: topic, Value: value, Headers: headers}, nil)
		}
		sent = producer.Flush(ctx)
	})
	var failure error
	for seen := 0; seen < total && failure == nil; {
		fetches := consumer.PollFetches(ctx)
		failure = fetches.Err()
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			due, err := time.Parse(time.RFC3339Nano, string(r.Headers[0].Value))
			if seen++; seen > warm && err == nil {
				m.latencies = append(m.latencies, now.Sub(due))
			}
		})
	}
	group.Wait()
	stop()
	slices.Sort(m.latencies)
	return m, errors.Join(failure, sent)
}
