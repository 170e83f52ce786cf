package wire

import (
	"encoding/binary"
	"math"
)

// FetchHeader builds the bytes of a Fetch response, versions 4 to 18, around records that it never sees: it writes
// everything but the records into one buffer and remembers where they belong ([Gap]). The caller sends buffer and
// records alternately, the records straight from disk. The calls come in wire order: Begin; for each topic Topic, and
// Partition as often as it said; End.
//
// A value can be used again and again; it keeps its buffers.
type FetchHeader struct {
	// Bytes is the response without the records, with the frame's length field at its start.
	Bytes []byte
	// Gaps are the places where records go, in order.
	Gaps []Gap

	version  int16
	flexible bool
	records  int64
}

// Gap is a place in FetchHeader.Bytes where records are to be sent.
type Gap struct {
	// At is the index in Bytes before which the records go.
	At int
	// Length is the number of bytes of records, at least 1.
	Length int64
}

// FetchPartition is one partition of a Fetch response.
type FetchPartition struct {
	Index            int32
	ErrorCode        int16
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	// Aborted are the aborted transactions in the range, in order of their first offset; nil is null, which is what
	// Kafka answers to read_uncommitted.
	Aborted []AbortedTxn
	// PreferredReadReplica is -1 for none (U-131).
	PreferredReadReplica int32
	// RecordBytes is the length of the records; 0 is an empty list of batches, never null.
	RecordBytes int64
	// DivergingEpoch and DivergingEnd say from where the reader's log differs (E-43); both -1 for nothing to say.
	DivergingEpoch int32
	DivergingEnd   int64
	// LeaderID and LeaderEpoch point a reader elsewhere; both -1 for nothing to say.
	LeaderID    int32
	LeaderEpoch int32
}

// NewFetchPartition is a partition with every optional field unset.
func NewFetchPartition(index int32) FetchPartition {
	return FetchPartition{
		Index: index, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1,
		DivergingEpoch: -1, DivergingEnd: -1, LeaderID: -1, LeaderEpoch: -1,
	}
}

// AbortedTxn is a transaction whose records a read_committed reader must drop.
type AbortedTxn struct {
	ProducerID, FirstOffset int64
}

// FetchEndpoint is a broker that a partition of the response points to (v16).
type FetchEndpoint struct {
	ID   int32
	Host string
	Port int32
	// Rack is empty for none.
	Rack string
}

// Begin starts a response of a version that the table supports with the given number of topics.
func (h *FetchHeader) Begin(version int16, correlationID int32, errorCode int16, sessionID int32, topics int) {
	api := Lookup(KeyFetch)
	*h = FetchHeader{Bytes: h.Bytes[:0], Gaps: h.Gaps[:0], version: version, flexible: api.IsFlexible(version)}
	h.Bytes = append(h.Bytes, 0, 0, 0, 0)
	h.Bytes = AppendResponseHeader(h.Bytes, api, version, correlationID)
	h.int32(0) // throttle time
	if version >= 7 {
		h.int16(errorCode)
		h.int32(sessionID)
	}
	h.count(topics)
}

// Topic starts a topic with the given number of partitions. Versions up to 12 carry the name, later ones the id.
func (h *FetchHeader) Topic(name string, id [16]byte, partitions int) {
	if h.version >= 13 {
		h.Bytes = append(h.Bytes, id[:]...)
	} else {
		h.text(name)
	}
	h.count(partitions)
	if partitions == 0 && h.flexible {
		h.Bytes = append(h.Bytes, 0)
	}
}

// Partition adds one partition; last tells that it is its topic's last one.
func (h *FetchHeader) Partition(p *FetchPartition, last bool) {
	h.int32(p.Index)
	h.int16(p.ErrorCode)
	h.int64(p.HighWatermark)
	h.int64(p.LastStableOffset)
	if h.version >= 5 {
		h.int64(p.LogStartOffset)
	}
	h.aborted(p.Aborted)
	if h.version >= 11 {
		h.int32(p.PreferredReadReplica)
	}
	if h.flexible {
		h.uvarint(uint32(p.RecordBytes + 1))
	} else {
		h.int32(int32(p.RecordBytes))
	}
	if p.RecordBytes > 0 {
		h.Gaps = append(h.Gaps, Gap{At: len(h.Bytes), Length: p.RecordBytes})
		h.records += p.RecordBytes
	}
	if h.flexible {
		h.partitionTags(p)
		if last {
			h.Bytes = append(h.Bytes, 0)
		}
	}
}

// End closes the response and writes its length in front. It returns the size of the whole frame without its length
// field; one above 2 GiB cannot be sent, and the caller must have bounded the records before.
func (h *FetchHeader) End(endpoints []FetchEndpoint) int64 {
	if h.flexible {
		if h.version >= 16 && len(endpoints) > 0 {
			h.Bytes = append(h.Bytes, 1, 0)
			h.sized(func() { h.endpoints(endpoints) })
		} else {
			h.Bytes = append(h.Bytes, 0)
		}
	}
	size := int64(len(h.Bytes)-4) + h.records
	binary.BigEndian.PutUint32(h.Bytes, uint32(min(size, math.MaxInt32)))
	return size
}

func (h *FetchHeader) aborted(txns []AbortedTxn) {
	switch {
	case txns != nil:
		h.count(len(txns))
	case h.flexible:
		h.Bytes = append(h.Bytes, 0)
	default:
		h.int32(-1)
	}
	for i := range txns {
		h.int64(txns[i].ProducerID)
		h.int64(txns[i].FirstOffset)
		if h.flexible {
			h.Bytes = append(h.Bytes, 0)
		}
	}
}

// partitionTags writes the tagged fields: 0 is the diverging epoch, 1 the current leader; each ends with its own, empty
// list of tags.
func (h *FetchHeader) partitionTags(p *FetchPartition) {
	diverging := p.DivergingEpoch != -1 || p.DivergingEnd != -1
	leader := p.LeaderID != -1 || p.LeaderEpoch != -1
	tags := byte(0)
	if diverging {
		tags++
	}
	if leader {
		tags++
	}
	h.Bytes = append(h.Bytes, tags)
	if diverging {
		h.Bytes = append(h.Bytes, 0, 4+8+1)
		h.int32(p.DivergingEpoch)
		h.int64(p.DivergingEnd)
		h.Bytes = append(h.Bytes, 0)
	}
	if leader {
		h.Bytes = append(h.Bytes, 1, 4+4+1)
		h.int32(p.LeaderID)
		h.int32(p.LeaderEpoch)
		h.Bytes = append(h.Bytes, 0)
	}
}

func (h *FetchHeader) endpoints(endpoints []FetchEndpoint) {
	h.count(len(endpoints))
	for _, e := range endpoints {
		h.int32(e.ID)
		h.text(e.Host)
		h.int32(e.Port)
		if e.Rack == "" {
			h.Bytes = append(h.Bytes, 0)
		} else {
			h.text(e.Rack)
		}
		h.Bytes = append(h.Bytes, 0)
	}
}

// sized writes what f writes, after its length as a varint.
func (h *FetchHeader) sized(f func()) {
	start := len(h.Bytes)
	f()
	body := append([]byte(nil), h.Bytes[start:]...)
	h.Bytes = h.Bytes[:start]
	h.uvarint(uint32(len(body)))
	h.Bytes = append(h.Bytes, body...)
}

func (h *FetchHeader) int16(v int16) { h.Bytes = binary.BigEndian.AppendUint16(h.Bytes, uint16(v)) }
func (h *FetchHeader) int32(v int32) { h.Bytes = binary.BigEndian.AppendUint32(h.Bytes, uint32(v)) }
func (h *FetchHeader) int64(v int64) { h.Bytes = binary.BigEndian.AppendUint64(h.Bytes, uint64(v)) }

func (h *FetchHeader) uvarint(v uint32) { h.Bytes = binary.AppendUvarint(h.Bytes, uint64(v)) }

// count writes the length of an array.
func (h *FetchHeader) count(n int) {
	if h.flexible {
		h.uvarint(uint32(n + 1))
	} else {
		h.int32(int32(n))
	}
}

func (h *FetchHeader) text(s string) {
	if h.flexible {
		h.uvarint(uint32(len(s) + 1))
	} else {
		h.int16(int16(len(s)))
	}
	h.Bytes = append(h.Bytes, s...)
}
