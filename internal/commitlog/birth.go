package commitlog

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// A partition that was never written to has nothing on disk: what a start would find in its directory is what it knows
// anyway. So a new log is a value in memory, and is born with the first thing that it must write. Creating thousands of
// partitions, and starting with them, then costs no system call for any that nobody uses, and the journal of the file system
// does not stand between a creation and its answer.
//
//	unborn ── first append, or a start elsewhere than at 0 ──▶ born
//
// An unborn log ends where it starts, has no file, needs no sync, and is in no checkpoint. The holder of the write slot alone
// lets it be born; whoever finds it unborn without the slot treats it as if it had been looked at before.

// newUnborn is an empty log in memory; makeDir makes its directory when it is born.
func newUnborn(o Options, makeDir func() error) (*Log, error) {
	l := newLog(o)
	l.holder.makeDir = makeDir
	l.unborn.Store(true)
	nothing := newSegment(l.options.FS, l.options.Dir, 0, "")
	nothing.startEmpty(l.options.Now())
	l.segments.Store(&[]*segment{nothing})
	return l, l.loadProducers(0)
}

// beBorn puts an unborn log on the disk; afterwards it is as if Open had made it. A log that could not be born, on a full
// disk for example, may be tried again. The caller holds the slot.
func (l *Log) beBorn() error {
	if !l.unborn.Load() {
		return nil
	}
	l.holder.bearing = true
	if err := l.holder.makeDir(); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	first, err := createSegment(l.options.FS, l.options.Dir, 0, "", l.options.Now())
	if err != nil {
		return err
	}
	l.newDir.Store(true)
	l.names.changed()
	l.swapSegments([]*segment{first})
	l.unborn.Store(false)
	l.holder.makeDir = nil
	return nil
}

// traceless tells whether there is nothing of the log on disk, for good: it is closed.
func (l *Log) traceless() bool { return l.unborn.Load() && !l.holder.bearing }

// makePartition makes the directory of a partition, with the file that names the topic's id. The log's first sync syncs both.
func (m *Manager) makePartition(name PartitionName, id meta.TopicID) error {
	if err := m.options.FS.MkdirAll(m.path(name)); err != nil {
		return err
	}
	return writePlain(m.options.FS, filepath.Join(m.path(name), partitionMetadataFileName), encodePartitionMetadata(id))
}

// writePlain writes a file without syncing it.
func writePlain(fsys vfs.FS, name string, data []byte) error {
	file, err := fsys.Open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(data, 0)
	return err
}
