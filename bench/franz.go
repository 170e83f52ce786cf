package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franzClient is franz-go in this process.
type franzClient struct{}

func (franzClient) create(ctx context.Context, addr string, t topic) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	answer, err := kadm.NewClient(cl).CreateTopic(ctx, int32(t.partitions), 1, t.configs, t.name)
	if err = errors.Join(err, answer.Err); err != nil {
		return fmt.Errorf("create topic %s: %w", t.name, err)
	}
	return nil
}

// createTopics makes many topics of one partition in one request.
func createTopics(ctx context.Context, addr string, names []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	answers, err := kadm.NewClient(cl).CreateTopics(ctx, 1, 1, nil, names...)
	return errors.Join(err, answers.Error())
}

// endOffsets is the number of records that a topic has had.
func endOffsets(ctx context.Context, addr, topic string) (int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return 0, err
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum, nil
}

// produceOptions are those of every franz-go producer here: acks=1, no idempotence (NATS and the older tools have none),
// batches as large as the broker takes.
func produceOptions(addr string, l load) ([]kgo.Opt, error) {
	codec, err := l.codec.franz()
	return []kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(l.topic.name), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),
		kgo.ProducerLinger(5 * time.Millisecond), kgo.ProducerBatchMaxBytes(1_000_000), kgo.MaxBufferedRecords(1 << 20),
		kgo.MaxBufferedBytes(64 << 20), kgo.ProducerBatchCompression(codec),
	}, err
}

func (franzClient) produce(ctx context.Context, addr string, l load) (*generator, error) {
	opts, err := produceOptions(addr, l)
	if err != nil {
		return nil, err
	}
	if l.rate > 0 { // an even load is spread evenly over the partitions too
		opts = append(opts, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var acked atomic.Int64
	failures := make(chan error, 1)
	done := func(_ *kgo.Record, err error) {
		switch {
		case err == nil:
			acked.Add(1)
		case ctx.Err() == nil:
			select {
			case failures <- err:
			default:
			}
		}
	}
	var running sync.WaitGroup
	running.Go(func() {
		values := payloads(l.recordBytes)
		next := pace(l.rate)
		for sent := 0; ctx.Err() == nil; {
			for range next(sent) {
				cl.Produce(ctx, &kgo.Record{Value: values[sent%len(values)]}, done)
				sent++
			}
		}
	})
	return &generator{
		count: func(context.Context) (int64, error) { return acked.Load(), nil },
		stop: func() error {
			cancel()
			running.Wait()
			cl.Close()
			select {
			case err := <-failures:
				return fmt.Errorf("produce: %w", err)
			default:
				return nil
			}
		},
	}, nil
}

// pace says how many records are to be sent now, given how many have been: whatever is due at rate, waiting 5 ms when
// nothing is, or some at once, always, if rate is 0.
func pace(rate int) func(sent int) int {
	if rate == 0 {
		return func(int) int { return 256 }
	}
	began := time.Now()
	return func(sent int) int {
		due := int(time.Since(began).Seconds() * float64(rate))
		if due <= sent {
			time.Sleep(5 * time.Millisecond)
		}
		return max(due-sent, 0)
	}
}

// franzConsumer reads a topic, in a group if it is named, and counts what it gets.
type franzConsumer struct {
	addr, topic string
	group       string // empty for none
	fromEnd     bool
	records     atomic.Int64
}

func (c *franzConsumer) open() (*kgo.Client, error) {
	start := kgo.NewOffset().AtStart()
	if c.fromEnd {
		start = kgo.NewOffset().AtEnd()
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.addr), kgo.ConsumeTopics(c.topic), kgo.ConsumeResetOffset(start),
		kgo.FetchMaxPartitionBytes(1 << 20), kgo.FetchMaxBytes(50 << 20),
	}
	if c.group != "" {
		opts = append(opts, kgo.ConsumerGroup(c.group))
	}
	return kgo.NewClient(opts...)
}

// read counts until it has seen this many records, or the context ends, which is no error.
func (c *franzConsumer) read(ctx context.Context, most int64) error {
	cl, err := c.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	for seen := int64(0); seen < most; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		seen += int64(fetches.NumRecords())
		c.records.Add(int64(fetches.NumRecords()))
	}
	return nil
}
