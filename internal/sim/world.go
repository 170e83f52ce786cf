package sim

import (
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
	Toggles  bool // log.flush.acks changes now and then
	Unclean  bool // unclean.leader.election.enable
	Mutant   replica.Mutant
	// Steady is a network without chance: every message takes a millisecond. For scripts.
	Steady bool
	// Controllers is how many there are on machines of their own, with numbers from 101 on; 0: a script has one beside the
	// registry, a history one on every broker.
	Controllers int
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
	now      time.Duration // since the beginning
	queue    queue
	sequence int
	count    int // events so far

	brokers        []*broker
	controls       []*control
	clients        []*producer
	registry       registry
	down           map[link]bool // directions in which nothing arrives
	manual         bool          // no controller: a script decides
	changesLate    time.Duration // on a steady network
	statementsLate time.Duration
	syncsLate      time.Duration
	quiet          bool // nothing is lost any more
	faults         [faultKinds]int

	oracle
	invariants []Invariant
	failure    error
	trace      []string
}

// oracle is what nobody in the world knows: the truth about one life of the topic.
type oracle struct {
	topic     int        // the life that it is about
	relaxed   meta.Epoch // leaders of older epochs do not know what an unclean election gave up
	thin      bool       // what was committed may be on fewer than min.insync: a power cut more is one too many
	lost      int        // acknowledged records that unclean elections gave up
	values    uint64
	committed []entry           // by offset, what some leader's high watermark has passed
	acked     map[int64]uint64  // offset → value of what acks=all was answered for
	written   map[origin]uint64 // which value a leader has written where
	leaders   map[meta.Epoch]meta.BrokerID
	read      []uint64 // by offset, what consumers were shown; 0: nothing
	unread    []reading
	refused   error    // a producer was refused that had made no mistake
	ackedOf   struct { // that were looked for in its log already
		epoch meta.Epoch
		count int
	}
}

func newOracle(topic int, values uint64) oracle {
	return oracle{topic: topic, values: values, acked: map[int64]uint64{}, written: map[origin]uint64{}, leaders: map[meta.Epoch]meta.BrokerID{}}
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
	w := &World{options: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), down: map[link]bool{}, invariants: checked()}
	replicas := o.Brokers
	if o.Replicas != 0 {
		replicas = o.Replicas
	}
	value := meta.Partition{Leader: 1, MinISR: int32(o.MinISR), Flush: o.Flush, Version: 1}
	for i := range o.Brokers {
		id := meta.BrokerID(i + 1)
		if i < replicas {
			value.Replicas = append(value.Replicas, id)
		}
		w.brokers = append(w.brokers, &broker{world: w, id: id})
	}
	value.ISR = value.Replicas
	w.oracle = newOracle(1, 0)
	w.registry = registry{world: w, snapshot: snapshot{topic: 1, value: value, revision: 1, minISR: o.MinISR, flush: o.Flush, members: make([]member, o.Brokers)}, lives: 1}
	for _, b := range w.brokers {
		w.registry.register(b, 1)
		m := &w.registry.members[b.id-1]
		m.unfenced, m.live = true, w.registry.next()
		b.start()
	}
	w.startControllers()
	return w
}

func (w *World) startControllers() {
	switch {
	case w.options.Controllers > 0:
		for i := range w.options.Controllers {
			w.controls = append(w.controls, &control{world: w, node: firstControl + meta.BrokerID(i)})
		}
	case w.options.Steady:
		w.controls = append(w.controls, &control{world: w})
	default:
		for _, b := range w.brokers {
			w.controls = append(w.controls, b.control)
		}
	}
	w.every(controlEvery, w.registry.expire)
	for _, c := range w.controls {
		if c.broker == nil {
			c.round()
		}
	}
}

// Run lets the world go on for a time, or until an invariant is broken.
func (w *World) Run(d time.Duration) error {
	until := w.now + d
	for w.failure == nil && len(w.queue) > 0 && w.queue[0].at <= until {
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
	e := w.queue.pop()
	w.now = e.at
	w.count++
	e.do()
	for _, invariant := range w.invariants {
		if err := invariant.Check(w); err != nil && w.failure == nil {
			w.failure = fmt.Errorf("%s broken after event %d: %w", name(invariant), w.count, err)
		}
	}
}

// Trace is what happened last, for people.
func (w *World) Trace() string { return strings.Join(w.trace, "\n") }

// note writes a line of the trace.
func (w *World) note(format string, args ...any) {
	if len(w.trace) == traceMax && !w.options.Steady {
		w.trace = slices.Delete(w.trace, 0, traceMax/2)
	}
	w.trace = append(w.trace, fmt.Sprintf("%8.3f ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

// after does something later.
func (w *World) after(d time.Duration, do func()) {
	w.sequence++
	w.queue.push(event{w.now + d, w.sequence, do})
}

// every does something again and again.
func (w *World) every(d time.Duration, do func()) {
	var again func()
	again = func() { do(); w.after(d, again) }
	w.after(d, again)
}

// wrote notes which record a leader wrote where. A second one in the same place must not be known to anybody by the first.
func (w *World) wrote(at origin, value uint64) {
	if _, again := w.written[at]; again {
		for _, b := range w.brokers {
			b.traced = 0
		}
	}
	w.written[at] = value
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
