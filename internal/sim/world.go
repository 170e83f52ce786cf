package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// Options say what kind of world it is.
type Options struct {
	Seed     uint64
	Brokers  int  // 2 to 6
	Replicas int  // the first so many brokers have one; 0: all
	MinISR   int  // min.insync.replicas
	Flush    bool // log.flush.acks
	Mutant   replica.Mutant
	// Steady is a network without chance: every message takes a millisecond. For scripts.
	Steady bool
}

const (
	lagMax       = 500 * time.Millisecond // replica.lag.time.max.ms, short so that histories hold many changes
	leaseTTL     = 600 * time.Millisecond
	renewEvery   = 100 * time.Millisecond
	controlEvery = 50 * time.Millisecond
	tickEvery    = 250 * time.Millisecond
	fetchTimeout = 60 * time.Millisecond
	fetchPause   = 4 * time.Millisecond
	traceMax     = 60
)

// World is one history.
type World struct {
	options  Options
	rng      *rand.Rand
	now      time.Time
	queue    events
	sequence int
	count    int // events so far

	brokers     []*broker
	registry    registry
	down        map[link]bool // directions in which nothing arrives
	manual      bool          // no controller: a script decides
	changesLate time.Duration // on a steady network
	syncsLate   time.Duration
	quiet       bool // nothing is lost any more

	relaxed   meta.Epoch // leaders of older epochs do not know what an unclean election gave up
	values    uint64
	committed []uint64          // by offset, what some leader's high watermark has passed
	acked     map[int64]uint64  // offset → value of what acks=all was answered for
	written   map[origin]uint64 // which value a leader has written where
	leaders   map[meta.Epoch]meta.BrokerID
	ackedOf   struct { // that were looked for in its log already
		epoch meta.Epoch
		count int
	}

	invariants []Invariant
	failure    error
	trace      []string
}

// origin is a record's place in one leader's epoch.
type origin struct {
	epoch  meta.Epoch
	offset int64
}

// link is one direction between two brokers, or between a broker and the registry (broker 0).
type link struct{ from, to meta.BrokerID }

// New is a world whose brokers are all up, in sync and led by broker 1.
func New(o Options) *World {
	w := &World{
		options: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), now: time.Unix(1, 0), down: map[link]bool{}, acked: map[int64]uint64{},
		written: map[origin]uint64{}, leaders: map[meta.Epoch]meta.BrokerID{}, invariants: checked(),
	}
	value := meta.Partition{Leader: 1, MinISR: int32(o.MinISR), Flush: o.Flush, Version: 1}
	for i := range o.Brokers {
		id := meta.BrokerID(i + 1)
		if o.Replicas == 0 || i < o.Replicas {
			value.Replicas = append(value.Replicas, id)
		}
		w.brokers = append(w.brokers, &broker{world: w, id: id})
	}
	value.ISR = value.Replicas
	w.registry = registry{world: w, value: value, revision: 1, members: map[meta.BrokerID]*member{}}
	for _, b := range w.brokers {
		w.registry.register(b)
		m := w.registry.members[b.id]
		m.life, m.swept, m.live = 1, 1, w.registry.next()
		b.start()
	}
	w.control()
	w.every(controlEvery, w.control)
	return w
}

// Run lets the world go on for a time, or until an invariant is broken.
func (w *World) Run(d time.Duration) error {
	until := w.now.Add(d)
	for w.failure == nil && len(w.queue) > 0 && !w.queue[0].at.After(until) {
		w.step()
	}
	w.now = until
	return w.failure
}

// Steps lets a number of events happen, or fewer if an invariant is broken.
func (w *World) Steps(n int) error {
	for ; n > 0 && w.failure == nil && len(w.queue) > 0; n-- {
		w.step()
	}
	return w.failure
}

func (w *World) step() {
	e := heap.Pop(&w.queue).(*event)
	w.now = e.at
	w.count++
	e.do()
	for _, invariant := range w.invariants {
		if w.failure == nil {
			if err := invariant.Check(w); err != nil {
				w.failure = fmt.Errorf("%s broken after event %d: %w", name(invariant), w.count, err)
			}
		}
	}
}

// Trace is what happened last, for people.
func (w *World) Trace() string { return strings.Join(w.trace, "\n") }

// note writes a line of the trace.
func (w *World) note(format string, args ...any) {
	if len(w.trace) == traceMax && !w.options.Steady {
		w.trace = slices.Delete(w.trace, 0, 1)
	}
	w.trace = append(w.trace, fmt.Sprintf("%8.3f ", float64(w.now.UnixMilli()-1000)/1000)+fmt.Sprintf(format, args...))
}

// after does something later.
func (w *World) after(d time.Duration, do func()) {
	w.sequence++
	heap.Push(&w.queue, &event{w.now.Add(d), w.sequence, do})
}

// every does something again and again.
func (w *World) every(d time.Duration, do func()) {
	w.after(d, func() { do(); w.every(d, do) })
}

// wrote notes which record a leader wrote where. A second one in the same place must not be known to anybody by the first.
func (w *World) wrote(at origin) {
	if _, again := w.written[at]; again {
		for _, b := range w.brokers {
			b.traced = 0
		}
	}
	w.written[at] = w.values
}

// broker finds a broker.
func (w *World) broker(id meta.BrokerID) *broker { return w.brokers[id-1] }

// send carries a message; it may be lost, late or doubled.
func (w *World) send(from, to meta.BrokerID, deliver func()) {
	if w.down[link{from, to}] {
		return
	}
	copies := 1
	if !w.options.Steady && !w.quiet {
		switch r := w.rng.IntN(100); {
		case r < 2:
			return
		case r < 4:
			copies = 2
		}
	}
	for range copies {
		w.after(w.delay(), func() {
			if !w.down[link{from, to}] {
				deliver()
			}
		})
	}
}

func (w *World) delay() time.Duration {
	if w.options.Steady {
		return time.Millisecond
	}
	d := time.Duration(w.rng.IntN(5000)) * time.Microsecond
	if w.rng.IntN(40) == 0 && !w.quiet {
		d += time.Duration(w.rng.IntN(400)) * time.Millisecond
	}
	return d
}

// late is a delay that some messages from and to the registry have besides.
func (w *World) late() time.Duration {
	if w.options.Steady || w.quiet || w.rng.IntN(6) > 0 {
		return 0
	}
	return time.Duration(w.rng.IntN(900)) * time.Millisecond
}

// event is something that will happen.
type event struct {
	at       time.Time
	sequence int
	do       func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].sequence < e[j].sequence
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(*event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return last
}
