package record

import "fmt"

// fields are what checking a record needs of it.
type fields struct {
	timeDelta   int64
	offsetDelta int32
	hasKey      bool
}

// readFields checks the body of one record, which fills b.
func readFields(b []byte) (fields, error) {
	if f, ok := skim(b); ok {
		return f, nil
	}
	var r Record
	if err := r.body(b); err != nil {
		return fields{}, err
	}
	return fields{timeDelta: r.timeDelta, offsetDelta: int32(r.Offset), hasKey: r.Key != nil}, nil
}

// skim is the fast form of Record.body and the inner loop of Validate: it makes no slices and no errors. When it returns
// false, Record.body tells why.
func skim(b []byte) (f fields, ok bool) {
	i := 1 // the attributes byte
	long, i := uvarlong(b, i)
	if i < 0 {
		return f, false
	}
	f.timeDelta = int64(long>>1) ^ -int64(long&1)

	u, i := uvarint(b, i)
	if i < 0 {
		return f, false
	}
	f.offsetDelta = int32(u>>1) ^ -int32(u&1)

	if u, i = uvarint(b, i); i < 0 {
		return f, false
	}
	if f.hasKey = u&1 == 0; f.hasKey { // the sign of a zigzag integer is its lowest bit
		i += int(u >> 1)
	}
	if u, i = uvarint(b, i); i < 0 {
		return f, false
	}
	if u&1 == 0 {
		i += int(u >> 1)
	}
	if i < len(b) && b[i] == 0 { // no headers
		return f, i+1 == len(b)
	}
	return f, skimHeaders(b, i)
}

// skimHeaders walks the header count at i and the headers, which must end b.
func skimHeaders(b []byte, i int) bool {
	u, i := uvarint(b, i)
	if i < 0 || u&1 == 1 || int(u>>1) > (len(b)-i)/headerBytesMin {
		return false
	}
	for range u >> 1 {
		if i >= len(b) || b[i]&1 == 1 { // a key must not be null
			return false
		}
		if i = skimBytes(b, i); i < 0 {
			return false
		}
		if i = skimBytes(b, i); i < 0 {
			return false
		}
	}
	return i == len(b)
}

// skimBytes walks a length at i and the bytes it counts, none if it is negative. It returns -1 if they do not fit b.
func skimBytes(b []byte, i int) int {
	u, i := uvarint(b, i)
	if i < 0 {
		return -1
	}
	if u&1 == 1 {
		return i
	}
	if n := int(u >> 1); n <= len(b)-i {
		return i + n
	}
	return -1
}

// uvarint reads an integer of at most 5 bytes at i, which may lie beyond b, and returns where it ends, or -1. Loading
// eight bytes at once was tried and is no faster: each field waits for the length of the one before.
func uvarint(b []byte, i int) (uint32, int) {
	var u uint32
	for shift := 0; shift < 7*varintBytesMax && i < len(b); shift += 7 {
		c := b[i]
		i++
		u |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return u, i
		}
	}
	return 0, -1
}

// uvarlong reads an integer of at most 10 bytes at i, and returns where it ends, or -1.
func uvarlong(b []byte, i int) (uint64, int) {
	var u uint64
	for shift := 0; shift < 7*varlongBytesMax && i < len(b); shift += 7 {
		c := b[i]
		i++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return u, i
		}
	}
	return 0, -1
}

// skimRecord walks the next record, its length included.
func (s *stream) skimRecord() (fields, error) {
	window, err := s.peek(varintBytesMax)
	if err != nil {
		return fields{}, err
	}
	c := cursor{buf: window}
	size, err := c.varint()
	if err != nil {
		return fields{}, err
	}
	s.skip(c.pos)
	if size < recordBytesMin-1 {
		return fields{}, fmt.Errorf("its length is %d, less than the %d bytes of the smallest record", size, recordBytesMin-1)
	}
	if int(size) > windowBytes/2 {
		return s.skimLarge(size)
	}
	if window, err = s.peek(int(size)); err != nil {
		return fields{}, err
	}
	if len(window) < int(size) {
		return fields{}, fmt.Errorf("its length is %d, and the batch ends after %d bytes of it", size, len(window))
	}
	s.skip(int(size))
	return readFields(window[:size])
}

// skimLarge walks the body of a record that need not fit the window.
func (s *stream) skimLarge(size int32) (f fields, err error) {
	l := large{stream: s, remaining: int(size)}
	l.discard(1) // the attributes byte
	f.timeDelta = l.varlong()
	f.offsetDelta = l.varint()
	f.hasKey = l.bytes()
	l.bytes()
	headers := int(l.varint())
	if l.err == nil && (headers < 0 || headers > l.remaining/headerBytesMin) {
		return f, fmt.Errorf("%d headers where %d bytes remain", headers, l.remaining)
	}
	for range headers {
		if !l.bytes() && l.err == nil {
			l.err = errHeaderKey
		}
		l.bytes()
		if l.err != nil {
			break
		}
	}
	if l.err == nil && l.remaining > 0 {
		l.err = fmt.Errorf("%d bytes follow its last field", l.remaining)
	}
	return f, l.err
}

// large reads the fields of one record from a stream. After an error its methods do nothing.
type large struct {
	stream    *stream
	remaining int // bytes of the record
	err       error
}

// varlongBytesMax is the longest encoding of a 64-bit integer.
const varlongBytesMax = 10

// next is a cursor over the next integer, or over what remains of the record.
func (l *large) next(bytesMax int) cursor {
	if l.err != nil {
		return cursor{}
	}
	window, err := l.stream.peek(min(bytesMax, l.remaining))
	l.err = err
	return cursor{buf: window[:min(len(window), l.remaining)]}
}

// done passes over what the cursor has read.
func (l *large) done(c cursor, err error) {
	if l.err == nil {
		l.err = err
		l.stream.skip(c.pos)
		l.remaining -= c.pos
	}
}

func (l *large) varint() int32 {
	c := l.next(varintBytesMax)
	v, err := c.varint()
	l.done(c, err)
	return v
}

func (l *large) varlong() int64 {
	c := l.next(varlongBytesMax)
	v, err := c.varlong()
	l.done(c, err)
	return v
}

// bytes passes over a length and its bytes; it tells whether they are there, rather than null.
func (l *large) bytes() bool {
	n := l.varint()
	if l.err != nil || n < 0 {
		return false
	}
	if int(n) > l.remaining {
		l.err = fmt.Errorf("a field of %d bytes where %d remain", n, l.remaining)
		return false
	}
	l.discard(int(n))
	return true
}

// discard passes over n bytes.
func (l *large) discard(n int) {
	l.remaining -= n
	for n > 0 && l.err == nil {
		window, err := l.stream.peek(1)
		switch {
		case err != nil:
			l.err = err
		case len(window) == 0:
			l.err = errTruncated
		default:
			skipped := min(n, len(window))
			l.stream.skip(skipped)
			n -= skipped
		}
	}
}
