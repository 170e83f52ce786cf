package commitlog

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

const (
	// syncWorkers is how many files a round syncs at once: past it a disk gains little.
	syncWorkers = 16
	// gatherMax bounds how long a round waits for appends to join it; see Syncer.gather.
	gatherMax = 2 * time.Millisecond
	// syncAllAbove is the number of logs above which one SyncAll is taken to cost less than a sync of each file where
	// nothing has been measured: when a data directory is closed.
	syncAllAbove = 64
	// unwrittenBytesMax is how much the system may have left to write, for whomever, where a round uses SyncAll.
	unwrittenBytesMax = 8 << 20
)

// Syncer groups the syncs of the logs of one data directory: while a round runs, requests gather for the next one, and a
// log that many callers want synced is synced once. Rounds do not overlap, so their ends are announced in order.
type Syncer struct {
	fs   vfs.FS
	dir  string
	slot chan struct{} // one slot: its holder runs a round
	kick chan struct{} // wakes Run
	// SyncAllAllowed tells whether a round of several logs may use SyncAll now, which also writes what nobody asked for.
	// Nil means never.
	SyncAllAllowed func() bool

	mu struct {
		sync.Mutex
		next *syncRound // gathers requests; nil when there are none
	}
	holder syncHolder // belongs to the holder of the slot
}

// syncHolder is what the leader of a round knows of those before it.
type syncHolder struct {
	crowd int           // appends that the last round released, and those that had come too late for it
	took  time.Duration // how long the last round took
	least time.Duration // about the least that one has taken of late: what it costs however little it writes
	worth time.Duration // how long it is worth waiting for the whole crowd
	costs syncCosts
}

// noteRound takes in what a round took that has made so many appends durable with so many syncs of their own. The least
// forgets: a disk that has become slow is known after some thirty rounds. Waiting is worth the part of it that appends spare
// each other where one sync is for all. Where each log has its own, two rounds of half of the logs cost no more than one of
// all, and the disk and the writers work side by side.
func (h *syncHolder) noteRound(took time.Duration, appends, syncs int) {
	h.took = took
	if h.least += h.least / 32; h.least == 0 || took < h.least {
		h.least = took
	}
	h.worth = 0
	if syncs == 1 {
		h.worth = h.least * time.Duration(appends-1) / time.Duration(appends)
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

// littleUnwritten tells whether a SyncAll has little to write besides what is asked for: a disk writes unwrittenBytesMax in
// tens of milliseconds.
func littleUnwritten() bool {
	n, err := vfs.UnwrittenBytes()
	return err == nil && n <= unwrittenBytesMax
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
// after, and each waits for two syncs instead of one.
//
// It waits for the whole crowd for as long as a round costs that writes little, where one sync is for all: it is what a
// second round would cost more. Then half of the crowd is enough: the other half gets ready while the disk is busy with this one. It gives up when nobody
// comes for a quarter of the time that the last round took, and at the latest after that time.
func (s *Syncer) gather() {
	started := time.Now()
	longest := min(s.holder.took, gatherMax)
	wanted, patience := s.holder.crowd, min(s.holder.worth, gatherMax)
	for patience > 0 {
		s.mu.Lock()
		round := s.mu.next
		if round == nil || round.appends >= wanted {
			s.mu.Unlock()
			return
		}
		round.wanted = wanted
		here, full := round.appends, round.full
		s.mu.Unlock()
		late := time.NewTimer(patience)
		select {
		case <-full:
			late.Stop()
			return
		case <-late.C:
		}
		s.mu.Lock()
		came := round.appends - here
		s.mu.Unlock()
		if came == 0 || time.Since(started) >= longest {
			return
		}
		wanted, patience = (s.holder.crowd+1)/2, longest/4
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
	syncs := s.syncRound(round, started)
	if round.appends > 0 {
		s.holder.noteRound(time.Since(started), round.appends, syncs)
		s.mu.Lock()
		s.holder.crowd = round.appends
		if s.mu.next != nil {
			s.holder.crowd += s.mu.next.appends
		}
		s.mu.Unlock()
	}
	close(round.done)
}

// syncRound syncs the logs of a round in the way that has cost least of late. It returns with how many syncs.
func (s *Syncer) syncRound(round *syncRound, started time.Time) int {
	n := len(round.logs)
	switch {
	case n == 1:
		for l := range round.logs {
			_, round.logs[l] = l.syncNow()
		}
	case s.SyncAllAllowed != nil && s.holder.costs.chooseAll(n, started) && s.SyncAllAllowed():
		if err := s.syncAll(round); err != nil {
			s.holder.costs.failed = true
			return 1
		}
		s.holder.costs.note(true, n, started, time.Since(started))
		return 1
	default:
		syncEach(round)
		s.holder.costs.note(false, n, started, time.Since(started))
	}
	return n
}

// syncEach syncs the logs of a round side by side.
func syncEach(round *syncRound) {
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

// syncAll syncs all logs of a round with one call, and returns what that said.
func (s *Syncer) syncAll(round *syncRound) error {
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
	return err
}
