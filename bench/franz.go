package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franzClient is franz-go in this process.
type franzClient struct{}

func (franzClient) create(ctx context.Context, addr string, t topic) error {
	cl, err := kgo.NewClient(seeds(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := createTopic(ctx, cl, t); err != nil {
		return fmt.Errorf("create topic %s: %w", t.name, err)
	}
	return nil
}

// createPatience is what the broker is told about how long a topic may take: ten thousand partitions of three replicas
// are more than the usual 15 s on some.
const createPatience = time.Minute

func createTopic(ctx context.Context, cl *kgo.Client, t topic) error {
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic = t.name
	for _, key := range slices.Sorted(maps.Keys(t.configs)) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, t.configs[key]
		wanted.Configs = append(wanted.Configs, config)
	}
	if t.placement == nil {
		wanted.NumPartitions, wanted.ReplicationFactor = int32(t.partitions), int16(max(t.replicas, 1))
	} else {
		wanted.NumPartitions, wanted.ReplicationFactor = -1, -1
		for p := range t.partitions {
			placed := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			placed.Partition, placed.Replicas = int32(p), t.placement
			wanted.ReplicaAssignment = append(wanted.ReplicaAssignment, placed)
		}
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = int32(createPatience.Milliseconds())
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range answer.Topics {
		if err := kerr.TypedErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("%w (%s)", err, cmp.Or(deref(t.ErrorMessage), "no message"))
		}
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// seeds is where a client begins: a broker's address, or several, separated by commas.
func seeds(addr string) kgo.Opt { return kgo.SeedBrokers(strings.Split(addr, ",")...) }

// createTopics makes many topics of one partition in one request.
func createTopics(ctx context.Context, addr string, names []string) error {
	cl, err := kgo.NewClient(seeds(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	answers, err := kadm.NewClient(cl).CreateTopics(ctx, 1, 1, nil, names...)
	return errors.Join(err, answers.Error())
}

// endOffsets is the number of records that a topic has had.
func endOffsets(ctx context.Context, addr, topic string) (int64, error) {
	cl, err := kgo.NewClient(seeds(addr))
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

// linger is how long a producer waits for more records to send together.
const linger = 5 * time.Millisecond

// inFlight is how many produce requests are on their way to a broker at most: what every producer here has by default but
// franz-go, which has one unless it is idempotent.
const inFlight = 5

// produceOptions are those of every franz-go producer here: no idempotence unless it is asked for (NATS and the older tools
// have none), batches as large as the broker takes.
func produceOptions(addr string, l load) ([]kgo.Opt, error) {
	codec, err := l.codec.franz()
	opts := []kgo.Opt{
		seeds(addr), kgo.DefaultProduceTopic(l.topic.name), kgo.ProducerLinger(linger), kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.MaxBufferedRecords(1 << 20), kgo.MaxBufferedBytes(64 << 20), kgo.ProducerBatchCompression(codec), requiredAcks(l.acksAll),
	}
	if !l.idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(inFlight))
	}
	return opts, err
}

func requiredAcks(all bool) kgo.Opt {
	if all {
		return kgo.RequiredAcks(kgo.AllISRAcks())
	}
	return kgo.RequiredAcks(kgo.LeaderAck())
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
			for range next(ctx, sent) {
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
func pace(rate int) func(ctx context.Context, sent int) int {
	if rate == 0 {
		return func(context.Context, int) int { return 256 }
	}
	began := time.Now()
	return func(ctx context.Context, sent int) int {
		due := int(time.Since(began).Seconds() * float64(rate))
		if due <= sent && pause(ctx, 5*time.Millisecond) != nil {
			return 0
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
		seeds(c.addr), kgo.ConsumeTopics(c.topic), kgo.ConsumeResetOffset(start),
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
