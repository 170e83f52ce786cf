package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType is what a control record says; it is the second half of its key.
type ControlType int16

// Control records. Types that are not known here are skipped by readers, as Kafka does.
const (
	Abort        ControlType = 0
	Commit       ControlType = 1
	LeaderChange ControlType = 2 // written by Kafka's own metadata log
)

// String is the type's name.
func (t ControlType) String() string {
	switch t {
	case Abort:
		return "ABORT"
	case Commit:
		return "COMMIT"
	case LeaderChange:
		return "LEADER_CHANGE"
	}
	return fmt.Sprintf("UNKNOWN(%d)", int16(t))
}

const (
	controlKeyBytes  = 4 // version, type
	markerValueBytes = 6 // version, coordinator epoch
)

// Marker ends a producer's transaction on a partition.
type Marker struct {
	ProducerID       int64
	ProducerEpoch    int16
	Type             ControlType // Commit or Abort
	CoordinatorEpoch int32
	Timestamp        int64 // milliseconds since the epoch
}

// AppendMarker appends to dst the control batch that holds the marker, at baseOffset, as Kafka's coordinators write it.
func AppendMarker(dst []byte, baseOffset int64, leaderEpoch int32, m Marker) []byte {
	var key [controlKeyBytes]byte
	binary.BigEndian.PutUint16(key[2:], uint16(m.Type))
	var value [markerValueBytes]byte
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	h := header{
		baseOffset: baseOffset, leaderEpoch: leaderEpoch, attributes: bitTransactional | bitControl,
		baseTimestamp: m.Timestamp, maxTimestamp: m.Timestamp,
		producerID: m.ProducerID, producerEpoch: m.ProducerEpoch, baseSequence: NoSequence, count: 1,
	}
	start := len(dst)
	dst = append(dst, make([]byte, HeaderBytes)...)
	dst = appendRecord(dst, 0, 0, key[:], value[:], 0, nil)
	h.seal(Batch(dst[start:]))
	return dst
}

// ControlType reads the type of a control record: one of a batch that is Control. It returns an *InvalidError if the key
// is too short to hold one.
func (r *Record) ControlType() (ControlType, error) {
	if len(r.Key) < controlKeyBytes {
		return 0, invalid("a control record's key has %d bytes, not %d", len(r.Key), controlKeyBytes)
	}
	return ControlType(binary.BigEndian.Uint16(r.Key[2:])), nil
}

// ReadMarker reads the marker that a control batch holds. found is false if b is no control batch, or if it holds another
// kind of control record or none any more. It returns an *InvalidError if the record cannot be read.
func (b Batch) ReadMarker(d *Decompressor) (m Marker, found bool, err error) {
	if !b.Control() {
		return Marker{}, false, nil
	}
	it := b.Records(d)
	if !it.Next() {
		return Marker{}, false, it.Err()
	}
	r := it.Record()
	kind, err := r.ControlType()
	if err != nil || (kind != Abort && kind != Commit) {
		return Marker{}, false, err
	}
	if len(r.Value) < markerValueBytes {
		return Marker{}, false, invalid("an end marker's value has %d bytes, not %d", len(r.Value), markerValueBytes)
	}
	return Marker{
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), Type: kind,
		CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:])), Timestamp: r.Timestamp,
	}, true, nil
}
