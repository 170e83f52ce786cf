package commitlog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// slowDisk is a disk whose syncs of a file's contents take a while.
type slowDisk struct {
	vfs.FS
	takes time.Duration
	syncs atomic.Int32
}

type slowFile struct {
	vfs.File
	disk *slowDisk
}

func (d *slowDisk) Open(name string, flag int) (vfs.File, error) {
	file, err := d.FS.Open(name, flag)
	return slowFile{file, d}, err
}

func (f slowFile) Sync() error {
	f.disk.syncs.Add(1)
	time.Sleep(f.disk.takes)
	return f.File.Sync()
}

// Writers that come back a little after they were answered, each at its own time, end up in one round together, and none
// is left to the round after: not those who came too late for the first round either.
func TestRoundsGatherTheWholeCrowd(t *testing.T) { // performance: group commit
	synctest.Test(t, func(t *testing.T) {
		const writers, each, takes = 16, 20, time.Millisecond
		disk := &slowDisk{FS: vfs.NewMemory(1), takes: takes}
		o := openTest(t, func(o *Options) { o.FS, o.Config.FlushAcks, o.Config.SegmentBytes = disk, true, 1<<20 })
		var mu sync.Mutex
		rose := sync.NewCond(&mu)
		o.SetHooks(Hooks{Synced: func(int64) { mu.Lock(); defer mu.Unlock(); rose.Broadcast() }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.Log.options.Syncer.Run(ctx) }()
		before := disk.syncs.Load()
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				for range each {
					time.Sleep(time.Duration(i) * takes / 25)
					appended := o.produce(message{o.clock.ms(), "", "v"})
					mu.Lock()
					for o.SyncedOffset() <= appended.Last {
						rose.Wait()
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		cancel()
		<-done
		if rounds := disk.syncs.Load() - before; rounds > each+3 {
			t.Errorf("%d rounds for %d appends of each of %d writers", rounds, each, writers)
		}
	})
}

// Writers that stay away are not waited for longer than that is worth.
func TestRoundsDoNotWaitForWhoStaysAway(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		what  string
		crowd int
		come  []time.Duration // besides one that is there
		want  time.Duration
	}{
		{"all are there", 1, nil, 0},
		{"nobody comes", 4, nil, ms / 2},
		{"the last one comes", 2, []time.Duration{ms / 4}, ms / 4},
		{"half of them come", 8, []time.Duration{1, 2, 3}, ms / 2},
		{"half of them come late", 8, []time.Duration{1, 2, ms * 7 / 10}, ms * 7 / 10},
		{"few come", 8, []time.Duration{1, ms * 7 / 10}, ms/2 + ms/4 + ms/4},
		{"one after the other", 80, []time.Duration{1, ms * 6 / 10, ms * 8 / 10, ms * 11 / 10}, ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := NewSyncer(vfs.NewMemory(1), "/")
			s.holder.crowd, s.holder.took, s.holder.worth = test.crowd, ms, ms/2
			o := openTest(t, nil)
			s.join(o.Log, 1)
			for _, after := range test.come {
				time.AfterFunc(after, func() { s.join(o.Log, 1) })
			}
			started := time.Now()
			s.gather()
			if took := time.Since(started); took != test.want {
				t.Errorf("%s: waited for %v, want %v", test.what, took, test.want)
			}
			time.Sleep(2 * ms) // the rest comes
		})
	}
}

func TestWhatWaitingIsWorth(t *testing.T) {
	const ms = time.Millisecond
	var h syncHolder
	for _, round := range []struct {
		took           time.Duration
		appends, syncs int
		want           time.Duration
	}{
		{8 * ms, 16, 1, 8 * ms * 15 / 16}, // one log, or a SyncAll of several
		{4 * ms, 16, 4, 0},                // four logs with a sync each
		{4 * ms, 16, 16, 0},               // as many logs as appends
		{4 * ms, 1, 1, 0},                 // a lone writer
		{4 * ms, 2, 5, 0},                 // logs that were synced for another reason
	} {
		h.least = 0
		if h.noteRound(round.took, round.appends, round.syncs); h.worth != round.want {
			t.Errorf("%+v: worth %v", round, h.worth)
		}
	}
	h.noteRound(ms, 2, 1)
	for range 30 {
		h.noteRound(4*ms, 2, 1)
	}
	if h.least < 2*ms || h.least > 4*ms {
		t.Errorf("after thirty rounds of 4 ms the least is %v", h.least)
	}
}

// TestSyncCosts plays rounds of 4 logs over a disk on which one sync for each takes 4 ms and a SyncAll as long as a phase
// says, and counts which way they took.
func TestSyncCosts(t *testing.T) {
	const n = 4
	var c syncCosts
	now := time.Unix(1000, 0)
	play := func(rounds int, all time.Duration) (chosen int) {
		for range rounds {
			if c.chooseAll(n, now) {
				c.note(true, n, now, all)
				now = now.Add(all)
				chosen++
			} else {
				c.note(false, n, now, 4*time.Millisecond)
				now = now.Add(4 * time.Millisecond)
			}
		}
		return chosen
	}
	if c.chooseAll(syncAllAbove, now) || !c.chooseAll(syncAllAbove+1, now) {
		t.Error("before anything is known, many logs are those above syncAllAbove")
	}
	if chosen := play(1000, time.Millisecond); chosen < 980 || chosen > 1000-syncTrialRounds {
		t.Errorf("SyncAll is four times as fast: taken in %d of 1,000 rounds", chosen)
	}
	if c.chooseAll(2, now) != true {
		t.Error("1 ms for all is not the choice for two logs at 1 ms each")
	}
	// Somebody else has begun to write: it is left at once, and tried now and then, ever more seldom.
	if chosen := play(10_000, 40*time.Millisecond); chosen > 30 {
		t.Errorf("SyncAll is ten times as slow: taken in %d of 10,000 rounds", chosen)
	}
	now = now.Add(syncTrialEveryMax) // and has stopped
	if chosen := play(1000, time.Millisecond); chosen < 900 {
		t.Errorf("SyncAll is fast again: taken in %d of 1,000 rounds", chosen)
	}
}

// brokenAll is a disk that cannot sync everything at once.
type brokenAll struct {
	vfs.FS
	calls int
}

func (d *brokenAll) SyncAll(string) error {
	d.calls++
	return syscall.EIO
}

// A SyncAll that fails takes the logs of its round with it. It may have dropped what others have written, and says so only
// once, so no log is acknowledged on the word of a second one.
func TestNoSyncAllAfterAFailedOne(t *testing.T) { // D9
	disk := &brokenAll{FS: vfs.NewMemory(1)}
	d := openDirectory(t, disk, "/data")
	s := d.Syncer()
	s.SyncAllAllowed = func() bool { return true }
	s.holder.costs = syncCosts{each: syncCost{took: time.Hour, rounds: syncTrialRounds}}
	logs := make([]*opened, 4)
	for p := range logs {
		logs[p] = d.log("topic", topicID(1), int32(p))
		logs[p].fill(2, 10)
	}
	for round := range 2 {
		own := logs[2*round : 2*round+2]
		for _, o := range own {
			s.Request(o.Log)
		}
		s.slot <- struct{}{}
		s.lead()
		<-s.slot
		for _, o := range own {
			if failed := errors.Is(o.Err(), ErrStorage); failed != (round == 0) {
				t.Errorf("round %d: %v", round, o.Err())
			}
			if synced := o.SyncedOffset() == o.EndOffset(); synced != (round == 1) {
				t.Errorf("round %d: synced to %d of %d", round, o.SyncedOffset(), o.EndOffset())
			}
		}
	}
	if disk.calls != 1 {
		t.Errorf("%d calls of SyncAll", disk.calls)
	}
}
