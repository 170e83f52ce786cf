package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
)

// fill makes a topic, produces at least this many bytes into it and returns how many records it has then.
func (s *stage) fill(ctx context.Context, b broker, t topic, bytes int64) (int64, error) {
	if err := (franzClient{}).create(ctx, b.addr(), t); err != nil {
		return 0, err
	}
	return s.produce(ctx, b, load{topic: t, recordBytes: s.row.recordBytes}, bytes)
}

// produce is fill with a topic that is there, by a given load.
func (s *stage) produce(ctx context.Context, b broker, l load, bytes int64) (int64, error) {
	g, err := franzClient{}.produce(ctx, b.addr(), l)
	if err != nil {
		return 0, err
	}
	err = poll(ctx, 10*time.Millisecond, func(ctx context.Context) (bool, error) {
		n, err := g.count(ctx)
		return n*int64(s.row.recordBytes) >= bytes, err
	})
	if err = errors.Join(err, g.stop()); err != nil {
		return 0, err
	}
	return endOffsets(ctx, b.addr(), l.topic.name)
}

// fillBytes is how much there is to read: enough for the window of a fast client without being read twice too often.
func (s *stage) fillBytes() int64 {
	if s.options.full {
		return 4 << 30
	}
	return 3 << 29
}

// catchUpRow reads a topic over and over from the page cache.
func catchUpRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		records, err := s.fill(ctx, b, topic{name: benchTopic, partitions: benchPartitions}, s.fillBytes())
		if err != nil {
			return err
		}
		c := &franzConsumer{addr: b.addr(), topic: benchTopic}
		ctx, cancel := context.WithCancel(ctx)
		var reading sync.WaitGroup
		var failed error
		reading.Go(func() {
			for ctx.Err() == nil && failed == nil {
				failed = c.read(ctx, records)
			}
		})
		g := &generator{
			count: func(context.Context) (int64, error) { return c.records.Load(), nil },
			stop: func() error {
				cancel()
				reading.Wait()
				return failed
			},
		}
		return errors.Join(s.window(ctx, b, g, &m), g.stop())
	})
}

// toolReadRow reads a topic from the page cache, once to warm and once measured, with a program that says itself how fast
// it was once it was connected. The broker's processor time is that of the whole run.
func toolReadRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		t := topic{name: benchTopic, partitions: benchPartitions}
		records, err := s.fill(ctx, b, t, s.fillBytes())
		if err != nil {
			return err
		}
		if _, err := s.tools.consume(ctx, s.row.client, b.addr(), t, records); err != nil {
			return err
		}
		meter, err := startMeter(b.pids(), nil)
		if err != nil {
			return err
		}
		rate, err := s.tools.consume(ctx, s.row.client, b.addr(), t, records)
		if err != nil {
			return err
		}
		if err := meter.stop(&m); err != nil {
			return err
		}
		m.moved(records, s.row)
		// The tool was a child that has ended: what it used cannot be told from what others did.
		m.Value, m.ClientCPU, m.OthersCPU = rate, 0, 0
		return nil
	})
}

// tailRow is three groups that read what one producer writes at the same time, as fast as all of them go.
func tailRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		t := topic{name: benchTopic, partitions: benchPartitions}
		if err := s.client.create(ctx, b.addr(), t); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var groups []*franzConsumer
		var reading sync.WaitGroup
		errs := make([]error, tailGroups)
		for i := range tailGroups {
			c := &franzConsumer{addr: b.addr(), topic: benchTopic, group: "group-" + strconv.Itoa(i)}
			if s.peer.name() == nullName { // which has no groups
				c.group = ""
			}
			groups = append(groups, c)
			reading.Go(func() { errs[i] = c.read(ctx, 1<<62) })
		}
		stopReading := func() error {
			cancel()
			reading.Wait()
			return errors.Join(errs...)
		}
		g, err := s.client.produce(ctx, b.addr(), load{topic: t, recordBytes: s.row.recordBytes})
		if err != nil {
			return errors.Join(err, stopReading())
		}
		all := &generator{count: func(context.Context) (n int64, err error) {
			for _, c := range groups {
				n += c.records.Load()
			}
			return n, nil
		}}
		err = awaitGroups(ctx, groups)
		if err == nil {
			err = s.window(ctx, b, all, &m)
		}
		if err == nil {
			err = tellRead(ctx, all, g, &m)
		}
		return errors.Join(err, g.stop(), stopReading())
	})
}

const tailGroups = 3

// tellRead tells how much of what was produced so far a group has read: whether it reads the tail or lags behind.
func tellRead(ctx context.Context, consumed, produced *generator, m *measurement) error {
	read, err := consumed.count(ctx)
	if err != nil {
		return err
	}
	written, err := produced.count(ctx)
	m.tell(readOfProduced, ratio(float64(read)/tailGroups, float64(written)))
	return err
}

// awaitGroups returns when each of the groups has read something.
func awaitGroups(ctx context.Context, groups []*franzConsumer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("a group has read nothing for %s", startPatience))
	defer cancel()
	return poll(ctx, 20*time.Millisecond, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(groups, func(c *franzConsumer) bool { return c.records.Load() == 0 }), nil
	})
}

// coldRow reads a topic once from the disk; what the disk gives without a broker is measured on the same files, before and
// after.
func coldRow(ctx context.Context, s *stage) (m measurement, err error) {
	return m, s.withBroker(ctx, func(b broker) error {
		bytes := int64(2 << 30)
		if s.options.full {
			bytes = 4 << 30
		}
		records, err := s.fill(ctx, b, topic{name: benchTopic, partitions: benchPartitions}, bytes)
		if err != nil {
			return err
		}
		if s.peer.name() == nullName { // there is no disk to read from
			return s.readOnce(ctx, b, records, &m)
		}
		logs, err := filepath.Glob(filepath.Join(s.home, "data", benchTopic+"-*", "*.log"))
		if err != nil || len(logs) == 0 {
			return fmt.Errorf("no log files below %s: %w", s.home, err)
		}
		if err := dropCaches(); err != nil {
			return err
		}
		before, err := readDirect(logs, 2*time.Second)
		if err != nil {
			return err
		}
		if err := dropCaches(); err != nil {
			return err
		}
		if err := s.readOnce(ctx, b, records, &m); err != nil {
			return err
		}
		after, err := readDirect(logs, 2*time.Second)
		m.Raw = median([]float64{before, after})
		return err
	})
}

func (s *stage) readOnce(ctx context.Context, b broker, records int64, m *measurement) error {
	meter, err := startMeter(b.pids(), nil)
	if err != nil {
		return err
	}
	c := &franzConsumer{addr: b.addr(), topic: benchTopic}
	if err := c.read(ctx, records); err != nil {
		return err
	}
	if err := meter.stop(m); err != nil {
		return err
	}
	m.moved(records, s.row)
	return ctx.Err()
}

// dropCaches writes everything to the disk and forgets it.
func dropCaches() error {
	syncAll()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
		return fmt.Errorf("the cold rows want root: %w", err)
	}
	return nil
}
