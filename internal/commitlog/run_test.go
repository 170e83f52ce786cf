package commitlog

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

func TestSyncerGroupsLogs(t *testing.T) { // architecture: Fsync; performance: group commit
	for _, all := range []bool{true, false} {
		disk := vfs.NewMemory(1)
		d := openDirectory(t, disk, "/data")
		var heard atomic.Int64
		var logs []*opened
		for p := range int32(syncAllAbove + 20) {
			o := d.log("topic", topicID(1), p)
			config := testConfig()
			config.FlushAcks = true
			o.SetConfig(config)
			o.SetHooks(Hooks{Synced: func(int64) { heard.Add(1) }})
			o.fill(2, 10)
			logs = append(logs, o)
		}
		for _, o := range logs {
			d.Syncer().Request(o.Log)
			d.Syncer().Request(o.Log)
		}
		d.Syncer().SyncAllAllowed = func() bool { return all }
		before := disk.SyncPoints()
		d.Syncer().slot <- struct{}{}
		d.Syncer().lead()
		<-d.Syncer().slot
		points := disk.SyncPoints() - before
		if all && points > 1 || !all && points < len(logs) {
			t.Errorf("SyncAll allowed: %v: %d syncs of %d logs", all, points, len(logs))
		}
		if heard.Load() != int64(len(logs)) {
			t.Errorf("%d hooks of %d logs", heard.Load(), len(logs))
		}
		for _, o := range logs {
			if o.SyncedOffset() != o.EndOffset() {
				t.Errorf("synced to %d of %d", o.SyncedOffset(), o.EndOffset())
			}
		}
	}
}

func TestSyncGivesUpWithItsContext(t *testing.T) {
	o := openTest(t, nil)
	o.fill(1, 10)
	o.options.Syncer = NewSyncer(o.options.FS, "/data")
	o.Log.options.Syncer.slot <- struct{}{} // a round that does not end
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-o.Log.options.Syncer.slot
	if end, err := o.Sync(t.Context()); err != nil || end != o.EndOffset() {
		t.Error(end, err)
	}
}

func TestFlushMessages(t *testing.T) {
	o := openTest(t, func(o *Options) { o.Config.FlushMessages = 10 })
	o.fill(4, 10)
	if o.SyncedOffset() != 0 {
		t.Errorf("synced to %d after 8 records", o.SyncedOffset())
	}
	o.fill(1, 10)
	if o.SyncedOffset() != 10 {
		t.Errorf("synced to %d after 10 records", o.SyncedOffset())
	}
}

func TestManagerRun(t *testing.T) { // U-88
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMemory(1)
		m, err := OpenManager(ManagerOptions{FS: disk, Dir: "/data", NodeID: 1, Random: new(seeded)})
		if err == nil {
			err = m.SetCluster("c")
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()

		config := testConfig()
		config.FlushInterval, config.RetentionBytes, config.FileDeleteDelay = 3*time.Second, 3000, time.Minute
		config.TimestampAfterMax, config.TimestampBeforeMax = 1<<62, 1<<62
		l, err := m.Open("topic", topicID(1), 0, config)
		if err != nil {
			t.Fatal(err)
		}
		o := &opened{Log: l, t: t, clock: newClock()}
		o.fill(40, 100)
		segments := l.SegmentCount()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if l.SyncedOffset() != l.EndOffset() {
			t.Errorf("flush.ms: synced to %d of %d", l.SyncedOffset(), l.EndOffset())
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if l.SegmentCount() >= segments || l.StartOffset() == 0 {
			t.Errorf("retention: %d segments of %d", l.SegmentCount(), segments)
		}
		if m.written.recoveryPoints[l.Name()] != l.EndOffset() {
			t.Errorf("recovery point %d in the checkpoint", m.written.recoveryPoints[l.Name()])
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		entries, err := disk.List("/data/topic-0")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name, deletedSuffix) {
				t.Errorf("%s was not swept", e.Name)
			}
		}
		disk.FailAfter(0, syscall.EIO) // failures do not end the work
		if err := l.RaiseStart(l.StartOffset() + 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		disk.FailAfter(0, nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if m.written.logStarts[l.Name()] != l.StartOffset() {
			t.Errorf("log start %d in the checkpoint, %d in the log", m.written.logStarts[l.Name()], l.StartOffset())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// On a nearly full disk a deletion gives its room back at once, and so does retention within seconds: waiting for
// file.delete.delay.ms would keep produce refused. U-72
func TestNearlyFullDiskIsSweptAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMemory(1)
		var full atomic.Bool
		m, err := OpenManager(ManagerOptions{FS: disk, Dir: "/data", NodeID: 1, Random: new(seeded), NearlyFull: full.Load})
		if err == nil {
			err = m.SetCluster("c")
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		config := testConfig()
		config.TimestampAfterMax, config.TimestampBeforeMax = 1<<62, 1<<62
		config.FileDeleteDelay = time.Hour
		open := func(topic string) *Log {
			l, err := m.Open(topic, topicID(1), 0, config)
			if err != nil {
				t.Fatal(err)
			}
			(&opened{Log: l, t: t, clock: newClock()}).fill(40, 100)
			return l
		}
		kept, deleted := open("kept"), open("deleted")
		if err := m.Delete(deleted); err != nil {
			t.Fatal(err)
		}
		if err := kept.RaiseStart(kept.EndOffset()); err != nil { // DeleteRecords
			t.Fatal(err)
		}
		waiting := func() (names []string) {
			for _, dir := range []string{"/data", "/data/kept-0"} {
				entries, err := disk.List(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if strings.HasSuffix(e.Name, deleteSuffix) || strings.HasSuffix(e.Name, deletedSuffix) {
						names = append(names, e.Name)
					}
				}
			}
			return names
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if kept.SegmentCount() != 1 || len(waiting()) < 3 {
			t.Fatalf("with room on the disk: %d segments, waiting %q", kept.SegmentCount(), waiting())
		}
		full.Store(true)
		time.Sleep(2 * tick)
		synctest.Wait()
		if names := waiting(); len(names) > 0 {
			t.Errorf("still there on a nearly full disk: %q", names)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A log that goes away while a sync of it is asked for, or runs, is no I/O error: nothing may count as unclean for it.
func TestSyncOfAClosedLogIsNoStorageError(t *testing.T) {
	d := openDirectory(t, vfs.NewDisk(vfs.Options{}), t.TempDir())
	o := d.log("topic", topicID(1), 0)
	o.fill(10, 100)
	d.Syncer().Request(o.Log)
	if err := d.Delete(o.Log); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Sync(t.Context()); !errors.Is(err, ErrClosed) || errors.Is(err, ErrStorage) {
		t.Errorf("sync of a deleted log: %v", err)
	}
	for p := range int32(20) { // deletion beside a round
		o := d.log("racing", topicID(2), p)
		o.fill(10, 100)
		done := make(chan error)
		go func() {
			_, err := o.Sync(t.Context())
			done <- err
		}()
		if err := d.Delete(o.Log); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("sync beside a deletion: %v", err)
		}
	}
	if d.failed.Load() {
		t.Error("an I/O error was noted")
	}
	if err := d.Close(1); err != nil {
		t.Error(err)
	}
}
