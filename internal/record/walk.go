package record

import (
	"fmt"
	"math"
	"time"
)

// walk checks one batch against the rules, its header and each of its records. Unlike an Iterator it does not need a
// record to be in memory as a whole, so a decompression bomb costs it one window.
type walk struct {
	batch Batch
	rules Rules
	now   int64

	baseTimestamp       int64
	notBefore, notAfter int64 // bounds of the timestamps

	maxTimestamp int64
	offsetOfMax  int64 // relative to the batch
	payloadBytes int64 // uncompressed

	errors       []Fault // the first recordErrorsMax
	errorCount   int
	badTimestamp bool
}

// run checks everything; it leaves the greatest timestamp and the uncompressed size behind.
func (w *walk) run(d *Decompressor) error {
	b := w.batch
	if w.rules.Client && b.BaseOffset() != 0 {
		return invalid("the base offset of a batch from a producer must be 0, but it is %d", b.BaseOffset())
	}
	if int64(len(b)) > int64(w.rules.MaxMessageBytes) {
		return &SizeError{WireBytes: int64(len(b)), LimitBytes: int64(w.rules.MaxMessageBytes)}
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if err := w.checkHeader(); err != nil {
		return err
	}
	w.baseTimestamp = b.BaseTimestamp()
	w.notBefore, w.notAfter = bounds(w.now, &w.rules)
	var err error
	if b.Codec() == None {
		w.payloadBytes = int64(len(b.Payload()))
		err = w.walkBytes(b.Payload())
	} else {
		err = w.walkStream(&d.stream)
	}
	if err != nil {
		return err
	}
	return w.refusal()
}

func (w *walk) checkHeader() error {
	b := w.batch
	count, last := b.Count(), b.LastOffsetDelta()
	switch {
	case !b.Codec().Known():
		return fmt.Errorf("codec %d: %w", b.Codec(), ErrCodec)
	case last < 0:
		return invalid("the last offset delta is %d; it must be the number of records less one", last)
	case count <= 0:
		return invalid("the header says %d records; it must say at least 1", count)
	case int64(count) != int64(last)+1:
		return invalid("the header says %d records and a last offset delta of %d; it must be %d", count, last, count-1)
	case !w.rules.Client:
		return nil
	case b.Control():
		return invalid("clients are not allowed to write control records")
	case b.HasProducer() && b.BaseSequence() < 0:
		return invalid("sequence number %d with producer id %d; it must be at least 0", b.BaseSequence(), b.ProducerID())
	case b.HasProducer() && b.ProducerEpoch() < 0:
		return invalid("producer epoch %d with producer id %d; it must be at least 0", b.ProducerEpoch(), b.ProducerID())
	case b.Transactional() && !b.HasProducer():
		return invalid("a transactional batch without a producer id")
	}
	return nil
}

// bounds are the least and the greatest timestamp allowed now.
func bounds(now int64, r *Rules) (notBefore, notAfter int64) {
	notBefore, notAfter = math.MinInt64, math.MaxInt64
	if r.TimestampBeforeMax != NoTimestampLimit {
		notBefore = now - int64(r.TimestampBeforeMax/time.Millisecond)
	}
	if r.TimestampAfterMax != NoTimestampLimit {
		notAfter = now + int64(r.TimestampAfterMax/time.Millisecond)
	}
	return notBefore, notAfter
}

// walkBytes walks records that are not compressed.
func (w *walk) walkBytes(payload []byte) error {
	pos := 0
	for index := range w.batch.Count() {
		u, start := uvarint(payload, pos)
		if start < 0 {
			return walkError(errTruncated, index)
		}
		if u&1 == 1 || int(u>>1) > len(payload)-start {
			return walkError(fmt.Errorf("its length is %d, and %d bytes of the batch remain", int32(u>>1)^-int32(u&1), len(payload)-start), index)
		}
		pos = start + int(u>>1)
		f, ok := skim(payload[start:pos])
		if !ok {
			var err error
			if f, err = readFields(payload[start:pos]); err != nil {
				return walkError(err, index)
			}
		}
		if err := w.record(index, f); err != nil {
			return err
		}
	}
	if pos < len(payload) {
		return invalid("%d bytes follow the last of the %d records that the header says", len(payload)-pos, w.batch.Count())
	}
	return nil
}

// walkStream walks compressed records.
func (w *walk) walkStream(s *stream) error {
	if err := s.reset(w.batch); err != nil {
		return err
	}
	for index := range w.batch.Count() {
		fields, err := s.skimRecord()
		if err != nil {
			return walkError(err, index)
		}
		if err := w.record(index, fields); err != nil {
			return err
		}
	}
	window, err := s.peek(1)
	if err != nil {
		return err
	}
	if len(window) > 0 {
		return invalid("records follow the last of the %d that the header says", w.batch.Count())
	}
	w.payloadBytes = s.produced
	return nil
}

// record checks one record against the rules. Only broken offsets end the walk; other faults are gathered, so that the
// client learns of all of them.
func (w *walk) record(index int32, f fields) error {
	if f.offsetDelta != index {
		return &InvalidError{Index: index, Reason: fmt.Sprintf("its offset delta is %d; offsets of a batch must count up from 0", f.offsetDelta)}
	}
	timestamp := w.baseTimestamp + f.timeDelta
	if timestamp > w.maxTimestamp {
		w.maxTimestamp, w.offsetOfMax = timestamp, int64(index)
	}
	switch {
	case w.rules.Compacted && !f.hasKey:
		w.refuse(index, "Compacted topic cannot accept message without key.")
	case w.rules.TimestampType == LogAppendTime:
		if w.batch.LogAppendTime() {
			w.badTimestamp = true
			w.refuse(index, "Producer should not set timestamp type to LogAppendTime.")
		}
	case timestamp != NoTimestamp && (timestamp < w.notBefore || timestamp > w.notAfter):
		w.badTimestamp = true
		w.refuse(index, fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
			timestamp, index, w.notBefore, w.notAfter))
	}
	return nil
}

func (w *walk) refuse(index int32, message string) {
	w.errorCount++
	if len(w.errors) < recordErrorsMax {
		w.errors = append(w.errors, Fault{Index: index, Message: message})
	}
}

// refusal is the error for the records refused, or nil.
func (w *walk) refusal() error {
	if w.errorCount == 0 {
		return nil
	}
	index := w.errors[0].Index
	reason := fmt.Sprintf("%d of %d records rejected; the first: %s", w.errorCount, w.batch.Count(), w.errors[0].Message)
	if w.badTimestamp {
		return &TimestampError{Index: index, Reason: reason, Records: w.errors}
	}
	return &InvalidError{Index: index, Reason: reason, Records: w.errors}
}
