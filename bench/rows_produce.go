package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// produceRow is a load as fast as its client goes.
func produceRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		l := load{topic: topic{name: benchTopic, partitions: benchPartitions}, recordBytes: s.row.recordBytes, codec: s.row.codec}
		if err := s.client.create(ctx, b.addr(), l.topic); err != nil {
			return err
		}
		g, err := s.client.produce(ctx, b.addr(), l)
		if err != nil {
			return err
		}
		return errors.Join(s.window(ctx, b, g, &m), g.stop())
	})
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
	meter, err := startMeter(b.PID(), g.pids)
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
	for deadline := time.Now().Add(startPatience); ; {
		n, err := g.count(ctx)
		if err != nil || n > 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nothing was answered within %s", startPatience)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits, and ends early with an error when the context does.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
		}{{topic{name: "few", partitions: benchPartitions}, &few}, {topic{name: "many", partitions: s.row.partitions}, &m}} {
			if err := s.client.create(ctx, b.addr(), t.topic); err != nil {
				return err
			}
			g, err := s.client.produce(ctx, b.addr(), load{topic: t.topic, recordBytes: s.row.recordBytes, rate: spreadRate})
			if err != nil {
				return err
			}
			if err := errors.Join(s.window(ctx, b, g, t.into), g.stop()); err != nil {
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
		if err := s.client.create(ctx, b.addr(), topic{name: benchTopic, partitions: 1}); err != nil {
			return err
		}
		skip, total := int(s.warmUp().Seconds()*float64(s.row.rate)), int((s.warmUp()+s.during()).Seconds()*float64(s.row.rate))
		l := newLatencies(skip, total)
		open := kafkaPipe
		if s.peer.name() == natsName {
			open = natsPipe
		}
		p, err := open(ctx, b.addr(), benchTopic, l.received)
		if err != nil {
			return err
		}
		// The consumer waits for records before there are any. What it takes to get there is nobody's latency.
		if err := pause(ctx, time.Second); err != nil {
			return errors.Join(err, p.close())
		}
		var meter *meter
		err = sendEvenly(ctx, p, l, s.row.recordBytes, s.row.rate, total, func() (err error) {
			meter, err = startMeter(b.PID(), nil)
			return err
		})
		if err == nil {
			err = l.await(ctx)
		}
		if err == nil {
			err = meter.stop(&m)
		}
		if err = errors.Join(err, p.close()); err != nil {
			return err
		}
		took := l.sorted()
		m.moved(int64(len(took)), s.row)
		m.P50, m.P99, m.P999 = quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999)
		m.Value = m.P99
		return nil
	})
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
