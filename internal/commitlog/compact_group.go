package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
)

// cleanGroup rewrites a group of segments into one and swaps it in. A single segment of which everything stays is left
// alone.
func (p *pass) cleanGroup(ctx context.Context, group []*segment) error {
	l := p.log
	cleaned, err := createSegment(l.options.FS, l.options.Dir, group[0].base, cleanedSuffix, l.options.Now())
	if err != nil {
		return p.fail(err)
	}
	cleaned.spacing.Store(int64(p.set.IndexInterval))
	r := &p.retention
	r.tally, r.kept, r.changed = cleanTally{}, nil, false
	err = p.writeGroup(ctx, group, cleaned)
	if err == nil && len(group) == 1 && !r.changed {
		return cleaned.remove()
	}
	if err == nil {
		err = p.sealGroup(group, cleaned)
	}
	if err != nil {
		return errors.Join(err, cleaned.remove())
	}
	if err := l.swapIn(p, group, cleaned); err != nil {
		return err
	}
	p.tally.add(r.tally)
	p.before, p.after = p.before+len(group), p.after+1
	return nil
}

// fail passes on an error of writing, which makes the log fail; not if the log was closed meanwhile, to be deleted perhaps:
// then the directory is gone, and nothing is wrong.
func (p *pass) fail(err error) error {
	if p.log.changedUnder(p) {
		return ErrCompactionVoid
	}
	return p.log.fail(err)
}

// writeGroup writes what stays of the group's batches into cleaned. A single segment is not copied before something in it
// changes.
func (p *pass) writeGroup(ctx context.Context, group []*segment, cleaned *segment) error {
	last := len(group) - 1
	for group[last].size.Load() == 0 {
		last--
	}
	w := groupWriter{pass: p, cleaned: cleaned, out: p.cleaner.out[:0], copying: len(group) > 1}
	defer func() { p.cleaner.out = w.out }()
	for i, s := range group {
		if s.size.Load() == 0 {
			continue
		}
		if err := w.segment(ctx, s, i == last); err != nil {
			return fmt.Errorf("segment %d: %w", s.base, err)
		}
	}
	return w.flush(ctx)
}

// groupWriter gathers what stays of a group's batches and writes it.
type groupWriter struct {
	pass    *pass
	cleaned *segment
	out     []byte // whole batches that are not written yet
	copying bool   // false: so far all is as it was in the only segment of the group, and nothing is written
}

// segment adds what stays of one segment; last says that no batches follow it in the group.
func (w *groupWriter) segment(ctx context.Context, s *segment, last bool) error {
	p := w.pass
	aborted, err := p.log.AbortedTxns(s.base, p.nextBase(slices.Index(p.segments, s)))
	if err != nil {
		return err
	}
	p.retention.txns.add(aborted)
	return p.eachBatch(ctx, s, s.size.Load(), func(b located) error {
		start := len(w.out)
		if w.out, err = p.retention.clean(w.out, b.Batch, last && b.after() == s.size.Load()); err != nil {
			return err
		}
		switch {
		case !w.copying && !p.retention.changed:
			w.out = w.out[:start]
			return nil
		case !w.copying:
			if err := w.catchUp(ctx, s, b.position); err != nil {
				return err
			}
		}
		return w.flushIfFull(ctx)
	})
}

// catchUp writes the batches before position, which stay as they are, in front of what has been gathered.
func (w *groupWriter) catchUp(ctx context.Context, s *segment, position int64) error {
	w.copying = true
	gathered := slices.Clone(w.out)
	w.out = w.out[:0]
	err := w.pass.eachBatch(ctx, s, position, func(b located) error {
		w.out = append(w.out, b.Batch...)
		return w.flushIfFull(ctx)
	})
	w.out = append(w.out, gathered...)
	return err
}

// eachBatch reads and checks the batches of a segment up to a position.
func (p *pass) eachBatch(ctx context.Context, s *segment, limit int64, visit func(located) error) error {
	scan := newBatchScan(s.log, 0, limit)
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = p.admitRead(ctx, b)
		}
		if err == nil {
			err = visit(b)
		}
		if err != nil {
			return err
		}
	}
}

func (w *groupWriter) flushIfFull(ctx context.Context) error {
	if len(w.out) < compactWriteBytes {
		return nil
	}
	return w.flush(ctx)
}

// flush writes what has been gathered at the end of the new segment.
func (w *groupWriter) flush(ctx context.Context) error {
	err := w.pass.flush(ctx, w.cleaned, w.out)
	w.out = w.out[:0]
	return err
}

// flush writes whole batches at the end of cleaned.
func (p *pass) flush(ctx context.Context, cleaned *segment, batches []byte) error {
	if len(batches) == 0 {
		return nil
	}
	if err := p.cleaner.throttle(ctx, len(batches)); err != nil {
		return err
	}
	position := cleaned.writer.bytes
	if err := cleaned.write([][]byte{batches}, int64(len(batches))); err != nil {
		return p.fail(err)
	}
	for rest := batches; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil {
			return err
		}
		cleaned.admit(b, position)
		position += int64(len(b))
		rest = after
	}
	return nil
}

// sealGroup makes cleaned durable and proves it.
func (p *pass) sealGroup(group []*segment, cleaned *segment) error {
	cleaned.publish(p.log.options.Now())
	cleaned.setModified(newestModified(group))
	if err := p.makeDurable(cleaned); err != nil {
		return p.fail(err)
	}
	return p.prove(group, cleaned)
}

// makeDurable writes and syncs all that belongs to a new segment, and the names of its files.
func (p *pass) makeDurable(cleaned *segment) error {
	if err := cleaned.flushIndexes(true); err != nil {
		return err
	}
	if err := cleaned.writeTxns(p.retention.kept); err != nil {
		return err
	}
	if err := cleaned.sync(true); err != nil {
		return err
	}
	cleaned.sealed.Store(true)
	if err := p.log.options.FS.SyncDir(p.log.options.Dir); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// newestModified is the time of the last append to any of the segments: retention goes on from there (U-93).
func newestModified(segments []*segment) time.Time {
	var newest time.Time
	for _, s := range segments {
		s.mu.Lock()
		if s.mu.modified.After(newest) {
			newest = s.mu.modified
		}
		s.mu.Unlock()
	}
	return newest
}

func (s *segment) setModified(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.modified = at
}

// writeTxns writes the transaction index of a new segment, an empty file when there is nothing to say: when segments are
// swapped, its absence means that it is in place (swap.go).
func (s *segment) writeTxns(txns []AbortedTxn) error {
	file, err := s.fs.Open(s.name(txnIndexSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("create transaction index of segment %d: %w", s.base, err)
	}
	defer file.Close()
	content := make([]byte, 0, len(txns)*abortedTxnBytes)
	for _, txn := range txns {
		content = appendAbortedTxn(content, txn)
	}
	if _, err := file.WriteAt(content, 0); err != nil {
		return fmt.Errorf("write transaction index of segment %d: %w", s.base, err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync transaction index of segment %d: %w", s.base, err)
	}
	s.writer.transactionBytes = int64(len(content))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.txns, s.mu.txnsRead = txns, true
	return nil
}

// prove reads the new segment back and holds it against what was read of the group (U-15): every record of every batch of
// the group is kept or went for a reason, what is on disk is as many batches, records and bytes as were kept, in ascending
// order within the group's offsets, and its last offset is the group's.
func (p *pass) prove(group []*segment, cleaned *segment) error {
	t := &p.retention.tally
	var bytesRead, last int64
	for _, s := range group {
		bytesRead += s.size.Load()
	}
	if t.bytesRead != bytesRead || !t.balanced() {
		return fmt.Errorf("%w: of %d bytes %d were read, with %d records: %+v", ErrCompactionUnproven, bytesRead, t.bytesRead, t.recordsRead, *t)
	}
	var batches, records int64
	next := group[0].base
	scan := newBatchScan(cleaned.log, 0, cleaned.writer.bytes)
	defer scan.close()
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCompactionUnproven, err)
		}
		if b.BaseOffset() < next {
			return fmt.Errorf("%w: a batch at offset %d where %d was the least", ErrCompactionUnproven, b.BaseOffset(), next)
		}
		batches, records, last = batches+1, records+int64(b.Count()), b.LastOffset()
		next = last + 1
	}
	if batches != t.batchesKept || records != t.recordsKept || cleaned.writer.bytes != t.bytesKept || last != p.retention.lastOffset {
		return fmt.Errorf("%w: wrote %d batches, %d records, %d bytes up to offset %d; found %d, %d, %d up to %d", ErrCompactionUnproven,
			t.batchesKept, t.recordsKept, t.bytesKept, p.retention.lastOffset, batches, records, cleaned.writer.bytes, last)
	}
	return nil
}
