package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func syncAll() { syscall.Sync() }

// createRow makes one topic of many partitions.
func createRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		return s.timed(b, &m, s.row.partitions, func() error {
			return s.client.create(ctx, b.addr(), topic{name: "many", partitions: s.row.partitions})
		})
	})
}

// createTopicsRow makes many topics of one partition.
func createTopicsRow(ctx context.Context, s *stage) (m measurement, err error) {
	names := make([]string, s.row.partitions)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%05d", i)
	}
	return m, s.withBroker(ctx, func(b broker) error {
		return s.timed(b, &m, len(names), func() error { return createTopics(ctx, b.addr(), names) })
	})
}

// timed measures something that is done n times, in n a second.
func (s *stage) timed(b broker, m *measurement, n int, do func() error) error {
	meter, err := startMeter(b.pids(), nil)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	err = meter.stop(m)
	m.Value = ratio(float64(n), m.Seconds)
	return err
}

// fillEvenly puts the same number of records into each partition of a new topic.
func fillEvenly(ctx context.Context, addr string, t topic, each, recordBytes int) error {
	if err := (franzClient{}).create(ctx, addr, t); err != nil {
		return err
	}
	opts, err := produceOptions(addr, load{topic: t})
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	values := payloads(recordBytes)
	failures := make(chan error, 1)
	for i := range each {
		for p := range t.partitions {
			cl.Produce(ctx, &kgo.Record{Value: values[i%len(values)], Partition: int32(p)}, func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failures <- err:
					default:
					}
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failures:
		return fmt.Errorf("produce: %w", err)
	default:
		return nil
	}
}

// restartRow is from the exec of the process to the first answer about every partition, after a clean stop.
func restartRow(ctx context.Context, s *stage) (m measurement, err error) {
	err = s.withBroker(ctx, func(b broker) error {
		if s.row.partitions == 0 {
			return nil
		}
		return fillEvenly(ctx, b.addr(), topic{name: benchTopic, partitions: s.row.partitions}, 1, s.row.recordBytes)
	})
	if err != nil {
		return m, err
	}
	return m, s.startAgain(ctx, &m)
}

// killRow is the same after SIGKILL, with so much in each partition that recovery has something to read.
func killRow(ctx context.Context, s *stage) (m measurement, err error) {
	eachMiB := 10
	if s.options.full {
		eachMiB = 100
	}
	b, err := s.peer.start(ctx, s.home, false)
	if err != nil {
		return m, err
	}
	err = fillEvenly(ctx, b.addr(), topic{name: benchTopic, partitions: s.row.partitions}, eachMiB<<20/s.row.recordBytes, s.row.recordBytes)
	b.Kill()
	if err != nil {
		return m, err
	}
	err = s.startAgain(ctx, &m)
	m.tell(scannedMiBPerSecond, ratio(float64(eachMiB*s.row.partitions), m.Seconds))
	return m, err
}

// startAgain measures a start over what is there, in milliseconds.
func (s *stage) startAgain(ctx context.Context, m *measurement) error {
	began := time.Now()
	return s.withBroker(ctx, func(b broker) error {
		if s.row.partitions > 0 {
			if _, err := endOffsets(ctx, b.addr(), benchTopic); err != nil {
				return err
			}
		} else if err := answers(ctx, b.addr()); err != nil {
			return err
		}
		took := time.Since(began)
		m.Seconds, m.Value = took.Seconds(), float64(took.Microseconds())/1e3
		var err error
		m.ServerCPU, err = cpuSeconds(b.pids())
		if err == nil {
			m.PeakMiB, err = memoryMiB(b.pids(), "VmHWM")
		}
		return err
	})
}

// answers returns when a broker has answered a request.
func answers(ctx context.Context, addr string) error {
	cl, err := kgo.NewClient(seeds(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.Ping(ctx)
}

// settling is how long an idle broker is left alone before its memory is looked at.
const settling = 3 * time.Second

// memoryRow is what a broker that does nothing has in memory, without and with partitions.
func memoryRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		if err := pause(ctx, settling); err != nil {
			return err
		}
		empty, err := memoryMiB(b.pids(), "VmRSS")
		if err != nil {
			return err
		}
		m.Value = empty
		if n := s.row.partitions; n > 0 {
			if err := fillEvenly(ctx, b.addr(), topic{name: benchTopic, partitions: n}, 1, s.row.recordBytes); err != nil {
				return err
			}
			if err := pause(ctx, settling); err != nil {
				return err
			}
			if m.Value, err = memoryMiB(b.pids(), "VmRSS"); err != nil {
				return err
			}
			m.tell(kibPerPartition, (m.Value-empty)*1024/float64(n))
		}
		before, err := cpuSeconds(b.pids())
		if err != nil {
			return err
		}
		if err := pause(ctx, settling); err != nil {
			return err
		}
		after, err := cpuSeconds(b.pids())
		m.tell(idleCorePercent, (after-before)/settling.Seconds()*100)
		peak, peakErr := memoryMiB(b.pids(), "VmHWM")
		m.PeakMiB = peak
		return errors.Join(err, peakErr)
	})
}
