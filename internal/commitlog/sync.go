package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

const (
	// syncWorkers is how many files a round syncs at once: past it a disk gains little.
	syncWorkers = 16
	// gatherMax bounds how long a round waits for appends to join it; see Syncer.gather.
	gatherMax = 2 * time.Millisecond
	// syncAllAbove is the number of logs above which one syncfs costs less than a sync of each file.
	syncAllAbove = 64
)

// Syncer groups the syncs of the logs of one data directory: while a round runs, requests gather for the next one, and a
// log that many callers want synced is synced once. Rounds do not overlap, so their ends are announced in order.
type Syncer struct {
	fs   vfs.FS
	dir  string
	slot chan struct{} // one slot: its holder runs a round
	kick chan struct{} // wakes Run
	// SyncAllAllowed tells whether a large round may use SyncAll, which also writes what nobody asked for: where every
	// topic asks. Nil means never.
	SyncAllAllowed func() bool

	mu struct {
		sync.Mutex
		next *syncRound // gathers requests; nil when there are none
	}
	holder struct { // belongs to the holder of the slot
		released int           // appends that the last round made durable
		took     time.Duration // how long its syncs took
	}
}

// syncRound is one round: the logs it syncs, and what came of it once done is closed.
type syncRound struct {
	logs    map[*Log]error
	appends int           // that wait for it
	wanted  int           // appends at which a leader that gathers is told; 0 if none does
	full    chan struct{} // tells it
	done    chan struct{}
}

// NewSyncer makes the Syncer of the logs below dir.
func NewSyncer(fsys vfs.FS, dir string) *Syncer {
	return &Syncer{fs: fsys, dir: dir, slot: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
}

// Request asks for a sync of the log in the background; hooks tell of it. It is done by Run.
func (s *Syncer) Request(l *Log) {
	s.join(l, int(l.unasked.Swap(0)))
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Run does what Request asks for, until ctx ends.
func (s *Syncer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.kick:
			s.slot <- struct{}{}
			s.lead()
			<-s.slot
		}
	}
}

// join adds a log to the next round, for so many appends that wait for it.
func (s *Syncer) join(l *Log, appends int) *syncRound {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.next == nil {
		s.mu.next = &syncRound{logs: map[*Log]error{}, full: make(chan struct{}), done: make(chan struct{})}
	}
	round := s.mu.next
	round.logs[l] = nil
	round.appends += appends
	if round.wanted > 0 && round.appends >= round.wanted {
		round.wanted = 0
		close(round.full)
	}
	return round
}

// gather gives the appends that the last round has released the time to come back before the next one starts. Producers
// send again as soon as they are answered: a round that starts with the first of them leaves the others to the round
// after, and each waits for two syncs instead of one. The wait ends when as many have come as were released, and at the
// latest after half of the time that a sync takes.
func (s *Syncer) gather() {
	s.mu.Lock()
	round := s.mu.next
	patience := min(s.holder.took/2, gatherMax)
	if round == nil || round.appends >= s.holder.released || patience <= 0 {
		s.mu.Unlock()
		return
	}
	round.wanted = s.holder.released
	s.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-round.full:
	case <-late.C:
	}
}

// sync waits for a round that syncs the log, and runs it if nobody else does.
func (s *Syncer) sync(ctx context.Context, l *Log) error {
	round := s.join(l, 1)
	select {
	case <-round.done:
		return round.logs[l]
	case <-ctx.Done():
		return ctx.Err()
	case s.slot <- struct{}{}:
	}
	s.lead()
	<-s.slot
	<-round.done
	return round.logs[l]
}

// lead runs the round that has gathered. The caller holds the slot.
func (s *Syncer) lead() {
	s.gather()
	s.mu.Lock()
	round := s.mu.next
	s.mu.next = nil
	s.mu.Unlock()
	if round == nil {
		return
	}
	started := time.Now()
	defer func() {
		if round.appends > 0 {
			s.holder.released, s.holder.took = round.appends, time.Since(started)
		}
		close(round.done)
	}()
	if len(round.logs) > syncAllAbove && s.SyncAllAllowed != nil && s.SyncAllAllowed() {
		s.syncAll(round)
		return
	}
	work := make(chan *Log)
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range min(syncWorkers, len(round.logs)) {
		workers.Go(func() {
			for l := range work {
				if _, err := l.syncNow(); err != nil {
					mu.Lock()
					round.logs[l] = err
					mu.Unlock()
				}
			}
		})
	}
	logs := make([]*Log, 0, len(round.logs))
	for l := range round.logs {
		logs = append(logs, l)
	}
	for _, l := range logs {
		work <- l
	}
	close(work)
	workers.Wait()
}

// syncAll syncs all logs of a round with one call.
func (s *Syncer) syncAll(round *syncRound) {
	plans := make(map[*Log]syncPlan, len(round.logs))
	for l := range round.logs {
		if err := l.beginSync(); err != nil {
			round.logs[l] = err
			continue
		}
		plan, err := l.planSync(false)
		if err != nil {
			<-l.syncing
			round.logs[l] = err
			continue
		}
		plans[l] = plan
	}
	started := time.Now()
	err := s.fs.SyncAll(s.dir)
	for l, plan := range plans {
		if _, err := l.endSync(plan, lost(err)); err != nil {
			round.logs[l] = err
		}
		<-l.syncing
		l.options.Metrics.synced(time.Since(started))
	}
}

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
