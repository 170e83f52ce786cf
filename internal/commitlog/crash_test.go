package commitlog

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
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
