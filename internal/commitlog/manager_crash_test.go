package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// TestPowerCutOfDirectory plays random histories of a data directory: partitions come, go and come again under the same
// name, are appended to, synced and checkpointed, the directory is closed cleanly or loses its power. After each start
// (U-54…U-59, D9, trap 4):
//
//   - a partition holds a prefix of what was appended under its topic id, which reaches the synced end, and nothing of
//     another life of its name;
//   - a deleted one is gone once Delete has returned;
//   - the mark of a clean stop is there only if everything was synced, and always if Close returned without an error;
//   - nothing is set aside but what is left of a partition that was never synced.
//
// It takes the flags of TestPowerCut.
func TestPowerCutOfDirectory(t *testing.T) {
	first, last := uint64(1), *crashSeeds
	if *crashSeed != 0 {
		first, last = *crashSeed, *crashSeed
	}
	for seed := first; seed <= last; seed++ {
		s := &directorySim{t: t, random: rand.New(rand.NewPCG(seed, 3)), disk: vfs.NewMemory(seed), clock: newClock(), lives: map[PartitionName]*life{}}
		s.disk.SetClock(s.clock.read)
		s.play()
		if t.Failed() {
			t.Fatalf("the history is that of -seed %d; last steps:\n%s", seed, strings.Join(s.steps[max(0, len(s.steps)-15):], "\n"))
		}
	}
}

// life is a partition under one topic id.
type life struct {
	id       meta.TopicID
	appended []record.Batch
	floor    int64 // everything below survives a cut
	written  int64 // everything below survives the end of the process
	deleting bool  // Delete was called; it may or may not have had its way
}

func (l *life) end() int64 {
	if len(l.appended) == 0 {
		return 0
	}
	return l.appended[len(l.appended)-1].LastOffset() + 1
}

type directorySim struct {
	t       *testing.T
	random  *rand.Rand
	disk    *vfs.Memory
	clock   *clock
	manager *Manager
	steps   []string
	lives   map[PartitionName]*life
	ids     byte
	boots   int
	closed  bool // the last stop was clean: Close returned without an error
	closing bool // the last stop was a Close
	killed  bool // the process ends and the machine goes on
}

func (s *directorySim) note(format string, args ...any) {
	step := fmt.Sprintf(format, args...)
	s.steps = append(s.steps, step)
	if *crashSeed != 0 {
		s.t.Log(step)
	}
}

// Read makes the sim a source of ids.
func (s *directorySim) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.random.Uint32())
	}
	return len(p), nil
}

// play runs a few lives of the process.
func (s *directorySim) play() {
	for range 2 + s.random.IntN(4) {
		for !s.start() {
			s.cut()
		}
		s.disk.FailAfter(0, nil)
		if s.t.Failed() {
			return
		}
		switch s.random.IntN(3) {
		case 0:
			s.disk.FailAfter(s.random.IntN(150), vfs.ErrCrashed)
		case 1:
			s.disk.FailAfter(s.random.IntN(150), errKilled)
		default:
			s.disk.CrashAtSync(s.disk.SyncPoints() + 1 + s.random.IntN(40))
		}
		before := s.closing
		s.closed, s.closing, s.killed = false, false, false
		for range 10 + s.random.IntN(40) {
			s.clock.now = s.clock.now.Add(1e9)
			err := s.step()
			if s.killed = errors.Is(err, errKilled); s.killed || powerIsOut(s.disk) || s.t.Failed() {
				break
			}
			if err != nil {
				s.t.Errorf("%v", err)
				return
			}
		}
		if !s.killed && !powerIsOut(s.disk) && s.random.IntN(2) == 0 {
			err := s.manager.Close(7)
			s.note("close: %v", err)
			s.closed, s.closing, s.killed = err == nil, true, errors.Is(err, errKilled)
		}
		if s.manager.mu.Lock(); !s.manager.mu.armed {
			s.closing = before // nothing was written: the last mark may still be there, and holds
		}
		s.manager.mu.Unlock()
		if s.killed = (s.killed || s.random.IntN(4) == 0) && !powerIsOut(s.disk); s.killed {
			s.note("the process ends")
			s.disk.Kill()
			s.disk.CrashAtSync(0)
			continue
		}
		s.cut()
	}
}

// cut takes the power; what starts next is another kernel.
func (s *directorySim) cut() {
	mode := vfs.CrashModes[s.random.IntN(len(vfs.CrashModes))]
	s.note("power cut, %v", mode)
	s.disk = s.disk.Crash(mode)
	s.boots++
	s.killed = false
}

func (s *directorySim) config() Config {
	c := testConfig()
	c.FileDeleteDelay = 0
	return c
}

// start opens the directory and compares it with what it may be; false when the power went again.
func (s *directorySim) start() bool {
	if s.random.IntN(4) == 0 {
		s.disk.FailAfter(s.random.IntN(60), vfs.ErrCrashed)
	}
	m, err := OpenManager(ManagerOptions{
		FS: s.disk, Dir: "/data", NodeID: 1, BootID: fmt.Sprint(s.boots), Now: s.clock.read, Random: s, OpenWorkers: 1,
	})
	if err == nil {
		err = m.SetCluster("cluster")
	}
	var summary RecoverySummary
	if err == nil {
		summary, err = m.Load(s.t.Context(), func(string) Config { return s.config() })
	}
	if err == nil {
		err = m.Settle()
	}
	if powerIsOut(s.disk) {
		return false
	}
	if err != nil {
		s.t.Errorf("start: %v", err)
		return true
	}
	state := m.StartState()
	s.note("start: %+v, %d partitions, %d scanned", state, summary.Partitions, summary.Scanned)
	if s.closed && !state.Marked {
		s.t.Error("the mark of the clean stop is gone")
	}
	if state.Marked && !s.closing {
		s.t.Error("there is a mark of a clean stop, and there was none")
	}
	if state.SameBoot && !s.killed {
		s.t.Error("a machine that was started again counts as the same boot")
	}
	if len(summary.Quarantined) > 0 {
		s.t.Errorf("set aside: %+v", summary.Quarantined)
	}
	s.manager = m
	for _, l := range m.Logs() {
		s.checkLoaded(l, state.Marked)
	}
	s.closed = false // the mark goes with the first partition that is opened
	return s.reopen(state.Marked)
}

// checkLoaded checks that a log which the directory brought back belongs to a life that may still be.
func (s *directorySim) checkLoaded(l *Log, marked bool) {
	known := s.lives[l.Name()]
	if known == nil || known.id != l.TopicID() {
		s.t.Errorf("%s is back with topic id %v", l.Name(), l.TopicID())
		return
	}
	if known.deleting {
		s.note("%s was not deleted after all", l.Name())
	}
	_ = marked
}

// reopen finishes deletions that were cut short and opens every partition that should be, as the controller asks for.
func (s *directorySim) reopen(marked bool) bool {
	names := slices.SortedFunc(maps.Keys(s.lives), func(a, b PartitionName) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		known := s.lives[name]
		if known.deleting {
			if !s.finishDeletion(name) {
				return false
			}
			continue
		}
		l, err := s.manager.Open(name.Topic, known.id, name.Partition, s.config())
		if powerIsOut(s.disk) {
			return false
		}
		if err != nil {
			s.t.Errorf("open %s: %v", name, err)
			return true
		}
		s.compare(l, known, marked)
	}
	return true
}

// finishDeletion asks again for a deletion that may not have happened.
func (s *directorySim) finishDeletion(name PartitionName) bool {
	for _, l := range s.manager.Logs() {
		if l.Name() == name {
			if err := s.manager.Delete(l); err != nil {
				return !powerIsOut(s.disk)
			}
		}
	}
	delete(s.lives, name)
	return true
}

// compare checks a log after a start, and makes the model follow.
func (s *directorySim) compare(l *Log, known *life, marked bool) {
	var got []record.Batch
	for offset := l.StartOffset(); offset < l.EndOffset(); {
		slice, err := l.Read(offset, 1<<20, l.EndOffset(), true)
		if err != nil {
			s.t.Errorf("read %s: %v", l.Name(), err)
			return
		}
		if slice.Bytes() == 0 {
			s.t.Errorf("read %s at %d: nothing, the log ends at %d", l.Name(), offset, l.EndOffset())
			return
		}
		data := make([]byte, slice.Bytes())
		if err := slice.CopyTo(data); err != nil {
			s.t.Errorf("read %s: %v", l.Name(), err)
		}
		slice.Release()
		for len(data) > 0 {
			batch, rest, err := record.Next(data)
			if err != nil || batch.CheckCRC() != nil {
				s.t.Errorf("read %s at %d: %v", l.Name(), offset, err)
				return
			}
			got, data, offset = append(got, batch), rest, batch.LastOffset()+1
		}
	}
	end, floor := l.EndOffset(), known.floor
	if s.killed {
		floor = max(floor, known.written)
	}
	if end < floor || marked && end != known.end() {
		s.t.Errorf("%s ends at %d, %d was synced, %d appended, clean %v", l.Name(), end, floor, known.end(), marked)
	}
	if len(got) > len(known.appended) || !slices.EqualFunc(got, known.appended[:len(got)], func(a, b record.Batch) bool { return bytes.Equal(a, b) }) {
		s.t.Errorf("%s is no prefix of what was appended: %d batches of %d", l.Name(), len(got), len(known.appended))
		return
	}
	known.appended, known.written = known.appended[:len(got)], end
	if !s.killed {
		known.floor = end // it was read from the platter
	}
}

// step does something; the error is unexpected unless the power is gone.
func (s *directorySim) step() error {
	switch n := s.random.IntN(20); {
	case n < 2:
		return s.create()
	case n < 3:
		return s.remove()
	case n < 5:
		s.note("checkpoint")
		return s.manager.Checkpoint()
	case n < 6:
		s.note("maintain")
		s.manager.Maintain(s.clock.now, true, true)
		return nil
	}
	l := s.pick()
	if l == nil {
		return s.create()
	}
	known := s.lives[l.Name()]
	if s.random.IntN(4) == 0 {
		end, err := l.Sync(s.t.Context())
		s.note("sync %s: %d, %v", l.Name(), end, err)
		if err == nil {
			known.floor = end
		}
		return err
	}
	return s.append(l, known)
}

// pick draws one of the partitions that are open.
func (s *directorySim) pick() *Log {
	logs := s.manager.Logs()
	if len(logs) == 0 {
		return nil
	}
	slices.SortFunc(logs, func(a, b *Log) int { return strings.Compare(a.Name().String(), b.Name().String()) })
	return logs[s.random.IntN(len(logs))]
}

// create opens a partition of a topic that does not exist.
func (s *directorySim) create() error {
	name := PartitionName{string(rune('a' + s.random.IntN(3))), int32(s.random.IntN(2))}
	if s.lives[name] != nil {
		return nil
	}
	s.ids++
	s.lives[name] = &life{id: topicID(s.ids)}
	s.note("create %s with id %d", name, s.ids)
	_, err := s.manager.Open(name.Topic, topicID(s.ids), name.Partition, s.config())
	return err
}

func (s *directorySim) remove() error {
	l := s.pick()
	if l == nil {
		return nil
	}
	s.note("delete %s", l.Name())
	s.lives[l.Name()].deleting = true
	err := s.manager.Delete(l)
	if err == nil {
		delete(s.lives, l.Name())
	}
	return err
}

func (s *directorySim) append(l *Log, known *life) error {
	b := record.NewBuilder(record.BuilderOptions{})
	for range 1 + s.random.IntN(3) {
		b.Append(s.clock.ms(), nil, bytes.Repeat([]byte{s.ids, byte(len(known.appended))}, 1+s.random.IntN(150)))
	}
	batch, err := b.Batch()
	if err != nil {
		return err
	}
	batch = slices.Clone(batch)
	stamped := slices.Clone(batch)
	epoch := meta.Epoch(s.boots) // a leader that lost its power leads in a new epoch
	stamped.Stamp(l.EndOffset(), int32(epoch))
	known.appended = append(slices.Clip(known.appended), stamped)
	out, err := l.Append(s.t.Context(), Append{Batches: batch, Epoch: epoch})
	s.note("append to %s: %d to %d, %v", l.Name(), out.Base, out.Last, err)
	if err == nil {
		known.written = known.end()
	}
	return err
}
