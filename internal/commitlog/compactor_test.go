package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// dirtyLog opens a compacted partition and leaves something to compact in it.
func dirtyLog(t *testing.T, m *Manager, topic string, keys int) *Log {
	t.Helper()
	config := DefaultConfig()
	config.CleanupCompact, config.CleanupDelete = true, false
	l, err := m.Open(topic, topicID(topic[0]), 0, config)
	if err != nil {
		t.Fatal(err)
	}
	c := &compactLog{t: t, log: l, now: time.Now()}
	for range 2 {
		for i := range keys {
			c.put(fmt.Sprint("key", i), "value")
		}
	}
	c.roll()
	return l
}

// U-88: logs are compacted in the background and the end of it is checkpointed; a log that fails shows why, does not
// stop the others, is tried again later, and recovers when its fault is gone.
func TestCompactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMemory(1)
		m, err := OpenManager(ManagerOptions{FS: disk, Dir: "data", ClusterID: "cluster", Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SetCluster("cluster"); err != nil {
			t.Fatal(err)
		}
		bad, good, deleted := dirtyLog(t, m, "bad", 50), dirtyLog(t, m, "good", 10), dirtyLog(t, m, "deleted", 5)
		config := deleted.Config()
		config.CleanupCompact, config.CleanupDelete = false, true
		deleted.SetConfig(config)
		file := (*bad.segments.Load())[0].log
		var was [1]byte
		if _, err := file.ReadAt(was[:], record.HeaderBytes); err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt([]byte{^was[0]}, record.HeaderBytes); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		state := func(name string) CompactionState {
			for _, s := range m.Compactions() {
				if s.Name.Topic == name {
					return s
				}
			}
			return CompactionState{}
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s := state("good"); s.Passes != 1 || s.Cleaned != 20 || s.Last.Superseded != 10 || s.Failures != 0 {
			t.Errorf("good: %+v", s)
		}
		if s := state("bad"); s.Failures != 1 || !errors.Is(s.Err, record.ErrCorrupt) || s.Running || !s.Retry.After(s.LastAt) {
			t.Errorf("bad: %+v", s)
		}
		if s := m.Compactions(); len(s) != 2 {
			t.Errorf("states of %d logs, want those of the compacted ones: %+v", len(s), s)
		}
		written, err := InspectOffsets(disk, "data/"+cleanerFileName)
		if want := map[PartitionName]int64{{"good", 0}: 20}; err != nil || !maps.Equal(written, want) {
			t.Errorf("checkpoint %v, %v; want %v", written, err, want)
		}
		time.Sleep(10 * time.Minute)
		if s := state("bad"); s.Failures < 3 || s.Failures > 8 {
			t.Errorf("%d failures in ten minutes: the pauses should grow", s.Failures)
		}
		if _, err := file.WriteAt(was[:], record.HeaderBytes); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := state("bad"); s.Passes != 1 || s.Failures != 0 || s.Err != nil || s.Cleaned != 100 {
			t.Errorf("repaired: %+v", s)
		}
		if good.CleanedOffset() != 20 || deleted.CleanedOffset() != 0 {
			t.Errorf("cleaned up to %d and %d", good.CleanedOffset(), deleted.CleanedOffset())
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if err := m.Close(1); err != nil {
			t.Fatal(err)
		}

		again, err := OpenManager(ManagerOptions{FS: disk, Dir: "data", ClusterID: "cluster"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Load(t.Context(), func(string) Config { return good.Config() }); err != nil {
			t.Fatal(err)
		}
		for _, l := range again.Logs() {
			if want := map[string]int64{"good": 20, "bad": 100}[l.Topic()]; l.CleanedOffset() != want {
				t.Errorf("%s: cleaned up to %d after a restart, want %d", l.Topic(), l.CleanedOffset(), want)
			}
		}
		if err := again.Close(1); err != nil {
			t.Fatal(err)
		}
	})
}

// The most overdue log comes first, then the dirtiest; one whose high watermark is not known does not come at all.
func TestCompactorChooses(t *testing.T) {
	m, err := OpenManager(ManagerOptions{FS: vfs.NewMemory(1), Dir: "data", ClusterID: "cluster"})
	if err != nil {
		t.Fatal(err)
	}
	clean, dirty, overdue := dirtyLog(t, m, "clean", 9), dirtyLog(t, m, "dirty", 9), dirtyLog(t, m, "overdue", 1)
	cleaner := NewCleaner(CleanerOptions{})
	if _, err := clean.Compact(t.Context(), cleaner, clean.EndOffset()); err != nil {
		t.Fatal(err)
	}
	choose := func(want *Log) {
		t.Helper()
		if got, _ := m.compactor.choose(); got != want {
			t.Errorf("chose %v, want %v", got, want)
		}
	}
	if _, err := overdue.Compact(t.Context(), cleaner, overdue.EndOffset()); err != nil {
		t.Fatal(err)
	}
	choose(dirty)
	c := &compactLog{t: t, log: overdue, now: time.Now().Add(-time.Hour)}
	c.put("key", "value")
	c.roll()
	choose(dirty) // a third of the other log is dirty
	config := overdue.Config()
	config.MaxCompactionLag = time.Minute
	overdue.SetConfig(config)
	choose(overdue)
	m.SetHighWatermark(func(l *Log) int64 {
		if l == overdue {
			return -1
		}
		return l.EndOffset()
	})
	choose(dirty)
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle := throttle{bytesPerSecond: 1000, now: time.Now}
		started := time.Now()
		for range 10 {
			if err := throttle.wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(started); took != 4*time.Second {
			t.Errorf("5000 bytes took %v, want 4 s: a second's worth is free", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := throttle.wait(ctx, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// Truncation takes back what compaction has covered.
func TestTruncationLowersCleanedOffset(t *testing.T) {
	c := newCompactLog(t, nil)
	for i := range 10 {
		c.put(fmt.Sprint(i), "1")
	}
	c.roll()
	c.compact()
	c.check(c.log.Truncate(4))
	if got := c.log.CleanedOffset(); got != 4 {
		t.Errorf("cleaned up to %d, want 4", got)
	}
}
