package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// HeaderBytes is the size of a batch header: everything before the first record.
const HeaderBytes = 61

// Magic is the message format version of every batch this package takes.
const Magic = 2

// Values of a header's fields that stand for "none".
const (
	NoTimestamp     int64 = -1
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoLeaderEpoch   int32 = -1
)

// Positions of the header's fields. docs/format/batch.md draws them.
const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57
)

const (
	// prefixBytes are the base offset and the length, which the length field does not count.
	prefixBytes = 12
	// bodyBytesMin is the smallest length of any message format; Kafka calls a smaller one corrupt before it looks at magic.
	bodyBytesMin = 14
	// recordBytesMin is the smallest record: length, attributes, two deltas, null key, null value, no headers.
	recordBytesMin = 7
)

// Bits of the attributes.
const (
	maskCodec         = 0x07
	bitLogAppendTime  = 1 << 3
	bitTransactional  = 1 << 4
	bitControl        = 1 << 5
	bitDeleteHorizon  = 1 << 6
	maskAttributesAll = 0x7f
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one record batch as bytes, exactly as long as its length field says. Its methods read; Stamp alone writes. A
// Batch that Next returned has a whole header and magic 2; on other bytes the accessors may panic.
type Batch []byte

// Next splits the first batch off buf and returns it with what follows it; both alias buf. It checks the length field
// and the magic byte, not the checksum. It never allocates on success.
//
// Errors: io.EOF when buf is empty; io.ErrUnexpectedEOF when buf ends inside the batch; ErrCorrupt, wrapped with the
// reason, when the length cannot be true or the magic byte is none that ever was; ErrMagic for magic 0 and 1.
func Next(buf []byte) (Batch, []byte, error) {
	if len(buf) == 0 {
		return nil, nil, io.EOF
	}
	if len(buf) < prefixBytes {
		return nil, buf, io.ErrUnexpectedEOF
	}
	length := int32(binary.BigEndian.Uint32(buf[offLength:]))
	if length < bodyBytesMin || length > math.MaxInt32-prefixBytes {
		return nil, buf, fmt.Errorf("length field is %d, not between %d and %d: %w", length, HeaderBytes-prefixBytes, math.MaxInt32-prefixBytes, ErrCorrupt)
	}
	if len(buf) <= offMagic {
		return nil, buf, io.ErrUnexpectedEOF
	}
	switch magic := int8(buf[offMagic]); {
	case magic == Magic:
	case magic == 0 || magic == 1:
		return nil, buf, fmt.Errorf("magic %d: %w", magic, ErrMagic)
	default:
		return nil, buf, fmt.Errorf("magic byte is %d, not 2: %w", magic, ErrCorrupt)
	}
	if length < HeaderBytes-prefixBytes {
		return nil, buf, fmt.Errorf("length field is %d, less than the %d bytes of a header: %w", length, HeaderBytes-prefixBytes, ErrCorrupt)
	}
	size := int(length) + prefixBytes
	if len(buf) < size {
		return nil, buf, io.ErrUnexpectedEOF
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// BaseOffset is the offset of the first record the batch was made with; compaction may have removed that record.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b[offBaseOffset:])) }

// LengthField is the length as the header holds it: the bytes that follow it, HeaderBytes included but for twelve.
func (b Batch) LengthField() int32 { return int32(binary.BigEndian.Uint32(b[offLength:])) }

// Size is the size of the whole batch in bytes, by its length field.
func (b Batch) Size() int { return int(b.LengthField()) + prefixBytes }

// PartitionLeaderEpoch is the epoch of the leader that appended the batch; outside the checksum.
func (b Batch) PartitionLeaderEpoch() int32 {
	return int32(binary.BigEndian.Uint32(b[offLeaderEpoch:]))
}

// Magic is the message format version.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored CRC-32C; it covers everything from the attributes to the end.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the raw attribute bits.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[offAttributes:])) }

// Codec is the compression of the records; it may be one that does not exist (Codec.Known).
func (b Batch) Codec() Codec { return Codec(b[offAttributes+1] & maskCodec) }

// LogAppendTime tells whether MaxTimestamp, set by the broker, is the timestamp of every record.
func (b Batch) LogAppendTime() bool { return b[offAttributes+1]&bitLogAppendTime != 0 }

// Transactional tells whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b[offAttributes+1]&bitTransactional != 0 }

// Control tells whether the records are control records, which clients do not hand to applications.
func (b Batch) Control() bool { return b[offAttributes+1]&bitControl != 0 }

// HasDeleteHorizon tells whether compaction has set the time after which tombstones of this batch may go (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b[offAttributes+1]&bitDeleteHorizon != 0 }

// DeleteHorizon is the time, in milliseconds since the epoch, after which the tombstones and the marker of this batch may
// be removed; NoTimestamp when none is set.
func (b Batch) DeleteHorizon() int64 {
	if !b.HasDeleteHorizon() {
		return NoTimestamp
	}
	return b.BaseTimestamp()
}

// LastOffsetDelta is the distance from the base to the last offset; compaction keeps it.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[offLastOffsetDelta:])) }

// LastOffset is the last offset the batch stands for (inclusive), though compaction may have removed that record.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// BaseTimestamp is what the records' timestamps are relative to: the first record's timestamp when the batch was made, or
// the delete horizon once there is one.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offBaseTimestamp:])) }

// MaxTimestamp is the greatest timestamp of the records, or the broker's append time with LogAppendTime.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offMaxTimestamp:])) }

// ProducerID is the idempotent producer's id, or NoProducerID.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[offProducerID:])) }

// ProducerEpoch is the idempotent producer's epoch, or NoProducerEpoch.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[offProducerEpoch:])) }

// HasProducer tells whether an idempotent or transactional producer made the batch.
func (b Batch) HasProducer() bool { return b.ProducerID() > NoProducerID }

// BaseSequence is the sequence of the first record, or NoSequence (markers and plain producers).
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[offBaseSequence:])) }

// LastSequence is the sequence of the last record, which wraps from 2^31-1 to 0; NoSequence when there is none.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return NoSequence
	}
	return AddSequence(base, b.LastOffsetDelta())
}

// AddSequence is sequence + delta, both from 0, wrapping from 2^31-1 to 0 as Kafka's sequences do.
func AddSequence(sequence, delta int32) int32 {
	return int32((int64(sequence) + int64(delta)) & math.MaxInt32)
}

// Count is the number of records the header claims.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[offCount:])) }

// Payload is what follows the header: the records, compressed as Codec says. It aliases the batch.
func (b Batch) Payload() []byte { return b[HeaderBytes:] }

// Stamp writes, in place, the base offset and the leader epoch that the leader assigns. Both are outside the checksum.
func (b Batch) Stamp(baseOffset int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(b[offBaseOffset:], uint64(baseOffset))
	binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(leaderEpoch))
}

// CheckCRC computes the checksum and returns ErrCorrupt, wrapped with both values, if the stored one differs.
func (b Batch) CheckCRC() error {
	if stored, computed := b.CRC(), b.computeCRC(); stored != computed {
		return fmt.Errorf("stored crc %d, computed %d: %w", stored, computed, ErrCorrupt)
	}
	return nil
}

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[offAttributes:], castagnoli) }

func (b Batch) setCRC() { binary.BigEndian.PutUint32(b[offCRC:], b.computeCRC()) }

// setMaxTimestamp sets the timestamp type and the greatest timestamp, and the checksum if either changed.
func (b Batch) setMaxTimestamp(logAppendTime bool, timestamp int64) {
	if b.LogAppendTime() == logAppendTime && b.MaxTimestamp() == timestamp {
		return
	}
	if logAppendTime {
		b[offAttributes+1] |= bitLogAppendTime
	} else {
		b[offAttributes+1] &^= bitLogAppendTime
	}
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(timestamp))
	b.setCRC()
}

// header is a batch header in the open, for building one. The length and the checksum follow from the bytes.
type header struct {
	baseOffset      int64
	leaderEpoch     int32
	attributes      int16
	lastOffsetDelta int32
	baseTimestamp   int64
	maxTimestamp    int64
	producerID      int64
	producerEpoch   int16
	baseSequence    int32
	count           int32
}

// header reads the fields back, to build a batch like this one.
func (b Batch) header() header {
	return header{
		baseOffset: b.BaseOffset(), leaderEpoch: b.PartitionLeaderEpoch(), attributes: b.Attributes(),
		lastOffsetDelta: b.LastOffsetDelta(), baseTimestamp: b.BaseTimestamp(), maxTimestamp: b.MaxTimestamp(),
		producerID: b.ProducerID(), producerEpoch: b.ProducerEpoch(), baseSequence: b.BaseSequence(), count: b.Count(),
	}
}

// seal writes the header into the first HeaderBytes of b, whose payload is in place, with length and checksum.
func (h *header) seal(b Batch) {
	b.Stamp(h.baseOffset, h.leaderEpoch)
	binary.BigEndian.PutUint32(b[offLength:], uint32(len(b)-prefixBytes))
	b[offMagic] = Magic
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(h.attributes))
	binary.BigEndian.PutUint32(b[offLastOffsetDelta:], uint32(h.lastOffsetDelta))
	binary.BigEndian.PutUint64(b[offBaseTimestamp:], uint64(h.baseTimestamp))
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(h.maxTimestamp))
	binary.BigEndian.PutUint64(b[offProducerID:], uint64(h.producerID))
	binary.BigEndian.PutUint16(b[offProducerEpoch:], uint16(h.producerEpoch))
	binary.BigEndian.PutUint32(b[offBaseSequence:], uint32(h.baseSequence))
	binary.BigEndian.PutUint32(b[offCount:], uint32(h.count))
	b.setCRC()
}
