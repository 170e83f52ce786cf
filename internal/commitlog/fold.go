package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// The producer state is a fold over the batches of the log. Snapshots of it lie beside the segments, each named for the
// offset up to which it has folded; loading takes the highest one and folds the rest.

// producerUndo is a producer as it was before a batch that may still fail to be written.
type producerUndo struct {
	id      int64
	existed bool
	entry   producerEntry
}

// remember is what restore needs to take the next update of the producer back.
func (s *producerState) remember(id int64) producerUndo {
	if entry := s.producers[id]; entry != nil {
		return producerUndo{id, true, *entry}
	}
	return producerUndo{id: id}
}

// restore takes updates back, the latest first. restored must follow.
func (s *producerState) restore(undo []producerUndo) {
	for i := range slices.Backward(undo) {
		u := &undo[i]
		if !u.existed {
			delete(s.producers, u.id)
			continue
		}
		*s.producers[u.id] = u.entry
	}
}

// restored makes the lists of transactions agree with the producers again, in a log that ends at end. A verification that
// an update consumed is not restored: the client's retry is verified again.
func (s *producerState) restored(end int64) {
	s.open = s.open[:0]
	for id, entry := range s.producers {
		if entry.txnFirst >= 0 {
			s.openTxn(openTxn{first: entry.txnFirst, producer: id})
		}
	}
	s.unreplicated = slices.DeleteFunc(s.unreplicated, func(txn closedTxn) bool { return txn.last >= end })
}

// entriesBefore is entries as they were before ops and what follows them.
func (s *producerState) entriesBefore(ops, later []*appendOp) []producerEntry {
	if len(ops) == 0 && len(later) == 0 {
		return s.entries()
	}
	before := map[int64]*producerUndo{}
	for _, list := range [][]*appendOp{ops, later} {
		for _, op := range list {
			for i := range op.undo {
				if u := &op.undo[i]; before[u.id] == nil {
					before[u.id] = u
				}
			}
		}
	}
	entries := s.entries()
	kept := entries[:0]
	for _, entry := range entries {
		switch u := before[entry.id]; {
		case u == nil:
			kept = append(kept, entry)
		case u.existed:
			kept = append(kept, u.entry)
		}
	}
	return kept
}

// takeSnapshot writes the producer state as of offset at, of which the batches of ops and all later ones are no part.
// The next sync makes it durable; a torn one fails its checksum and an older one takes its place. The caller holds the slot.
func (l *Log) takeSnapshot(at int64, ops []*appendOp) error {
	if n := len(l.holder.snapshots); n > 0 && l.holder.snapshots[n-1] >= at {
		return nil
	}
	l.mu.Lock()
	entries := l.mu.producers.entriesBefore(ops, l.mu.pending)
	l.mu.Unlock()
	if len(entries) == 0 && len(l.holder.snapshots) == 0 && at == (*l.segments.Load())[0].base {
		return nil // an empty log of which nothing needs to be known
	}
	name := segmentName(at, snapshotSuffix)
	if err := l.writePlain(name, encodeSnapshot(entries)); err != nil {
		_ = l.options.FS.Remove(l.path(name)) // the first error says more
		return fmt.Errorf("write producer snapshot at %d: %w", at, err)
	}
	l.holder.snapshots = append(l.holder.snapshots, at)
	l.mu.Lock()
	l.mu.snapshots = append(l.mu.snapshots, at)
	l.mu.Unlock()
	l.names.changed()
	return nil
}

// takeUnsyncedSnapshotsLocked returns the snapshots that somebody must sync, who is the caller from now on.
func (l *Log) takeUnsyncedSnapshotsLocked() []int64 {
	unsynced := l.mu.snapshots
	l.mu.snapshots = nil
	return unsynced
}

// syncSnapshots makes the contents of producer snapshots durable; those that were removed meanwhile need not be. Without
// them a producer whose batches retention has taken would be forgotten.
func (l *Log) syncSnapshots(offsets []int64) error {
	for _, at := range offsets {
		file, err := l.options.FS.Open(l.path(segmentName(at, snapshotSuffix)), os.O_RDWR)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(file.Sync(), file.Close())
		}
		if err != nil {
			return fmt.Errorf("sync producer snapshot at %d: %w", at, err)
		}
	}
	return nil
}

// dropSnapshots removes the snapshots that gone selects.
func (l *Log) dropSnapshots(gone func(at int64) bool) {
	l.holder.snapshots = slices.DeleteFunc(l.holder.snapshots, func(at int64) bool {
		if !gone(at) {
			return false
		}
		if err := l.options.FS.Remove(l.path(segmentName(at, snapshotSuffix))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.logger.Warn("producer snapshot could not be removed", slog.Int64("offset", at), slog.Any("err", err))
			return false
		}
		return true
	})
}

// loadProducers makes the producer state that of a log which ends at end: the highest readable snapshot at or below end,
// and what the batches since then add. Snapshots above end, and broken ones, are removed. The caller holds the slot, or
// the log is not in use yet.
func (l *Log) loadProducers(end int64) error {
	l.dropSnapshots(func(at int64) bool { return at > end })
	from := (*l.segments.Load())[0].base
	var entries []producerEntry
	for _, at := range slices.Backward(l.holder.snapshots) {
		if at < from {
			break
		}
		data, err := vfs.ReadFile(l.options.FS, l.path(segmentName(at, snapshotSuffix)), snapshotBytesMax)
		if err == nil {
			entries, err = decodeSnapshot(data)
		}
		if err == nil {
			from = at
			break
		}
		if !errors.Is(err, ErrBadSnapshot) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrTooLarge) {
			return fmt.Errorf("load producer snapshot at %d: %w", at, err)
		}
		l.logger.Warn("producer snapshot is dropped; the state is rebuilt from the log", slog.Int64("offset", at), slog.Any("err", err))
		l.dropSnapshots(func(offset int64) bool { return offset == at })
	}
	l.mu.Lock()
	l.mu.producers.load(entries, l.options.Now().UnixMilli(), l.settings.Load().ProducerExpiry)
	l.mu.Unlock()
	return l.foldProducers(from, end)
}

// foldProducers adds the batches from one offset up to another to the producer state.
func (l *Log) foldProducers(from, end int64) error {
	if from >= end {
		return nil
	}
	segments := *l.segments.Load()
	for _, s := range segments[floorSegment(segments, from):] {
		if s.base >= end {
			break
		}
		if err := l.foldSegment(s, from, end); err != nil {
			return fmt.Errorf("rebuild producer state from segment %d: %w", s.base, err)
		}
	}
	return nil
}

func (l *Log) foldSegment(s *segment, from, end int64) error {
	position := int64(0)
	if from > s.base {
		first, err := s.find(from, s.size.Load())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		position = first.position
	}
	scan := newBatchScan(s.log, position, s.size.Load())
	defer scan.close()
	d := l.options.pools.decompressors.Get().(*record.Decompressor)
	defer l.options.pools.decompressors.Put(d)
	for {
		b, err := scan.next()
		if errors.Is(err, io.EOF) || err == nil && b.BaseOffset() >= end {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := l.foldBatch(b.Batch, d); err != nil {
			return err
		}
	}
}

// foldBatch adds one batch to the producer state. If it ends a transaction, that one is returned.
func (l *Log) foldBatch(b record.Batch, d *record.Decompressor) (*completedTxn, error) {
	var p producerBatch
	if found, err := describeProducer(b, d, &p); !found || err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.update(&p), nil
}

// appendTxn adds an aborted transaction to the segment's transaction index, whose file appears with the first one.
func (s *segment) appendTxn(txn AbortedTxn) error {
	if err := s.readTxns(); err != nil && !errors.Is(err, ErrBadTxnIndex) {
		return err
	}
	flag := os.O_RDWR
	if s.writer.transactionBytes == 0 {
		flag |= os.O_CREATE | os.O_TRUNC
	}
	file, err := s.fs.Open(s.name(txnIndexSuffix), flag)
	if err != nil {
		return fmt.Errorf("open transaction index of segment %d: %w", s.base, err)
	}
	defer file.Close()
	if _, err := file.WriteAt(appendAbortedTxn(nil, txn), s.writer.transactionBytes); err != nil {
		err = errors.Join(err, file.Truncate(s.writer.transactionBytes))
		return fmt.Errorf("write transaction index of segment %d: %w", s.base, err)
	}
	s.writer.transactionBytes += abortedTxnBytes
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.txns = append(s.mu.txns, txn)
	return nil
}

// syncTxns makes the transaction index durable, if there is one; also an empty one, which may have been cut.
func (s *segment) syncTxns() error {
	file, err := s.fs.Open(s.name(txnIndexSuffix), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sync transaction index of segment %d: %w", s.base, err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync transaction index of segment %d: %w", s.base, err)
	}
	return nil
}

// readTxns reads the transaction index once.
func (s *segment) readTxns() error {
	s.mu.Lock()
	read := s.mu.txnsRead
	s.mu.Unlock()
	if read {
		return nil
	}
	data, err := vfs.ReadFile(s.fs, s.name(txnIndexSuffix), 1<<30)
	if err != nil {
		return fmt.Errorf("read transaction index of segment %d: %w", s.base, err)
	}
	txns, err := decodeTxnIndex(data, s.base)
	if err != nil {
		return fmt.Errorf("segment %d: %w", s.base, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.txnsRead {
		s.mu.txns, s.mu.txnsRead = txns, true
	}
	return nil
}

// truncateTxns removes the transactions that ended at end or above; with an end at the base all of them.
func (s *segment) truncateTxns(end int64) error {
	if s.writer.transactionBytes == 0 {
		return nil
	}
	if err := s.readTxns(); err != nil && !errors.Is(err, ErrBadTxnIndex) {
		return err
	}
	s.mu.Lock()
	kept := len(s.mu.txns)
	for kept > 0 && s.mu.txns[kept-1].Last >= end {
		kept--
	}
	s.mu.txns, s.mu.txnsRead = s.mu.txns[:kept:kept], true
	s.mu.Unlock()
	size := int64(kept) * abortedTxnBytes
	if size == s.writer.transactionBytes {
		return nil
	}
	file, err := s.fs.Open(s.name(txnIndexSuffix), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("truncate transaction index of segment %d: %w", s.base, err)
	}
	defer file.Close()
	if err := errors.Join(file.Truncate(size), file.Sync()); err != nil {
		return fmt.Errorf("truncate transaction index of segment %d: %w", s.base, err)
	}
	s.writer.transactionBytes = size
	return nil
}

// AbortedTxns are the aborted transactions that touch the offsets from start to end, sorted by first offset: what a
// consumer that reads committed data from start must skip.
func (l *Log) AbortedTxns(start, end int64) ([]AbortedTxn, error) {
	segments := *l.segments.Load()
	var found []AbortedTxn
	for _, s := range segments[floorSegment(segments, start):] {
		if err := s.readTxns(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		txns := s.mu.txns
		s.mu.Unlock()
		complete := false
		if found, complete = overlapping(found, txns, start, end); complete {
			break
		}
	}
	sortAborted(found)
	return found, nil
}
