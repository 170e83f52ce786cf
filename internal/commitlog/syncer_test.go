package commitlog

import (
	"context"
	"errors"
	"fmt"
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

// One writer that does not come back costs the others no more than a quarter of a sync.
func TestRoundsDoNotWaitForWhoStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSyncer(vfs.NewMemory(1), "/")
		s.holder.crowd, s.holder.took = 3, time.Millisecond
		o := openTest(t, nil)
		s.join(o.Log, 1)
		go func() { time.Sleep(100 * time.Microsecond); s.join(o.Log, 1) }()
		started := time.Now()
		s.gather()
		if took := time.Since(started); took != 500*time.Microsecond {
			t.Errorf("waited for %v", took) // a quarter in which one came, and one in which nobody did
		}
	})
}

func TestSyncCosts(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	var c syncCosts
	steps := []struct {
		what string
		do   func()
		n    int
		all  bool
	}{
		{"nothing is known", func() {}, 64, false},
		{"nothing is known, and they are many", func() {}, 65, true},
		{"each costs 1 ms", func() { c.tookEach(4, 4*ms) }, 2, true},
		{"all cost 3 ms", func() { c.tookAll(4, now, 3*ms) }, 4, true},
		{"too few for that", func() {}, 2, false},
		{"SyncAll has found something else to write", func() { c.tookAll(4, now, 9*ms) }, 4, false},
		{"which it may have done by now", func() { now = now.Add(syncAllRetry) }, 4, true},
		{"it has become a little slower than the other way", func() { c.tookAll(4, now, 5*ms) }, 4, false},
		{"never so for many", func() {}, 1000, false},
	}
	for _, step := range steps {
		step.do()
		if all := c.preferAll(step.n, now); all != step.all {
			t.Errorf("%s: %d logs: %v %s", step.what, step.n, all, fmt.Sprintf("%+v", c))
		}
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
	s.holder.costs.each = time.Hour
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
