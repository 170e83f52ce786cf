package sim

import (
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// trustUnclean is a mutant of the controller, not of a machine: it unfences a broker that lost power as if it had not.
const trustUnclean = replica.Mutant(255)

// History runs a world through a number of events with faults among them, lets it recover, and returns the first invariant
// that was broken.
func History(o Options, steps int) (*World, error) {
	w := New(o)
	w.every(3*time.Millisecond, w.load)
	faults := 5 + w.rng.IntN(16)
	for range faults {
		if err := w.Steps(steps / faults); err != nil {
			return w, err
		}
		w.fault()
	}
	w.heal()
	w.quiet = true
	var err error
	for range patience {
		if err := w.Run(200 * time.Millisecond); err != nil {
			return w, err
		}
		if err = (&Liveness{}).Check(w); err == nil {
			return w, nil
		}
		w.nudge()
	}
	return w, fmt.Errorf("liveness broken: %w", err)
}

// patience is how many fifths of a second a world may take to recover: 30 s, as in I16.
const patience = 150

// load is clients: they write to whoever takes it.
func (w *World) load() {
	if w.quiet {
		return
	}
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	if leader := w.registry.value.Leader; leader != meta.NoBroker && w.rng.IntN(3) > 0 {
		b = w.broker(leader)
	}
	acks := replica.AcksAll
	if w.rng.IntN(4) == 0 {
		acks = replica.AcksLeader
	}
	n := 1 + w.rng.IntN(3)
	b.do(func() { _ = b.produce(n, acks) }) // who does not lead refuses
	if w.rng.IntN(8) == 0 && b.up {
		b.sync(len(b.disk.log)) // the kernel writes back at its own pace
	}
}

// nudge writes one more record, so that a new leader's high watermark comes to everybody.
func (w *World) nudge() {
	if leader := w.registry.value.Leader; leader != meta.NoBroker {
		b := w.broker(leader)
		b.do(func() { _ = b.produce(1, replica.AcksLeader) })
	}
}

// fault does something bad.
func (w *World) fault() {
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	other := w.brokers[w.rng.IntN(len(w.brokers))]
	switch leader := w.registry.value.Leader; {
	case leader != meta.NoBroker && w.rng.IntN(2) == 0:
		b = w.broker(leader)
	case w.rng.IntN(2) == 0:
		b = w.outsider(b)
	}
	switch w.rng.IntN(12) {
	case 0, 1:
		w.stop(b, false)
	case 2, 3:
		w.powerCut(b)
	case 4:
		if w.options.Flush {
			for _, b := range w.brokers {
				w.powerCut(b)
			}
			return
		}
		for _, b := range w.brokers {
			w.stop(b, false)
		}
	case 5:
		b.paused = w.now.Add(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
		w.note("fault: broker %d pauses until %v", b.id, b.paused.Sub(time.Unix(1, 0)))
	case 6:
		w.cut(b.id, other.id)
	case 7:
		w.cut(b.id, other.id)
		w.cut(other.id, b.id)
	case 8:
		w.cut(b.id, 0)
		if w.rng.IntN(2) == 0 {
			w.cut(0, b.id)
		}
	case 9:
		w.heal()
	default:
		for range 1 + w.rng.IntN(3) {
			w.after(time.Duration(w.rng.IntN(300))*time.Millisecond, w.move)
		}
	}
}

// outsider is a broker that is not in the ISR, if there is one: it may be about to join.
func (w *World) outsider(otherwise *broker) *broker {
	for _, b := range w.brokers {
		if !w.registry.value.InSync(b.id) {
			return b
		}
	}
	return otherwise
}

// powerCut takes a broker's power. Where acknowledgements do not wait for syncs, so many only that somebody is left who
// has everything: fewer than min.insync.
func (w *World) powerCut(b *broker) {
	if !b.up {
		return
	}
	if n := w.weak(); !w.options.Flush && !b.weak && n >= w.options.MinISR-1 {
		return
	}
	w.stop(b, true)
}

// stop ends a process, and starts it again after a while.
func (w *World) stop(b *broker, lose bool) {
	if !b.up {
		return
	}
	w.note("fault: broker %d ends, power cut %t", b.id, lose)
	b.kill(lose)
	w.after(time.Duration(50+w.rng.IntN(1500))*time.Millisecond, func() {
		if !b.up {
			w.note("broker %d starts with %d records", b.id, len(b.disk.log))
			b.start()
			if leader := w.registry.value.Leader; lose && leader != meta.NoBroker && w.rng.IntN(2) == 0 {
				w.cut(leader, b.id) // it asks, and stays behind
			}
		}
	})
}

// joining strikes at the moment when brokers are about to join an ISR. It returns how late the change is.
func (w *World) joining(leader *broker, c *replica.Change) time.Duration {
	if len(c.Joining) == 0 || w.quiet || w.options.Steady {
		return 0
	}
	b := w.broker(c.Joining[0].Broker)
	switch w.rng.IntN(12) {
	case 0: // the new member has lost power and come back when it is written
		w.powerCut(b)
		return time.Duration(w.rng.IntN(1500)) * time.Millisecond
	case 1: // the leader does not learn that it was written, and the new member stays behind
		w.cut(0, leader.id)
		w.cut(b.id, leader.id)
	}
	return 0
}

// cut lets nothing through in one direction for a while.
func (w *World) cut(from, to meta.BrokerID) {
	if from == to {
		return
	}
	w.note("fault: nothing comes from %d to %d", from, to)
	w.down[link{from, to}] = true
	w.after(time.Duration(100+w.rng.IntN(2500))*time.Millisecond, func() { delete(w.down, link{from, to}) })
}

// heal lets everything through.
func (w *World) heal() {
	clear(w.down)
}
