package commitlog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// compactor runs the compactions of a data directory, one at a time, the most urgent first. It never stops for good: a log
// that fails is left alone for a while, longer each time, and shows why (U-88).
type compactor struct {
	manager  *Manager
	metrics  *compactionMetrics
	cleaner  *Cleaner // of run, like the two that follow
	limits   CompactionLimits
	throttle throttle

	mu struct {
		sync.Mutex
		states map[*Log]*CompactionState
	}
}

// CompactionLimits are the bounds of a data directory's compactions.
type CompactionLimits struct {
	// Off leaves compacted topics uncompacted (log.cleaner.enable=false).
	Off bool
	// Interval is the time between looks for logs to compact (log.cleaner.backoff.ms, default 15 s).
	Interval time.Duration
	// KeyBytesMax bounds the memory for keys (log.cleaner.dedupe.buffer.size, default 128 MiB): see CleanerOptions.
	KeyBytesMax int64
	// BytesPerSecond bounds what compaction reads and writes (log.cleaner.io.max.bytes.per.second); 0: no bound.
	BytesPerSecond int64
}

// compactionIntervalDefault is Kafka's default of log.cleaner.backoff.ms.
const compactionIntervalDefault = 15 * time.Second

// compactionRetryMax bounds the time for which a log that cannot be compacted is left alone.
const compactionRetryMax = time.Hour

// CompactionState is how compaction stands with one log.
type CompactionState struct {
	Name    PartitionName
	Cleaned int64 // the end of what has been compacted
	Running bool
	Passes  int // since the start
	Last    Compaction
	LastAt  time.Time // when the last pass ended; zero: there was none
	// Failures counts the failed tries since the last success. With any, the log counts as uncleanable: Err says why, and it
	// is not tried before Retry.
	Failures int
	Err      error
	Retry    time.Time
}

func newCompactor(m *Manager) *compactor {
	c := &compactor{manager: m, metrics: newCompactionMetrics(m.options.Registerer)}
	c.mu.states = map[*Log]*CompactionState{}
	c.throttle.now = m.options.Now
	return c
}

// limit takes up the bounds that count now.
func (c *compactor) limit() {
	was := c.limits
	c.limits = c.manager.options.Compaction()
	c.limits.Interval = cmp.Or(c.limits.Interval, compactionIntervalDefault)
	c.throttle.bytesPerSecond = c.limits.BytesPerSecond
	if c.cleaner == nil || c.limits.KeyBytesMax != was.KeyBytesMax {
		c.cleaner = NewCleaner(CleanerOptions{KeyBytesMax: c.limits.KeyBytesMax, Throttle: c.throttle.wait})
	}
}

// run compacts what is due, and looks again after the interval, until ctx ends.
func (c *compactor) run(ctx context.Context) error {
	c.limit()
	timer := time.NewTimer(c.limits.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		c.limit()
		for ctx.Err() == nil && !c.limits.Off && c.round(ctx) {
			c.limit()
		}
		timer.Reset(c.limits.Interval)
	}
}

// round compacts the most urgent log that is due; false when none is.
func (c *compactor) round(ctx context.Context) bool {
	l, highWatermark := c.choose()
	if l == nil {
		return false
	}
	c.change(l, func(s *CompactionState) { s.Running = true })
	result, err := l.Compact(ctx, c.cleaner, highWatermark)
	c.metrics.passed(result, err)
	c.change(l, func(s *CompactionState) {
		s.Running, s.LastAt = false, c.manager.options.Now()
		if err == nil {
			s.Passes, s.Last, s.Failures, s.Err = s.Passes+1, result, 0, nil
			return
		}
		s.fail(err, c.limits.Interval)
	})
	switch {
	case err == nil:
		c.manager.report("write cleaner checkpoint", c.manager.checkpointCleaned())
	case ctx.Err() == nil && !errors.Is(err, ErrCompactionVoid):
		c.manager.options.Logger.Error("compaction failed and is tried again later", slog.String("topic", l.Topic()),
			slog.Int64("partition", int64(l.Partition())), slog.Any("err", err))
	}
	c.metrics.uncleanable(c.failing())
	return true
}

// fail notes an error. A pass that was merely void does not count.
func (s *CompactionState) fail(err error, interval time.Duration) {
	delay := interval
	if !errors.Is(err, ErrCompactionVoid) {
		delay <<= min(s.Failures, 12)
		s.Failures++
		s.Err = err
	}
	s.Retry = s.LastAt.Add(min(delay, compactionRetryMax))
}

// choose finds the log whose compaction is the most urgent: the one that is furthest past max.compaction.lag.ms, else the
// one with the greatest dirty share. Nil: none is due.
func (c *compactor) choose() (best *Log, highWatermark int64) {
	m := c.manager
	m.mu.Lock()
	highWatermarkOf := m.mu.highWatermark
	m.mu.Unlock()
	now := m.options.Now()
	logs := m.Logs()
	c.forget(logs)
	var most Cleanable
	for _, l := range logs {
		if !l.settings.Load().CleanupCompact || l.Err() != nil {
			continue
		}
		mark := highWatermarkOf(l)
		if state := c.state(l); mark < 0 || now.Before(state.Retry) {
			continue
		}
		can, err := l.Cleanable(mark)
		if err != nil {
			c.change(l, func(s *CompactionState) { s.LastAt = now; s.fail(err, c.limits.Interval) })
			m.report("look for what may be compacted in "+l.Name().String(), err)
			continue
		}
		if !can.Due || best != nil && cmp.Or(cmp.Compare(can.Overdue, most.Overdue), cmp.Compare(can.Ratio(), most.Ratio())) <= 0 {
			continue
		}
		best, most, highWatermark = l, can, mark
	}
	return best, highWatermark
}

// forget drops the states of logs that are gone.
func (c *compactor) forget(logs []*Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.states) == 0 {
		return
	}
	open := make(map[*Log]bool, len(logs))
	for _, l := range logs {
		open[l] = true
	}
	for l := range c.mu.states {
		if !open[l] {
			delete(c.mu.states, l)
		}
	}
}

func (c *compactor) change(l *Log, change func(*CompactionState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.states[l]
	if s == nil {
		s = &CompactionState{Name: l.Name()}
		c.mu.states[l] = s
	}
	change(s)
}

func (c *compactor) state(l *Log) CompactionState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.states[l]; s != nil {
		return *s
	}
	return CompactionState{Name: l.Name()}
}

// failing is how many logs count as uncleanable.
func (c *compactor) failing() (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.mu.states {
		if s.Failures > 0 {
			count++
		}
	}
	return count
}

// Compactions is how compaction stands with each compacted log, by name.
func (m *Manager) Compactions() []CompactionState {
	var states []CompactionState
	for _, l := range m.Logs() {
		if l.settings.Load().CleanupCompact {
			s := m.compactor.state(l)
			s.Cleaned = l.CleanedOffset()
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b CompactionState) int {
		return cmp.Or(cmp.Compare(a.Name.Topic, b.Name.Topic), cmp.Compare(a.Name.Partition, b.Name.Partition))
	})
	return states
}

// throttle bounds the bytes that compaction reads and writes, over a second.
type throttle struct {
	bytesPerSecond int64 // 0: no bound
	now            func() time.Time
	free           time.Time // when what was admitted so far is paid for
}

func (t *throttle) wait(ctx context.Context, bytes int) error {
	if t.bytesPerSecond <= 0 {
		return ctx.Err()
	}
	now := t.now()
	if t.free.Before(now.Add(-time.Second)) {
		t.free = now.Add(-time.Second) // a second's worth at most is saved up
	}
	t.free = t.free.Add(time.Duration(float64(bytes) / float64(t.bytesPerSecond) * float64(time.Second)))
	delay := t.free.Sub(now)
	if delay <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// compactionMetrics are the figures of a directory's compactions. A nil one counts nothing.
type compactionMetrics struct {
	passes, failures, read, written prometheus.Counter
	failing                         prometheus.Gauge
}

func newCompactionMetrics(r prometheus.Registerer) *compactionMetrics {
	if r == nil {
		return nil
	}
	m := &compactionMetrics{
		passes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_compactions_total", Help: "Passes of compaction over a log that succeeded.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_compaction_failures_total", Help: "Passes of compaction that failed; they are tried again.",
		}),
		read: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_compaction_read_bytes_total", Help: "Bytes of batches that compaction read in order to rewrite them.",
		}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_log_compaction_written_bytes_total", Help: "Bytes of batches that compaction kept.",
		}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kafka_log_logcleanermanager_uncleanable_partitions_count", Help: "Logs whose last compaction failed.",
		}),
	}
	r.MustRegister(m.passes, m.failures, m.read, m.written, m.failing)
	return m
}

func (m *compactionMetrics) passed(c Compaction, err error) {
	if m == nil {
		return
	}
	m.read.Add(float64(c.BytesRead))
	m.written.Add(float64(c.Bytes))
	switch {
	case err == nil:
		m.passes.Inc()
	case !errors.Is(err, ErrCompactionVoid):
		m.failures.Inc()
	}
}

func (m *compactionMetrics) uncleanable(count int) {
	if m != nil {
		m.failing.Set(float64(count))
	}
}
