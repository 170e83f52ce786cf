package sim

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// registry is the partition's value, who is registered and who is live.
type registry struct {
	world    *World
	value    meta.Partition
	revision int64
	members  map[meta.BrokerID]*member
}

// member is a broker's registration.
type member struct {
	life    int // of the broker's process
	unclean bool
	renewed time.Time
	swept   int64 // the revision of the sweep, 0 before
	live    int64 // the broker epoch, 0 while it is fenced
	applied int64 // the revision that the broker is known to have applied
}

func (r *registry) next() int64 {
	r.revision++
	return r.revision
}

// register takes a broker's place, fenced, under a new registration.
func (r *registry) register(b *broker) {
	r.members[b.id] = &member{life: b.life, unclean: b.disk.unclean, renewed: r.world.now}
	r.next()
}

func (r *registry) live(id meta.BrokerID) int64 {
	if m := r.members[id]; m != nil {
		return m.live
	}
	return 0
}

func (r *registry) write(value meta.Partition, why ...string) {
	value.Version = r.value.Version + 1
	r.value = value
	r.next()
	r.world.note("registry: leader=%d epoch=%d version=%d isr=%v elr=%v known=%v %v", value.Leader, value.LeaderEpoch, value.Version,
		value.ISR, value.ELR, value.LastKnownISR, why)
}

// change is a leader's compare-and-set. ok is false if the writer is not live: then nothing is known of the value.
func (r *registry) change(from meta.BrokerID, epoch int64, c *replica.Change) (current meta.Partition, ok bool) {
	if epoch <= 0 || r.live(from) != epoch {
		return meta.Partition{}, false
	}
	can := r.value.Version == c.Value.Version
	for _, j := range c.Joining {
		can = can && (j.Epoch == 0 || r.live(j.Broker) == j.Epoch) // 0: a mutant's
	}
	if can {
		r.write(c.Value.Clone(), "by", from.String())
	}
	return r.value.Clone(), true
}

// control is the controller: it fences whose lease has ended, sweeps and unfences who has registered, plans, and states
// what is to those who may not know it.
func (w *World) control() {
	r := &w.registry
	for _, b := range w.brokers {
		if m := r.members[b.id]; m != nil && w.now.Sub(m.renewed) > leaseTTL {
			w.note("registry: the lease of broker %d ends", b.id)
			delete(r.members, b.id)
			r.next()
		}
	}
	if !w.manual {
		for _, b := range w.brokers {
			if m := r.members[b.id]; m != nil && (w.options.Steady || w.quiet || w.rng.IntN(3) > 0) {
				w.admit(b, m)
			}
		}
		w.plan(meta.NoBroker)
	}
	for _, b := range w.brokers {
		if m := r.members[b.id]; m != nil && m.swept > 0 && m.applied < r.revision {
			w.state(b, m)
		}
	}
}

// admit takes a registered broker one step further: an unclean one out of what it is not worth any more, then, once it has
// been told of that, out of the fence (D6).
func (w *World) admit(b *broker, m *member) {
	switch {
	case m.swept == 0:
		if m.unclean && w.options.Mutant != trustUnclean {
			w.plan(b.id)
		}
		if m.unclean && m.life == b.life {
			b.disk.unclean, b.lossy = false, false
		}
		m.unclean = false
		m.swept = w.registry.next()
	case m.live == 0 && m.applied >= m.swept:
		m.live = w.registry.next()
		w.note("registry: broker %d is live in %d", b.id, m.live)
	}
}

func (w *World) plan(unclean meta.BrokerID) {
	r := &w.registry
	was := r.value.UncleanEpoch
	next, why := controller.Plan(&r.value, w.facts(unclean))
	if len(why) > 0 {
		r.write(next, why...)
	}
	if next.UncleanEpoch != was && w.options.Steady {
		w.giveUp(w.broker(next.Leader)) // scripts cut the power of everybody; histories leave somebody who has everything
	}
}

func (w *World) facts(unclean meta.BrokerID) controller.Facts {
	return controller.Facts{
		Unfenced: func(id meta.BrokerID) bool { return w.registry.live(id) != 0 },
		End: func(id meta.BrokerID) (meta.LogEnd, bool) {
			b := w.broker(id)
			return meta.LogEnd{Epoch: b.last(), End: int64(len(b.disk.log))}, b.up
		},
		Unclean: unclean, Intact: w.options.Flush, MinISR: int32(w.options.MinISR), Flush: w.options.Flush,
	}
}

// giveUp counts what a leader lacks of what was acknowledged, after an election that allows it. Its history is the one that
// must not change from here on.
func (w *World) giveUp(leader *broker) {
	kept, lost := leader.agree(), 0
	for offset := range w.acked {
		if offset >= int64(kept) {
			delete(w.acked, offset)
			lost++
		}
	}
	w.committed = w.committed[:min(kept, len(w.committed))]
	for _, b := range w.brokers {
		b.verified = min(b.verified, kept)
	}
	w.relaxed = w.registry.value.UncleanEpoch
	w.note("%d acknowledged records are lost", lost)
}

// state sends a broker what the registry holds.
func (w *World) state(b *broker, m *member) {
	s := statement{revision: w.registry.revision, life: m.life, value: w.registry.value.Clone(), live: map[meta.BrokerID]int64{}}
	for id, other := range w.registry.members {
		if other.live != 0 {
			s.live[id] = other.live
		}
	}
	w.after(w.late(), func() {
		w.send(0, b.id, func() {
			b.do(func() {
				b.apply(s)
				w.send(b.id, 0, func() { m.applied = max(m.applied, s.revision) })
			})
		})
	})
}

// move makes another member of the ISR leader, as a planned election does.
func (w *World) move() {
	r := &w.registry
	next := r.value.Clone()
	if len(next.ISR) == 0 {
		return
	}
	next.Leader = next.ISR[w.rng.IntN(len(next.ISR))]
	if r.live(next.Leader) == 0 || next.Leader == r.value.Leader || r.value.Leader == meta.NoBroker {
		return
	}
	next.LeaderEpoch++
	r.write(next, "moved")
}

// statement is a controller's Apply.
type statement struct {
	revision int64
	life     int
	value    meta.Partition
	live     map[meta.BrokerID]int64
}

// weak tells which brokers may lack what was acknowledged: they lost power and are not back in the ISR.
func (w *World) weak() int {
	n := 0
	for _, b := range w.brokers {
		if b.weak && !b.lossy && b.up && slices.Contains(w.registry.value.ISR, b.id) && w.registry.live(b.id) != 0 && b.agree() >= len(w.committed) {
			b.weak = false
		}
		if b.weak {
			n++
		}
	}
	return n
}
