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
	fills  bool      // the disk fills often
	full   bool      // the disk has little space
	killed bool      // the process is about to end, the machine goes on
	slow   *syncPlan // a sync that has begun, and during which other things happen
	steps  []string

	now      line
	branches []line // what the log was before truncations that are not durable yet
	floor    int64  // everything below survives a cut
	written  int64  // everything below survives the end of the process
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
		s.config.Retention = time.Duration(5+s.random.IntN(30)) * time.Second
	case 2:
		s.fills = true
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
		clean := alive && s.maybeClose()
		if s.t.Failed() {
			return
		}
		if s.killed || alive && !clean && s.random.IntN(4) == 0 && !powerIsOut(s.disk) {
			s.kill()
		} else {
			s.cut()
		}
		s.reopen(clean)
		if s.t.Failed() {
			return
		}
	}
}

// planCut chooses the moment at which the power will go, if it does not after the last step.
func (s *crashSim) planCut() {
	switch s.random.IntN(5) {
	case 0:
		at := s.disk.SyncPoints() + 1 + s.random.IntN(12)
		s.note("cut at sync point %d", at)
		s.disk.CrashAtSync(at)
	case 1, 2:
		after := s.random.IntN(100)
		s.note("cut after %d changes", after)
		s.disk.FailAfter(after, vfs.ErrCrashed)
	case 3:
		after := s.random.IntN(100)
		s.note("killed after %d changes", after)
		s.disk.FailAfter(after, errKilled)
	}
}

// errKilled is what a process that is being killed sees of the disk.
var errKilled = errors.New("killed")

// kill ends the process: what was written stays.
func (s *crashSim) kill() {
	s.note("the process is killed")
	s.disk.Kill()
	s.disk.CrashAtSync(0)
	s.disk.SetCapacity(0)
	s.full, s.killed = false, true
}

// cut takes the power and puts what it left in the disk's place.
func (s *crashSim) cut() {
	mode := vfs.CrashModes[s.random.IntN(len(vfs.CrashModes))]
	s.note("power cut, %v", mode)
	s.disk, s.full, s.killed = s.disk.Crash(mode), false, false
}

// step does something with the log; false when the power went meanwhile.
func (s *crashSim) step() bool {
	s.clock = s.clock.Add(time.Duration(s.random.IntN(2000)) * time.Millisecond)
	if s.fills && s.random.IntN(15) == 0 {
		s.fill()
	}
	if !s.done(s.maybeFinishSync()) {
		return false
	}
	var err error
	switch n := s.random.IntN(100); {
	case n < 15 && s.full:
		err = s.appendFromLeader() // several batches, of which some find space
	case n < 55:
		err = s.append()
	case n < 58:
		err = s.appendFromLeader()
	case n < 61:
		err = s.endTransaction()
	case n < 63:
		err = s.retry()
	case n < 70:
		err = s.sync()
	case n < 73:
		err = s.beginSync()
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
	case n < 93:
		s.changeConfig()
		s.log.SetConfig(s.config)
	case n < 97:
		err = s.maintain()
	default:
		s.check()
	}
	return s.done(err)
}

// done tells whether the process goes on after a step with the given outcome.
func (s *crashSim) done(err error) bool {
	switch {
	case powerIsOut(s.disk):
		s.note("the power is gone")
		return false
	case errors.Is(err, errKilled):
		s.killed = true
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
		free := s.random.Int64N(1500)
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

// maybeClose stops the log cleanly, or leaves it to the cut.
func (s *crashSim) maybeClose() bool {
	if s.random.IntN(3) > 0 || !s.done(s.finishSync()) {
		return false
	}
	err := s.log.Close()
	s.note("close: %v", err)
	s.killed = errors.Is(err, errKilled)
	if s.killed || errors.Is(err, vfs.ErrCrashed) || s.full && err != nil {
		return false
	}
	s.must(err)
	s.floor, s.branches = s.now.end(), nil
	// The data directory writes its checkpoints and the mark after the last log is closed.
	err = s.writeCheckpoint(s.floor, s.start)
	s.killed = errors.Is(err, errKilled)
	return err == nil
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
	s.log, s.slow = nil, nil
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
