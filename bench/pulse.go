package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// pulse sends a record to each partition of some topics at an even beat, by an idempotent producer with acks=all, and keeps
// for each partition the longest time between two answers: how long a producer was kept waiting, from its own side.
type pulse struct {
	cl      *kgo.Client
	ctx     context.Context // of the records
	cancel  context.CancelFunc
	running sync.WaitGroup
	stir    chan struct{} // holds something after an answer; one may wait at a time

	mu     sync.Mutex
	lanes  []*lane
	marked time.Time
	failed error
}

// lane is one partition of a pulse.
type lane struct {
	topic     string
	partition int32

	pending  int           // records that are not answered
	answered time.Time     // when the last answer came; zero before the first
	longest  time.Duration // between two answers, since the mark
	back     bool          // a record sent after the mark is answered
}

// lanePending is how many records of a lane may wait for their answers: while there is no leader, it is not asked for more.
const lanePending = 4

// startPulse begins; the addresses are those of brokers that will stay. Twice the patience is what a request to a broker that
// says nothing takes.
func startPulse(ctx context.Context, addr string, beat, patience time.Duration, topics ...topic) (*pulse, error) {
	cl, err := kgo.NewClient(append(slices.Clone(quick), seeds(addr), kgo.ProduceRequestTimeout(patience), kgo.RequestTimeoutOverhead(patience),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1<<20))...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &pulse{cl: cl, ctx: ctx, cancel: cancel, stir: make(chan struct{}, 1)}
	for _, t := range topics {
		for i := range t.partitions {
			p.lanes = append(p.lanes, &lane{topic: t.name, partition: int32(i)})
		}
	}
	p.running.Go(func() {
		_ = poll(ctx, beat, func(context.Context) (bool, error) {
			p.beat()
			return false, nil // until the context ends
		})
	})
	return p, nil
}

// beat sends a record to each lane that has not too many on their way.
func (p *pulse) beat() {
	for _, l := range p.due() {
		sent := time.Now()
		p.cl.Produce(p.ctx, &kgo.Record{Topic: l.topic, Partition: l.partition, Value: pulseValue}, func(_ *kgo.Record, err error) {
			p.answer(p.ctx, l, sent, err)
		})
	}
}

var pulseValue = payloads(100)[0]

// due are the lanes that get a record now.
func (p *pulse) due() (lanes []*lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if l.pending < lanePending {
			l.pending++
			lanes = append(lanes, l)
		}
	}
	return lanes
}

func (p *pulse) answer(ctx context.Context, l *lane, sent time.Time, err error) {
	now := time.Now()
	p.mu.Lock()
	l.pending--
	switch {
	case err == nil:
		l.take(now, sent, p.marked)
	case ctx.Err() == nil && p.failed == nil:
		p.failed = fmt.Errorf("produce to %s-%d: %w", l.topic, l.partition, err)
	}
	p.mu.Unlock()
	select {
	case p.stir <- struct{}{}:
	default:
	}
}

// take notes an answer.
func (l *lane) take(now, sent, marked time.Time) {
	if !l.answered.IsZero() {
		l.longest = max(l.longest, now.Sub(l.answered))
	}
	l.answered = now
	l.back = l.back || sent.After(marked)
}

// mark begins a new measurement with an answer to each lane, if that comes about soon, so that a gap does not begin a beat
// before what causes it; whoever causes it calls beat, so that it does not end a beat too late. It returns the longest gap
// before.
func (p *pulse) mark(ctx context.Context) (before time.Duration, err error) {
	if before, err = p.longest(); err != nil {
		return before, err
	}
	p.beat()
	quiet, cancel := context.WithTimeoutCause(ctx, time.Second, errBusy)
	defer cancel()
	if err := p.await(quiet, func(l *lane) bool { return l.pending == 0 }); err != nil && !errors.Is(err, errBusy) {
		return before, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marked = time.Now()
	for _, l := range p.lanes {
		l.longest, l.back = 0, false
	}
	return before, nil
}

// errBusy is the cause of a wait that ends because there is always something unanswered.
var errBusy = errors.New("never quiet")

// await returns when something holds of all lanes, or the pulse has failed.
func (p *pulse) await(ctx context.Context, of func(*lane) bool) error {
	for {
		p.mu.Lock()
		waiting := slices.IndexFunc(p.lanes, func(l *lane) bool { return !of(l) })
		err := p.failed
		p.mu.Unlock()
		if err != nil || waiting < 0 {
			return err
		}
		select {
		case <-p.stir:
		case <-ctx.Done():
			l := p.lanes[waiting]
			return fmt.Errorf("%w: still waiting for %s-%d", context.Cause(ctx), l.topic, l.partition)
		}
	}
}

// steady returns when every lane has had its first answer and some time has passed.
func (p *pulse) steady(ctx context.Context) error {
	if err := p.await(ctx, func(l *lane) bool { return !l.answered.IsZero() }); err != nil {
		return err
	}
	return pause(ctx, steadyFor)
}

const steadyFor = time.Second

// back returns when every lane has had an answer to a record that was sent after the mark.
func (p *pulse) back(ctx context.Context) error {
	return p.await(ctx, func(l *lane) bool { return l.back })
}

// gaps are the lanes' longest gaps since the mark, sorted.
func (p *pulse) gaps() (gaps []time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		gaps = append(gaps, l.longest)
	}
	slices.Sort(gaps)
	return gaps, p.failed
}

// longest is the longest of all gaps since the mark.
func (p *pulse) longest() (time.Duration, error) {
	gaps, err := p.gaps()
	return gaps[len(gaps)-1], err
}

func (p *pulse) stop() {
	p.cancel()
	p.running.Wait()
	p.cl.Close()
}
