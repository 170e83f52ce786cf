package commitlog

import (
	"log/slog"
	"math"
	"slices"
	"time"
)

// Maintenance tells what one Maintain did.
type Maintenance struct {
	Segments int   // that left the log
	Bytes    int64 // in them
	Removed  int   // segments whose files are gone from the disk
	Expired  int   // producers forgotten
}

// Maintain does what a log needs from time to time: it drops the segments that retention or a raised log start allow,
// removes the files of dropped ones after file.delete.delay.ms (at once on a nearly full disk), forgets silent producers, and asks for the sync that
// flush.ms demands. Only segments wholly below highWatermark go. If the disk fails the log fails.
func (l *Log) Maintain(now time.Time, highWatermark int64) (Maintenance, error) {
	if err := l.acquire(); err != nil {
		return Maintenance{}, err
	}
	defer l.release()
	set := l.settings.Load()
	var m Maintenance
	m.Removed = l.sweep(now, l.deleteDelay(set))
	l.mu.Lock()
	m.Expired = l.mu.producers.expire(now.UnixMilli(), set.ProducerExpiry)
	l.mu.Unlock()
	if err := l.Err(); err != nil {
		return m, err
	}
	if l.end.Load() > l.synced.Load() && set.FlushInterval < math.MaxInt64 && now.UnixNano()-l.flushed.Load() >= int64(set.FlushInterval) {
		l.options.Syncer.Request(l)
	}
	drop, reason, err := l.droppable(now, highWatermark, set)
	if err != nil {
		return m, l.fail(err)
	}
	if drop == 0 {
		return m, nil
	}
	segments := *l.segments.Load()
	if drop == len(segments) {
		// Also the active one is to go: an empty one takes its place.
		if _, err := l.roll(nil); err != nil {
			return m, l.fail(err)
		}
		segments = *l.segments.Load()
	}
	dropped := segments[:drop]
	for _, s := range dropped {
		m.Segments++
		m.Bytes += s.size.Load()
	}
	return m, l.dropFirst(dropped, segments[drop:], reason)
}

// dropFirst takes segments off the front of the log: the log start rises, then readers lose the segments, then the files
// are renamed.
func (l *Log) dropFirst(dropped, kept []*segment, reason string) error {
	start := kept[0].base
	if err := l.RaiseStart(start); err != nil {
		return err
	}
	l.swapSegments(slices.Clone(kept))
	l.mu.Lock()
	snapshots := l.takeUnsyncedSnapshotsLocked()
	l.mu.Unlock()
	if err := l.syncSnapshots(snapshots); err != nil {
		return l.fail(lost(err))
	}
	for i := range dropped {
		if err := l.syncDir(); err != nil { // one name after the other: else a power cut could keep a segment and take the next
			return err
		}
		if err := l.doom(dropped[i : i+1]); err != nil {
			return l.fail(err)
		}
	}
	if err := l.syncDir(); err != nil { // a segment that came back without its snapshot would not know its producers
		return err
	}
	l.dropSnapshots(func(at int64) bool { return at < start })
	l.logger.Info("dropped segments", slog.String("reason", reason), slog.Int("segments", len(dropped)),
		slog.Int64("log_start", l.start.Load()))
	return nil
}

// droppable is how many of the first segments may go, and why. All of them may.
func (l *Log) droppable(now time.Time, highWatermark int64, set *settings) (drop int, reason string, err error) {
	segments := *l.segments.Load()
	start := l.start.Load()
	excess := int64(math.MinInt64 / 2) // no bound
	if set.CleanupDelete && set.RetentionBytes >= 0 {
		excess = l.Size() - set.RetentionBytes
	}
	for i, s := range segments {
		end := l.end.Load()
		if i < len(segments)-1 {
			end = segments[i+1].base
		} else if s.size.Load() == 0 {
			break // an empty active segment has nothing to drop
		}
		if end > highWatermark {
			break
		}
		switch {
		case end <= start && i < len(segments)-1:
			reason = "log start"
		case set.CleanupDelete && set.Retention >= 0 && set.Retention < math.MaxInt64:
			age, err := s.age()
			if err != nil {
				return drop, reason, err
			}
			if now.Sub(age) > set.Retention {
				reason = "retention.ms"
				break
			}
			fallthrough
		default:
			if excess < s.size.Load() {
				return drop, reason, nil
			}
			reason = "retention.bytes"
		}
		excess -= s.size.Load()
		drop++
	}
	return drop, reason, nil
}

// deleteDelay is how long the files of dropped segments stay.
func (l *Log) deleteDelay(set *settings) time.Duration {
	if l.options.NearlyFull != nil && l.options.NearlyFull() {
		return 0
	}
	return set.FileDeleteDelay
}

// sweep removes the files of segments that left the log at least delay ago and have no readers. The caller holds the
// slot.
func (l *Log) sweep(now time.Time, delay time.Duration) (removed int) {
	l.holder.doomed = slices.DeleteFunc(l.holder.doomed, func(d doomedSegment) bool {
		if now.Sub(d.since) < delay || d.pins.Load() > 0 {
			return false
		}
		if err := d.remove(); err != nil {
			l.logger.Warn("dropped segment could not be removed", slog.Int64("segment", d.base), slog.Any("err", err))
			return false
		}
		removed++
		return true
	})
	l.doomedCount.Store(int32(len(l.holder.doomed)))
	return removed
}
