package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// How a compacted segment X replaces a group of segments, of which X is the first base:
//
//	1  X.log.cleaned and its three indexes are written and synced, and the directory is.
//	2  All four are renamed to .swap; the directory is synced. From here on a restart goes forward, before it goes back.
//	3  The old files of the group are renamed to .deleted; the directory is synced.
//	4  The four .swap files get their names, the .log last; the directory is synced.
//
// A restart (recoverSwaps) reads the step off the directory: X.log.swap means that 2 may be durable, so 3 and 4 are done again; an
// index with .swap but neither X.log.swap nor X.log.cleaned means that only 4 is unfinished; everything else with .cleaned or .swap
// is from before 2. It needs two things. All four files always exist, also an empty transaction index: otherwise a missing
// .swap could mean "never was" or "in place already". And X.log.swap must tell which old segments it stands for: the last batch
// of a group is always kept, so those are the ones with a base from X to its last offset.

// swapIn does steps 2 to 4 and puts the new segment into the log. It returns ErrCompactionVoid if the group is not in the log
// any more, and then removes the new segment. If the disk fails the log fails, and its next start goes on.
func (l *Log) swapIn(p *pass, group []*segment, cleaned *segment) error {
	void := func(err error) error { return errors.Join(err, cleaned.remove()) }
	if err := l.acquire(); err != nil {
		return void(ErrCompactionVoid)
	}
	defer l.release()
	if err := l.Err(); err != nil {
		return void(err)
	}
	segments := *l.segments.Load()
	at := slices.Index(segments, group[0])
	if at < 0 || len(segments) <= at+len(group) || !slices.Equal(segments[at:at+len(group)], group) || l.changedUnder(p) {
		return void(ErrCompactionVoid)
	}
	if err := cleaned.rename(swapSuffix); err != nil {
		return l.fail(err)
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	now := l.options.Now()
	for _, s := range group {
		if err := s.rename(deletedSuffix); err != nil {
			return l.fail(err)
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	if err := cleaned.rename(""); err != nil {
		return l.fail(err)
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.swapSegments(slices.Concat(segments[:at], []*segment{cleaned}, segments[at+len(group):]))
	for _, s := range group {
		l.holder.doomed = append(l.holder.doomed, doomedSegment{s, now})
	}
	l.doomedCount.Store(int32(len(l.holder.doomed)))
	l.dropSnapshots(func(offset int64) bool {
		return slices.ContainsFunc(group[1:], func(s *segment) bool { return s.base == offset })
	})
	return nil
}

func (l *Log) syncDir() error {
	if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
		return l.fail(lost(fmt.Errorf("sync directory: %w", err)))
	}
	return nil
}

// recoverSwaps finishes or undoes what a crash left of compactions in a partition's directory, and removes files that were
// marked as deleted. It is called with the listing of the directory before anything in it is opened; changed says that the
// listing is out of date. Nobody else may use the directory.
func recoverSwaps(fsys vfs.FS, dir string, entries []vfs.Entry, logger *slog.Logger) (changed bool, err error) {
	r := swapRecovery{fs: fsys, dir: dir, logger: logger, names: map[string]bool{}}
	for _, entry := range entries {
		if !entry.Dir && (strings.HasSuffix(entry.Name, cleanedSuffix) || strings.HasSuffix(entry.Name, swapSuffix) || strings.HasSuffix(entry.Name, deletedSuffix)) {
			changed = true
		}
		r.names[entry.Name] = true
	}
	if !changed {
		return false, nil
	}
	if err := r.run(); err != nil {
		return true, fmt.Errorf("finish interrupted compaction: %w", err)
	}
	return true, nil
}

// swapRecovery is recoverSwaps at work. names is kept up to date.
type swapRecovery struct {
	fs     vfs.FS
	dir    string
	logger *slog.Logger
	names  map[string]bool
}

func (r *swapRecovery) run() error {
	for _, base := range r.bases(logSuffix + swapSuffix) {
		if err := r.forward(base); err != nil {
			return fmt.Errorf("segment %d: %w", base, err)
		}
		r.logger.Info("finished the swap of a compacted segment", slog.Int64("segment", base))
	}
	// Indexes first: without X.log.cleaned they would look like step 4.
	for _, part := range segmentSuffixes[:3] {
		for _, base := range r.bases(part + swapSuffix) {
			name := segmentName(base, part)
			if r.names[segmentName(base, logSuffix)+cleanedSuffix] || !r.names[segmentName(base, logSuffix)] {
				if err := r.remove(name + swapSuffix); err != nil {
					return err
				}
			} else if err := r.rename(name+swapSuffix, name); err != nil {
				return err
			}
		}
	}
	if err := r.sync(); err != nil {
		return err
	}
	for _, name := range r.sorted() {
		if strings.HasSuffix(name, cleanedSuffix) || strings.HasSuffix(name, deletedSuffix) {
			if err := r.remove(name); err != nil {
				return err
			}
		}
	}
	return r.sync()
}

// forward does steps 3 and 4 for the segment whose X.log.swap is there. The old files need not be kept: nobody reads them.
func (r *swapRecovery) forward(base int64) error {
	log := segmentName(base, logSuffix)
	last, err := r.lastOffset(log + swapSuffix)
	if err != nil {
		return err
	}
	for _, part := range segmentSuffixes[:3] {
		name := segmentName(base, part)
		for _, suffix := range [...]string{swapSuffix, cleanedSuffix} {
			if r.names[name+suffix] {
				if err := r.rename(name+suffix, name); err != nil {
					return err
				}
				break
			}
		}
	}
	for _, name := range r.sorted() {
		old, suffix, ok := parseSegmentName(name)
		if ok && old > base && old <= last && (slices.Contains(segmentSuffixes[:], suffix) || suffix == snapshotSuffix) {
			if err := r.remove(name); err != nil {
				return err
			}
		}
	}
	if err := r.sync(); err != nil {
		return err
	}
	if err := r.rename(log+swapSuffix, log); err != nil {
		return err
	}
	return r.sync()
}

// lastOffset is the last offset of a file of batches.
func (r *swapRecovery) lastOffset(name string) (int64, error) {
	file, err := r.fs.Open(filepath.Join(r.dir, name), 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return 0, err
	}
	last := int64(-1)
	scan := newHeaderScan(file, 0, size)
	defer scan.close()
	for {
		b, err := scan.next()
		if err != nil {
			if scan.position >= scan.limit {
				return last, nil
			}
			return 0, err
		}
		last = b.LastOffset()
	}
}

// bases are the segments that have a file with the suffix, in ascending order.
func (r *swapRecovery) bases(suffix string) []int64 {
	var bases []int64
	for _, name := range r.sorted() {
		if base, found, ok := parseSegmentName(name); ok && found == suffix {
			bases = append(bases, base)
		}
	}
	return bases
}

func (r *swapRecovery) sorted() []string {
	names := make([]string, 0, len(r.names))
	for name := range r.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (r *swapRecovery) rename(from, to string) error {
	if err := r.fs.Rename(filepath.Join(r.dir, from), filepath.Join(r.dir, to)); err != nil {
		return err
	}
	delete(r.names, from)
	r.names[to] = true
	return nil
}

func (r *swapRecovery) remove(name string) error {
	if err := r.fs.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(r.names, name)
	return nil
}

func (r *swapRecovery) sync() error { return r.fs.SyncDir(r.dir) }
