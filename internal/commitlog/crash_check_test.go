package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// What TestPowerCut holds a log against.

// line is what a log held at one time: batches in order, those below the log start included.
type line struct {
	origin  int64 // the offset of the first batch, or of the one that would be
	batches []record.Batch
}

func (l line) end() int64 {
	if len(l.batches) == 0 {
		return l.origin
	}
	return l.batches[len(l.batches)-1].LastOffset() + 1
}

// with returns the line with one more batch; the receiver stays as it is.
func (l line) with(batch record.Batch) line {
	return line{l.origin, append(slices.Clip(l.batches), batch)}
}

// below returns the line cut to whole batches below end.
func (l line) below(end int64) line {
	kept := 0
	for kept < len(l.batches) && l.batches[kept].LastOffset() < end {
		kept++
	}
	return line{l.origin, slices.Clip(l.batches[:kept])}
}

// from returns the batches that hold offset or a later one.
func (l line) from(offset int64) []record.Batch {
	first, _ := slices.BinarySearchFunc(l.batches, offset, func(b record.Batch, offset int64) int {
		if b.LastOffset() < offset {
			return -1
		}
		return 1
	})
	return l.batches[first:]
}

// adopt compares the opened log, whose start was to be logStart, with what it may be, and makes the model follow.
func (s *crashSim) adopt(clean bool, logStart int64) {
	got, end := s.contents(), s.log.EndOffset()
	floor := s.floor
	if s.killed {
		floor = max(floor, s.written)
	}
	if end < floor {
		s.t.Errorf("the log ends at %d; everything up to %d was synced, to %d written, killed %v", end, s.floor, s.written, s.killed)
	}
	if start := s.log.StartOffset(); start < s.starts || start > s.raised {
		s.t.Errorf("the log starts at %d; want %d to %d", start, s.starts, s.raised)
	}
	before := s.now
	found := false
	if len(got) == 0 && end == logStart && len(s.log.Producers()) == 0 {
		// The log start reached the disk, what it was raised to did not: everything below is gone, as was asked for.
		s.now, found = line{origin: end}, true
	}
	candidates := append(slices.Clone(s.branches), s.now)
	for _, candidate := range slices.Backward(candidates) {
		if !found && s.isPrefix(candidate, got, end) {
			s.now, found = candidate.below(end), true
			break
		}
	}
	if !found {
		s.t.Errorf("the log, from %d to %d, is no prefix of any log since the last sync", s.log.StartOffset(), end)
		for _, candidate := range candidates {
			if s.cleaner != nil {
				s.t.Logf("a line from %d to %d: %s", candidate.origin, candidate.end(), s.compacted(got, candidate, end))
				continue
			}
			s.t.Log(candidate.difference(got))
		}
		return
	}
	s.unsure = s.unsure || end < s.kept
	if clean && end != s.floor {
		s.t.Errorf("a log that was closed at %d ends at %d", s.floor, end)
	}
	if len(s.now.batches) == 0 {
		s.now.origin = end
	}
	s.start, s.raised = s.log.StartOffset(), s.log.StartOffset()
	if s.killed {
		s.branches = append(s.branches, before) // nothing of it is durable
	} else {
		s.floor, s.branches = end, nil // it was read from the platter
		s.epoch += 2                   // a leader that lost its power leads in a new epoch
	}
	s.killed, s.written = false, end
	s.syncProducers()
	s.check()
}

// isPrefix reports whether a log that consists of got and ends at end may be what is left of the line.
func (s *crashSim) isPrefix(l line, got []record.Batch, end int64) bool {
	if len(got) == 0 || s.cleaner != nil {
		return end >= l.origin && l.below(end).end() == end && s.compacted(got, l, end) == ""
	}
	rest := l.from(got[0].BaseOffset())
	if len(rest) < len(got) {
		return false
	}
	for i, batch := range got {
		if !bytes.Equal(batch, rest[i]) {
			return false
		}
	}
	return end == got[len(got)-1].LastOffset()+1
}

// compacted tells what is wrong with a log up to end that compaction has made of a line: a record that is not the line's,
// or one that is missing although it is the last one with its key. (The later one may lie behind end: the power went while
// the log started over.)
func (s *crashSim) compacted(got []record.Batch, l line, end int64) string {
	type keyed struct{ key, value string }
	records := map[int64]keyed{}
	for _, batch := range got {
		for each := batch.Records(nil); each.Next(); {
			r := each.Record()
			records[r.Offset] = keyed{string(r.Key), string(r.Value)}
		}
	}
	later := map[string]bool{}
	for _, batch := range slices.Backward(l.from(s.log.StartOffset())) {
		var all []record.Record
		for each := batch.Records(nil); each.Next(); {
			r := *each.Record()
			r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			all = append(all, r)
		}
		for _, r := range slices.Backward(all) {
			have, found := records[r.Offset]
			switch {
			case found && (have.key != string(r.Key) || have.value != string(r.Value)):
				return fmt.Sprintf("record %d is another one", r.Offset)
			case !s.unsure && !found && r.Offset >= s.log.StartOffset() && r.Offset < end && !later[string(r.Key)] && r.Value != nil:
				return fmt.Sprintf("record %d with key %s is missing", r.Offset, r.Key)
			}
			later[string(r.Key)] = true
			delete(records, r.Offset)
		}
	}
	for offset := range records {
		if offset >= s.log.StartOffset() {
			return fmt.Sprintf("record %d was never appended", offset)
		}
	}
	return ""
}

// difference tells where a log that consists of got leaves the line.
func (l line) difference(got []record.Batch) string {
	if len(got) == 0 {
		return fmt.Sprintf("a line from %d to %d", l.origin, l.end())
	}
	rest := l.from(got[0].BaseOffset())
	same := 0
	for same < min(len(got), len(rest)) && bytes.Equal(got[same], rest[same]) {
		same++
	}
	return fmt.Sprintf("a line from %d to %d, the same for %d batches from %d; then it has\n%sand the log\n%s", l.origin, l.end(),
		same, got[0].BaseOffset(), describeBatches(rest[same:min(len(rest), same+2)]), describeBatches(got[same:min(len(got), same+2)]))
}

// contents reads the whole log, batches below the log start left out.
func (s *crashSim) contents() []record.Batch {
	var all []record.Batch
	for offset := s.log.StartOffset(); offset < s.log.EndOffset(); {
		batches := s.read(offset, int32(1+s.random.IntN(5000)), s.log.EndOffset())
		if len(batches) == 0 {
			s.t.Errorf("nothing was read from %d, the log ends at %d", offset, s.log.EndOffset())
			break
		}
		all = append(all, batches...)
		offset = batches[len(batches)-1].LastOffset() + 1
	}
	return all
}

// read reads whole batches and checks their checksums.
func (s *crashSim) read(offset int64, bytesMax int32, end int64) []record.Batch {
	slice, err := s.log.Read(offset, bytesMax, end, true)
	if errors.Is(err, vfs.ErrCrashed) {
		return nil
	}
	s.must(err)
	data := make([]byte, slice.Bytes())
	s.must(slice.CopyTo(data))
	slice.Release()
	var batches []record.Batch
	for len(data) > 0 {
		batch, rest, err := record.Next(data)
		s.must(err)
		s.must(batch.CheckCRC())
		batches, data = append(batches, batch), rest
	}
	return batches
}

// syncProducers makes the producers go on where the line says, as clients do that have heard the last answers.
func (s *crashSim) syncProducers() {
	for _, p := range s.sending {
		p.sequence, p.open = 0, false
		for _, batch := range s.now.batches {
			switch {
			case batch.ProducerID() != p.id:
			case batch.Control():
				p.open = false
			case batch.ProducerEpoch() == p.epoch:
				p.sequence, p.open = record.AddSequence(batch.LastSequence(), 1), p.transactional
			}
		}
	}
	if s.cleaner == nil {
		return
	}
	for _, p := range s.sending {
		p.epoch, p.sequence = p.epoch+1, 0 // see checkProducers
	}
}

// check compares everything that the log can be asked with the line.
func (s *crashSim) check() {
	s.checkReads()
	s.checkTimestamps()
	s.checkEpochs()
	s.checkProducers()
}

func (s *crashSim) checkReads() {
	if start, end := s.log.StartOffset(), s.log.EndOffset(); start != s.start || end != s.now.end() {
		s.t.Errorf("the log is from %d to %d, want %d to %d", start, end, s.start, s.now.end())
		return
	}
	got, want := s.contents(), s.now.from(s.start)
	if s.cleaner != nil {
		if wrong := s.compacted(got, s.now, s.now.end()); wrong != "" {
			s.t.Errorf("the compacted log: %s", wrong)
		}
		return
	}
	if !slices.EqualFunc(got, want, func(a, b record.Batch) bool { return bytes.Equal(a, b) }) {
		s.t.Errorf("the log holds\n%s\nwant\n%s", describeBatches(got), describeBatches(want))
	}
	for range 5 {
		offset := s.start + s.random.Int64N(s.now.end()-s.start+1)
		bound := offset + s.random.Int64N(s.now.end()-offset+1)
		got, want := s.read(offset, math.MaxInt32, bound), s.now.below(bound).from(offset)
		switch {
		case len(got) > len(want), len(want) > 0 && len(got) == 0:
			s.t.Errorf("read from %d up to %d: %s, want %s", offset, bound, describeBatches(got), describeBatches(want))
		case len(got) > 0 && !bytes.Equal(got[0], want[0]):
			s.t.Errorf("read from %d up to %d: first batch %s, want %s", offset, bound, describeBatches(got[:1]), describeBatches(want[:1]))
		}
	}
	for _, offset := range []int64{s.start - 1, s.now.end() + 1} {
		if _, err := s.log.Read(offset, 1000, math.MaxInt64, true); !errors.Is(err, ErrOutOfRange) {
			s.t.Errorf("read at %d of a log from %d to %d: %v, want ErrOutOfRange", offset, s.start, s.now.end(), err)
		}
	}
}

func (s *crashSim) checkTimestamps() {
	var records []record.Record
	batches := s.now.from(s.start)
	if s.cleaner != nil {
		batches = s.contents()
	}
	for _, batch := range batches {
		for each := batch.Records(nil); each.Next(); {
			if r := *each.Record(); r.Offset >= s.start {
				records = append(records, r)
			}
		}
	}
	targets := []int64{0, s.clock.UnixMilli() + 1}
	for range 5 {
		if len(records) > 0 {
			targets = append(targets, records[s.random.IntN(len(records))].Timestamp+int64(s.random.IntN(3))-1)
		}
	}
	for _, target := range targets {
		want := slices.IndexFunc(records, func(r record.Record) bool { return r.Timestamp >= target })
		got, found, err := s.log.OffsetForTimestamp(target, s.now.end())
		s.must(err)
		if found != (want >= 0) || found && (got.Offset != records[want].Offset || got.Timestamp != records[want].Timestamp) {
			s.t.Errorf("look-up of timestamp %d: %+v, %v; want record %d of %d", target, got, found, want, len(records))
		}
	}
	got, found, err := s.log.MaxTimestamp(s.now.end())
	s.must(err)
	if len(records) == 0 {
		if found {
			s.t.Errorf("an empty log has the greatest timestamp %+v", got)
		}
		return
	}
	want := records[0]
	for _, r := range records {
		if r.Timestamp > want.Timestamp {
			want = r
		}
	}
	if !found || got.Timestamp != want.Timestamp || got.Offset != want.Offset {
		s.t.Errorf("greatest timestamp: %+v, %v; want %d at %d", got, found, want.Timestamp, want.Offset)
	}
}

func (s *crashSim) checkEpochs() {
	var want Epochs
	for _, batch := range s.now.batches {
		want, _, _ = want.Assign(max(want.LatestEpoch(), meta.Epoch(batch.PartitionLeaderEpoch())), batch.BaseOffset())
	}
	want = want.TruncateFromStart(s.start).TruncateFromEnd(s.now.end())
	got := s.log.Epochs().TruncateFromEnd(s.now.end()) // epochs without a batch may be there or not
	if s.cleaner != nil {
		// Read off the batches that compaction left, after a raised log start was lost, epochs may be missing or late.
		for _, batch := range s.contents() {
			if epoch, _ := got.At(max(batch.BaseOffset(), s.start)); epoch != meta.Epoch(batch.PartitionLeaderEpoch()) {
				s.t.Errorf("epoch %d at %d, want %d", epoch, batch.BaseOffset(), batch.PartitionLeaderEpoch())
			}
		}
		return
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("epochs %v, want %v", got, want)
	}
	for _, entry := range want {
		if epoch, end := s.log.EpochEnd(entry.Epoch); epoch != entry.Epoch {
			s.t.Errorf("end of epoch %d: %d, %d", entry.Epoch, epoch, end)
		}
	}
}

// checkProducers folds the line: what the log knows came from snapshots, scans and appends in many lives.
func (s *crashSim) checkProducers() {
	var want producerState
	var aborted []AbortedTxn
	for _, batch := range s.now.batches {
		var p producerBatch
		found, err := describeProducer(batch, record.NewDecompressor(record.DefaultLimits), &p)
		s.must(err)
		if !found {
			continue
		}
		if txn := want.update(&p); txn != nil && txn.aborted {
			aborted = append(aborted, txn.abortedTxn())
		}
	}
	// A scan of a compacted log, after a cut or a truncation took more of a producer's batches than are remembered, finds
	// older ones, as in Kafka.
	if got := s.log.Producers(); s.cleaner == nil && !slices.Equal(got, want.list()) {
		s.t.Errorf("producers %+v, want %+v", got, want.list())
	}
	stable := s.now.end()
	if len(want.open) > 0 {
		stable = max(want.open[0].first, s.start)
	}
	if got := s.log.LastStableOffset(s.now.end()); got != stable {
		s.t.Errorf("last stable offset %d, want %d", got, stable)
	}
	from := s.start + s.random.Int64N(s.now.end()-s.start+1)
	to := from + s.random.Int64N(s.now.end()-from+1)
	aborted = slices.DeleteFunc(aborted, func(txn AbortedTxn) bool { return txn.Last < from || txn.First >= to })
	sortAborted(aborted)
	got, err := s.log.AbortedTxns(from, to)
	s.must(err)
	if !slices.Equal(got, aborted) {
		s.t.Errorf("aborted transactions from %d to %d: %+v, want %+v", from, to, got, aborted)
	}
}

func describeBatches(batches []record.Batch) string {
	var text strings.Builder
	for _, b := range batches {
		fmt.Fprintf(&text, "  %d-%d epoch %d, %d bytes, crc %08x\n", b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch(), len(b), b.CRC())
	}
	return text.String()
}
