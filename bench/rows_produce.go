package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// produceRow is a load as fast as its client goes.
func produceRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		l := s.load(s.topic(benchTopic, benchPartitions))
		if err := s.create(ctx, b, l.topic); err != nil {
			return err
		}
		return s.loaded(ctx, b, l, &m)
	})
}

// topic is one that the row's records go to.
func (s *stage) topic(name string, partitions int) topic {
	t := topic{name: name, partitions: partitions, replicas: s.row.replicas}
	if t.replicas > 1 {
		t.configs = map[string]*string{"min.insync.replicas": new("2")}
	}
	if s.trio != nil { // which other rows use too
		t.name = strings.ReplaceAll(s.row.id, "/", "-") + "-" + name
	}
	return t
}

// create makes a topic, and waits until all of its replicas are in sync where it has several. A cluster that has just lost a
// broker may want to be asked again.
func (s *stage) create(ctx context.Context, b broker, t topic) error {
	if s.trio == nil || s.peer.name() == natsName {
		return s.client.create(ctx, b.addr(), t)
	}
	err := poll(ctx, 100*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := s.client.create(ctx, b.addr(), t)
		if kerr.IsRetriable(err) {
			return false, nil
		}
		if errors.Is(err, kerr.TopicAlreadyExists) { // by an attempt whose outcome was not known
			err = nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	return s.trio.awaitInSync(ctx, t.name)
}

// load is what the row's producer does.
func (s *stage) load(t topic) load {
	return load{topic: t, recordBytes: s.row.recordBytes, codec: s.row.codec, acksAll: s.row.acksAll}
}

// loaded measures a load.
func (s *stage) loaded(ctx context.Context, b broker, l load, m *measurement) error {
	g, err := s.client.produce(ctx, b.addr(), l)
	if err != nil {
		return err
	}
	return errors.Join(s.window(ctx, b, g, m), g.stop())
}

// window lets a load run for the warm-up, from its first answer on, and then measures it.
func (s *stage) window(ctx context.Context, b broker, g *generator, m *measurement) error {
	if err := g.awaitFirst(ctx); err != nil {
		return err
	}
	if err := pause(ctx, s.warmUp()); err != nil {
		return err
	}
	before, err := g.count(ctx)
	if err != nil {
		return err
	}
	meter, err := startMeter(b.pids(), g.pids)
	if err != nil {
		return err
	}
	if err := pause(ctx, s.during()); err != nil {
		return err
	}
	after, err := g.count(ctx)
	if err != nil {
		return err
	}
	if err := meter.stop(m); err != nil {
		return err
	}
	m.moved(after-before, s.row)
	if m.Records == 0 {
		return fmt.Errorf("nothing was answered in %.0f s", m.Seconds)
	}
	return nil
}

// startPatience is how long a load may take to its first answer: a JVM on a busy machine needs seconds.
const startPatience = 30 * time.Second

// awaitFirst returns when a load has had its first answer.
func (g *generator) awaitFirst(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("nothing was answered within %s", startPatience))
	defer cancel()
	return poll(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		n, err := g.count(ctx)
		return n > 0, err
	})
}

// The load of B-P9: each producer may have fsyncPending records of 1 KiB unanswered, half of them on their way and half
// gathering behind them, so that a client's own work is beside the disk's and not between two syncs. The raw loop has
// fsyncBatch of each writer in every round.
const (
	fsyncBatch   = 64
	fsyncPending = 2 * fsyncBatch
)

// fsyncRow is producers whose records are on the disk when they are answered, and the raw group commit of as many writers
// before and after.
func fsyncRow(ctx context.Context, s *stage) (m measurement, err error) {
	r := s.row
	var raw, rawP99 []float64
	commit := func() error {
		rate, rounds, err := groupCommit(ctx, s.home, r.producers, r.partitions, fsyncBatch*r.recordBytes, max(s.during()/8, 200*time.Millisecond))
		raw, rawP99 = append(raw, rate), append(rawP99, quantile(rounds, 0.99))
		return err
	}
	if err := commit(); err != nil {
		return m, err
	}
	err = s.withBroker(ctx, func(b broker) error {
		t := topic{name: benchTopic, partitions: r.partitions, configs: s.peer.durableTopic()}
		if err := s.client.create(ctx, b.addr(), t); err != nil {
			return err
		}
		load, err := startBounded(ctx, s, b.addr())
		if err != nil {
			return err
		}
		err = s.window(ctx, b, &generator{count: load.count}, &m)
		from := time.Now().Add(-time.Duration(m.Seconds * float64(time.Second)))
		if err = errors.Join(err, load.stop()); err != nil {
			return err
		}
		took := load.since(from)
		m.P50, m.P99, m.P999 = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999)
		return nil
	})
	if err != nil {
		return m, err
	}
	err = commit()
	m.Raw = median(raw)
	m.tell(rawRoundP99, median(rawP99))
	return m, err
}

// spreadRate is the load of B-S1: 50 MiB/s of 1 KiB records.
const spreadRate = 50 << 10

// spreadRow is the same even load on a few partitions and then on many of the same broker.
func spreadRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		var few measurement
		for _, t := range []struct {
			topic topic
			into  *measurement
		}{{s.topic("few", benchPartitions), &few}, {s.topic("many", s.row.partitions), &m}} {
			if err := s.create(ctx, b, t.topic); err != nil {
				return err
			}
			l := s.load(t.topic)
			l.rate = spreadRate
			if err := s.loaded(ctx, b, l, t.into); err != nil {
				return err
			}
		}
		m.tell(ofFewPartitions, ratio(m.Value, few.Value))
		m.tell(cpuOfFewPartitions, ratio(m.cpuPerGiB(), few.cpuPerGiB()))
		return nil
	})
}

// latencyRow sends at a fixed rate and measures from the moment for which each record was intended until a consumer has it.
func latencyRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		return s.latency(ctx, b, s.topic(benchTopic, 1), s.row.rate, 0, &m)
	})
}

// latency makes a topic and sends so many records a second through it.
func (s *stage) latency(ctx context.Context, b broker, t topic, rate int, linger time.Duration, m *measurement) error {
	if err := s.create(ctx, b, t); err != nil {
		return err
	}
	total := int((s.warmUp() + s.during()).Seconds() * float64(rate))
	l := newLatencies(s.warmUp(), total)
	open := kafkaPipe
	if s.peer.name() == natsName {
		open = natsPipe
	}
	p, err := open(ctx, b.addr(), t.name, pipeOptions{acksAll: s.row.acksAll, linger: linger}, l.received)
	if err != nil {
		return err
	}
	// The consumer waits for records before there are any. What it takes to get there is nobody's latency.
	if err := pause(ctx, time.Second); err != nil {
		return errors.Join(err, p.close())
	}
	var meter *meter
	err = sendEvenly(ctx, p, l, s.row.recordBytes, rate, total, func() (err error) {
		meter, err = startMeter(b.pids(), nil)
		return err
	})
	if err == nil {
		err = l.await(ctx)
	}
	if err == nil {
		err = meter.stop(m)
	}
	if err = errors.Join(err, p.close()); err != nil {
		return err
	}
	took := l.sorted()
	m.moved(int64(len(took)), s.row)
	m.P50, m.P99, m.P999 = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999)
	m.Value = m.P99
	return nil
}

// lateness is how long the last record may take before a latency row gives up.
const lateness = 30 * time.Second

// await returns when all records have come.
func (l *latencies) await(ctx context.Context) error {
	timer := time.NewTimer(lateness)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("%d records have not come within %s of the last one's sending", l.left, lateness)
	}
}
