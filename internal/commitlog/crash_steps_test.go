package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// The steps of the histories that TestPowerCut plays: what is asked of a log, and what the model makes of it.

func (s *crashSim) changeConfig() {
	s.config.SegmentBytes = int32(1000 + s.random.IntN(12_000))
	s.config.IndexInterval = int32(s.random.IntN(1000))
	s.config.FlushMessages = math.MaxInt64
	if s.random.IntN(4) == 0 {
		s.config.FlushMessages = int64(1 + s.random.IntN(40))
	}
	s.note("segments of %d bytes, index entries every %d, sync every %d records",
		s.config.SegmentBytes, s.config.IndexInterval, s.config.FlushMessages)
}

// append sends one batch as a client does.
func (s *crashSim) append() error {
	batch := s.newBatch()
	s.note("append %d bytes, %d records, producer %d sequence %d", len(batch), batch.Count(), batch.ProducerID(), batch.BaseSequence())
	return s.send(batch, FromClient)
}

// appendFromLeader sends some batches as replication does: they have their offsets.
func (s *crashSim) appendFromLeader() error {
	var all []byte
	end := s.log.EndOffset()
	for range 1 + s.random.IntN(3) {
		batch := s.newBatch()
		batch.Stamp(end, int32(s.epoch))
		end = batch.LastOffset() + 1
		all = append(all, batch...)
	}
	s.note("append %d bytes up to %d from the leader", len(all), end)
	return s.send(all, FromLeader)
}

// newBatch builds a batch of a random producer, or of none, and counts its sequence on.
func (s *crashSim) newBatch() record.Batch {
	options := record.BuilderOptions{Codec: []record.Codec{record.None, record.None, record.LZ4, record.Snappy}[s.random.IntN(4)]}
	var producer *simProducer
	if n := s.random.IntN(len(s.sending) + 1); n < len(s.sending) {
		producer = s.sending[n]
		if !producer.transactional && s.random.IntN(20) == 0 {
			producer.epoch, producer.sequence = producer.epoch+1, 0
		}
		options.HasProducer, options.ProducerID, options.ProducerEpoch, options.BaseSequence = true, producer.id, producer.epoch, producer.sequence
		options.Transactional = producer.transactional
	}
	b := record.NewBuilder(options)
	for range 1 + s.random.IntN(5) {
		s.plain++
		value := bytes.Repeat([]byte(strconv.Itoa(s.plain)), 1+s.random.IntN(40))
		if s.random.IntN(30) == 0 {
			value = make([]byte, s.random.IntN(9000)) // over several pages
			for i := range value {
				value[i] = byte(s.random.Uint32())
			}
		}
		if s.random.IntN(10) == 0 {
			value = nil
		}
		b.Append(s.clock.UnixMilli()-int64(s.random.IntN(3000)), []byte(strconv.Itoa(s.random.IntN(9))), value)
	}
	batch, err := b.Batch()
	s.must(err)
	if producer != nil {
		producer.sequence = record.AddSequence(producer.sequence, batch.LastOffsetDelta()+1)
		producer.open = producer.transactional
	}
	return slices.Clone(batch)
}

// endTransaction commits or aborts, as a coordinator does.
func (s *crashSim) endTransaction() error {
	p := s.sending[s.random.IntN(len(s.sending))]
	if !p.open {
		return nil
	}
	marker := record.Marker{ProducerID: p.id, ProducerEpoch: p.epoch, Type: record.Abort, CoordinatorEpoch: 7, Timestamp: s.clock.UnixMilli()}
	if s.random.IntN(3) == 0 {
		marker.Type = record.Commit
	}
	s.note("end the transaction of producer %d, %v", p.id, marker.Type)
	p.open = false
	return s.send(record.AppendMarker(nil, 0, -1, marker), FromCoordinator)
}

// maintain lets retention work, and compaction.
func (s *crashSim) maintain() error {
	m, err := s.log.Maintain(s.clock, s.now.end())
	s.note("maintain: %+v, %v", m, err)
	s.start = max(s.start, s.log.StartOffset())
	s.raised = max(s.raised, s.start)
	if err != nil || s.cleaner == nil {
		return err
	}
	c, err := s.log.Compact(s.t.Context(), s.cleaner, s.floor)
	s.note("compact: %+v, %v", c, err)
	s.kept = max(s.kept, c.End)
	return err
}

// send appends whole batches and tells the model.
func (s *crashSim) send(batches []byte, origin Origin) error {
	want := s.now
	end := s.log.EndOffset()
	for rest := batches; len(rest) > 0; {
		batch, after, err := record.Next(rest)
		s.must(err)
		stamped := slices.Clone(batch)
		stamped.Stamp(end, int32(s.epoch))
		end, rest = stamped.LastOffset()+1, after
		want = want.with(stamped)
	}
	in := Append{Batches: batches, Epoch: s.epoch, Origin: origin}
	if first := record.Batch(batches); origin == FromClient && first.Transactional() {
		in.Guard = s.log.StartVerification(first.ProducerID(), first.ProducerEpoch(), first.BaseSequence())
	}
	got, err := s.log.Append(s.t.Context(), in)
	switch {
	case errors.Is(err, ErrSegmentSize):
		s.syncProducers()
		return nil
	case errors.Is(err, ErrDiskFull) && s.log.EndOffset() == s.now.end(): // else it was the sync of flush.messages
		s.syncProducers()
		return err
	}
	// Whatever the answer, the bytes may be on the disk when the power goes: so the line has them.
	s.now = want
	if err != nil {
		return err
	}
	s.written = want.end()
	if got.Last != want.end()-1 || s.log.EndOffset() != want.end() {
		s.t.Errorf("append answered %+v with log end %d, want end %d", got, s.log.EndOffset(), want.end())
	}
	if synced := s.log.SyncedOffset(); synced > s.now.origin { // flush.messages has had its way
		s.floor = max(s.floor, synced)
	}
	return nil
}

// retry sends a producer's last batch again: it is recognised.
func (s *crashSim) retry() error {
	p := s.sending[s.random.IntN(len(s.sending))]
	if s.cleaner != nil {
		return nil
	}
	for _, batch := range slices.Backward(s.now.batches) {
		if batch.ProducerID() != p.id || batch.Control() {
			continue
		}
		if batch.ProducerEpoch() != p.epoch {
			return nil
		}
		again := slices.Clone(batch)
		again.Stamp(0, -1)
		s.note("retry of %d to %d by producer %d", batch.BaseOffset(), batch.LastOffset(), p.id)
		got, err := s.log.Append(s.t.Context(), Append{Batches: again, Epoch: s.epoch, Origin: FromClient})
		if errors.Is(err, ErrSegmentSize) {
			return nil // segments have become smaller since
		}
		if err == nil && (!got.Duplicate || got.Base != batch.BaseOffset() || got.Last != batch.LastOffset()) {
			s.t.Errorf("a retry of %d to %d was answered with %+v", batch.BaseOffset(), batch.LastOffset(), got)
		}
		return err
	}
	return nil
}

// beginSync begins a sync of which the files are synced some steps later.
func (s *crashSim) beginSync() error {
	if s.slow != nil {
		return nil
	}
	plan, err := s.log.planSync(true)
	s.note("begin a sync of everything below %d: %v", plan.end, err)
	if err == nil {
		s.slow = &plan
	}
	return err
}

// maybeFinishSync ends what beginSync has begun, sooner or later, and before anything that may sync.
func (s *crashSim) maybeFinishSync() error {
	if s.slow == nil || s.random.IntN(3) > 0 && s.config.FlushMessages == math.MaxInt64 {
		return nil
	}
	return s.finishSync()
}

func (s *crashSim) finishSync() error {
	if s.slow == nil {
		return nil
	}
	plan := *s.slow
	s.slow = nil
	end, err := s.log.endSync(plan, s.log.syncFiles(plan))
	s.note("finish the sync of everything below %d: %d, %v", plan.end, end, err)
	if err == nil && end > s.now.origin {
		s.floor = max(s.floor, end)
	}
	return err
}

func (s *crashSim) sync() error {
	if err := s.finishSync(); err != nil {
		return err
	}
	end, err := s.log.Sync(s.t.Context())
	s.note("sync: %d, %v", end, err)
	if err != nil {
		return err
	}
	if end != s.log.EndOffset() {
		s.t.Errorf("sync answered %d, the log ends at %d", end, s.log.EndOffset())
	}
	s.floor, s.branches = end, nil
	return nil
}

// checkpoint keeps the recovery point and the log start durably, as the data directory does now and then.
func (s *crashSim) checkpoint() error {
	return s.writeCheckpoint(s.log.RecoveryPoint(), s.log.StartOffset())
}

func (s *crashSim) writeCheckpoint(recoveryPoint, start int64) error {
	s.note("checkpoint: recovery point %d, log start %d", recoveryPoint, start)
	if recoveryPoint > s.floor && recoveryPoint > s.log.SyncedOffset() {
		s.t.Errorf("recovery point %d is above the synced end %d", recoveryPoint, s.floor)
	}
	s.starts = min(s.starts, start)
	err := vfs.WriteAtomic(s.disk, simCheckpoint, fmt.Appendf(nil, "%d %d", recoveryPoint, start))
	if err == nil {
		s.starts = start
	}
	return err
}

func (s *crashSim) readCheckpoint() (recoveryPoint, start int64) {
	text, err := vfs.ReadFile(s.disk, simCheckpoint, 100)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0
	}
	s.must(err)
	_, err = fmt.Sscanf(string(text), "%d %d", &recoveryPoint, &start)
	s.must(err)
	return recoveryPoint, start
}

// lowerRecoveryPoint is what the log calls before it truncates below its recovery point. A sync and a checkpoint may come
// at any moment of it.
func (s *crashSim) lowerRecoveryPoint(to int64) error {
	recoveryPoint, start := s.readCheckpointOrFail()
	if recoveryPoint > to {
		s.note("lower recovery point to %d", to)
		if err := vfs.WriteAtomic(s.disk, simCheckpoint, fmt.Appendf(nil, "%d %d", to, start)); err != nil {
			return err
		}
	}
	if s.log == nil || s.random.IntN(3) > 0 {
		return nil
	}
	err := s.finishSync()
	if err == nil {
		_, err = s.log.Sync(s.t.Context())
	}
	s.note("sync meanwhile: %v", err)
	if err == nil {
		err = s.writeCheckpoint(s.log.RecoveryPoint(), start)
	}
	return err
}

// readCheckpointOrFail is readCheckpoint for a moment at which the power may be gone.
func (s *crashSim) readCheckpointOrFail() (recoveryPoint, start int64) {
	text, err := vfs.ReadFile(s.disk, simCheckpoint, 100)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %d", &recoveryPoint, &start)
		s.must(err)
	}
	return recoveryPoint, start
}

// truncate cuts the log somewhere, as a follower does; the new leader has a new epoch.
func (s *crashSim) truncate() error {
	to := s.start + s.random.Int64N(s.now.end()-s.start+1)
	if s.random.IntN(2) == 0 {
		to = max(to, s.floor)
	}
	to = max(to, s.kept) // what compaction has removed for the sake of a later record would be gone
	s.note("truncate to %d", to)
	undo := *s
	s.branches = append(s.branches, s.now)
	s.now = s.now.below(to)
	s.floor, s.start = min(s.floor, s.now.end()), min(s.start, s.now.end())
	s.written = min(s.written, s.now.end())
	s.epoch++
	err := s.log.Truncate(to)
	s.notTruncated(err, &undo)
	if err == nil && s.log.EndOffset() != s.now.end() {
		s.t.Errorf("truncation to %d left a log end of %d, want %d", to, s.log.EndOffset(), s.now.end())
	}
	return err
}

// notTruncated takes the model back if a full disk refused a truncation before anything was done.
func (s *crashSim) notTruncated(err error, undo *crashSim) {
	if errors.Is(err, ErrDiskFull) && s.log.Err() == nil {
		s.now, s.branches, s.floor, s.start, s.raised = undo.now, undo.branches, undo.floor, undo.start, undo.raised
		s.written = undo.written
	}
	s.syncProducers()
}

// truncateFully starts the log again at another offset, as a follower far behind does.
func (s *crashSim) truncateFully() error {
	to := s.now.end() + s.random.Int64N(50)
	s.note("truncate fully, start at %d", to)
	undo := *s
	s.branches = append(s.branches, s.now)
	s.now = line{origin: to}
	s.raised = max(s.raised, to)
	s.written = min(s.written, s.starts)
	s.floor, s.start = min(s.floor, s.starts), to // a cut may leave an empty log at the old start
	s.epoch++
	err := s.log.TruncateFully(to)
	s.notTruncated(err, &undo)
	if err == nil && (s.log.EndOffset() != to || s.log.StartOffset() != to) {
		s.t.Errorf("after truncating fully to %d the log is from %d to %d", to, s.log.StartOffset(), s.log.EndOffset())
	}
	return err
}

func (s *crashSim) raiseStart() error {
	to := s.start + s.random.Int64N(s.now.end()-s.start+1)
	s.note("raise log start to %d", to)
	s.start, s.raised = to, max(s.raised, to)
	return s.log.RaiseStart(to)
}
