package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Sync makes everything that has been appended durable, together with whatever other logs of the directory are being
// synced, and returns the synced end. It returns ErrStorage if the disk fails, which makes the log fail for good: the
// system has dropped what it could not write. If ctx ends first, its error is returned and the sync may still happen.
func (l *Log) Sync(ctx context.Context) (int64, error) {
	if err := l.options.Syncer.sync(ctx, l); err != nil {
		return l.synced.Load(), err
	}
	return l.synced.Load(), nil
}

// syncPlan is what a sync of a log must do, noted at one moment.
type syncPlan struct {
	end       int64
	truncated uint64
	closed    []*segment // with their indexes
	active    *segment   // nil: nothing was appended to it
	snapshots []int64
	dir       bool
	names     uint64 // the last change of the directory that is covered
	parent    bool
	epochs    bool // the file was written for this plan
	lineage   Epochs
}

// beginSync takes the slot of syncs, which keeps the log from being closed; a closed log is not synced.
func (l *Log) beginSync() error {
	l.syncing <- struct{}{}
	l.mu.Lock()
	closed := l.mu.closed
	l.mu.Unlock()
	if closed {
		<-l.syncing
		return ErrClosed
	}
	return nil
}

// planSync notes what is to be synced, and writes what is only in memory; with durable, the files so written are synced.
func (l *Log) planSync(durable bool) (syncPlan, error) {
	if err := l.Err(); err != nil {
		return syncPlan{}, err
	}
	if l.unborn.Load() {
		return syncPlan{end: l.synced.Load()}, nil // whatever is written from now on asks for its own sync
	}
	l.mu.Lock()
	plan := syncPlan{end: l.mu.end, truncated: l.mu.truncated}
	plan.lineage, plan.epochs = l.mu.epochs.unsaved()
	segments := *l.segments.Load()
	// Those before the one that the synced end follows are sealed.
	for _, s := range segments[floorSegment(segments, l.synced.Load()-1) : len(segments)-1] {
		if !s.sealed.Load() {
			s.pin()
			plan.closed = append(plan.closed, s)
		}
	}
	plan.snapshots = l.takeUnsyncedSnapshotsLocked()
	if plan.end > l.synced.Load() {
		plan.active = segments[len(segments)-1]
		plan.active.pin()
	}
	l.mu.Unlock()
	plan.names = l.names.last()
	plan.dir = l.names.unsynced()
	plan.parent = l.newDir.Swap(false)
	if !plan.epochs {
		return plan, nil
	}
	var err error
	if data := encodeEpochs(plan.lineage); durable {
		err = vfs.WriteAtomic(l.options.FS, l.path(epochFileName), data)
	} else {
		if err = l.writePlain(epochFileName+".tmp", data); err == nil {
			err = l.options.FS.Rename(l.path(epochFileName+".tmp"), l.path(epochFileName))
		}
	}
	if err != nil {
		_, err = l.endSync(plan, fmt.Errorf("write %s: %w", epochFileName, err))
	}
	return plan, err
}

// syncNow syncs the log by itself.
func (l *Log) syncNow() (int64, error) {
	if err := l.beginSync(); err != nil {
		return l.synced.Load(), err
	}
	defer func() { <-l.syncing }()
	plan, err := l.planSync(true)
	if err != nil {
		return l.synced.Load(), err
	}
	started := time.Now()
	end, err := l.endSync(plan, l.syncFiles(plan))
	l.options.Metrics.synced(time.Since(started))
	return end, err
}

// errLost marks an error after which bytes that were written may be gone: a failed sync. It is never "try again".
var errLost = errors.New("written bytes may be lost")

func lost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// syncFiles syncs data before indexes and files before the directories that name them.
func (l *Log) syncFiles(plan syncPlan) error {
	return lost(l.syncFilesInOrder(plan))
}

func (l *Log) syncFilesInOrder(plan syncPlan) error {
	for _, s := range plan.closed {
		if err := s.sync(true); err != nil {
			return err
		}
	}
	if plan.active != nil {
		if err := plan.active.sync(false); err != nil {
			return err
		}
	}
	if err := l.syncSnapshots(plan.snapshots); err != nil {
		return err
	}
	if plan.parent {
		if err := l.syncMetadata(); err != nil {
			return err
		}
	}
	if plan.dir {
		if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
			return fmt.Errorf("sync directory: %w", err)
		}
	}
	if plan.parent {
		if err := l.options.FS.SyncDir(filepath.Dir(l.options.Dir)); err != nil {
			return fmt.Errorf("sync data directory: %w", err)
		}
	}
	return nil
}

// syncMetadata syncs the file that names the topic id of a new partition; a log outside a Manager has none.
func (l *Log) syncMetadata() error {
	file, err := l.options.FS.Open(l.path(partitionMetadataFileName), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// endSync publishes what a plan achieved, or fails the log.
func (l *Log) endSync(plan syncPlan, err error) (int64, error) {
	for _, s := range plan.closed {
		s.unpin()
	}
	if plan.active != nil {
		plan.active.unpin()
	}
	if err != nil {
		if plan.parent {
			l.newDir.Store(true)
		}
		l.mu.Lock()
		l.mu.snapshots = append(l.mu.snapshots, plan.snapshots...)
		l.mu.Unlock()
		return l.synced.Load(), l.fail(err)
	}
	l.flushed.Store(l.options.Now().UnixNano())
	l.names.synced(plan.names)
	l.mu.Lock()
	if l.mu.truncated == plan.truncated {
		for _, s := range plan.closed {
			s.sealed.Store(true)
		}
	}
	if plan.epochs {
		l.mu.epochs.saved(plan.lineage)
	}
	rose := l.mu.truncated == plan.truncated && !l.mu.truncating && plan.end > l.synced.Load()
	if rose {
		l.synced.Store(plan.end)
	}
	l.mu.Unlock()
	if hooks := l.hooks.Load(); rose && hooks.Synced != nil {
		hooks.Synced(plan.end)
	}
	return l.synced.Load(), nil
}
