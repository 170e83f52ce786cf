package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"
)

// Suffixes of directories that are no partition any more, Kafka's own.
const (
	deleteSuffix = "-delete"
	straySuffix  = "-stray"
)

// doomedDir is the directory of a deleted partition, which waits for readers and file.delete.delay.ms.
type doomedDir struct {
	path  string
	since time.Time
	delay time.Duration
	log   *Log // nil: an earlier process deleted it
}

// read tells whether a reader still uses a file of the directory.
func (d *doomedDir) read() bool {
	return d.log != nil && slices.ContainsFunc(*d.log.segments.Load(), func(s *segment) bool { return s.pins.Load() > 0 })
}

// Delete removes logs: they are closed, and their directories renamed so that they are swept after file.delete.delay.ms.
// On return the deletion is durable. Deleting what is gone already is no error.
func (m *Manager) Delete(logs ...*Log) error {
	var gone []PartitionName
	var first error
	for _, l := range logs {
		dir, err := m.retire(l, deleteSuffix)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		gone = append(gone, l.Name())
		if dir != "" {
			m.doom(dir, l)
		}
	}
	return errors.Join(first, m.options.FS.SyncDir(m.options.Dir), m.forget(gone...))
}

// doom leaves a renamed directory to sweep; l is nil if an earlier process deleted it.
func (m *Manager) doom(dir string, l *Log) {
	d := doomedDir{path: dir, since: m.options.Now(), log: l}
	if l != nil {
		d.delay = l.settings.Load().FileDeleteDelay
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.doomed = append(m.mu.doomed, d)
}

// SetAside takes a log that belongs to no known life of a topic out of service; its directory is renamed and kept (U-57).
func (m *Manager) SetAside(l *Log) error {
	dir, err := m.retire(l, straySuffix)
	if err != nil || dir == "" {
		return err
	}
	return m.noteStray(l.Name(), dir)
}

// setAsideUnsynced keeps what is left of a partition that was new when the power was cut: a sync makes the file that names
// its topic id durable, so nothing in it was ever promised to anybody, and the partition may start again.
func (m *Manager) setAsideUnsynced(name PartitionName) error {
	dir, err := m.rename(name, straySuffix)
	if err != nil {
		return err
	}
	return m.noteStray(name, dir)
}

func (m *Manager) noteStray(name PartitionName, dir string) error {
	m.options.Logger.Warn("partition directory is set aside as a stray", slog.String("dir", dir))
	m.mu.Lock()
	m.mu.strays = append(m.mu.strays, dir)
	m.mu.Unlock()
	return errors.Join(m.options.FS.SyncDir(m.options.Dir), m.forget(name))
}

// retire closes a log and renames its directory as Kafka does: name.<32 hexadecimal digits>suffix. An empty result says
// that it had gone already, or never was there.
func (m *Manager) retire(l *Log, suffix string) (dir string, err error) {
	m.mu.Lock()
	mine := m.mu.logs[l.Name()] == l
	if mine {
		delete(m.mu.logs, l.Name())
	}
	m.mu.Unlock()
	if !mine {
		return "", nil
	}
	l.abandon()
	if l.traceless() {
		return "", nil
	}
	return m.rename(l.Name(), suffix)
}

// rename gives a partition's directory another name, as Kafka does.
func (m *Manager) rename(name PartitionName, suffix string) (dir string, err error) {
	var random [16]byte
	if _, err := io.ReadFull(m.options.Random, random[:]); err != nil {
		return "", err
	}
	tail := fmt.Sprintf(".%x%s", random, suffix)
	base := name.String()
	dir = filepath.Join(m.options.Dir, base[:min(len(base), 255-len(tail))]+tail)
	if err := m.options.FS.Rename(m.path(name), dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: retire %s: %w", ErrStorage, name, err)
	}
	return dir, nil
}

// abandon closes a log whose content no longer matters. Readers that have slices keep them.
func (l *Log) abandon() {
	if l.acquire() != nil {
		return
	}
	defer l.release()
	l.failPending(ErrClosed, true)
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	for _, s := range *l.segments.Load() {
		if s.pins.Load() == 0 {
			s.close()
		}
	}
}
