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
	// syncAllRetry is how long a Syncer that has found SyncAll to be the slower way leaves it alone.
	syncAllRetry = 10 * time.Second
)

// Syncer groups the syncs of the logs of one data directory: while a round runs, requests gather for the next one, and a
// log that many callers want synced is synced once. Rounds do not overlap, so their ends are announced in order.
type Syncer struct {
	fs   vfs.FS
	dir  string
	slot chan struct{} // one slot: its holder runs a round
	kick chan struct{} // wakes Run
	// SyncAllAllowed tells whether a round of several logs may use SyncAll, which also writes what nobody asked for:
	// where every topic asks. Nil means never.
	SyncAllAllowed func() bool

	mu struct {
		sync.Mutex
		next *syncRound // gathers requests; nil when there are none
	}
	holder struct { // belongs to the holder of the slot
		crowd int           // appends that the last round released, and those that had come too late for it
		took  time.Duration // how long the syncs of the last round took
		costs syncCosts
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
// after, and each waits for two syncs instead of one. The wait ends when the whole crowd is there, when nobody has come
// for a quarter of the time that a sync takes, and at the latest after that time: it then has cost those who wait as much
// as the round that it was to spare the others.
func (s *Syncer) gather() {
	s.mu.Lock()
	round := s.mu.next
	latest := min(s.holder.took, gatherMax)
	if round == nil || round.appends >= s.holder.crowd || latest <= 0 {
		s.mu.Unlock()
		return
	}
	here := round.appends
	round.wanted = s.holder.crowd
	s.mu.Unlock()
	started := time.Now()
	late := time.NewTimer(latest / 4)
	defer late.Stop()
	for {
		select {
		case <-round.full:
			return
		case <-late.C:
		}
		s.mu.Lock()
		came := round.appends - here
		here = round.appends
		s.mu.Unlock()
		if came == 0 || time.Since(started) >= latest {
			return
		}
		late.Reset(latest / 4)
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
	s.syncRound(round, started)
	if round.appends > 0 {
		s.holder.took = time.Since(started)
		s.mu.Lock()
		s.holder.crowd = round.appends
		if s.mu.next != nil {
			s.holder.crowd += s.mu.next.appends
		}
		s.mu.Unlock()
	}
	close(round.done)
}

// syncRound syncs the logs of a round in the way that has cost least of late.
func (s *Syncer) syncRound(round *syncRound, started time.Time) {
	n := len(round.logs)
	switch {
	case n == 1:
		for l := range round.logs {
			_, round.logs[l] = l.syncNow()
		}
	case s.SyncAllAllowed != nil && s.holder.costs.preferAll(n, started) && s.SyncAllAllowed():
		if err := s.syncAll(round); err != nil {
			s.holder.costs.failed = true
			return
		}
		s.holder.costs.tookAll(n, started, time.Since(started))
	default:
		syncEach(round)
		s.holder.costs.tookEach(n, time.Since(started))
	}
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

// syncCosts remembers what syncs of several logs have cost, to choose between one sync for each log and one SyncAll for
// all. The first costs a commit of the file system's journal for almost every log, the second one for all of them, but it
// also writes what other processes have left unwritten on the same file system, and nobody knows how much that is.
type syncCosts struct {
	each     time.Duration // of one log in a round of several, smoothed; 0 before the first such round
	all      time.Duration // of a SyncAll, smoothed; 0 before the first one
	distrust time.Time     // until when SyncAll is left alone
	// failed says that a SyncAll has failed. It has not said whose bytes are lost, perhaps those of a log that was not in
	// its round, and will not say it again: from then on each file is asked.
	failed bool
}

// preferAll tells whether SyncAll is expected to be the cheaper way to sync n logs. It is tried as soon as it is known what
// the other way costs, and again a while after it was found wanting.
func (c *syncCosts) preferAll(n int, now time.Time) bool {
	switch {
	case c.failed || now.Before(c.distrust):
		return false
	case c.each == 0:
		return n > syncAllAbove
	}
	return c.all <= c.each*time.Duration(n)
}

func (c *syncCosts) tookEach(n int, took time.Duration) {
	c.each = smooth(c.each, max(took/time.Duration(n), 1))
}

func (c *syncCosts) tookAll(n int, now time.Time, took time.Duration) {
	c.all = smooth(c.all, max(took, 1))
	other := c.each * time.Duration(n)
	if c.each > 0 && (took > 2*other || c.all > other) {
		c.all, c.distrust = 0, now.Add(syncAllRetry)
	}
}

// smooth moves an average an eighth of the way towards the latest value.
func smooth(average, latest time.Duration) time.Duration {
	if average == 0 {
		return latest
	}
	return average + (latest-average)/8
}
