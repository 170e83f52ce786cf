package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// firstControl is the number of the first machine that holds a controller and no broker.
const firstControl = meta.BrokerID(101)

// statementTimeout is how long a controller waits for the answer to a statement before it states everything again.
const statementTimeout = 45 * time.Millisecond

// control is a controller, or would be one if it held the seat. What it does is what controller's term does, with the
// real Plan: it reads the registry, sweeps who has registered uncleanly, decides, states to every broker what the
// registry holds, and unfences who has heard it (D5, D6). Each write stands under the seat that it believes to hold.
type control struct {
	world  *World
	node   meta.BrokerID // its machine; 0: beside the registry, from where every message takes no time
	broker *broker       // whose process it is part of; nil: it has a machine of its own
	life   int           // of the broker's process
	paused time.Duration // it does nothing before; of one with a machine of its own

	epoch int64 // of the seat that it believes to hold, 0 for none
	out   []outbox
	asked int64 // numbers rounds
}

// outbox is what a controller knows of one registration of a broker.
type outbox struct {
	registration int64
	swept        bool
	after        int64 // what the sweep wrote is in statements of this revision on
	told         int64 // revision of the last statement that it has applied
	sending      int   // numbers statements
	busy         bool  // one is on its way
	ended        meta.LogEnd
	endedAt      int64 // version of the value for which ended was told
}

// statement is a controller's Apply.
type statement struct {
	controller   int64 // its epoch
	revision     int64
	registration int64
	topic        int // the life of the topic that exists
	gone         int // one that is deleted and not confirmed by all
	value        meta.Partition
	live         []int64 // broker epochs, 0 for who is fenced
}

// String names the controller.
func (c *control) String() string {
	switch {
	case c.node >= firstControl:
		return fmt.Sprintf("controller %d", c.node-firstControl+1)
	case c.broker != nil:
		return fmt.Sprintf("broker %d", c.node)
	}
	return "the controller"
}

// do does something in the controller's process.
func (c *control) do(f func()) {
	switch {
	case c.broker != nil:
		life := c.life
		c.broker.do(func() {
			if c.life == life {
				f()
			}
		})
	case c.world.now < c.paused:
		c.world.after(c.paused-c.world.now, func() { c.do(f) })
	default:
		f()
	}
}

// call asks the registry, and goes on with the answer; either may be lost.
func (c *control) call(request, then func()) {
	if c.node == 0 {
		request()
		then()
		return
	}
	life := c.life
	c.world.send(c.node, 0, func() {
		request()
		c.world.send(0, c.node, func() {
			if c.life == life {
				c.do(then)
			}
		})
	})
}

// round is what a controller does again and again.
func (c *control) round() {
	if c.broker != nil {
		pause := controlEvery
		if c.epoch == 0 {
			pause = 2 * controlEvery
		}
		c.broker.after(pause, c.round)
	} else {
		c.world.after(controlEvery, func() { c.do(c.round) })
	}
	c.asked++
	number := c.asked
	if c.epoch == 0 {
		var epoch int64
		c.call(func() { epoch = c.world.registry.elect(c) }, func() { c.seated(epoch) })
		return
	}
	var s snapshot
	c.call(func() { s = c.world.registry.look() }, func() {
		if number == c.asked { // it has not read again since
			c.govern(s)
		}
	})
}

// seated begins a term.
func (c *control) seated(epoch int64) {
	if epoch == 0 || c.epoch != 0 {
		return
	}
	c.epoch = epoch
	c.out = make([]outbox, len(c.world.brokers))
	if c.node == 0 {
		c.govern(c.world.registry.look())
	}
}

// deposed ends a term.
func (c *control) deposed() {
	if c.epoch != 0 {
		c.world.note("%s is deposed, its epoch was %d", c, c.epoch)
		c.epoch = 0
	}
}

// govern acts on what the registry holds, or held a moment ago.
func (c *control) govern(s snapshot) {
	w := c.world
	if c.epoch == 0 {
		return
	}
	for i := range s.members {
		m, o := &s.members[i], &c.out[i]
		if o.registration != m.registration {
			*o = outbox{registration: m.registration}
		}
		if m.registration != 0 && !w.manual && (w.options.Steady || w.quiet || w.rng.IntN(3) > 0) {
			c.admit(&s, meta.BrokerID(i+1))
			if c.node == 0 {
				s = w.registry.look()
			}
		}
	}
	c.plan(&s)
	if c.node == 0 {
		s = w.registry.look()
	}
	for i := range s.members {
		if o := &c.out[i]; s.members[i].registration != 0 && o.swept && s.revision >= o.after && o.told < s.revision && !o.busy {
			c.state(&s, meta.BrokerID(i+1))
		}
	}
	if s.seat.epoch != c.epoch || s.seat.holder != c {
		c.deposed() // only now: what it did on the way here must not have counted
	}
}

// admit takes a registered broker one step further: an unclean one out of what it is not worth any more, then, once it has
// been told of that, out of the fence (D6).
func (c *control) admit(s *snapshot, id meta.BrokerID) {
	m, o := s.members[id-1], &c.out[id-1]
	switch {
	case !o.swept && (!m.unclean || m.unfenced || c.world.options.Mutant == trustUnclean):
		o.swept = true
		c.clean(id, &m)
	case !o.swept:
		c.sweep(s, id)
	case m.live == 0 && o.told >= max(1, o.after):
		c.unfence(id, &m)
	}
}

// sweep writes what an unclean start means.
func (c *control) sweep(s *snapshot, id meta.BrokerID) {
	w, r, m := c.world, &c.world.registry, s.members[id-1]
	epoch, seen := c.epoch, *s
	next, why := c.decide(s, id)
	done, after, deposed := false, int64(0), false
	c.call(func() {
		if !r.under(epoch) {
			deposed = true
			return
		}
		if r.topic != seen.topic || r.value.Version != seen.value.Version {
			return
		}
		if len(why) > 0 {
			r.put(next, why...)
			w.elected(&seen.value, &next, why)
		}
		done, after = true, r.revision
		c.clean(id, &m)
	}, func() {
		switch o := &c.out[id-1]; {
		case deposed:
			c.deposed()
		case done && c.epoch == epoch && o.registration == m.registration:
			o.swept, o.after = true, after
		}
	})
}

// clean notes that the registry knows what a registration of a broker is worth.
func (c *control) clean(id meta.BrokerID, m *member) {
	b := c.world.broker(id)
	if now := &c.world.registry.members[id-1]; now.registration == m.registration && b.runs(now.life) {
		b.lossy = false
	}
}

// unfence makes a broker live that has been swept and told.
func (c *control) unfence(id meta.BrokerID, m *member) {
	w, r := c.world, &c.world.registry
	epoch, registration, deposed := c.epoch, m.registration, false
	c.call(func() {
		now := &r.members[id-1]
		switch {
		case !r.under(epoch):
			deposed = true
		case now.registration == registration && now.live == 0:
			now.live, now.unfenced = r.next(), true
			if b := w.broker(id); b.runs(now.life) {
				b.unclean = false // a process that is killed from here on loses nothing
			}
			w.note("registry: broker %d is live in %d", id, now.live)
		}
	}, func() {
		if deposed {
			c.deposed()
		}
	})
}

// plan decides about the partition.
func (c *control) plan(s *snapshot) {
	if s.topic == 0 || c.world.manual {
		return
	}
	next, why := c.decide(s, meta.NoBroker)
	if len(why) == 0 {
		return
	}
	epoch, seen, deposed := c.epoch, *s, false
	c.call(func() {
		var written bool
		if written, deposed = c.world.registry.decide(epoch, &seen, next, why); written {
			c.world.elected(&seen.value, &next, why)
		}
	}, func() {
		if deposed {
			c.deposed()
		}
	})
}

func (c *control) decide(s *snapshot, unclean meta.BrokerID) (next meta.Partition, why []string) {
	if s.topic == 0 {
		return s.value, nil
	}
	next, why = controller.Plan(&s.value, c.facts(s, unclean))
	if c.world.options.Mutant == keepEpoch && unclean != meta.NoBroker && next.Leader == s.value.Leader {
		next.LeaderEpoch = s.value.LeaderEpoch
	}
	return next, why
}

func (c *control) facts(s *snapshot, unclean meta.BrokerID) controller.Facts {
	f := factsOf(s, unclean)
	f.UncleanElection = c.world.options.Unclean || c.world.options.Mutant == electAnybody
	f.End = func(id meta.BrokerID) (meta.LogEnd, bool) {
		o := &c.out[id-1]
		return o.ended, o.endedAt == s.value.Version && o.registration == s.members[id-1].registration
	}
	return f
}

// factsOf is what a decision rests on that asks nobody.
func factsOf(s *snapshot, unclean meta.BrokerID) controller.Facts {
	return controller.Facts{
		Unfenced: func(id meta.BrokerID) bool { return s.live(id) != 0 },
		Unclean:  unclean, Intact: true, Wants: controller.Wants{MinISR: int32(s.minISR), Flush: s.flush},
	}
}

// state sends a broker what the registry holds, and takes its answer.
func (c *control) state(s *snapshot, id meta.BrokerID) {
	w, b, o := c.world, c.world.broker(id), &c.out[id-1]
	told := statement{controller: c.epoch, revision: s.revision, registration: o.registration, topic: s.topic, gone: s.deleted.topic, value: s.value, live: make([]int64, len(s.members))}
	for i := range s.members {
		told.live[i] = s.members[i].live
	}
	epoch, life := c.epoch, c.life
	o.busy = true
	o.sending++
	number := o.sending
	mine := func() bool {
		return c.life == life && c.epoch == epoch && o.registration == told.registration && o.sending == number
	}
	w.after(statementTimeout, func() {
		if mine() {
			o.busy = false
		}
	})
	w.after(w.statementsLate+w.late(), func() {
		w.send(c.node, id, func() {
			b.do(func() {
				ended, confirmed := b.apply(told, c)
				w.send(id, c.node, func() {
					c.do(func() {
						if !mine() {
							return
						}
						o.busy = false
						if !confirmed {
							return
						}
						if ended != nil {
							o.ended, o.endedAt = *ended, told.value.Version
						}
						c.confirm(told.gone, id, func() {
							if mine() {
								o.told = max(o.told, told.revision)
							}
						})
					})
				})
			})
		})
	})
}

// confirm notes that a broker holds nothing of a deleted topic any more, and then goes on; otherwise all is stated again.
func (c *control) confirm(gone int, id meta.BrokerID, then func()) {
	r, epoch := &c.world.registry, c.epoch
	if gone == 0 {
		then()
		return
	}
	c.call(func() {
		if r.deleted.topic == gone && slices.Contains(r.deleted.unconfirmed, id) && r.under(epoch) {
			r.confirm(id)
		}
	}, then)
}
