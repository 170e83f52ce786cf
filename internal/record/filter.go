package record

// Filterer removes records from batches, as log compaction does. It keeps its buffers from batch to batch; one goroutine
// uses it at a time.
//
// What stays of a batch is what replicas and the idempotence of producers rest on: base and last offset, leader epoch,
// producer id, epoch and sequences, flags and codec. Kept records keep offset, timestamp, key, value and headers. The base
// timestamp becomes that of the first kept record, or stays the delete horizon; the greatest timestamp becomes that of the
// kept records, but stays the append time with LogAppendTime.
type Filterer struct {
	d     *Decompressor
	raw   []byte
	moved []byte // raw, relative to a new base timestamp
}

// NewFilterer makes one that decompresses within limits.
func NewFilterer(limits Limits) *Filterer { return &Filterer{d: NewDecompressor(limits)} }

// FilterOptions say what to keep of one batch.
type FilterOptions struct {
	// Keep is asked once for each record, in order. The record is valid during the call. Nil keeps all.
	Keep func(r *Record) bool
	// KeepEmpty keeps the header when no record is kept: the batch is then the last word on its producer's sequence, or a
	// marker on which the transaction's fate rests.
	KeepEmpty bool
	// DeleteHorizon is the time, in milliseconds since the epoch, after which what is kept here only to be seen may go
	// (KIP-534): now plus delete.retention.ms. It is set on a batch that keeps a tombstone and has no horizon yet.
	DeleteHorizon int64
	// SetDeleteHorizon sets it even without a tombstone: the batch is a marker whose transaction has no records left.
	SetDeleteHorizon bool
}

// Filtered says what Filter did.
type Filtered struct {
	Read, Kept           int   // records
	Unchanged            bool  // the batch was appended as it was
	MaxTimestamp         int64 // of the batch appended; NoTimestamp if none was
	OffsetOfMaxTimestamp int64 // absolute: of the first kept record that has it; the last offset if the batch is empty
}

// Filter appends to dst what o keeps of b, which is nothing if no record is kept and KeepEmpty is false. b does not
// change, and dst must not overlap it. The errors are those of iteration; dst is then returned as it was.
func (f *Filterer) Filter(dst []byte, b Batch, o FilterOptions) ([]byte, Filtered, error) {
	result := Filtered{MaxTimestamp: NoTimestamp, OffsetOfMaxTimestamp: -1}
	h := b.header()
	h.count, h.maxTimestamp = 0, NoTimestamp
	tombstones := false
	f.raw = f.raw[:0]
	it := b.Records(f.d)
	for it.Next() {
		r := it.Record()
		result.Read++
		if o.Keep != nil && !o.Keep(r) {
			continue
		}
		if h.count == 0 && !b.HasDeleteHorizon() {
			h.baseTimestamp = r.Timestamp
		}
		if h.count == 0 || r.Timestamp > h.maxTimestamp {
			h.maxTimestamp, result.OffsetOfMaxTimestamp = r.Timestamp, r.Offset
		}
		tombstones = tombstones || r.Value == nil
		h.count++
		f.raw = appendRecord(f.raw, r.Timestamp-h.baseTimestamp, int32(r.Offset-h.baseOffset), r.Key, r.Value, int(r.headerCount), r.headers)
	}
	if err := it.Err(); err != nil {
		return dst, Filtered{}, err
	}
	result.Kept = int(h.count)
	if h.count == 0 {
		if o.KeepEmpty {
			dst = appendEmpty(dst, b)
			result.MaxTimestamp, result.OffsetOfMaxTimestamp = b.MaxTimestamp(), b.LastOffset()
		}
		return dst, result, nil
	}
	setHorizon := (tombstones || o.SetDeleteHorizon) && !b.HasDeleteHorizon()
	if result.Kept == result.Read && !setHorizon {
		result.Unchanged, result.MaxTimestamp = true, b.MaxTimestamp()
		return append(dst, b...), result, nil
	}
	if setHorizon {
		if err := f.rebase(h.baseTimestamp, o.DeleteHorizon); err != nil {
			return dst, Filtered{}, err
		}
		h.baseTimestamp = o.DeleteHorizon
		h.attributes |= bitDeleteHorizon
	}
	if b.LogAppendTime() {
		h.maxTimestamp = b.MaxTimestamp()
	}
	h.attributes &= maskAttributesAll
	result.MaxTimestamp = h.maxTimestamp
	start := len(dst)
	out, err := appendCompressed(append(dst, b[:HeaderBytes]...), b.Codec(), 0, f.raw)
	if err != nil {
		return dst, Filtered{}, err
	}
	h.seal(Batch(out[start:]))
	return out, result, nil
}

// rebase encodes the records of raw again, with timestamps relative to another base.
func (f *Filterer) rebase(from, to int64) error {
	f.moved = f.moved[:0]
	var r Record
	for c := (cursor{buf: f.raw}); c.remaining() > 0; {
		body, err := c.bytes() // a record's length and body read like a field
		if err == nil {
			err = r.body(body)
		}
		if err != nil {
			return walkError(err, -1)
		}
		f.moved = appendRecord(f.moved, from+r.timeDelta-to, int32(r.Offset), r.Key, r.Value, int(r.headerCount), r.headers)
	}
	f.raw, f.moved = f.moved, f.raw
	return nil
}

// appendEmpty appends the header of b with no records. As in Kafka, it is not compressed, has no base timestamp and no
// delete horizon, and keeps the greatest timestamp.
func appendEmpty(dst []byte, b Batch) []byte {
	h := b.header()
	h.attributes &= bitLogAppendTime | bitTransactional | bitControl
	h.count, h.baseTimestamp = 0, NoTimestamp
	start := len(dst)
	dst = append(dst, b[:HeaderBytes]...)
	h.seal(Batch(dst[start:]))
	return dst
}
