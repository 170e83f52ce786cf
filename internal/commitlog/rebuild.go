package commitlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemark-io/tidemark/internal/record"
)

// rebuildIndexes builds both indexes again from the batches. The entries stay in memory until somebody flushes them.
func (s *segment) rebuildIndexes() error {
	b := s.indexBuilder()
	scan := newHeaderScan(s.log, 0, s.size.Load())
	defer scan.close()
	for {
		l, err := scan.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("rebuild indexes of segment %d: %w", s.base, err)
		}
		b.add(l)
	}
	b.install(s)
	return nil
}

// indexBuilder makes the entries of both indexes while a scan walks a segment.
type indexBuilder struct {
	base, spacing  int64
	sinceIndexed   int64
	largest        timePoint
	indexed        int64 // the last timestamp in the time index
	offsets, times []byte
}

func (s *segment) indexBuilder() indexBuilder {
	return indexBuilder{base: s.base, spacing: s.spacing.Load(), largest: timePoint{record.NoTimestamp, s.base}}
}

func (b *indexBuilder) add(l located) {
	if timestamp := l.MaxTimestamp(); l.Count() > 0 && timestamp > b.largest.timestamp {
		b.largest = timePoint{timestamp, l.LastOffset()}
	}
	if b.sinceIndexed > b.spacing {
		b.offsets = appendOffsetEntry(b.offsets, l.LastOffset()-b.base, l.position)
		b.indexTime()
		b.sinceIndexed = 0
	}
	b.sinceIndexed += int64(l.Size())
}

func (b *indexBuilder) indexTime() {
	if b.largest.timestamp >= 0 && (len(b.times) == 0 || b.largest.timestamp > b.indexed) {
		b.times = appendTimeEntry(b.times, b.largest.timestamp, b.largest.last-b.base)
		b.indexed = b.largest.timestamp
	}
}

// install ends the time index and puts both into the place of indexes that cannot be loaded; a reader may do that.
func (b *indexBuilder) install(s *segment) {
	b.indexTime()
	s.offsets.replace(b.offsets)
	s.times.replace(b.times)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.known {
		s.mu.largest, s.mu.known = b.largest, true
	}
}
