package commitlog

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

var (
	crashSeeds = flag.Uint64("seeds", 60, "how many histories TestPowerCut plays")
	crashSeed  = flag.Uint64("seed", 0, "the one history that TestPowerCut plays, with its steps printed; 0 plays all")
)

// TestPowerCut plays random histories of one log on a disk that loses its power at random moments, and checks after each
// cut that the log opens and is what it may be (I1, I6, I7; R-106…R-125; traps 4 and 10):
//
//   - it is a prefix, byte for byte, of a log that there was since the last sync, and reaches at least the synced end;
//   - it starts where a checkpoint says or where it was raised to later;
//   - offsets and timestamps are found where a naive search finds them;
//   - the epochs and the producers are those that its batches tell, and a retried batch is recognised.
//
// One seed is one history: go test -run TestPowerCut ./internal/commitlog -seed N.
func TestPowerCut(t *testing.T) {
	first, last := uint64(1), *crashSeeds
	if *crashSeed != 0 {
		first, last = *crashSeed, *crashSeed
	}
	for seed := first; seed <= last; seed++ {
		s := newCrashSim(t, seed)
		s.play()
		if t.Failed() {
			t.Fatalf("the history is that of -seed %d", seed)
		}
	}
}

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

// simProducer is an idempotent or transactional producer.
type simProducer struct {
	id            int64
	epoch         int16
	sequence      int32 // of its next batch
	transactional bool
	open          bool // it has a transaction
}

// crashSim is one history. The model is the line that the log should hold and the others that a cut may bring back.
type crashSim struct {
	t      *testing.T
	random *rand.Rand
	disk   *vfs.Memory
	log    *Log
	config Config
	clock  time.Time
	full   bool // the disk has little space
	steps  []string

	now      line
	branches []line // what the log was before truncations that are not durable yet
	refused  []line // what the log would be with a batch that found no space: its bytes may be on the disk until the next write
	floor    int64  // everything below survives a cut
	start    int64  // log start
	starts   int64  // the lowest log start that a cut may bring back
	raised   int64  // the highest one
	epoch    meta.Epoch
	sending  []*simProducer
	cleaner  *Cleaner // of a log that is compacted
	kept     int64    // the end of what was compacted: no truncation goes below
	unsure   bool     // a log that was about to start over lost later records, for which compaction had removed others
	plain    int      // batches without a producer, to tell them apart
}

const (
	simDir        = "/data/topic-0"
	simCheckpoint = "/data/checkpoint" // "recoveryPoint logStart", what the data directory's checkpoint files keep
)

func newCrashSim(t *testing.T, seed uint64) *crashSim {
	s := &crashSim{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), disk: vfs.NewMemory(seed), config: DefaultConfig(),
		clock: time.UnixMilli(1_700_000_000_000),
	}
	s.config.TimestampBeforeMax, s.config.TimestampAfterMax = math.MaxInt64, math.MaxInt64
	s.config.ProducerExpiry = 1 << 60
	switch s.random.IntN(4) {
	case 0:
		s.config.CleanupCompact, s.config.CleanupDelete, s.config.DeleteRetention = true, false, 0
		s.config.MinCompactionLag, s.config.MinCleanableRatio = 0, 0
		s.cleaner = NewCleaner(CleanerOptions{KeyBytesMax: 1 << 16})
	case 1:
		s.config.Retention = 20 * time.Second
	}
	s.changeConfig()
	for id := range int64(5) {
		s.sending = append(s.sending, &simProducer{id: 1000 + id, transactional: id >= 3 && s.cleaner == nil})
	}
	s.must(s.disk.MkdirAll("/data"))
	s.must(s.disk.SyncDir("/"))
	s.reopen(false)
	return s
}

// play runs a few lives of the log; each ends with a cut or a clean stop.
func (s *crashSim) play() {
	for range 2 + s.random.IntN(4) {
		s.planCut()
		alive := true
		for range 10 + s.random.IntN(60) {
			if alive = s.step(); !alive || s.t.Failed() {
				break
			}
		}
		clean := false
		if alive {
			clean = s.maybeClose()
		}
		if s.t.Failed() {
			return
		}
		s.cut()
		s.reopen(clean)
		if s.t.Failed() {
			return
		}
	}
}

// planCut chooses the moment at which the power will go, if it does not after the last step.
func (s *crashSim) planCut() {
	switch s.random.IntN(4) {
	case 0:
		at := s.disk.SyncPoints() + 1 + s.random.IntN(12)
		s.note("cut at sync point %d", at)
		s.disk.CrashAtSync(at)
	case 1, 2:
		after := s.random.IntN(100)
		s.note("cut after %d changes", after)
		s.disk.FailAfter(after, vfs.ErrCrashed)
	}
}

// cut takes the power and puts what it left in the disk's place.
func (s *crashSim) cut() {
	mode := vfs.CrashModes[s.random.IntN(len(vfs.CrashModes))]
	s.note("power cut, %v", mode)
	s.disk, s.full = s.disk.Crash(mode), false
}

// step does something with the log; false when the power went meanwhile.
func (s *crashSim) step() bool {
	s.clock = s.clock.Add(time.Duration(s.random.IntN(2000)) * time.Millisecond)
	var err error
	switch n := s.random.IntN(100); {
	case n < 55:
		err = s.append()
	case n < 58:
		err = s.appendFromLeader()
	case n < 61:
		err = s.endTransaction()
	case n < 63:
		err = s.retry()
	case n < 73:
		err = s.sync()
	case n < 80:
		err = s.checkpoint()
	case n < 84:
		err = s.truncate()
	case n < 87:
		err = s.raiseStart()
	case n < 88:
		err = s.truncateFully()
	case n < 91:
		s.epoch += meta.Epoch(1 + s.random.IntN(2))
		s.note("assign epoch %d", s.epoch)
		err = s.log.AssignEpoch(s.epoch, s.log.EndOffset())
	case n < 94:
		s.changeConfig()
		s.log.SetConfig(s.config)
	case n < 97:
		err = s.maintain()
	case n < 98:
		s.fill()
	default:
		s.check()
	}
	switch {
	case errors.Is(err, vfs.ErrCrashed):
		s.note("the power is gone")
		return false
	case s.log.Err() != nil && s.full:
		s.note("the log failed on the full disk: %v", err)
		return false
	case s.full && errors.Is(err, syscall.ENOSPC):
		s.note("the disk is full: %v", err)
		err = nil
	}
	s.must(err)
	return true
}

// fill leaves little space on the disk, or makes room again.
func (s *crashSim) fill() {
	s.full = !s.full
	if s.full {
		free := s.random.Int64N(4000)
		s.note("only %d bytes are free", free)
		s.disk.SetCapacity(s.disk.UsedBytes() + free)
		return
	}
	s.note("there is space")
	s.disk.SetCapacity(0)
}

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
	if errors.Is(err, ErrSegmentSize) || errors.Is(err, ErrDiskFull) && s.log.EndOffset() == s.now.end() {
		s.syncProducers() // nothing was appended
		if errors.Is(err, ErrDiskFull) {
			s.refused = []line{want}
			return err
		}
		return nil
	}
	// Whatever the answer, the bytes may be on the disk when the power goes: so the line has them.
	s.now, s.refused = want, nil
	if err != nil {
		return err
	}
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

func (s *crashSim) sync() error {
	end, err := s.log.Sync(s.t.Context())
	s.note("sync: %d, %v", end, err)
	if err != nil {
		return err
	}
	if end != s.log.EndOffset() {
		s.t.Errorf("sync answered %d, the log ends at %d", end, s.log.EndOffset())
	}
	s.floor, s.branches, s.refused = end, nil, nil
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
	_, err := s.log.Sync(s.t.Context())
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

// maybeClose stops the log cleanly, or leaves it to the cut.
func (s *crashSim) maybeClose() bool {
	if s.random.IntN(3) > 0 {
		return false
	}
	err := s.log.Close()
	s.note("close: %v", err)
	if errors.Is(err, vfs.ErrCrashed) || s.full && err != nil {
		return false
	}
	s.must(err)
	s.floor, s.branches, s.refused = s.now.end(), nil, nil
	// The data directory writes its checkpoints and the mark after the last log is closed.
	if err := s.writeCheckpoint(s.floor, s.start); err != nil {
		return false
	}
	return true
}

// reopen opens the log, however often the power goes while it recovers.
func (s *crashSim) reopen(clean bool) {
	for !s.open(clean) {
		s.cut()
	}
}

// open opens the log after a cut and checks everything; false when the power went again.
func (s *crashSim) open(clean bool) bool {
	if s.random.IntN(4) == 0 {
		s.disk.FailAfter(s.random.IntN(30), vfs.ErrCrashed)
	}
	recoveryPoint, start := s.readCheckpoint()
	disk := s.disk
	s.log = nil
	log, recovery, err := Open(Options{
		FS: disk, Dir: simDir, Topic: "topic", Config: s.config, Clean: clean, RecoveryPoint: recoveryPoint, LogStart: start,
		Now: func() time.Time { return s.clock }, LowerRecoveryPoint: s.lowerRecoveryPoint, Logger: s.logger(),
	})
	s.note("open, clean %v, recovery point %d, log start %d: %+v, %v", clean, recoveryPoint, start, recovery, err)
	if _, gone := disk.List("/"); errors.Is(gone, vfs.ErrCrashed) {
		return false
	}
	s.must(err)
	s.disk.FailAfter(0, nil)
	s.log = log
	s.adopt(clean, start)
	return true
}

// adopt compares the opened log, whose start was to be logStart, with what it may be, and makes the model follow.
func (s *crashSim) adopt(clean bool, logStart int64) {
	got, end := s.contents(), s.log.EndOffset()
	if end < s.floor {
		s.t.Errorf("the log ends at %d; everything up to %d was synced", end, s.floor)
	}
	if start := s.log.StartOffset(); start < s.starts || start > s.raised {
		s.t.Errorf("the log starts at %d; want %d to %d", start, s.starts, s.raised)
	}
	found := false
	if len(got) == 0 && end == logStart && len(s.log.Producers()) == 0 {
		// The log start reached the disk, what it was raised to did not: everything below is gone, as was asked for.
		s.now, found = line{origin: end}, true
	}
	candidates := slices.Concat(s.branches, s.refused, []line{s.now})
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
	s.floor, s.branches, s.refused = end, nil, nil // it was read from the platter
	s.epoch += 2                                   // a leader that lost its power leads in a new epoch
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

// note remembers a step; with -seed it is printed.
func (s *crashSim) note(format string, args ...any) {
	step := fmt.Sprintf(format, args...)
	s.steps = append(s.steps, step)
	if *crashSeed != 0 {
		fmt.Fprintln(os.Stderr, step)
	}
}

// logger prints what the log has to say, with -seed.
func (s *crashSim) logger() *slog.Logger {
	if *crashSeed == 0 {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (s *crashSim) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\nlast steps:\n%s", err, strings.Join(s.steps[max(0, len(s.steps)-12):], "\n"))
	}
}

func describeBatches(batches []record.Batch) string {
	var text strings.Builder
	for _, b := range batches {
		fmt.Fprintf(&text, "  %d-%d epoch %d, %d bytes, crc %08x\n", b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch(), len(b), b.CRC())
	}
	return text.String()
}
