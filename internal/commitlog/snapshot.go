package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tidemark-io/tidemark/internal/record"
)

// Layout of a producer snapshot (docs/format/producer-snapshot.md). All numbers are big-endian.
const (
	snapshotVersion     = 1
	snapshotHeaderBytes = 2 + 4 + 4 // version, CRC-32C of all that follows it, count
	snapshotEntryBytes  = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
	snapshotBatchBytes  = 4 + 4 + 8 + 8
	snapshotCRCStart    = 2 + 4

	// windowsTag starts what follows Kafka's part: the batches that it has no room for. Kafka skips it.
	windowsTag         = "tmw1"
	windowsHeaderBytes = 4 + 4     // tag, count
	windowHeaderBytes  = 8 + 1     // producer id, number of batches
	snapshotBytesMax   = 256 << 20 // bounds what is read of a snapshot file: some two million producers
)

// ErrBadSnapshot is returned when a producer snapshot fails its CRC or does not parse. It is to be deleted, and the state
// rebuilt from an older one or from the log.
var ErrBadSnapshot = errors.New("malformed producer snapshot")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeSnapshot is the content of a producer snapshot file: Kafka's version 1, which remembers the last batch of each
// producer, followed by the batches before it, so that a retry is recognised across a restart too (U-103).
func encodeSnapshot(entries []producerEntry) []byte {
	size := snapshotHeaderBytes + len(entries)*snapshotEntryBytes
	windows := 0
	for i := range entries {
		if entries[i].hasWindow() {
			windows++
			size += windowHeaderBytes + int(entries[i].count)*snapshotBatchBytes
		}
	}
	if windows > 0 {
		size += windowsHeaderBytes
	}

	out := make([]byte, 0, size)
	be := binary.BigEndian
	out = be.AppendUint16(out, snapshotVersion)
	out = be.AppendUint32(out, 0)
	out = be.AppendUint32(out, uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		newest := batchEntry{lastSequence: record.NoSequence, lastOffset: -1}
		if e.count > 0 {
			newest = *e.newest()
		}
		out = be.AppendUint64(out, uint64(e.id))
		out = be.AppendUint16(out, uint16(e.epoch))
		out = be.AppendUint32(out, uint32(newest.lastSequence))
		out = be.AppendUint64(out, uint64(newest.lastOffset))
		out = be.AppendUint32(out, uint32(newest.offsetDelta))
		out = be.AppendUint64(out, uint64(e.lastTimestamp))
		out = be.AppendUint32(out, uint32(e.coordinatorEpoch))
		out = be.AppendUint64(out, uint64(e.txnFirst))
	}
	if windows > 0 {
		out = append(out, windowsTag...)
		out = be.AppendUint32(out, uint32(windows))
		for i := range entries {
			if entries[i].hasWindow() {
				out = entries[i].appendWindow(out)
			}
		}
	}
	return sealSnapshot(out)
}

// sealSnapshot puts the right CRC into the content of a snapshot.
func sealSnapshot(content []byte) []byte {
	if len(content) >= snapshotHeaderBytes {
		binary.BigEndian.PutUint32(content[2:], crc32.Checksum(content[snapshotCRCStart:], castagnoli))
	}
	return content
}

// hasWindow tells whether Kafka's part of a snapshot does not say everything about the producer's batches.
func (e *producerEntry) hasWindow() bool {
	return e.count > 1 || e.count == 1 && e.batches[0].timestamp != e.lastTimestamp
}

func (e *producerEntry) appendWindow(out []byte) []byte {
	be := binary.BigEndian
	out = be.AppendUint64(out, uint64(e.id))
	out = append(out, e.count)
	for _, b := range e.batches[:e.count] {
		out = be.AppendUint32(out, uint32(b.lastSequence))
		out = be.AppendUint32(out, uint32(b.offsetDelta))
		out = be.AppendUint64(out, uint64(b.lastOffset))
		out = be.AppendUint64(out, uint64(b.timestamp))
	}
	return out
}

// decodeSnapshot reads the content of a producer snapshot file, one written by Kafka too. It returns ErrBadSnapshot,
// wrapped with the reason, for anything that is not one.
func decodeSnapshot(data []byte) ([]producerEntry, error) {
	be := binary.BigEndian
	if len(data) < snapshotHeaderBytes {
		return nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrBadSnapshot, len(data), snapshotHeaderBytes)
	}
	if version := be.Uint16(data); version != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrBadSnapshot, version, snapshotVersion)
	}
	if stored, sum := be.Uint32(data[2:]), crc32.Checksum(data[snapshotCRCStart:], castagnoli); stored != sum {
		return nil, fmt.Errorf("%w: CRC is %08x, content has %08x", ErrBadSnapshot, stored, sum)
	}
	count, rest := int64(be.Uint32(data[6:])), data[snapshotHeaderBytes:]
	if count*snapshotEntryBytes > int64(len(rest)) {
		return nil, fmt.Errorf("%w: %d producers do not fit in %d bytes", ErrBadSnapshot, count, len(rest))
	}
	entries := make([]producerEntry, count)
	index := make(map[int64]int, count)
	for i := range entries {
		entry, err := decodeSnapshotEntry(rest[:snapshotEntryBytes])
		if err != nil {
			return nil, err
		}
		if _, twice := index[entry.id]; twice {
			return nil, fmt.Errorf("%w: producer %d is named twice", ErrBadSnapshot, entry.id)
		}
		entries[i], index[entry.id] = entry, i
		rest = rest[snapshotEntryBytes:]
	}
	if len(rest) == 0 {
		return entries, nil
	}
	return entries, decodeWindows(rest, entries, index)
}

func decodeSnapshotEntry(b []byte) (producerEntry, error) {
	be := binary.BigEndian
	entry := producerEntry{
		id:               int64(be.Uint64(b)),
		epoch:            int16(be.Uint16(b[8:])),
		lastTimestamp:    int64(be.Uint64(b[26:])),
		coordinatorEpoch: int32(be.Uint32(b[34:])),
		txnFirst:         int64(be.Uint64(b[38:])),
	}
	newest := batchEntry{
		lastSequence: int32(be.Uint32(b[10:])),
		lastOffset:   int64(be.Uint64(b[14:])),
		offsetDelta:  int32(be.Uint32(b[22:])),
		timestamp:    entry.lastTimestamp,
	}
	if entry.id < 0 {
		return entry, fmt.Errorf("%w: producer id %d", ErrBadSnapshot, entry.id)
	}
	entry.txnFirst = max(entry.txnFirst, -1)
	if newest.lastOffset >= 0 {
		if err := newest.valid(entry.id); err != nil {
			return entry, err
		}
		entry.add(newest)
	}
	return entry, nil
}

// valid tells whether a batch of a snapshot can exist.
func (e *batchEntry) valid(producer int64) error {
	if e.lastOffset < 0 || e.offsetDelta < 0 || e.firstOffset() < 0 || e.lastSequence < record.NoSequence {
		return fmt.Errorf("%w: producer %d: last offset %d, offset delta %d, last sequence %d",
			ErrBadSnapshot, producer, e.lastOffset, e.offsetDelta, e.lastSequence)
	}
	return nil
}

// decodeWindows reads what follows Kafka's part, and completes entries; index finds a producer's entry.
func decodeWindows(b []byte, entries []producerEntry, index map[int64]int) error {
	be := binary.BigEndian
	if len(b) < windowsHeaderBytes || string(b[:4]) != windowsTag {
		return fmt.Errorf("%w: %d unknown bytes after the producers", ErrBadSnapshot, len(b))
	}
	count, b := int64(be.Uint32(b[4:])), b[windowsHeaderBytes:]
	for range count {
		if len(b) < windowHeaderBytes {
			return fmt.Errorf("%w: the content ends inside the batch windows", ErrBadSnapshot)
		}
		id, batches := int64(be.Uint64(b)), int(b[8])
		b = b[windowHeaderBytes:]
		at, found := index[id]
		if !found || batches == 0 || batches > producerBatchesKept || len(b) < batches*snapshotBatchBytes {
			return fmt.Errorf("%w: producer %d: window of %d batches in %d bytes", ErrBadSnapshot, id, batches, len(b))
		}
		delete(index, id) // a second window would be an error
		newest := entries[at].newest()
		if newest == nil {
			return fmt.Errorf("%w: producer %d: window without a last batch", ErrBadSnapshot, id)
		}
		last := *newest
		entries[at].count = 0
		for range batches {
			batch := batchEntry{
				lastSequence: int32(be.Uint32(b)),
				offsetDelta:  int32(be.Uint32(b[4:])),
				lastOffset:   int64(be.Uint64(b[8:])),
				timestamp:    int64(be.Uint64(b[16:])),
			}
			if err := batch.valid(id); err != nil {
				return err
			}
			entries[at].add(batch)
			b = b[snapshotBatchBytes:]
		}
		newest = entries[at].newest()
		last.timestamp = newest.timestamp
		if *newest != last {
			return fmt.Errorf("%w: producer %d: its window ends at offset %d, its entry at %d",
				ErrBadSnapshot, id, newest.lastOffset, last.lastOffset)
		}
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: %d bytes after the batch windows", ErrBadSnapshot, len(b))
	}
	return nil
}
