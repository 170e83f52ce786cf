package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-io/tidemark/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sums is a machine that adds up: its records are numbers, and whoever adds one hears the sum when it is committed.
type sums struct {
	total    int
	writes   map[WriteID]sum
	last     WriteID
	deadline time.Time
	woken    atomic.Int32
}

type sum struct {
	call Call
	n    int
}

func (s *sums) Replay(r Record) error {
	var n int
	if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
		return fmt.Errorf("%q is no number: %w", r.Value, err)
	}
	s.total += n
	return nil
}

func (s *sums) Loaded(time.Time) Effects { return Effects{} }

func (s *sums) Wake(time.Time) Effects {
	s.woken.Add(1)
	s.deadline = time.Time{}
	return Effects{}
}

func (s *sums) Deadline() (time.Time, bool) { return s.deadline, !s.deadline.IsZero() }

func (s *sums) add(call Call, n int) Effects {
	s.last++
	s.writes[s.last] = sum{call, n}
	return Effects{Writes: []Write{{ID: s.last, Records: []Record{{Key: []byte("k"), Value: []byte(fmt.Sprint(n))}}}}}
}

func (s *sums) Written(id WriteID, err error, _ time.Time) Effects {
	w := s.writes[id]
	delete(s.writes, id)
	if err != nil {
		return Effects{Replies: []Reply{{w.call, err}}}
	}
	s.total += w.n
	return Effects{Replies: []Reply{{w.call, s.total}}}
}

// memoryLog is a log in memory whose commits a test may hold back.
type memoryLog struct {
	batches [][]byte
	end     int64
	held    bool
	waiting []*memoryPending
	refuse  error
	broken  error // of reads
}

type memoryPending struct {
	notify func()
	err    error
	done   bool
}

func (p *memoryPending) Done(notify func()) {
	p.notify = notify
	if p.done {
		notify()
	}
}

func (p *memoryPending) Err() error { return p.err }

func (p *memoryPending) Expire() bool {
	p.done, p.err = true, errors.New("expired")
	return true
}

func (l *memoryLog) Bounds() (int64, int64) { return 0, l.end }

func (l *memoryLog) Read(_ context.Context, offset int64) ([]byte, error) {
	if l.broken != nil {
		return nil, l.broken
	}
	for _, b := range l.batches {
		if record.Batch(b).LastOffset() >= offset {
			return slices.Clone(b), nil
		}
	}
	return nil, nil
}

func (l *memoryLog) Append(_ context.Context, batch []byte) (Pending, error) {
	if l.refuse != nil {
		return nil, l.refuse
	}
	b := record.Batch(slices.Clone(batch))
	b.Stamp(l.end, 1)
	l.batches, l.end = append(l.batches, b), l.end+int64(b.Count())
	p := &memoryPending{done: !l.held}
	if l.held {
		l.waiting = append(l.waiting, p)
	}
	return p, nil
}

func (l *memoryLog) release() {
	for _, p := range l.waiting {
		p.done = true
		p.notify()
	}
	l.waiting = nil
}

// runs is a runner under test, inside a bubble.
type runs struct {
	*Runner[*sums]
	log    *memoryLog
	sums   *sums
	cancel context.CancelFunc
	ended  chan error
}

func begin(t *testing.T, log *memoryLog) *runs {
	t.Helper()
	s := &sums{writes: make(map[WriteID]sum)}
	r := &runs{Runner: New(s, Config{Log: log}), log: log, sums: s, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
	synctest.Wait()
	return r
}

// end stops a runner that is to stop without an error.
func (r *runs) end(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// add adds in the background; the channel has the sum or the error.
func (r *runs) add(ctx context.Context, n int) <-chan any {
	answer := make(chan any, 1)
	go func() {
		value, err := r.Do(ctx, func(m *sums, call Call, _ time.Time) Effects { return m.add(call, n) })
		if err != nil {
			value = err
		}
		answer <- value
	}()
	synctest.Wait()
	return answer
}

// TestRunnerAnswersWhenCommitted gathers what comes while an append is on its way, keeps the order, and tells nobody before
// its record is committed. A runner after it sees the same sums.
func TestRunnerAnswersWhenCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{held: true}
		r := begin(t, log)
		first, second := r.add(t.Context(), 1), r.add(t.Context(), 2)
		select {
		case got := <-first:
			t.Fatalf("answered before the commit: %v", got)
		default:
		}
		log.release()
		if a, b := <-first, <-second; a != 1 || b != 3 {
			t.Errorf("sums %v, %v", a, b)
		}
		r.end(t)
		log.held = false
		again := begin(t, log)
		if got := <-again.add(t.Context(), 4); got != 7 {
			t.Errorf("after a restart: %v", got)
		}
		again.end(t)
	})
}

// TestRunnerBatches puts the writes that have gathered into one append.
func TestRunnerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{}
		r := begin(t, log)
		r.mu.Lock() // the runner cannot take the events one by one
		for range 100 {
			r.mu.events = append(r.mu.events, event[*sums]{NoCall, func(m *sums, call Call, _ time.Time) Effects { return m.add(call, 1) }})
		}
		r.mu.Unlock()
		r.signal()
		synctest.Wait()
		if len(log.batches) != 1 || r.sums.total != 100 {
			t.Errorf("%d appends, sum %d", len(log.batches), r.sums.total)
		}
		r.end(t)
	})
}

// TestRunnerRefusedWrite tells the machine of a write that did not happen, after those before it.
func TestRunnerRefusedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{held: true}
		r := begin(t, log)
		first := r.add(t.Context(), 1)
		log.refuse = errors.New("the disk is full")
		second := r.add(t.Context(), 2)
		log.release()
		if a, b := <-first, <-second; a != 1 || !errors.Is(b.(error), log.refuse) {
			t.Errorf("%v, %v", a, b)
		}
		log.refuse, log.held = nil, false
		if got := <-r.add(t.Context(), 3); got != 4 {
			t.Errorf("afterwards: %v", got)
		}
		r.end(t)
	})
}

// TestRunnerStopsWithoutOutcome ends when a write is neither committed nor refused in time: only the log can tell.
func TestRunnerStopsWithoutOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{held: true}
		r := begin(t, log)
		answer := r.add(t.Context(), 1)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := <-answer; !errors.Is(got.(error), ErrStopped) {
			t.Errorf("the call: %v", got)
		}
		if err := <-r.ended; err == nil {
			t.Error("Run ended without an error")
		}
		if _, err := r.Do(t.Context(), nil); !errors.Is(err, ErrStopped) {
			t.Errorf("a call to a stopped runner: %v", err)
		}
		r.cancel()
	})
}

// TestRunnerStops answers whoever waits when the partition is led elsewhere, and forgets whoever stopped waiting.
func TestRunnerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, &memoryLog{held: true})
		gone, cancel := context.WithCancel(t.Context())
		left, stays := r.add(gone, 1), r.add(t.Context(), 2)
		cancel()
		if got := <-left; !errors.Is(got.(error), context.Canceled) {
			t.Errorf("who left: %v", got)
		}
		r.end(t)
		if got := <-stays; !errors.Is(got.(error), ErrStopped) {
			t.Errorf("who stayed: %v", got)
		}
	})
}

// TestRunnerWakes calls the machine at its deadlines, and not otherwise.
func TestRunnerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := begin(t, &memoryLog{})
		r.Tell(func(m *sums, _ Call, now time.Time) Effects {
			m.deadline = now.Add(time.Minute)
			return Effects{}
		})
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if r.sums.woken.Load() != 0 {
			t.Error("woken too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if r.sums.woken.Load() != 1 {
			t.Errorf("woken %d times", r.sums.woken.Load())
		}
		r.end(t)
	})
}

// TestRunnerLoads says that it loads until it has, and refuses a log that it cannot read.
func TestRunnerLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh := New(&sums{}, Config{Log: &memoryLog{}})
		if _, err := fresh.Do(t.Context(), nil); !errors.Is(err, ErrLoading) {
			t.Errorf("before Run: %v", err)
		}
		log := &memoryLog{}
		r := begin(t, log)
		<-r.add(t.Context(), 1)
		r.end(t)
		for name, spoil := range map[string]func(l *memoryLog){
			"unreadable": func(l *memoryLog) { l.broken = errors.New("I/O error") },
			"checksum":   func(l *memoryLog) { l.batches[0][len(l.batches[0])-1] ^= 1 },
		} {
			spoiled := &memoryLog{end: log.end, batches: [][]byte{slices.Clone(log.batches[0])}}
			spoil(spoiled)
			r := begin(t, spoiled)
			if err := <-r.ended; err == nil {
				t.Errorf("%s: loaded", name)
			}
			r.AwaitLoaded(t.Context())
			r.cancel()
		}
	})
}

// TestRunnerBounds refuses calls beyond the limit, and begins a new batch at the size limit.
func TestRunnerBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &memoryLog{held: true}
		r := begin(t, log)
		r.config.WaitingMax, r.config.BatchBytesMax = 2, 1
		a, b := r.add(t.Context(), 1), r.add(t.Context(), 2)
		if got := <-r.add(t.Context(), 3); !errors.Is(got.(error), ErrBusy) {
			t.Errorf("the third: %v", got)
		}
		log.release()
		if x, y := <-a, <-b; x != 1 || y != 3 {
			t.Errorf("%v %v", x, y)
		}
		r.end(t)
	})
}
