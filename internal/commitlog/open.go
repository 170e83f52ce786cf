package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Recovery tells what opening a log found.
type Recovery struct {
	Scanned      bool // the log was not closed cleanly, or was damaged, and batches were read
	Segments     int  // that were scanned
	ScannedBytes int64
	// CutBytes were removed from the end of the log, which now ends at CutOffset; what they held was never synced, unless
	// BelowRecoveryPoint says that bytes are gone which once were.
	CutBytes, CutOffset int64
	BelowRecoveryPoint  bool
	Duration            time.Duration
}

// Open opens the log in Options.Dir, or makes an empty one there that starts at Options.LogStart. A log that was closed
// cleanly costs a few reads, however large it is. Otherwise its batches are checked from the recovery point on, and
// Recovery says what was cut. A broken checkpoint, index or snapshot is rebuilt. The error is that of the disk.
func Open(o Options) (*Log, Recovery, error) {
	l := newLog(o)
	o = l.options
	started := o.Now()
	recovery, err := l.open()
	if err != nil {
		return nil, recovery, fmt.Errorf("open log %s: %w", l.Name(), err)
	}
	recovery.Duration = o.Now().Sub(started)
	if recovery.CutBytes > 0 {
		level := slog.LevelDebug // what was being written when the process ended; the summary of the start tells of it
		if recovery.BelowRecoveryPoint {
			level = slog.LevelError // what was synced once
		}
		l.logger.Log(context.Background(), level, "log was cut at its first bad batch", slog.Int64("offset", recovery.CutOffset),
			slog.Int64("bytes", recovery.CutBytes), slog.Bool("below_recovery_point", recovery.BelowRecoveryPoint))
	}
	return l, recovery, nil
}

// newLog is a log whose content is not known yet.
func newLog(o Options) *Log {
	o = o.withDefaults()
	l := &Log{
		options: o,
		logger:  o.Logger.With(slog.String("topic", o.Topic), slog.Int64("partition", int64(o.Partition))),
		slot:    make(chan struct{}, 1),
		syncing: make(chan struct{}, 1),
	}
	l.hooks.Store(&Hooks{})
	l.settings.Store(newSettings(o.Config, o.pools))
	l.flushed.Store(o.Now().UnixNano())
	return l
}

func (l *Log) open() (Recovery, error) {
	found, err := l.list()
	if err != nil {
		return Recovery{}, err
	}
	segments, err := l.openSegments(found)
	if err != nil {
		return Recovery{}, err
	}
	l.segments.Store(&segments)
	rebuildEpochs, err := l.loadEpochs()
	if err != nil {
		return Recovery{}, err
	}
	recovery, end, err := l.settleEnd()
	if err != nil {
		return recovery, err
	}
	if err := l.publishEnd(end); err != nil {
		return recovery, err
	}
	if earliest, found := l.mu.epochs.Earliest(); rebuildEpochs || recovery.Scanned && found && earliest.Start > l.start.Load() {
		// There is no lineage, or the log start was raised but not durably, and it has forgotten what lies below.
		if err := l.rebuildEpochs(); err != nil {
			return recovery, err
		}
	}
	l.mu.epochs.truncateFromEnd(l.mu.end)
	l.mu.epochs.truncateFromStart(l.start.Load())
	if !recovery.Scanned {
		err = l.loadProducers(l.mu.end)
	}
	if !l.options.Clean {
		l.distrust()
	}
	return recovery, err
}

// distrust lets the next sync cover what the last process may have made and not synced before it was killed: the directory
// and its name, and the producer snapshots. Segments above the recovery point are synced in any case.
func (l *Log) distrust() {
	l.newDir.Store(true)
	l.names.changed()
	for _, at := range l.holder.snapshots {
		if at >= l.synced.Load() && !slices.Contains(l.mu.snapshots, at) {
			l.mu.snapshots = append(l.mu.snapshots, at)
		}
	}
}

// found is what the directory of a log holds.
type found struct {
	segments map[int64]segmentSizes
	modified map[int64]time.Time
}

// list reads the directory and clears what a crash left behind. The directory is made if it is missing.
func (l *Log) list() (found, error) {
	f := found{segments: map[int64]segmentSizes{}, modified: map[int64]time.Time{}}
	fsys, dir := l.options.FS, l.options.Dir
	entries, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		l.newDir.Store(true)
		return f, fsys.MkdirAll(dir)
	}
	if err != nil {
		return f, err
	}
	changed, err := recoverSwaps(fsys, dir, entries, l.logger)
	if err == nil && changed {
		entries, err = fsys.List(dir)
	}
	if err != nil {
		return f, err
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name, ".tmp") {
			if err := fsys.Remove(l.path(entry.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return f, err
			}
			continue
		}
		base, suffix, ok := parseSegmentName(entry.Name)
		if !ok {
			continue
		}
		sizes, known := f.segments[base]
		if !known {
			sizes = segmentSizes{-1, -1, -1, -1}
		}
		switch suffix {
		case logSuffix:
			sizes.log = entry.Size
			f.modified[base] = entry.Modified
		case indexSuffix:
			sizes.offsets = entry.Size
		case timeIndexSuffix:
			sizes.times = entry.Size
		case txnIndexSuffix:
			sizes.txns = entry.Size
		case snapshotSuffix:
			l.holder.snapshots = append(l.holder.snapshots, base)
			continue
		default:
			continue
		}
		f.segments[base] = sizes
	}
	return f, nil
}

// openSegments opens what was found, in offset order. Indexes without a log are removed.
func (l *Log) openSegments(f found) ([]*segment, error) {
	var segments []*segment
	for base, sizes := range f.segments {
		if sizes.log < 0 {
			orphan := newSegment(l.options.FS, l.options.Dir, base, "")
			for _, suffix := range segmentSuffixes[:3] {
				if err := l.options.FS.Remove(orphan.name(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
			}
			continue
		}
		s, err := openSegment(l.options.FS, l.options.Dir, base, sizes, f.modified[base])
		if err != nil {
			return nil, err
		}
		s.spacing.Store(int64(l.settings.Load().IndexInterval))
		segments = append(segments, s)
	}
	slices.SortFunc(segments, func(a, b *segment) int {
		if a.base < b.base {
			return -1
		}
		return 1
	})
	slices.Sort(l.holder.snapshots)
	if len(segments) > 0 {
		return segments, nil
	}
	s, err := createSegment(l.options.FS, l.options.Dir, max(l.options.LogStart, 0), "", l.options.Now())
	if err != nil {
		return nil, err
	}
	l.names.changed()
	return []*segment{s}, nil
}

// loadEpochs reads the epoch checkpoint. rebuild says that there is none to be believed although there are batches.
func (l *Log) loadEpochs() (rebuild bool, err error) {
	data, err := vfs.ReadFile(l.options.FS, l.path(epochFileName), checkpointBytesMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.Size() > 0, nil
	case err != nil && !errors.Is(err, vfs.ErrTooLarge):
		return false, err
	}
	var epochs Epochs
	if err == nil {
		epochs, err = decodeEpochs(data)
	}
	if err != nil {
		l.logger.Warn("epoch checkpoint is rebuilt from the log", slog.Any("err", err))
		return true, nil
	}
	l.mu.epochs = newEpochCache(epochs)
	return false, nil
}

// rebuildEpochs reads the epochs below the earliest known one off the headers of the batches.
func (l *Log) rebuildEpochs() error {
	known := l.mu.epochs
	end := l.mu.end
	if earliest, found := known.Earliest(); found {
		end = earliest.Start
	}
	l.mu.epochs.truncateFromEnd(0)
	for _, s := range *l.segments.Load() {
		if s.base >= end {
			break
		}
		if err := l.readEpochs(s, end); err != nil {
			return fmt.Errorf("rebuild epochs from segment %d: %w", s.base, err)
		}
	}
	for _, entry := range known.Epochs {
		if entry.Epoch > l.mu.epochs.LatestEpoch() {
			_, _ = l.mu.epochs.assign(entry.Epoch, entry.Start) // as they were
		}
	}
	return nil
}

// readEpochs notes the epochs of a segment's batches below end.
func (l *Log) readEpochs(s *segment, end int64) error {
	scan := newHeaderScan(s.log, 0, s.size.Load())
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) || err == nil && b.BaseOffset() >= end {
			return nil
		}
		if err != nil {
			return err
		}
		l.noteEpochLocked(b.Batch)
	}
}

// settleEnd finds the log end: from the last index entry of a log that was closed cleanly, by a scan otherwise.
func (l *Log) settleEnd() (Recovery, int64, error) {
	segments := *l.segments.Load()
	if l.options.Clean {
		active := segments[len(segments)-1]
		end, err := active.readEnd()
		if err == nil {
			for _, s := range segments[:len(segments)-1] { // the active one goes on being written to
				s.sealed.Store(true)
			}
			l.synced.Store(end)
			return Recovery{}, end, nil
		}
		if !errors.Is(err, errIndexCorrupt) && !damaged(err) {
			return Recovery{}, 0, err
		}
		l.logger.Warn("cleanly closed log is damaged at its end and scanned", slog.Any("err", err))
		recovery, end, err := l.recover(active.base)
		return recovery, end, err
	}
	if len(segments) == 1 && segments[0].writer.bytes == 0 {
		l.synced.Store(segments[0].base)
		return Recovery{}, segments[0].base, nil
	}
	return l.recover(l.options.RecoveryPoint)
}

// damaged tells whether an error comes from bytes that are no batch, rather than from the disk.
func damaged(err error) bool {
	return errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrMagic) || errors.Is(err, io.ErrUnexpectedEOF)
}

// readEnd is the end of the segment's last batch, found from the last entry of its offset index.
func (s *segment) readEnd() (int64, error) {
	size := s.size.Load()
	if size == 0 {
		return s.base, nil
	}
	position := int64(0)
	if size > 2*headerScanBytes { // else reading all headers costs less than opening the index
		e, found, err := s.offsets.last()
		if err != nil {
			return 0, err
		}
		if found {
			position = positionColumn.of(e[:])
		}
	}
	scan := newHeaderScan(s.log, position, size)
	defer scan.close()
	end := int64(-1)
	for {
		b, err := scan.next()
		switch {
		case errors.Is(err, io.EOF) && end >= 0:
			return end, nil
		case errors.Is(err, io.EOF):
			return 0, fmt.Errorf("%w: position %d in %d bytes", errIndexCorrupt, position, size)
		case err != nil:
			return 0, err
		}
		end = b.LastOffset() + 1
	}
}

// publishEnd sets the log's bounds. A log start above the end, of a follower that is to start over, empties the log.
func (l *Log) publishEnd(end int64) error {
	segments := *l.segments.Load()
	start := max(l.options.LogStart, segments[0].base)
	l.mu.end, l.mu.next = end, end
	l.end.Store(end)
	l.start.Store(start)
	if start > end {
		return l.startOver(start)
	}
	return nil
}
