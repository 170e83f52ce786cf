package commitlog

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// tick is the pace of the background work: nothing that it does needs to be more punctual, and an idle directory costs
// one look at each log's counters.
const tick = time.Second

// sweepInterval is the time between looks for files whose delay is over.
const sweepInterval = 15 * time.Second

// Run does the background work of the directory until ctx ends: grouped syncs, retention, compaction, checkpoints,
// sweeping. What fails is logged, counted and tried again: no work stops for good because it failed once (U-88).
func (m *Manager) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { _ = m.syncer.Run(ctx) }) // it ends with ctx
	group.Go(func() { _ = m.compactor.run(ctx) })
	defer group.Wait()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var due struct{ maintenance, sweep, checkpoint, highWatermark time.Time }
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		now := m.options.Now()
		full := m.options.NearlyFull()
		sweep := full || !now.Before(due.sweep)
		all := !now.Before(due.maintenance) || full && !now.Before(due.sweep)
		if all {
			sweep, due.maintenance = true, now.Add(m.options.MaintenanceInterval)
		}
		if !now.Before(due.sweep) {
			due.sweep = now.Add(sweepInterval)
		}
		m.Maintain(now, all, sweep)
		if !now.Before(due.checkpoint) {
			due.checkpoint = now.Add(m.options.CheckpointInterval)
			m.report("write checkpoints", m.Checkpoint())
		} else if !now.Before(due.highWatermark) {
			due.highWatermark = now.Add(m.options.HighWatermarkInterval)
			m.report("write high watermarks", m.CheckpointHighWatermarks())
		}
	}
}

// report logs and counts an error of background work.
func (m *Manager) report(what string, err error) {
	if err != nil {
		m.metrics.maintenanceFailed()
		m.options.Logger.Error("background work on logs failed and is tried again", slog.String("work", what), slog.Any("err", err))
	}
}

// Maintain does one round of retention on all logs, or only what cannot wait: syncs by flush.ms and, with sweep, the
// removal of files whose delay is over.
func (m *Manager) Maintain(now time.Time, all, sweep bool) {
	m.mu.Lock()
	highWatermark := m.mu.highWatermark
	m.mu.Unlock()
	for _, l := range m.Logs() {
		interval := l.settings.Load().FlushInterval
		flush := interval < math.MaxInt64 && l.end.Load() > l.synced.Load() && now.UnixNano()-l.flushed.Load() >= int64(interval)
		if !all && !flush && (!sweep || l.doomedCount.Load() == 0) {
			continue
		}
		if _, err := l.Maintain(now, highWatermark(l)); err != nil && err != ErrClosed { //nolint:errorlint // returned bare
			m.report("maintain "+l.Name().String(), err)
		}
	}
	if sweep {
		m.sweep(now)
	}
}

// sweep removes the directories of deleted partitions whose delay is over. On a nearly full disk none waits for its delay:
// readers are safe without it, since a directory that somebody reads stays.
func (m *Manager) sweep(now time.Time) {
	full := m.options.NearlyFull()
	m.mu.Lock()
	var due []doomedDir
	m.mu.doomed = slices.DeleteFunc(m.mu.doomed, func(d doomedDir) bool {
		if !full && now.Sub(d.since) < d.delay || d.read() {
			return false
		}
		due = append(due, d)
		return true
	})
	m.mu.Unlock()
	for _, d := range due {
		if d.log != nil {
			for _, s := range *d.log.segments.Load() {
				s.close()
			}
		}
		if err := vfs.RemoveAll(m.options.FS, d.path); err != nil {
			m.report("sweep "+d.path, err)
			m.mu.Lock()
			m.mu.doomed = append(m.mu.doomed, d)
			m.mu.Unlock()
		}
	}
}
