package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// idempotenceRow is a load by an idempotent producer, between two by one that is not.
func idempotenceRow(ctx context.Context, s *stage) (m measurement, err error) {
	l := s.load(s.topic(benchTopic, benchPartitions))
	if err := s.create(ctx, s.trio, l.topic); err != nil {
		return m, err
	}
	var plain [2]measurement
	for _, part := range []struct {
		idempotent bool
		into       *measurement
	}{{false, &plain[0]}, {true, &m}, {false, &plain[1]}} {
		l.idempotent = part.idempotent
		if err := s.loaded(ctx, s.trio, l, part.into); err != nil {
			return m, err
		}
	}
	m.tell(ofNotIdempotent, ratio(m.Value, (plain[0].Value+plain[1].Value)/2))
	return m, nil
}

// halfRateOf is the row whose rate B-L3 takes half of.
const halfRateOf = "B-P4/1k"

// halfRateRow is the latency at half of what the same cluster takes at most, with the linger with which it took that.
func halfRateRow(ctx context.Context, s *stage) (m measurement, err error) {
	most, measured := s.values[halfRateOf]
	if !measured {
		l := s.load(s.topic("most", benchPartitions))
		if err := s.create(ctx, s.trio, l.topic); err != nil {
			return m, err
		}
		var load measurement
		if err := s.loaded(ctx, s.trio, l, &load); err != nil {
			return m, err
		}
		most = ratio(float64(load.Bytes)/(1<<20), load.Seconds)
	}
	rate := int(most / 2 * (1 << 20) / float64(s.row.recordBytes))
	err = s.latency(ctx, s.trio, s.topic(benchTopic, benchPartitions), rate, linger, &m)
	m.tell(rateSent, float64(rate))
	return m, err
}

// rebuildRow empties a broker that has a copy of everything, and starts it: how fast it is in sync again.
func rebuildRow(ctx context.Context, s *stage) (m measurement, err error) {
	gone, _, err := plainBroker.find(ctx, s.trio)
	if err != nil {
		return m, err
	}
	t := s.topic(benchTopic, benchPartitions)
	if err := s.create(ctx, s.trio, t); err != nil {
		return m, err
	}
	bytes := int64(1 << 30)
	if s.options.full {
		bytes = 10 << 30
	}
	l := s.load(t)
	records, err := s.produce(ctx, s.trio, l, bytes)
	if err != nil {
		return m, err
	}
	if err := s.trio.awaitInSync(ctx, t.name); err != nil {
		return m, err
	}
	if err := gone.stop(); err != nil {
		return m, err
	}
	if err := errors.Join(os.RemoveAll(gone.home), os.MkdirAll(gone.home, 0o755)); err != nil {
		return m, err
	}
	began := time.Now()
	if err := gone.revive(ctx); err != nil {
		return m, err
	}
	m.tell(untilServing, milli(time.Since(began)))
	if err := s.trio.awaitInSync(ctx); err != nil {
		return m, err
	}
	m.Seconds = time.Since(began).Seconds()
	m.moved(records, s.row)
	return m, nil
}

// idleFor is how long the processor time of an idle cluster is looked at.
const idleFor = 5 * time.Second

// idleRow is the processor time of three brokers that have many partitions and nothing to do.
func idleRow(ctx context.Context, s *stage) (m measurement, err error) {
	empty, err := s.idle(ctx)
	if err != nil {
		return m, err
	}
	partitions := s.row.partitions
	if n := s.row.fewer[s.peer.name()]; n > 0 && !s.options.full {
		partitions = n
	}
	before, err := memoryMiB(s.trio.pids(), "VmRSS")
	if err != nil {
		return m, err
	}
	began := time.Now()
	if err := s.create(ctx, s.trio, s.topic(benchTopic, partitions)); err != nil {
		return m, err
	}
	m.tell(untilInSync, milli(time.Since(began)))
	if err := pause(ctx, settling); err != nil {
		return m, err
	}
	m.Seconds = idleFor.Seconds()
	if m.Value, err = s.idle(ctx); err != nil {
		return m, err
	}
	after, err := memoryMiB(s.trio.pids(), "VmRSS")
	if err != nil {
		return m, err
	}
	m.tell(partitionsHad, float64(partitions))
	m.tell(idleBeyondEmpty, max(m.Value-empty, 0))
	m.tell(kibPerReplica, (after-before)*1024/float64(partitions*s.row.replicas))
	m.PeakMiB, err = memoryMiB(s.trio.pids(), "VmHWM")
	return m, err
}

// idle is the processor time of all three in per cent of a core.
func (s *stage) idle(ctx context.Context) (float64, error) {
	before, err := cpuSeconds(s.trio.pids())
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause(ctx, idleFor); err != nil {
		return 0, err
	}
	after, err := cpuSeconds(s.trio.pids())
	return (after - before) / time.Since(began).Seconds() * 100, err
}
