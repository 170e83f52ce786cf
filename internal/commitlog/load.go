package commitlog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// RecoverySummary tells what opening the logs of a data directory found.
type RecoverySummary struct {
	Partitions   int // opened
	Scanned      int // of them, by reading batches
	ScannedBytes int64
	CutBytes     int64
	Cut          []CutLog // every log that lost bytes, by name
	Quarantined  []QuarantinedDir
	// Lost says that something is gone which had been synced, or may be: a log ends below its recovery point, a partition
	// could not be opened, or the checkpoint names one that is not there.
	Lost     bool
	Duration time.Duration
}

// CutLog is a log whose end was cut at a bad batch.
type CutLog struct {
	Name PartitionName
	Recovery
}

// QuarantinedDir is a partition directory that could not be opened, and why.
type QuarantinedDir struct {
	Name PartitionName
	Err  error
}

// Load opens every partition in the directory, OpenWorkers at a time, and returns what it found. configOf gives the
// configuration of a topic by name; Open corrects it later. A partition that cannot be opened is set aside and reported
// (U-56); the error is only that of the directory itself, or of ctx.
func (m *Manager) Load(ctx context.Context, configOf func(topic string) Config) (RecoverySummary, error) {
	started := m.options.Now()
	names, err := m.listPartitions()
	if err != nil {
		return RecoverySummary{}, err
	}
	var mu sync.Mutex
	var summary RecoverySummary
	opened := 0
	synced := m.written.recoveryPoints // opening logs may replace it by lower ones
	missing := maps.Clone(synced)
	m.options.Loaded(0, len(names))
	var group sync.WaitGroup
	var next atomic.Int64
	for range min(max(m.options.OpenWorkers, 1), len(names)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(names)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				l, recovery, err := m.load(names[i], configOf(names[i].Topic))
				mu.Lock()
				summary.add(names[i], l, recovery, err)
				summary.Lost = summary.Lost || l == nil || l.EndOffset() < synced[names[i]]
				delete(missing, names[i])
				opened++
				m.options.Loaded(opened, len(names))
				mu.Unlock()
				m.adopt(names[i], l, err)
			}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return summary, err
	}
	summary.Lost = summary.Lost || len(missing) > 0
	slices.SortFunc(summary.Cut, func(a, b CutLog) int { return cmp.Compare(a.Name.String(), b.Name.String()) })
	summary.Duration = m.options.Now().Sub(started)
	m.metrics.quarantined(len(summary.Quarantined))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.summary = summary
	return summary, nil
}

func (s *RecoverySummary) add(name PartitionName, l *Log, r Recovery, err error) {
	switch {
	case err != nil:
		s.Quarantined = append(s.Quarantined, QuarantinedDir{name, err})
		return
	case l == nil:
		return
	}
	s.Partitions++
	s.ScannedBytes += r.ScannedBytes
	s.CutBytes += r.CutBytes
	if r.Scanned {
		s.Scanned++
	}
	if r.CutBytes > 0 {
		s.Cut = append(s.Cut, CutLog{name, r})
	}
}

func (m *Manager) adopt(name PartitionName, l *Log, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.options.Logger.Error("partition directory could not be opened and is set aside",
			slog.String("topic", name.Topic), slog.Int64("partition", int64(name.Partition)), slog.Any("err", err))
		m.mu.quarantined[name] = err
		return
	}
	if l == nil {
		m.mu.unfinished[name] = struct{}{}
		return
	}
	m.mu.logs[name] = l
}

// load opens one partition. Without error and log, its creation was never finished: Open starts again, and clears what is
// left of it. Until then it stays: that there are partitions is how a start knows that its registry is missing.
func (m *Manager) load(name PartitionName, config Config) (*Log, Recovery, error) {
	text, err := vfs.ReadFile(m.options.FS, filepath.Join(m.path(name), partitionMetadataFileName), partitionMetadataBytesMax)
	var id meta.TopicID
	if err == nil {
		id, err = decodePartitionMetadata(text)
	}
	if err != nil {
		if empty, listErr := m.holdsNothing(name); listErr == nil && empty {
			return nil, Recovery{}, nil
		}
		if !m.state.Marked && !m.state.SameBoot && m.written.recoveryPoints[name] == 0 {
			return nil, Recovery{}, m.setAsideUnsynced(name)
		}
		return nil, Recovery{}, fmt.Errorf("%s: %w", partitionMetadataFileName, err)
	}
	o := m.logOptions(name, id, config)
	o.RecoveryPoint, o.LogStart = m.written.recoveryPoints[name], m.written.logStarts[name]
	l, recovery, err := Open(o)
	if err == nil {
		l.SetCleanedOffset(m.written.cleaned[name])
	}
	return l, recovery, err
}

// holdsNothing tells whether a partition directory has no batches, not even in a file that compaction was swapping in or out.
func (m *Manager) holdsNothing(name PartitionName) (bool, error) {
	entries, err := m.options.FS.List(m.path(name))
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(entries, func(e vfs.Entry) bool {
		return e.Size > 0 && strings.Contains(e.Name, logSuffix)
	}), nil
}
