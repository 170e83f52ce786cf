package record

import (
	"errors"
	"fmt"
)

// Iterator walks the records of one batch, decompressing as it goes:
//
//	for it := batch.Records(d); it.Next(); {
//		use(it.Record())
//	}
//	if err := it.Err(); err != nil { … }
//
// It checks the structure of each record and, at the end, that there were exactly as many as the header says. It does not
// check the checksum; use CheckCRC first on bytes from outside.
type Iterator struct {
	batch  Batch
	stream *stream
	window []byte // unread bytes, uncompressed, when there is no stream
	count  int32
	index  int32 // records handed out
	record Record
	err    error
}

// Records starts to walk the batch. d decompresses, and holds the iterator itself, so that nothing is allocated: a second
// call with the same d ends the first iteration. With a nil d the iterator is allocated and DefaultLimits hold.
func (b Batch) Records(d *Decompressor) *Iterator {
	if d == nil {
		d = NewDecompressor(DefaultLimits)
	}
	it := &d.iterator
	it.reset(b, d)
	return it
}

func (it *Iterator) reset(b Batch, d *Decompressor) {
	*it = Iterator{batch: b, count: b.Count()}
	if it.count < 0 {
		it.err = invalid("the header says %d records", it.count)
		return
	}
	if b.Codec() == None {
		it.window = b.Payload()
		return
	}
	if it.count == 0 { // an empty batch left by compaction has no payload, not even a compressed one
		return
	}
	it.stream = &d.stream
	it.err = d.stream.reset(b)
}

// Next moves to the next record. It returns false at the end and on an error, which Err tells.
func (it *Iterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.index == it.count {
		it.finish()
		return false
	}
	size, err := it.size()
	if err != nil {
		it.fail(err)
		return false
	}
	body, err := it.take(int(size))
	if err == nil {
		err = it.record.body(body)
	}
	if err != nil {
		it.fail(err)
		return false
	}
	it.record.Timestamp = it.batch.timestampOf(it.record.timeDelta)
	it.record.Offset += it.batch.BaseOffset()
	it.index++
	return true
}

// Record is the current record, valid until the next call of Next.
func (it *Iterator) Record() *Record { return &it.record }

// Err is nil at the end of a sound batch. Otherwise it is ErrCodec, ErrTooLarge (Limits) or an *InvalidError.
func (it *Iterator) Err() error { return it.err }

// timestampOf is the timestamp of a record whose delta is given.
func (b Batch) timestampOf(delta int64) int64 {
	if b.LogAppendTime() {
		return b.MaxTimestamp()
	}
	return b.BaseTimestamp() + delta
}

// size reads the length that precedes a record, and refuses one that no record can have.
func (it *Iterator) size() (int32, error) {
	window := it.window
	if it.stream != nil {
		var err error
		if window, err = it.stream.peek(varintBytesMax); err != nil {
			return 0, err
		}
	}
	c := cursor{buf: window}
	size, err := c.varint()
	if err != nil {
		return 0, err
	}
	if size < recordBytesMin-1 {
		return 0, fmt.Errorf("its length is %d, less than the %d bytes of the smallest record", size, recordBytesMin-1)
	}
	it.skip(c.pos)
	return size, nil
}

// varintBytesMax is the longest encoding of a 32-bit integer.
const varintBytesMax = 5

// skip drops n bytes that were peeked at.
func (it *Iterator) skip(n int) {
	if it.stream != nil {
		it.stream.skip(n)
		return
	}
	it.window = it.window[n:]
}

// take returns the next n bytes.
func (it *Iterator) take(n int) ([]byte, error) {
	window := it.window
	if it.stream != nil {
		var err error
		if window, err = it.stream.peek(n); err != nil {
			return nil, err
		}
	}
	if len(window) < n {
		return nil, fmt.Errorf("its length is %d, and the batch ends after %d bytes of it", n, len(window))
	}
	it.skip(n)
	return window[:n:n], nil
}

// finish checks that nothing follows the last record.
func (it *Iterator) finish() {
	window := it.window
	if it.stream != nil {
		var err error
		if window, err = it.stream.peek(1); err != nil {
			it.fail(err)
			return
		}
	}
	if len(window) > 0 {
		it.err = invalid("bytes follow the last of the %d records that the header says", it.count)
	}
	it.window = nil
}

// fail keeps the error that ended the iteration. Limits keep their own kind; all else makes the record invalid.
func (it *Iterator) fail(err error) {
	it.err = walkError(err, it.index)
}

// walkError makes err, met while record index was read, an error that callers know.
func walkError(err error, index int32) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrCodec) {
		return err
	}
	return &InvalidError{Index: index, Reason: err.Error()}
}
