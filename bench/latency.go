package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"
)

// pipe is a producer and a consumer of the same topic. What comes out is given to the function with which it was made.
type pipe struct {
	send  func(value []byte) error
	close func() error
}

// pipeOptions are what a producer of the Kafka protocol is told.
type pipeOptions struct {
	acksAll bool // else acks=1
	linger  time.Duration
}

// kafkaPipe is a pipe of franz-go over the Kafka protocol.
func kafkaPipe(ctx context.Context, addr, topic string, o pipeOptions, received func([]byte)) (*pipe, error) {
	consumer, err := (&franzConsumer{addr: addr, topic: topic}).open()
	if err != nil {
		return nil, err
	}
	producer, err := kgo.NewClient(seeds(addr), kgo.DefaultProduceTopic(topic), requiredAcks(o.acksAll), kgo.DisableIdempotentWrite(),
		kgo.MaxProduceRequestsInflightPerBroker(inFlight), kgo.ProducerLinger(o.linger), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		consumer.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	var mu sync.Mutex
	var failed error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil && ctx.Err() == nil {
			failed = err
		}
	}
	reading.Go(func() {
		for ctx.Err() == nil {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				fail(fmt.Errorf("consume: %w", err))
			}
			fetches.EachRecord(func(r *kgo.Record) { received(r.Value) })
		}
	})
	return &pipe{
		send: func(value []byte) error {
			producer.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					fail(fmt.Errorf("produce: %w", err))
				}
			})
			mu.Lock()
			defer mu.Unlock()
			return failed
		},
		close: func() error {
			cancel()
			reading.Wait()
			producer.Close()
			consumer.Close()
			return failed
		},
	}, nil
}

// latencies are gathered by the receiving side of a pipe.
type latencies struct {
	from time.Duration // when the warm-up is over: earlier records do not count

	mu   sync.Mutex
	base time.Time // the moment for which the first record was intended
	all  []time.Duration
	done chan struct{} // closed when total records have come
	left int
}

func newLatencies(from time.Duration, total int) *latencies {
	return &latencies{from: from, left: total, all: make([]time.Duration, 0, total), done: make(chan struct{})}
}

// received takes a value that holds for when it was intended, in nanoseconds after base.
func (l *latencies) received(value []byte) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if due := time.Duration(binary.BigEndian.Uint64(value)); due >= l.from {
		l.all = append(l.all, now.Sub(l.base)-due)
	}
	if l.left--; l.left == 0 {
		close(l.done)
	}
}

// begin sets the moment for which the first record is intended.
func (l *latencies) begin() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = time.Now()
	return l.base
}

// sorted are the latencies of the measured time; call it when no more come.
func (l *latencies) sorted() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.all)
	return l.all
}

// intended is when a record is due, counted from the first, at a rate in records a second.
func intended(record, rate int) time.Duration {
	return time.Duration(record) * time.Second / time.Duration(rate)
}

// sendEvenly sends total records at the moments at which they are due, or as soon after as it can, each with the moment at
// which it was due: a stall counts for all the records that it delays. measured is called when the warm-up is over. The
// runtime's timers are as coarse as a millisecond where nothing else happens; a thread of its own sleeps to the
// microsecond.
func sendEvenly(ctx context.Context, p *pipe, l *latencies, recordBytes, rate, total int, measured func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	base, warm := l.begin(), false
	for i := range total {
		if err := ctx.Err(); err != nil {
			return err
		}
		due := intended(i, rate)
		for wait := due - time.Since(base); wait > 0; wait = due - time.Since(base) {
			pause := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&pause, nil) // a signal may end it early: hence the loop
		}
		if !warm && due >= l.from {
			warm = true
			if err := measured(); err != nil {
				return err
			}
		}
		value := make([]byte, recordBytes)
		binary.BigEndian.PutUint64(value, uint64(due))
		if err := p.send(value); err != nil {
			return err
		}
	}
	return nil
}
