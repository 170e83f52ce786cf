package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
)

// boundedLoad is producers, a connection each, none of which has more than so many records unanswered.
type boundedLoad struct {
	cancel    context.CancelFunc
	running   sync.WaitGroup
	producers []*boundedProducer
}

// boundedProducer is one of them.
type boundedProducer struct {
	acked atomic.Int64
	slots chan struct{} // one for each unanswered record

	mu     sync.Mutex
	failed error
	took   []recordTime // of every sampleEvery-th record
}

// recordTime is when a record was answered, and how long after it was sent.
type recordTime struct {
	ended time.Time
	took  time.Duration
}

// sampleEvery is how many records there are to one whose time is kept.
const sampleEvery = 8

// sendRecord sends one record to a partition and calls answered when it is answered; it may call it before it returns.
type sendRecord func(partition int, value []byte, answered func(error))

func startBounded(ctx context.Context, s *stage, addr string) (*boundedLoad, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &boundedLoad{cancel: cancel}
	values := payloads(s.row.recordBytes)
	for w := range s.row.producers {
		open := openFranz
		if s.peer.name() == natsName {
			open = openNATS
		}
		send, closeClient, err := open(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, l.stop())
		}
		p := &boundedProducer{slots: make(chan struct{}, fsyncPending)}
		l.producers = append(l.producers, p)
		l.running.Go(func() {
			defer closeClient()
			for n := 0; p.take(ctx); n++ {
				sent := time.Now()
				send(partitionOf(w, n/fsyncBatch, s.row.partitions), values[n%len(values)], func(err error) {
					p.answered(ctx, n, sent, err)
				})
			}
		})
	}
	return l, nil
}

// take waits for a slot; it is false when the load is to end.
func (p *boundedProducer) take(ctx context.Context) bool {
	select {
	case p.slots <- struct{}{}:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.failed == nil
	case <-ctx.Done():
		return false
	}
}

func (p *boundedProducer) answered(ctx context.Context, n int, sent time.Time, err error) {
	<-p.slots
	switch {
	case err == nil:
		p.acked.Add(1)
	case ctx.Err() != nil: // it was cut off in the end
		return
	}
	if err == nil && n%sampleEvery != 0 {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = append(p.took, recordTime{now, now.Sub(sent)})
	if p.failed == nil {
		p.failed = err
	}
}

func (l *boundedLoad) count(context.Context) (n int64, err error) {
	for _, p := range l.producers {
		n += p.acked.Load()
	}
	return n, nil
}

func (l *boundedLoad) stop() (err error) {
	l.cancel()
	l.running.Wait()
	for _, p := range l.producers {
		p.mu.Lock()
		err = errors.Join(err, p.failed)
		p.mu.Unlock()
	}
	return err
}

// since are the times of the records that were answered after a moment, sorted.
func (l *boundedLoad) since(from time.Time) []time.Duration {
	var out []time.Duration
	for _, p := range l.producers {
		p.mu.Lock()
		for _, r := range p.took {
			if r.ended.After(from) {
				out = append(out, r.took)
			}
		}
		p.mu.Unlock()
	}
	slices.Sort(out)
	return out
}

// openFranz is a producer that has one request on its way and sends what has gathered meanwhile when that is answered.
func openFranz(ctx context.Context, addr string) (sendRecord, func(), error) {
	cl, err := kgo.NewClient(seeds(addr), kgo.DefaultProduceTopic(benchTopic), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0),
		kgo.MaxProduceRequestsInflightPerBroker(1), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, nil, err
	}
	return func(partition int, value []byte, answered func(error)) {
		cl.Produce(ctx, &kgo.Record{Value: value, Partition: int32(partition)}, func(_ *kgo.Record, err error) {
			if err != nil {
				err = fmt.Errorf("produce: %w", err)
			}
			answered(err)
		})
	}, cl.Close, nil
}

// openNATS is the same of NATS: messages go out one by one, and their acknowledgements are taken in order.
func openNATS(ctx context.Context, addr string) (sendRecord, func(), error) {
	conn, js, err := natsConnect(addr)
	if err != nil {
		return nil, nil, err
	}
	type waiting struct {
		future   jetstream.PubAckFuture
		answered func(error)
	}
	sent := make(chan waiting, fsyncPending)
	var reading sync.WaitGroup
	reading.Go(func() {
		for w := range sent {
			select {
			case <-w.future.Ok():
				w.answered(nil)
			case err := <-w.future.Err():
				w.answered(fmt.Errorf("publish: %w", err))
			case <-ctx.Done():
				w.answered(ctx.Err())
			}
		}
	})
	return func(partition int, value []byte, answered func(error)) {
			future, err := js.PublishAsync(subject(benchTopic, partition), value, jetstream.WithStallWait(10*time.Second))
			if err != nil {
				answered(fmt.Errorf("publish: %w", err))
				return
			}
			sent <- waiting{future, answered}
		}, func() {
			close(sent)
			reading.Wait()
			conn.Close()
		}, nil
}
