package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is returned by ParseHeader, API.Check and Produce.Parse when a frame's bytes are not a request of the
// version that its header names: a count or length beyond the bytes that are there, a null where none may be, a tag
// out of order. The connection that sent it is closed, as Kafka does.
var ErrMalformed = errors.New("malformed request")

// field describes one field of a request, for the structural check. Fields of one struct stand in wire order.
type field struct {
	kind kind
	// size is the length in bytes of a fixed field.
	size int
	// since and until are the first and last version that carry the field.
	since, until int16
	// nullable fields may be null, from version nullableSince on.
	nullable      bool
	nullableSince int16
	// fields are those of an array's elements. A single fixed or text field without a struct around it is told by
	// bare: such elements carry no tagged fields.
	fields []field
	bare   bool
}

type kind uint8

const (
	fixedField  kind = iota // size bytes
	textField               // a string: 16-bit length, compact when flexible
	bytesField              // opaque bytes: 32-bit length, compact when flexible
	arrayField              // a count and that many elements
	structField             // one struct; a nullable one has a marker byte before it, -1 for null
)

const anyVersion = math.MaxInt16

func fixed(size int) field   { return field{kind: fixedField, size: size, until: anyVersion} }
func text() field            { return field{kind: textField, until: anyVersion} }
func opaque() field          { return field{kind: bytesField, until: anyVersion} }
func array(f ...field) field { return field{kind: arrayField, fields: f, until: anyVersion} }
func list(f field) field {
	return field{kind: arrayField, fields: []field{f}, bare: true, until: anyVersion}
}
func object(f ...field) field { return field{kind: structField, fields: f, until: anyVersion} }

func (f field) from(version int16) field { f.since = version; return f }
func (f field) to(version int16) field   { f.until = version; return f }
func (f field) null() field              { f.nullable = true; return f }
func (f field) nullFrom(version int16) field {
	f.nullable, f.nullableSince = true, version
	return f
}

// Check walks body, the bytes after the header, as a request of this version and proves that every count and length in
// it is covered by bytes, without allocating. A body that passes is safe to hand to a decoder that allocates by
// counts: it takes at most ChargeFactor times len(body). Bytes after the request are tolerated, as Kafka does. The
// error wraps ErrMalformed.
func (a *API) Check(version int16, body []byte) error {
	w := walker{in: body, version: version, flexible: a.IsFlexible(version), tags: tagsFree + len(body)/tagBytesMean}
	if err := w.object(a.fields); err != nil {
		return fmt.Errorf("%s v%d: at byte %d of %d: %w", a.Name, version, len(body)-len(w.in), len(body), err)
	}
	return nil
}

// Tagged fields that a decoder does not know end in a map, which takes more than ChargeFactor times their two bytes:
// so a request may hold tagsFree, and beyond them one for every tagBytesMean of its bytes. A follower's Fetch, with
// two tagged fields in each partition, is the densest honest request.
const (
	tagsFree     = 64
	tagBytesMean = 16
)

// walker is the state of one Check: in is what is left.
type walker struct {
	in       []byte
	version  int16
	flexible bool
	tags     int // tagged fields that may still come
}

func (w *walker) object(fields []field) error {
	if err := w.walk(fields); err != nil {
		return err
	}
	if w.flexible {
		return w.tagged()
	}
	return nil
}

func (w *walker) walk(fields []field) error {
	for i := range fields {
		f := &fields[i]
		if w.version < f.since || w.version > f.until {
			continue
		}
		if err := w.field(f); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) field(f *field) error {
	switch f.kind {
	case fixedField:
		return w.skip(f.size)
	case textField, bytesField:
		n, err := w.length(f, 1)
		if err != nil {
			return err
		}
		return w.skip(n)
	case structField:
		if f.nullable {
			if len(w.in) == 0 {
				return errShort
			}
			marker := int8(w.in[0])
			w.in = w.in[1:]
			if marker == -1 {
				return nil
			}
		}
		return w.object(f.fields)
	case arrayField:
	}
	n, err := w.length(f, w.sizeMin(f.fields, f.bare))
	if err != nil {
		return err
	}
	for range n {
		if f.bare {
			err = w.walk(f.fields)
		} else {
			err = w.object(f.fields)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// length reads a count of elements of at least sizeMin bytes each, and proves that so many can be there. Null is 0.
func (w *walker) length(f *field, sizeMin int) (int, error) {
	var n int64
	switch {
	case w.flexible:
		u, err := w.uvarint()
		if err != nil {
			return 0, err
		}
		n = int64(u) - 1
	case f.kind == textField:
		if len(w.in) < 2 {
			return 0, errShort
		}
		n = int64(int16(binary.BigEndian.Uint16(w.in)))
		w.in = w.in[2:]
	default:
		if len(w.in) < 4 {
			return 0, errShort
		}
		n = int64(int32(binary.BigEndian.Uint32(w.in)))
		w.in = w.in[4:]
	}
	switch {
	case n == -1 && f.nullable && w.version >= f.nullableSince:
		return 0, nil
	case n < 0:
		return 0, fmt.Errorf("length %d: %w", n, ErrMalformed)
	case n*int64(sizeMin) > int64(len(w.in)):
		return 0, fmt.Errorf("count %d of at least %d bytes each, but only %d bytes are left: %w",
			n, sizeMin, len(w.in), ErrMalformed)
	}
	return int(n), nil
}

// sizeMin is the least number of bytes that a struct of these fields can take; never less than 1.
func (w *walker) sizeMin(fields []field, bare bool) int {
	total := 0
	for i := range fields {
		f := &fields[i]
		if w.version < f.since || w.version > f.until {
			continue
		}
		switch {
		case f.kind == fixedField:
			total += f.size
		case f.kind == structField && f.nullable:
			total++
		case f.kind == structField:
			total += w.sizeMin(f.fields, false)
		case w.flexible:
			total++
		case f.kind == textField:
			total += 2
		default:
			total += 4
		}
	}
	if w.flexible && !bare {
		total++
	}
	return max(total, 1)
}

// tagged walks the tagged fields at the end of a struct: ascending, no duplicates, each within the bytes.
func (w *walker) tagged() error {
	n, err := w.uvarint()
	if err != nil {
		return err
	}
	if int64(n) > int64(w.tags) || int(n) > len(w.in)/2 {
		return fmt.Errorf("%d tagged fields: %w", n, ErrMalformed)
	}
	w.tags -= int(n)
	previous := int64(-1)
	for range n {
		tag, err := w.uvarint()
		if err != nil {
			return err
		}
		if int64(tag) <= previous {
			return fmt.Errorf("tag %d after tag %d: %w", tag, previous, ErrMalformed)
		}
		previous = int64(tag)
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if int64(size) > int64(len(w.in)) {
			return errShort
		}
		w.in = w.in[size:]
	}
	return nil
}

func (w *walker) skip(n int) error {
	if n > len(w.in) {
		return errShort
	}
	w.in = w.in[n:]
	return nil
}

func (w *walker) uvarint() (uint32, error) {
	u, n := uvarint(w.in)
	if n <= 0 {
		return 0, errVarint
	}
	w.in = w.in[n:]
	return u, nil
}

var (
	errShort  = fmt.Errorf("the frame ends inside a field: %w", ErrMalformed)
	errVarint = fmt.Errorf("a varint is cut off or longer than 32 bits: %w", ErrMalformed)
)

// uvarint reads an unsigned varint of at most 32 bits in at most 5 bytes. n is 0 or negative when there is none.
func uvarint(in []byte) (value uint32, n int) {
	for i, b := range in[:min(len(in), binary.MaxVarintLen32)] {
		if i == binary.MaxVarintLen32-1 && b > 0x0f {
			return 0, -1
		}
		value |= uint32(b&0x7f) << (7 * i)
		if b < 0x80 {
			return value, i + 1
		}
	}
	return 0, 0
}
