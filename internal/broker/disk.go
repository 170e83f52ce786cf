package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// diskInterval is how often the free space is looked at: often enough that 128 MiB last until the next look at the speed
// of a fast disk's page cache.
const diskInterval = 100 * time.Millisecond

// diskWatcher refuses produce while the disk is nearly full (U-72): nothing is taken offline, and produce comes back by
// itself once there is room.
type diskWatcher struct {
	dir     string
	min     func() uint64                                    // bytes that must be free; may change while it runs
	free    func(dir string) (free, total uint64, err error) // of the disk that holds dir
	refuse  func(reason error)                               // nil takes produce again
	logger  *slog.Logger
	refused atomic.Pointer[diskFull]
}

// diskFull says why produce is refused.
type diskFull struct {
	dir       string
	free, min uint64
}

// Error says how much is free and how much must be.
func (e *diskFull) Error() string {
	return fmt.Sprintf("the disk of %s has %d MiB free, less than %d MiB (log.storage.free.min.bytes): delete topics or records, or make room", e.dir, e.free>>20, e.min>>20)
}

// run looks until ctx ends.
func (w *diskWatcher) run(ctx context.Context) error {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		w.look()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look compares the free space with the minimum once.
func (w *diskWatcher) look() {
	free, _, err := w.free(w.dir)
	if err != nil {
		return // the disk's own errors come from the logs
	}
	minimum := w.min()
	before := w.refused.Load()
	switch {
	case free < minimum && (before == nil || before.min != minimum):
		full := &diskFull{w.dir, free, minimum}
		w.refused.Store(full)
		w.refuse(full)
		if before == nil {
			w.logger.Error("produce refused: the disk is nearly full", slog.Uint64("free_bytes", free), slog.Uint64("free_bytes_min", minimum))
		}
	case free >= minimum && before != nil:
		w.refused.Store(nil)
		w.refuse(nil)
		w.logger.Info("produce taken again: the disk has room", slog.Uint64("free_bytes", free))
	}
}

// err is why produce is refused, nil if it is not.
func (w *diskWatcher) err() error {
	if full := w.refused.Load(); full != nil {
		return full
	}
	return nil
}
