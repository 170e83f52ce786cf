package record

import (
	"errors"
	"fmt"
	"math"
)

// TimestampType says whose clock a topic's timestamps are from (message.timestamp.type).
type TimestampType uint8

const (
	// CreateTime keeps the timestamps that producers set.
	CreateTime TimestampType = iota
	// LogAppendTime gives all records of a batch the time at which the leader appended it.
	LogAppendTime
)

// String is the type's name in message.timestamp.type.
func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// BuilderOptions describe the batch to build. The zero value builds what a plain producer sends.
type BuilderOptions struct {
	BaseOffset  int64 // producers send 0, the leader assigns
	LeaderEpoch int32 // producers send -1; the leader assigns
	Codec       Codec
	Level       int // of the codec, in Kafka's scale; 0 for its default

	TimestampType TimestampType
	AppendTime    int64 // with LogAppendTime: the time of all records, in milliseconds since the epoch

	// HasProducer makes the next three fields count; without it they are written as -1.
	HasProducer   bool
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32 // sequence of the first record; NoSequence in markers

	Transactional bool // needs HasProducer
	Control       bool // control records; see also AppendMarker
}

// Builder builds one batch after another in the same memory. It holds the records uncompressed until Batch.
type Builder struct {
	options BuilderOptions
	header  header
	raw     []byte // room for a header, then the encoded records
	out     []byte // a compressed batch
	headers []byte // scratch
	err     error
}

// NewBuilder makes a builder for batches as the options say.
func NewBuilder(options BuilderOptions) *Builder {
	b := &Builder{}
	b.Reset(options)
	return b
}

// Reset starts a new batch. What Batch returned before becomes invalid.
func (b *Builder) Reset(options BuilderOptions) {
	b.options, b.err = options, nil
	b.raw = append(b.raw[:0], make([]byte, HeaderBytes)...)
	b.header = header{
		baseOffset: options.BaseOffset, leaderEpoch: options.LeaderEpoch, attributes: int16(options.Codec),
		lastOffsetDelta: -1, baseTimestamp: NoTimestamp, maxTimestamp: NoTimestamp,
		producerID: NoProducerID, producerEpoch: NoProducerEpoch, baseSequence: NoSequence,
	}
	if options.HasProducer {
		b.header.producerID, b.header.producerEpoch, b.header.baseSequence = options.ProducerID, options.ProducerEpoch, options.BaseSequence
	}
	if options.TimestampType == LogAppendTime {
		b.header.attributes |= bitLogAppendTime
	}
	if options.Transactional {
		b.header.attributes |= bitTransactional
	}
	if options.Control {
		b.header.attributes |= bitControl
	}
}

// Append adds a record after the last one. A nil key or value is null. The bytes are copied.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...Header) {
	b.AppendAt(b.header.baseOffset+int64(b.header.lastOffsetDelta)+1, timestamp, key, value, headers...)
}

// AppendAt is Append with an absolute offset, which must be above the last record's: gaps are what compaction leaves. An
// offset that does not fit the batch makes Batch fail.
func (b *Builder) AppendAt(offset, timestamp int64, key, value []byte, headers ...Header) {
	delta := offset - b.header.baseOffset
	if delta <= int64(b.header.lastOffsetDelta) || delta > math.MaxInt32 {
		b.err = fmt.Errorf("offset %d does not follow offset %d of the batch at %d", offset, b.header.baseOffset+int64(b.header.lastOffsetDelta), b.header.baseOffset)
		return
	}
	b.headers = b.headers[:0]
	for _, header := range headers {
		b.headers = appendVarint(b.headers, len(header.Key)) // a header key is never null
		b.headers = append(b.headers, header.Key...)
		b.headers = appendBytes(b.headers, header.Value)
	}
	if b.header.count == 0 {
		b.header.baseTimestamp = timestamp
	}
	b.raw = appendRecord(b.raw, timestamp-b.header.baseTimestamp, int32(delta), key, value, len(headers), b.headers)
	b.header.maxTimestamp = max(b.header.maxTimestamp, timestamp)
	b.header.lastOffsetDelta = int32(delta)
	b.header.count++
}

// Count is the number of records appended since Reset.
func (b *Builder) Count() int { return int(b.header.count) }

// UncompressedBytes is the size of the batch so far, header included, before compression.
func (b *Builder) UncompressedBytes() int { return len(b.raw) }

// Batch finishes the batch; it stays valid until the next call of Reset or Append. It returns an error if nothing was
// appended, if an offset did not fit, if the batch exceeds 2 GiB, or on a codec or level that does not exist.
func (b *Builder) Batch() (Batch, error) {
	switch {
	case b.err != nil:
		return nil, fmt.Errorf("build batch: %w", b.err)
	case b.header.count == 0:
		return nil, errors.New("build batch: it has no records")
	case len(b.raw) > math.MaxInt32-prefixBytes:
		return nil, fmt.Errorf("build batch: %d bytes: %w", len(b.raw), ErrTooLarge)
	}
	batch := Batch(b.raw)
	if b.options.Codec != None {
		out, err := appendCompressed(append(b.out[:0], b.raw[:HeaderBytes]...), b.options.Codec, b.options.Level, b.raw[HeaderBytes:])
		if err != nil {
			return nil, fmt.Errorf("build batch: %w", err)
		}
		b.out = out
		batch = Batch(out)
	}
	sealed := b.header
	if b.options.TimestampType == LogAppendTime {
		sealed.maxTimestamp = b.options.AppendTime
	}
	sealed.seal(batch)
	return batch, nil
}
