package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

// xerialHeader starts the framing of the Java snappy library, which most clients use: a magic, a version and the oldest
// compatible version. Blocks follow, each after its length in four bytes. A payload without it is one raw block.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMagicBytes = 8
	// xerialBlockBytes is how much the Java library puts into a block.
	xerialBlockBytes = 32 << 10
	// snappyRatioMax is more than snappy can expand: 64 bytes from a 3-byte copy, and the length in front.
	snappyRatioMax = 32
)

// snappyReader decompresses both forms of snappy, a block at a time.
type snappyReader struct {
	input     []byte // unread, compressed
	raw       bool   // one block without framing
	allowance int64
	block     []byte // decoded
	pos       int
}

func (r *snappyReader) reset(payload []byte, allowance int64) {
	r.input, r.allowance, r.pos = payload, allowance, 0
	r.raw = !bytes.HasPrefix(payload, xerialHeader[:xerialMagicBytes])
	if cap(r.block) > keepBytesMax {
		r.block = nil
	}
	r.block = r.block[:0]
}

// Read implements io.Reader.
func (r *snappyReader) Read(p []byte) (int, error) {
	for r.pos == len(r.block) {
		if len(r.input) == 0 {
			return 0, io.EOF
		}
		if err := r.decode(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.block[r.pos:])
	r.pos += n
	return n, nil
}

// decode decodes the next block, after as many framing headers as precede it: concatenated streams repeat them.
func (r *snappyReader) decode() error {
	block := r.input
	if r.raw {
		r.input = nil
		return r.decodeBlock(block)
	}
	if bytes.HasPrefix(r.input, xerialHeader[:xerialMagicBytes]) {
		if len(r.input) < len(xerialHeader) {
			return io.ErrUnexpectedEOF
		}
		r.input = r.input[len(xerialHeader):]
		return nil
	}
	if len(r.input) < 4 {
		return io.ErrUnexpectedEOF
	}
	size := binary.BigEndian.Uint32(r.input)
	if int64(size) > int64(len(r.input)-4) {
		return fmt.Errorf("a block of %d bytes where %d remain", size, len(r.input)-4)
	}
	block, r.input = r.input[4:4+size], r.input[4+size:]
	return r.decodeBlock(block)
}

func (r *snappyReader) decodeBlock(block []byte) error {
	size, err := s2.DecodedLen(block)
	if err != nil {
		return err
	}
	if size > len(block)*snappyRatioMax {
		return fmt.Errorf("a block of %d bytes claims to hold %d, more than snappy can", len(block), size)
	}
	if int64(size) > r.allowance {
		return fmt.Errorf("a snappy block of %d bytes claims %d, more than the %d allowed: %w", len(block), size, r.allowance, ErrTooLarge)
	}
	if err := checkSnappyTags(block); err != nil {
		return err
	}
	r.block, err = s2.Decode(r.block[:cap(r.block)], block)
	r.pos = 0
	return err
}

// checkSnappyTags refuses a copy from distance zero. In s2, an extension of snappy whose decoder we use, it repeats the
// last distance; other clients' snappy cannot read it, so that batch would stop every consumer of the partition.
func checkSnappyTags(block []byte) error {
	_, n := binary.Uvarint(block)
	for pos := n; pos < len(block); {
		tag := block[pos]
		switch tag & 3 {
		case 0: // literal: length-1 in the tag, or in the 1 to 4 bytes after it
			length := int(tag >> 2)
			pos++
			if extra := length - 59; extra > 0 {
				if pos+extra > len(block) {
					return io.ErrUnexpectedEOF
				}
				length = 0
				for i := range extra {
					length |= int(block[pos+i]) << (8 * i)
				}
				pos += extra
			}
			pos += length + 1
			continue
		case 1:
			if pos+1 < len(block) && tag>>5 == 0 && block[pos+1] == 0 {
				return errSnappyRepeat
			}
			pos += 2
		case 2:
			if pos+2 < len(block) && block[pos+1]|block[pos+2] == 0 {
				return errSnappyRepeat
			}
			pos += 3
		case 3:
			if pos+4 < len(block) && block[pos+1]|block[pos+2]|block[pos+3]|block[pos+4] == 0 {
				return errSnappyRepeat
			}
			pos += 5
		}
	}
	return nil
}

var errSnappyRepeat = errors.New("a block uses the s2 extension, which snappy readers do not know")
