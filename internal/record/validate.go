package record

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Rules are what a topic demands of the batches that are appended to it. Zero values are taken literally, as Kafka does:
// a MaxMessageBytes of 0 refuses everything, a TimestampBeforeMax of 0 all records older than now.
type Rules struct {
	MaxMessageBytes    int32         // max.message.bytes: largest batch, on the wire and as stored
	TimestampType      TimestampType // message.timestamp.type
	TimestampBeforeMax time.Duration // message.timestamp.before.max.ms; NoTimestampLimit for no limit
	TimestampAfterMax  time.Duration // message.timestamp.after.max.ms; NoTimestampLimit for no limit
	Compacted          bool          // cleanup.policy has compact: every record needs a key (U-96)

	KeepCodec        bool  // compression.type=producer: batches stay as they came
	Compression      Codec // otherwise the codec that batches are stored in
	CompressionLevel int   // of Compression, in Kafka's scale; 0 for its default

	// Client says that the batches come from a client: exactly one, with base offset 0 and no control records.
	// Coordinators, which write markers and several batches at once, leave it false.
	Client bool
}

// NoTimestampLimit is the duration that stands for "any time" in Rules.
const NoTimestampLimit time.Duration = math.MaxInt64

// DefaultMaxMessageBytes is Kafka's default of max.message.bytes: a MiB of records and the first fields of the header.
const DefaultMaxMessageBytes int32 = 1<<20 + prefixBytes

// DefaultRules are those of a topic with Kafka's default configuration, for batches from clients.
var DefaultRules = Rules{
	MaxMessageBytes: DefaultMaxMessageBytes, TimestampBeforeMax: NoTimestampLimit, TimestampAfterMax: time.Hour, KeepCodec: true, Client: true,
}

// Result is what Validate found and made. Offsets in it are relative: the first record accepted has 0.
type Result struct {
	Batches              []byte // the batches to store, not yet stamped: the input, changed in place, or a rewritten copy
	Rewritten            bool   // Batches is a copy, because a batch was recompressed
	BatchCount           int
	Count                int   // records in all batches; their offsets are 0 to Count-1
	LastOffset           int64 // of the last record: Count-1
	MaxTimestamp         int64 // greatest timestamp, or NoTimestamp
	OffsetOfMaxTimestamp int64 // of the first record that has it; -1 with NoTimestamp
}

// recordErrorsMax bounds how many refused records an error lists.
const recordErrorsMax = 100

// Validate checks batches that are to be appended, as Kafka's leader does, and brings them into the form in which they are
// stored: header fields are corrected in place (timestamp type and greatest timestamp, with a new checksum), and only a
// batch whose codec is not the topic's is rewritten. Every record of every batch is walked, through a streaming
// decompressor that d holds; with a nil d one is made. now is the leader's time in milliseconds since the epoch.
//
// Bytes after the last whole batch are dropped when the batches come from a client, as Kafka does.
//
// An empty buf is no batch from a client, and a Result of nothing otherwise.
//
// Errors, and what they are to a client: ErrCorrupt (CORRUPT_MESSAGE); ErrMagic, *InvalidError (INVALID_RECORD);
// *TimestampError (INVALID_TIMESTAMP); ErrCodec (UNSUPPORTED_COMPRESSION_TYPE); ErrTooLarge, *SizeError among them
// (MESSAGE_TOO_LARGE). After an error the input may have been changed and must not be appended.
func Validate(buf []byte, r Rules, now int64, d *Decompressor) (Result, error) {
	if d == nil {
		d = NewDecompressor(DefaultLimits)
	}
	result := Result{Batches: buf, MaxTimestamp: NoTimestamp, OffsetOfMaxTimestamp: -1}
	for consumed := 0; ; {
		b, rest, err := Next(buf[consumed:])
		if r.Client && consumed == 0 {
			if err = checkOnly(rest, err); err != nil {
				return Result{}, err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && r.Client:
			if !result.Rewritten {
				result.Batches = buf[:consumed]
			}
			result.LastOffset = int64(result.Count) - 1
			return result, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return Result{}, fmt.Errorf("the bytes end inside a batch: %w", ErrCorrupt)
		case err != nil:
			return Result{}, err
		}
		w := &d.walk
		*w = walk{batch: b, rules: r, now: now, maxTimestamp: NoTimestamp, offsetOfMax: -1}
		if err := w.run(d); err != nil {
			return Result{}, err
		}
		if err := result.store(b, consumed, w, d); err != nil {
			return Result{}, err
		}
		consumed += len(b)
	}
}

// checkOnly checks that a producer sent exactly one whole batch: first is what Next said of it, rest what follows.
func checkOnly(rest []byte, first error) error {
	if errors.Is(first, io.EOF) || errors.Is(first, io.ErrUnexpectedEOF) {
		return invalid("no whole batch; a produce request must hold exactly one for each partition")
	}
	if first != nil {
		return first
	}
	switch _, _, err := Next(rest); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	case err == nil:
		return invalid("more than one batch; a produce request must hold exactly one for each partition")
	default:
		return err
	}
}

// store brings b, found sound by w, into the form in which it is stored. In the input, consumed bytes precede it.
func (r *Result) store(b Batch, consumed int, w *walk, d *Decompressor) error {
	logAppendTime := w.rules.TimestampType == LogAppendTime
	if logAppendTime {
		w.maxTimestamp, w.offsetOfMax = w.now, 0
	}
	target := w.rules.target(b)
	if target != b.Codec() && !r.Rewritten {
		r.Batches = append(make([]byte, 0, consumed+len(b)), r.Batches[:consumed]...)
		r.Rewritten = true
	}
	switch {
	case target != b.Codec():
		var err error
		if r.Batches, err = w.recompress(r.Batches, target, d); err != nil {
			return err
		}
	case r.Rewritten:
		start := len(r.Batches)
		r.Batches = append(r.Batches, b...)
		Batch(r.Batches[start:]).setMaxTimestamp(logAppendTime, w.maxTimestamp)
	default:
		b.setMaxTimestamp(logAppendTime, w.maxTimestamp)
	}
	if w.maxTimestamp > r.MaxTimestamp {
		r.MaxTimestamp, r.OffsetOfMaxTimestamp = w.maxTimestamp, int64(r.Count)+w.offsetOfMax
	}
	r.BatchCount++
	r.Count += int(b.Count())
	return nil
}

// target is the codec in which b is to be stored. Control records are not compressed unless they came compressed.
func (r *Rules) target(b Batch) Codec {
	if r.KeepCodec || (b.Control() && b.Codec() == None) {
		return b.Codec()
	}
	return r.Compression
}

// recompress appends to dst the batch with its payload in another codec; records, offsets and header stay as they are. The
// walk has proved that the payload decompresses within Limits.
func (w *walk) recompress(dst []byte, target Codec, d *Decompressor) ([]byte, error) {
	b, limit := w.batch, int64(w.rules.MaxMessageBytes)
	start := len(dst)
	tooLarge := func(bytes int64) error {
		return &SizeError{WireBytes: int64(len(b)), RewrittenBytes: bytes, LimitBytes: limit, From: b.Codec(), To: target}
	}
	if target == None && HeaderBytes+w.payloadBytes > limit {
		return nil, tooLarge(HeaderBytes + w.payloadBytes)
	}
	if target == None {
		dst = slices.Grow(dst, HeaderBytes+int(w.payloadBytes))
	}
	dst = append(dst, b[:HeaderBytes]...)
	c := compressors.Get().(*compressor)
	defer compressors.Put(c)
	out, err := c.start(dst, start+int(limit), target, w.rules.CompressionLevel)
	if err != nil {
		return nil, err
	}
	if err = b.decompressTo(out, d); err == nil {
		err = out.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("recompress from %s to %s: %w", b.Codec(), target, err)
	}
	dst, total := c.finish()
	if int64(total-start) > limit {
		return nil, tooLarge(int64(total - start))
	}
	h := b.header()
	h.attributes = h.attributes&^(maskCodec|bitLogAppendTime) | int16(target)
	if w.rules.TimestampType == LogAppendTime {
		h.attributes |= bitLogAppendTime
	}
	h.maxTimestamp = w.maxTimestamp
	h.seal(Batch(dst[start:]))
	return dst, nil
}

// decompressTo writes the uncompressed records to out.
func (b Batch) decompressTo(out io.Writer, d *Decompressor) error {
	if b.Codec() == None {
		_, err := out.Write(b.Payload())
		return err
	}
	s := &d.stream
	if err := s.reset(b); err != nil {
		return err
	}
	for {
		window, err := s.peek(1)
		if err != nil || len(window) == 0 {
			return err
		}
		if _, err := out.Write(window); err != nil {
			return err
		}
		s.skip(len(window))
	}
}
