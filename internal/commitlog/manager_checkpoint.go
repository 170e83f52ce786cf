package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// checkpointSet is the content of the checkpoint files of a data directory.
type checkpointSet struct {
	recoveryPoints, logStarts, highWatermarks, cleaned map[PartitionName]int64
}

// checkpointFile is one of them.
type checkpointFile struct {
	name    string
	offsets map[PartitionName]int64
}

func (s *checkpointSet) files() [4]checkpointFile {
	return [4]checkpointFile{
		{recoveryPointFileName, s.recoveryPoints}, {logStartFileName, s.logStarts}, {highWatermarkFileName, s.highWatermarks},
		{cleanerFileName, s.cleaned},
	}
}

// readCheckpoints reads them all. One that is missing or malformed counts as empty: recovery then scans from the start,
// and a log start is that of the first segment.
func (m *Manager) readCheckpoints() (checkpointSet, error) {
	read := func(name string) (map[PartitionName]int64, error) {
		text, err := vfs.ReadFile(m.options.FS, filepath.Join(m.options.Dir, name), checkpointBytesMax)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return map[PartitionName]int64{}, nil
		case err != nil && !errors.Is(err, vfs.ErrTooLarge):
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if err == nil && len(text) == 0 && name == cleanerFileName {
			return map[PartitionName]int64{}, nil // Kafka creates it empty
		}
		var offsets map[PartitionName]int64
		if err == nil {
			offsets, err = decodeOffsets(text)
		}
		if err != nil {
			m.options.Logger.Error("checkpoint is not believed", slog.String("file", name), slog.Any("err", err))
			return map[PartitionName]int64{}, nil
		}
		return offsets, nil
	}
	var s checkpointSet
	var errs [4]error
	s.recoveryPoints, errs[0] = read(recoveryPointFileName)
	s.logStarts, errs[1] = read(logStartFileName)
	s.highWatermarks, errs[2] = read(highWatermarkFileName)
	s.cleaned, errs[3] = read(cleanerFileName)
	return s, errors.Join(errs[:]...)
}

// CheckpointedHighWatermark is the high watermark that the checkpoint has for a partition, 0 if it has none.
func (m *Manager) CheckpointedHighWatermark(name PartitionName) int64 {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	return m.written.highWatermarks[name]
}

// currentCheckpoints is what the files should hold now. A log start is noted only where the files do not show it: above
// the first segment's base, as Kafka does.
func (m *Manager) currentCheckpoints() checkpointSet {
	m.mu.Lock()
	logs, highWatermark := maps.Clone(m.mu.logs), m.mu.highWatermark
	m.mu.Unlock()
	s := checkpointSet{
		make(map[PartitionName]int64, len(logs)), map[PartitionName]int64{}, make(map[PartitionName]int64, len(logs)), map[PartitionName]int64{},
	}
	for name, l := range logs {
		if l.unborn.Load() {
			continue
		}
		s.recoveryPoints[name] = l.RecoveryPoint()
		if start := l.StartOffset(); start > (*l.segments.Load())[0].base {
			s.logStarts[name] = start
		}
		if cleaned := l.compaction.cleaned.Load(); cleaned > 0 {
			s.cleaned[name] = cleaned
		}
		if s.highWatermarks[name] = highWatermark(l); s.highWatermarks[name] < 0 {
			s.highWatermarks[name] = m.written.highWatermarks[name] // not known yet
		}
	}
	m.keepQuarantined(&s)
	return s
}

// keepQuarantined keeps what the files say about partitions that could not be opened: they may be repaired.
func (m *Manager) keepQuarantined(s *checkpointSet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	into := s.files()
	for i, file := range m.written.files() {
		for name := range m.mu.quarantined {
			if offset, found := file.offsets[name]; found {
				into[i].offsets[name] = offset
			}
		}
	}
}

// Checkpoint writes the checkpoint files that have changed, durably. On a full disk the old ones stay.
func (m *Manager) Checkpoint() error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	return m.writeCheckpoints(m.currentCheckpoints())
}

// CheckpointHighWatermarks is Checkpoint for the high watermarks alone, which are written more often.
func (m *Manager) CheckpointHighWatermarks() error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	s := m.written
	s.highWatermarks = m.currentCheckpoints().highWatermarks
	return m.writeCheckpoints(s)
}

// checkpointCleaned is Checkpoint for the ends of compactions alone, after each of them.
func (m *Manager) checkpointCleaned() error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	s := m.written
	s.cleaned = m.currentCheckpoints().cleaned
	return m.writeCheckpoints(s)
}

// writeCheckpoints makes the files hold s. The caller holds the slot.
func (m *Manager) writeCheckpoints(s checkpointSet) error {
	old := m.written.files()
	var errs []error
	for i, file := range s.files() {
		if maps.Equal(file.offsets, old[i].offsets) {
			continue
		}
		text := encodeOffsets(file.offsets)
		if err := vfs.WriteAtomic(m.options.FS, filepath.Join(m.options.Dir, file.name), text); err != nil {
			errs = append(errs, err)
			continue
		}
		switch file.name {
		case recoveryPointFileName:
			m.written.recoveryPoints = file.offsets
		case logStartFileName:
			m.written.logStarts = file.offsets
		case highWatermarkFileName:
			m.written.highWatermarks = file.offsets
		case cleanerFileName:
			m.written.cleaned = file.offsets
		}
	}
	return errors.Join(errs...)
}

// lowerRecoveryPoint makes sure that the checkpoint of a log is not above to.
func (m *Manager) lowerRecoveryPoint(name PartitionName, to int64) error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	if m.written.recoveryPoints[name] <= to {
		return nil
	}
	s := m.written
	s.recoveryPoints = maps.Clone(s.recoveryPoints)
	s.recoveryPoints[name] = to
	return m.writeCheckpoints(s)
}

// forget removes partitions from the checkpoint files, which name them by topic: what they say must not be taken for the
// next life of a topic.
func (m *Manager) forget(names ...PartitionName) error {
	m.checkpoints <- struct{}{}
	defer func() { <-m.checkpoints }()
	var s checkpointSet
	old := m.written.files()
	changed := false
	without := func(offsets map[PartitionName]int64) map[PartitionName]int64 {
		left := offsets
		for _, name := range names {
			if _, found := left[name]; found {
				if !changed || len(left) == len(offsets) {
					left = maps.Clone(left)
				}
				delete(left, name)
				changed = true
			}
		}
		return left
	}
	s.recoveryPoints, s.logStarts = without(old[0].offsets), without(old[1].offsets)
	s.highWatermarks, s.cleaned = without(old[2].offsets), without(old[3].offsets)
	if !changed {
		return nil
	}
	return m.writeCheckpoints(s)
}

// listPartitions lists the partition directories, and notes those that wait to be swept or were set aside.
func (m *Manager) listPartitions() ([]PartitionName, error) {
	entries, err := m.options.FS.List(m.options.Dir)
	if err != nil {
		return nil, fmt.Errorf("list data directory: %w", err)
	}
	var names []PartitionName
	for _, entry := range entries {
		path := filepath.Join(m.options.Dir, entry.Name)
		switch {
		case !entry.Dir:
		case strings.HasSuffix(entry.Name, deleteSuffix):
			m.doom(path, nil)
		case strings.HasSuffix(entry.Name, straySuffix):
			m.mu.Lock()
			m.mu.strays = append(m.mu.strays, path)
			m.mu.Unlock()
		default:
			if name, ok := parsePartitionName(entry.Name); ok {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// parsePartitionName is the inverse of PartitionName.String.
func parsePartitionName(dir string) (PartitionName, bool) {
	dash := strings.LastIndexByte(dir, '-')
	if dash < 1 {
		return PartitionName{}, false
	}
	partition, err := parseNumber([]byte(dir[dash+1:]), 32)
	if err != nil || !bytes.Equal(strconv.AppendInt(nil, partition, 10), []byte(dir[dash+1:])) {
		return PartitionName{}, false
	}
	return PartitionName{dir[:dash], int32(partition)}, true
}
