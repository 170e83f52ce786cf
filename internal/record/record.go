package record

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
)

// Record is one record of a batch as iteration hands it out. All byte slices alias the batch or the decompressor's
// buffer: they are valid until the iterator moves on, and must be copied to be kept.
type Record struct {
	Offset    int64  // the record's absolute offset
	Timestamp int64  // milliseconds since the epoch, or NoTimestamp; the batch's append time with LogAppendTime
	Key       []byte // nil for null
	Value     []byte // nil for null: a tombstone on a compacted topic

	headers     []byte // the encoded headers
	headerCount int32
	timeDelta   int64 // as encoded, relative to the batch's base timestamp
}

// Header is one of a record's headers. Keys may repeat.
type Header struct {
	Key   []byte
	Value []byte // nil for null
}

// HeaderCount is the number of headers.
func (r *Record) HeaderCount() int { return int(r.headerCount) }

// Headers yields the headers in order. It decodes as it goes and allocates nothing.
func (r *Record) Headers() iter.Seq[Header] {
	return func(yield func(Header) bool) {
		c := cursor{buf: r.headers}
		for range r.headerCount {
			key, value, err := c.header()
			if err != nil || !yield(Header{Key: key, Value: value}) {
				return
			}
		}
	}
}

// errTruncated says that bytes ended inside a field. It never leaves the package.
var errTruncated = errors.New("it ends inside a field")

// errVarint says that a variable-length integer does not end within its bytes. It never leaves the package.
var errVarint = errors.New("a variable-length integer is longer than its type allows")

// errHeaderKey says that a header has no key. It never leaves the package.
var errHeaderKey = errors.New("a header key is null")

// cursor decodes the fields of records from a buffer that holds all of them.
type cursor struct {
	buf []byte
	pos int
}

func (c *cursor) remaining() int { return len(c.buf) - c.pos }

// varint reads a zigzag variable-length integer of at most 5 bytes.
func (c *cursor) varint() (int32, error) {
	if c.pos < len(c.buf) && c.buf[c.pos] < 0x80 { // one byte: most lengths and deltas
		u := uint32(c.buf[c.pos])
		c.pos++
		return int32(u>>1) ^ -int32(u&1), nil
	}
	var u uint32
	for shift := 0; shift < 35; shift += 7 {
		if c.pos >= len(c.buf) {
			return 0, errTruncated
		}
		b := c.buf[c.pos]
		c.pos++
		u |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return int32(u>>1) ^ -int32(u&1), nil
		}
	}
	return 0, errVarint
}

// varlong reads a zigzag variable-length integer of at most 10 bytes.
func (c *cursor) varlong() (int64, error) {
	var u uint64
	for shift := 0; shift < 70; shift += 7 {
		if c.pos >= len(c.buf) {
			return 0, errTruncated
		}
		b := c.buf[c.pos]
		c.pos++
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1), nil
		}
	}
	return 0, errVarint
}

// bytes reads a length and that many bytes; any negative length is null, as Kafka reads it.
func (c *cursor) bytes() ([]byte, error) {
	n, err := c.varint()
	if err != nil || n < 0 {
		return nil, err
	}
	if int(n) > c.remaining() {
		return nil, fmt.Errorf("a field of %d bytes where %d remain", n, c.remaining())
	}
	start := c.pos
	c.pos += int(n)
	return c.buf[start:c.pos:c.pos], nil
}

// header reads one header; its key may be empty, not null.
func (c *cursor) header() (key, value []byte, err error) {
	if key, err = c.bytes(); err != nil {
		return nil, nil, err
	}
	if key == nil {
		return nil, nil, errHeaderKey
	}
	value, err = c.bytes()
	return key, value, err
}

// body decodes what follows a record's length; buf holds exactly that. It checks every length, and that the fields fill
// buf. Offset becomes the offset delta: the iterator adds the base.
func (r *Record) body(buf []byte) error {
	c := cursor{buf: buf, pos: 1} // the attributes byte has no meaning yet, and Kafka ignores it
	if len(buf) == 0 {
		return errTruncated
	}
	var err error
	if r.timeDelta, err = c.varlong(); err != nil {
		return err
	}
	delta, err := c.varint()
	if err != nil {
		return err
	}
	r.Offset = int64(delta)
	if r.Key, err = c.bytes(); err != nil {
		return err
	}
	if r.Value, err = c.bytes(); err != nil {
		return err
	}
	if r.headerCount, err = c.varint(); err != nil {
		return err
	}
	if r.headerCount < 0 || int(r.headerCount) > c.remaining()/headerBytesMin {
		return fmt.Errorf("%d headers where %d bytes remain", r.headerCount, c.remaining())
	}
	r.headers = buf[c.pos:]
	for range r.headerCount {
		if _, _, err = c.header(); err != nil {
			return err
		}
	}
	if c.remaining() > 0 {
		return fmt.Errorf("%d bytes follow its last field", c.remaining())
	}
	return nil
}

// headerBytesMin is the smallest header: an empty key and a null value.
const headerBytesMin = 2

func zigzag32(v int32) uint32 { return uint32(v<<1) ^ uint32(v>>31) }

func zigzag64(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// uvarintBytes is the encoded size of u.
func uvarintBytes(u uint64) int { return (bits.Len64(u|1) + 6) / 7 }

func varintBytes(v int) int { return uvarintBytes(uint64(zigzag32(int32(v)))) }

func appendUvarint(dst []byte, u uint64) []byte {
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func appendVarint(dst []byte, v int) []byte { return appendUvarint(dst, uint64(zigzag32(int32(v)))) }

// appendBytes appends a length, -1 for nil, and the bytes.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // zigzag of -1
	}
	return append(appendVarint(dst, len(b)), b...)
}

func sizeOfBytes(b []byte) int {
	if b == nil {
		return 1
	}
	return varintBytes(len(b)) + len(b)
}

// appendRecord appends an encoded record whose headers are headerCount headers, encoded.
func appendRecord(dst []byte, timeDelta int64, offsetDelta int32, key, value []byte, headerCount int, headers []byte) []byte {
	size := 1 + uvarintBytes(zigzag64(timeDelta)) + varintBytes(int(offsetDelta)) + sizeOfBytes(key) + sizeOfBytes(value) +
		varintBytes(headerCount) + len(headers)
	dst = appendVarint(dst, size)
	dst = append(dst, 0)
	dst = appendUvarint(dst, zigzag64(timeDelta))
	dst = appendVarint(dst, int(offsetDelta))
	dst = appendBytes(dst, key)
	dst = appendBytes(dst, value)
	dst = appendVarint(dst, headerCount)
	return append(dst, headers...)
}
