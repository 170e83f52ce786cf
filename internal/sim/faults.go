package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// faultKind is a kind of thing that goes wrong, or that an administrator does at a bad moment.
type faultKind int

const (
	killed faultKind = iota
	powerCut
	allEnded
	paused
	cutOneWay
	cutBothWays
	cutFromRegistry
	moved
	reassigned
	controllerChanged
	diskSlow
	clockJumped
	minISRChanged
	flushChanged
	electedUncleanly
	deleted
	faultKinds
)

// String says what it is.
func (k faultKind) String() string {
	return [...]string{
		"kill", "power cut", "everybody ends", "pause", "one-way partition", "partition", "partition from the registry", "leader moved",
		"reassignment", "controller change", "slow disk", "clock gap", "min.insync change", "flush change", "unclean election", "deletion",
	}[k]
}

// odds are how often a kind of fault is chosen.
var odds = [faultKinds]int{
	killed: 4, powerCut: 5, allEnded: 2, paused: 3, cutOneWay: 3, cutBothWays: 2, cutFromRegistry: 3, moved: 4, reassigned: 2,
	controllerChanged: 2, diskSlow: 1, clockJumped: 1, minISRChanged: 1, flushChanged: 1, electedUncleanly: 1, deleted: 1,
}

// chance is how often a kind of fault is chosen in this world: in every other one nothing is administered, so that what
// breaks has more time to meet.
func (w *World) chance(kind faultKind) int {
	if w.options.Seed%2 == 1 && kind > moved && kind != diskSlow {
		return 0
	}
	return odds[kind]
}

// History runs a world through a number of events with faults among them, lets it recover, and returns the first invariant
// that was broken.
func History(o Options, steps int) (*World, error) {
	w := New(o)
	w.every(3*time.Millisecond, w.load)
	w.every(5*time.Millisecond, w.consume)
	for id := range int64(producers) {
		p := &producer{world: w, id: id + 1}
		w.clients = append(w.clients, p)
		w.every(produceEvery, p.work)
	}
	faults := 5 + w.rng.IntN(16)
	for range faults {
		if err := w.Steps(steps / faults); err != nil {
			return w, err
		}
		w.fault()
	}
	w.quiet = true
	w.heal()
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
	return w, fmt.Errorf("Liveness broken: %w", err)
}

// patience is how many fifths of a second a world may take to recover: 30 s, as in I16.
const patience = 150

// load is clients without idempotence: they write to whoever takes it.
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

// fault does something bad: of a kind that can happen now.
func (w *World) fault() {
	sum := 0
	for kind := range faultKinds {
		sum += w.chance(kind)
	}
	for range 20 {
		at := w.rng.IntN(sum)
		kind := faultKind(0)
		for ; at >= w.chance(kind); kind++ {
			at -= w.chance(kind)
		}
		if w.happens(kind) {
			w.faults[kind]++
			return
		}
	}
}

// victim is a broker to which something happens: often the leader, or one that is not in the ISR and may be about to join.
func (w *World) victim() *broker {
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	switch leader := w.registry.value.Leader; {
	case leader != meta.NoBroker && w.rng.IntN(2) == 0:
		return w.broker(leader)
	case w.rng.IntN(2) == 0:
		return w.outsider(b)
	}
	return b
}

// happens makes a fault happen, if it can.
func (w *World) happens(kind faultKind) bool {
	r, b := &w.registry, w.victim()
	other := w.brokers[w.rng.IntN(len(w.brokers))]
	switch kind {
	case killed:
		return w.stop(b, false)
	case powerCut:
		return w.powerCut(b)
	case allEnded:
		for _, b := range w.brokers {
			if !w.options.Flush || w.options.Toggles || !w.powerCut(b) {
				w.stop(b, false)
			}
		}
		return true
	case paused:
		if h := r.seat.holder; h != nil && h.broker != nil && w.rng.IntN(3) == 0 {
			b = h.broker
		}
		b.paused = w.now + time.Duration(w.rng.IntN(1500))*time.Millisecond
		w.note("fault: broker %d pauses until %v", b.id, b.paused)
		return b.up
	case cutOneWay:
		return w.cut(b.id, other.id)
	case cutBothWays:
		return w.cut(b.id, other.id) && w.cut(other.id, b.id)
	case cutFromRegistry:
		return w.cut(b.id, 0) && (w.rng.IntN(2) == 0 || w.cut(0, b.id))
	case moved:
		for range 1 + w.rng.IntN(3) {
			w.after(time.Duration(w.rng.IntN(300))*time.Millisecond, w.move)
		}
		return true
	case diskSlow:
		b.slow = w.now + time.Duration(w.rng.IntN(3000))*time.Millisecond
		w.note("fault: the disk of broker %d is slow until %v", b.id, b.slow)
		return true
	case clockJumped:
		b.skew += time.Duration(w.rng.IntN(5000)) * time.Millisecond
		w.note("fault: the clock of broker %d is ahead by %v", b.id, b.skew)
		return true
	default:
		return w.administer(kind)
	}
}

// administer does what administrators do, at a bad moment.
func (w *World) administer(kind faultKind) bool {
	r := &w.registry
	switch kind {
	case controllerChanged:
		if r.seat.holder == nil {
			return false
		}
		r.vacate()
		return true
	case minISRChanged:
		r.minISR = w.options.MinISR + w.rng.IntN(2)
		r.next()
		w.note("fault: min.insync.replicas is %d", r.minISR)
		return true
	case flushChanged:
		if !w.options.Toggles {
			return false
		}
		r.flush = !r.flush
		r.next()
		w.note("fault: log.flush.acks is %t", r.flush)
		return true
	case reassigned:
		return w.reassign()
	case electedUncleanly:
		return w.electUncleanly()
	default:
		if r.topic == 0 || r.deleted.topic != 0 {
			return false
		}
		replicas := len(r.value.Replicas)
		r.remove()
		var again func()
		again = func() {
			if !r.create(replicas) {
				w.after(50*time.Millisecond, again)
			}
		}
		w.after(time.Duration(w.rng.IntN(200))*time.Millisecond, again)
		return true
	}
}

// reassign asks for another assignment, or gives up the one that is in flight.
func (w *World) reassign() bool {
	r := &w.registry
	if r.topic == 0 {
		return false
	}
	var target []meta.BrokerID
	if moving := len(r.value.Adding)+len(r.value.Removing) > 0; !moving || w.rng.IntN(3) > 0 {
		for _, i := range w.rng.Perm(len(w.brokers)) {
			if len(target) < max(3, w.options.MinISR) {
				target = append(target, meta.BrokerID(i+1))
			}
		}
	}
	facts := factsOf(&r.snapshot, meta.NoBroker)
	facts.MinISR, facts.Flush = r.value.MinISR, r.value.Flush
	next, refusal := controller.Move(&r.value, target, facts)
	if refusal != nil || slices.Equal(next.Replicas, r.value.Replicas) && next.LeaderEpoch == r.value.LeaderEpoch && len(next.Adding) == len(r.value.Adding) {
		return false
	}
	r.put(next, "reassigned")
	return true
}

// electUncleanly does what an administrator may do when nobody who has everything is there.
func (w *World) electUncleanly() bool {
	r := &w.registry
	if r.topic == 0 {
		return false
	}
	old := r.value
	next, refusal := controller.Elect(&r.value, true, factsOf(&r.snapshot, meta.NoBroker))
	if refusal != nil {
		return false
	}
	r.put(next, controller.ReasonUnclean)
	w.elected(&old, &next, []string{controller.ReasonUnclean})
	return true
}

// elected looks at what an election has given up.
func (w *World) elected(old, next *meta.Partition, why []string) {
	if w.options.Mutant == electAnybody {
		return
	}
	if next.UncleanEpoch != old.UncleanEpoch && (w.options.Steady || slices.Contains(why, controller.ReasonUnclean)) {
		w.giveUp(w.broker(next.Leader)) // scripts cut the power of everybody; histories leave somebody who has everything
	}
}

// giveUp counts what a leader lacks of what was acknowledged, after an election that allows it. Its history is the one that
// must not change from here on.
func (w *World) giveUp(leader *broker) {
	kept, lost := 0, 0
	if leader.holds() {
		kept = leader.agree()
	}
	for offset := range w.acked {
		if offset >= int64(kept) {
			delete(w.acked, offset)
			lost++
		}
	}
	w.committed = w.committed[:min(kept, len(w.committed))]
	w.read = w.read[:min(kept, len(w.read))]
	for _, b := range w.brokers {
		b.verified = min(b.verified, kept)
	}
	w.relaxed = w.registry.value.UncleanEpoch
	w.thin = true
	w.lost += lost
	w.note("%d acknowledged records are lost", lost)
}

// move makes another member of the ISR leader, as a planned election does.
func (w *World) move() {
	r := &w.registry
	if len(r.value.ISR) == 0 {
		return
	}
	next := r.value.Clone()
	next.Leader = next.ISR[w.rng.IntN(len(next.ISR))]
	if r.live(next.Leader) == 0 || next.Leader == r.value.Leader || r.value.Leader == meta.NoBroker {
		return
	}
	next.LeaderEpoch++
	r.put(next, "moved")
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
func (w *World) powerCut(b *broker) bool {
	n := w.weak()
	if w.thin || (!w.options.Flush || w.options.Toggles) && !b.weak && n >= w.options.MinISR-1 {
		return false
	}
	return w.stop(b, true)
}

// stop ends a process, and starts it again after a while.
func (w *World) stop(b *broker, lose bool) bool {
	if !b.up {
		return false
	}
	w.note("fault: broker %d ends, power cut %t", b.id, lose)
	b.kill(lose)
	if life := b.life; w.rng.IntN(4) == 0 {
		w.after(w.delay(), func() { // others were refused at its port (D6)
			if m := w.registry.members[b.id-1]; m.registration != 0 && m.life == life {
				w.note("registry: broker %d is seen to be down", b.id)
				w.registry.leave(b.id)
			}
		})
	}
	down := 50 + w.rng.IntN(1500)
	if w.rng.IntN(2) == 0 {
		down /= 8 // it is back before anybody has missed it
	}
	w.after(time.Duration(down)*time.Millisecond, func() {
		if !b.up {
			w.note("broker %d starts with %d records", b.id, len(b.disk.log))
			b.start()
			if leader := w.registry.value.Leader; lose && leader != meta.NoBroker && w.rng.IntN(2) == 0 {
				w.cut(leader, b.id) // it asks, and stays behind
			}
		}
	})
	return true
}

// joining strikes at the moment when brokers are about to join an ISR. It returns how late the change is.
func (w *World) joining(leader *broker, c *replica.Change) time.Duration {
	if len(c.Joining) == 0 || w.quiet || w.options.Steady {
		return 0
	}
	b := w.broker(c.Joining[0].Broker)
	switch w.rng.IntN(8) {
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
func (w *World) cut(from, to meta.BrokerID) bool {
	if from == to || w.quiet {
		return false
	}
	w.note("fault: nothing comes from %d to %d", from, to)
	w.down[link{from, to}] = true
	w.after(time.Duration(100+w.rng.IntN(2500))*time.Millisecond, func() { delete(w.down, link{from, to}) })
	return true
}

// heal lets everything through.
func (w *World) heal() {
	clear(w.down)
}
