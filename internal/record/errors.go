package record

import (
	"errors"
	"fmt"
)

var (
	// ErrCorrupt is returned by Next when a length field cannot be true, and by CheckCRC and Validate when the checksum
	// does not hold. To a client it is CORRUPT_MESSAGE, which is retriable.
	ErrCorrupt = errors.New("record batch is corrupt")

	// ErrMagic is returned by Next and Validate for a batch in the message formats before version 2 (magic 0 and 1), which
	// Kafka 4 no longer takes. To a producing client it is INVALID_RECORD.
	ErrMagic = errors.New("record batch has an old message format: only magic 2 is supported")

	// ErrCodec is returned by Validate and by iteration when the attributes name a codec that does not exist (5, 6, 7), and
	// by ParseCodec for an unknown name. To a client it is UNSUPPORTED_COMPRESSION_TYPE.
	ErrCodec = errors.New("unknown compression codec")

	// ErrTooLarge is returned by Validate when a batch exceeds the topic's limit on the wire or after recompression (as a
	// *SizeError), and by Validate and iteration when it decompresses to more than Limits allow. To a client it is
	// MESSAGE_TOO_LARGE.
	ErrTooLarge = errors.New("record batch is too large")

	// ErrInvalid is what every *InvalidError is: the bytes arrived whole but break a rule. To a client it is INVALID_RECORD.
	ErrInvalid = errors.New("invalid record")

	// ErrTimestamp is what every *TimestampError is. To a client it is INVALID_TIMESTAMP.
	ErrTimestamp = errors.New("invalid timestamp")
)

// Fault says what is wrong with one record of a batch; a produce response carries it as record_errors.
type Fault struct {
	Index   int32 // position of the record in its batch, from 0 (batch_index)
	Message string
}

// InvalidError is returned by Validate, and by iteration, when a batch breaks a rule. It is ErrInvalid.
type InvalidError struct {
	Index   int32   // the first record at fault, from 0; -1 when the batch as a whole is
	Reason  string  // what is wrong and what would be right
	Records []Fault // the refused records, at most 100; empty unless a rule of the topic refused them one by one
}

// Error is the reason, with the index of the record if there is one.
func (e *InvalidError) Error() string {
	if e.Index < 0 {
		return "invalid record: " + e.Reason
	}
	return fmt.Sprintf("invalid record %d of its batch: %s", e.Index, e.Reason)
}

// Is makes errors.Is(e, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// TimestampError is returned by Validate when timestamps are outside what the topic allows
// (message.timestamp.before.max.ms, message.timestamp.after.max.ms). It is ErrTimestamp.
type TimestampError struct {
	Index   int32   // the first record at fault, from 0
	Reason  string  // what is wrong and what would be right
	Records []Fault // the refused records, at most 100
}

// Error is the reason, with the index of the first record at fault.
func (e *TimestampError) Error() string {
	return fmt.Sprintf("invalid timestamp of record %d of its batch: %s", e.Index, e.Reason)
}

// Is makes errors.Is(e, ErrTimestamp) true.
func (e *TimestampError) Is(target error) bool { return target == ErrTimestamp }

// SizeError is returned by Validate when a batch exceeds max.message.bytes. It is ErrTooLarge. It names the size on the
// wire and, where the broker recompressed, the size after that (U-97).
type SizeError struct {
	WireBytes      int64 // size of the batch as it arrived
	RewrittenBytes int64 // size after recompression to the topic's codec; 0 when it was refused before that
	LimitBytes     int64 // the topic's max.message.bytes
	From, To       Codec // codecs before and after recompression
}

// Error names the sizes and the limit.
func (e *SizeError) Error() string {
	if e.RewrittenBytes == 0 {
		return fmt.Sprintf("record batch is too large: %d bytes on the wire, max.message.bytes is %d", e.WireBytes, e.LimitBytes)
	}
	return fmt.Sprintf("record batch is too large: %d bytes after recompression from %s to %s (%d bytes on the wire), max.message.bytes is %d",
		e.RewrittenBytes, e.From, e.To, e.WireBytes, e.LimitBytes)
}

// Is makes errors.Is(e, ErrTooLarge) true.
func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }

// invalid is the error of a batch that breaks a rule as a whole.
func invalid(format string, args ...any) error {
	return &InvalidError{Index: -1, Reason: fmt.Sprintf(format, args...)}
}
