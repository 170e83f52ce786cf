package commitlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// This file reads the files of a log directory for people, one at a time, without opening the log and whoever wrote
// them: `tidemark log dump` shows what it finds.

// inspectBytesMax bounds the files that are read whole: every kind but segments.
const inspectBytesMax = 1 << 30

// FileKind tells the files of a log directory apart by their names.
type FileKind string

// The kinds, each with the function that reads it.
const (
	SegmentFile    FileKind = "segment"            // InspectSegment
	OffsetIndex    FileKind = "offset index"       // InspectOffsetIndex
	TimeIndex      FileKind = "time index"         // InspectTimeIndex
	TxnIndex       FileKind = "transaction index"  // InspectTxnIndex
	SnapshotFile   FileKind = "producer snapshot"  // InspectSnapshot
	EpochFile      FileKind = "leader epochs"      // InspectEpochs
	OffsetsFile    FileKind = "offset checkpoint"  // InspectOffsets
	PartitionFile  FileKind = "partition metadata" // InspectPartition
	UnknownFile    FileKind = "unknown"            // none
	offsetsPostfix          = "-offset-checkpoint" // recovery point, log start, replication
)

// KindOf tells what a file is by its name.
func KindOf(name string) FileKind {
	base := filepath.Base(name)
	switch {
	case base == epochFileName:
		return EpochFile
	case base == partitionMetadataFileName:
		return PartitionFile
	case strings.HasSuffix(base, offsetsPostfix):
		return OffsetsFile
	}
	for _, postfix := range []string{deletedSuffix, cleanedSuffix, swapSuffix} {
		base = strings.TrimSuffix(base, postfix)
	}
	switch filepath.Ext(base) {
	case ".log":
		return SegmentFile
	case ".index":
		return OffsetIndex
	case ".timeindex":
		return TimeIndex
	case ".txnindex":
		return TxnIndex
	case ".snapshot":
		return SnapshotFile
	default:
		return UnknownFile
	}
}

// BaseOffsetOf is the offset that the name of a segment's file carries.
func BaseOffsetOf(name string) (int64, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	base, _, ok := parseSegmentName(digits + ".log")
	if !ok {
		return 0, fmt.Errorf("%s: the name does not start with an offset of 20 digits", filepath.Base(name))
	}
	return base, nil
}

// InspectSegment hands each batch of a segment to visit, in order. The batch is valid until visit returns; its checksum
// is visit's to check. It stops at the first error of visit, and with record.ErrCorrupt or record.ErrMagic, wrapped with
// the position, at bytes that are no batch.
func InspectSegment(fsys vfs.FS, name string, visit func(position int64, batch record.Batch) error) error {
	file, size, err := openForInspection(fsys, name)
	if err != nil {
		return err
	}
	defer file.Close()
	scan := newBatchScan(file, 0, size)
	defer scan.close()
	for {
		batch, err := scan.next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		if err := visit(batch.position, batch.Batch); err != nil {
			return err
		}
	}
}

// OffsetEntry is an entry of an offset index: the batch at Position ends with Offset.
type OffsetEntry struct{ Offset, Position int64 }

// InspectOffsetIndex reads an offset index. Kafka leaves the index of an active segment padded with zeros; those are left
// out.
func InspectOffsetIndex(fsys vfs.FS, name string) ([]OffsetEntry, error) {
	return inspectIndex(fsys, name, offsetEntryBytes, func(base int64, entry []byte) OffsetEntry {
		return OffsetEntry{base + offsetColumn.of(entry), positionColumn.of(entry)}
	})
}

// TimeEntry is an entry of a time index: no record up to Offset is younger than Timestamp (ms).
type TimeEntry struct{ Timestamp, Offset int64 }

// InspectTimeIndex reads a time index, without padding.
func InspectTimeIndex(fsys vfs.FS, name string) ([]TimeEntry, error) {
	return inspectIndex(fsys, name, timeEntryBytes, func(base int64, entry []byte) TimeEntry {
		return TimeEntry{timestampColumn.of(entry), base + timeOffsetColumn.of(entry)}
	})
}

func inspectIndex[E any](fsys vfs.FS, name string, width int, decode func(base int64, entry []byte) E) ([]E, error) {
	base, err := BaseOffsetOf(name)
	if err != nil {
		return nil, err
	}
	data, err := vfs.ReadFile(fsys, name, inspectBytesMax)
	if err != nil {
		return nil, err
	}
	if len(data)%width != 0 {
		return nil, fmt.Errorf("%s: %d bytes are no whole number of entries of %d bytes", filepath.Base(name), len(data), width)
	}
	entries := make([]E, 0, len(data)/width)
	for entry := range slices.Chunk(data, width) {
		if len(entries) > 0 && allZero(entry) {
			break
		}
		entries = append(entries, decode(base, entry))
	}
	if len(entries) == 1 && allZero(data) && len(data) > width {
		return nil, nil // nothing but padding
	}
	return entries, nil
}

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

// InspectTxnIndex reads a transaction index.
func InspectTxnIndex(fsys vfs.FS, name string) ([]AbortedTxn, error) {
	base, err := BaseOffsetOf(name)
	if err != nil {
		return nil, err
	}
	data, err := vfs.ReadFile(fsys, name, inspectBytesMax)
	if err != nil {
		return nil, err
	}
	txns, err := decodeTxnIndex(data, base)
	return txns, inspected(name, err)
}

// InspectSnapshot reads a producer snapshot: the state of each producer before the offset in the file's name.
func InspectSnapshot(fsys vfs.FS, name string) ([]Producer, error) {
	data, err := vfs.ReadFile(fsys, name, snapshotBytesMax)
	if err != nil {
		return nil, err
	}
	entries, err := decodeSnapshot(data)
	if err != nil {
		return nil, inspected(name, err)
	}
	producers := make([]Producer, 0, len(entries))
	for i := range entries {
		producers = append(producers, entries[i].view())
	}
	return producers, nil
}

// InspectEpochs reads a leader-epoch-checkpoint file.
func InspectEpochs(fsys vfs.FS, name string) (Epochs, error) {
	data, err := vfs.ReadFile(fsys, name, inspectBytesMax)
	if err != nil {
		return nil, err
	}
	epochs, err := decodeEpochs(data)
	return epochs, inspected(name, err)
}

// InspectOffsets reads an offset checkpoint file of a data directory.
func InspectOffsets(fsys vfs.FS, name string) (map[PartitionName]int64, error) {
	data, err := vfs.ReadFile(fsys, name, inspectBytesMax)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil // Kafka creates the cleaner's checkpoint empty
	}
	offsets, err := decodeOffsets(data)
	return offsets, inspected(name, err)
}

// InspectPartition reads the topic id of a partition.metadata file.
func InspectPartition(fsys vfs.FS, name string) (meta.TopicID, error) {
	data, err := vfs.ReadFile(fsys, name, inspectBytesMax)
	if err != nil {
		return meta.TopicID{}, err
	}
	id, err := decodePartitionMetadata(data)
	return id, inspected(name, err)
}

// VerifySegment reads a segment and the two indexes beside it, checks every checksum and every record, that offsets
// ascend, and that each index entry is true. It returns one sentence for each fault; an error is a file that cannot be
// read.
func VerifySegment(fsys vfs.FS, name string) (faults []string, err error) {
	fault := func(format string, args ...any) {
		faults = append(faults, filepath.Base(name)+": "+fmt.Sprintf(format, args...))
	}
	base, err := BaseOffsetOf(name)
	if err != nil {
		return nil, err
	}
	var batches []spanOfBatch
	next := base
	decompressor := record.NewDecompressor(record.DefaultLimits)
	err = InspectSegment(fsys, name, func(position int64, batch record.Batch) error {
		if err := batch.CheckCRC(); err != nil {
			fault("batch at position %d: %v", position, err)
		} else if err := walk(batch, decompressor); err != nil {
			fault("batch at position %d: %v", position, err)
		}
		if batch.BaseOffset() < next {
			fault("batch at position %d starts at offset %d, below %d", position, batch.BaseOffset(), next)
		}
		next = batch.LastOffset() + 1
		batches = append(batches, spanOfBatch{position, batch.LastOffset(), batch.MaxTimestamp(), batch.Count() == 0})
		return nil
	})
	switch {
	case errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrMagic):
		faults = append(faults, err.Error()) // names the file itself
	case err != nil:
		return faults, err
	}
	stem := strings.TrimSuffix(name, ".log")
	if err := verifyOffsetIndex(fsys, stem+".index", batches, fault); err != nil {
		return faults, err
	}
	return faults, verifyTimeIndex(fsys, stem+".timeindex", batches, fault)
}

// spanOfBatch is what index entries say of a batch.
type spanOfBatch struct {
	position, last, maxTimestamp int64
	empty                        bool // compaction left its header alone
}

func walk(batch record.Batch, decompressor *record.Decompressor) error {
	records := batch.Records(decompressor)
	for records.Next() {
	}
	return records.Err()
}

func verifyOffsetIndex(fsys vfs.FS, name string, batches []spanOfBatch, fault func(string, ...any)) error {
	if exists, err := vfs.Exists(fsys, name); err != nil || !exists {
		return err // built again when it is needed
	}
	entries, err := InspectOffsetIndex(fsys, name)
	if err != nil {
		return err
	}
	before := OffsetEntry{-1, -1}
	for i, entry := range entries {
		if entry.Offset <= before.Offset || entry.Position <= before.Position {
			fault("offset index entry %d (%d at %d) does not ascend", i, entry.Offset, entry.Position)
		}
		before = entry
		at, found := slices.BinarySearchFunc(batches, entry.Position, func(b spanOfBatch, position int64) int {
			return int(min(max(b.position-position, -1), 1))
		})
		if !found || batches[at].last != entry.Offset {
			fault("offset index entry %d says that the batch at position %d ends with offset %d; it does not", i, entry.Position, entry.Offset)
		}
	}
	return nil
}

func verifyTimeIndex(fsys vfs.FS, name string, batches []spanOfBatch, fault func(string, ...any)) error {
	if exists, err := vfs.Exists(fsys, name); err != nil || !exists {
		return err
	}
	entries, err := InspectTimeIndex(fsys, name)
	if err != nil {
		return err
	}
	before := TimeEntry{-1, -1}
	for i, entry := range entries {
		if entry.Timestamp <= before.Timestamp || entry.Offset <= before.Offset {
			fault("time index entry %d (%d at offset %d) does not ascend", i, entry.Timestamp, entry.Offset)
		}
		before = entry
		at, _ := slices.BinarySearchFunc(batches, entry.Offset, func(b spanOfBatch, offset int64) int {
			return int(min(max(b.last-offset, -1), 1))
		})
		if at == len(batches) || batches[at].empty || batches[at].maxTimestamp != entry.Timestamp {
			fault("time index entry %d says that offset %d has the greatest timestamp %d; its batch has another, or no record", i, entry.Offset, entry.Timestamp)
		}
	}
	return nil
}

func openForInspection(fsys vfs.FS, name string) (vfs.File, int64, error) {
	if exists, err := vfs.Exists(fsys, name); err != nil || !exists {
		if err == nil {
			err = fmt.Errorf("%s: no such file", name)
		}
		return nil, 0, err
	}
	file, err := fsys.Open(name, 0)
	if err != nil {
		return nil, 0, err
	}
	size, err := file.Size()
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, size, nil
}

func inspected(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", filepath.Base(name), err)
}
