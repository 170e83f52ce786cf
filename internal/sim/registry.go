package sim

import (
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// registry is the one place where a decision is durable.
type registry struct {
	world *World
	snapshot
	lives int // of topics so far

	// guarded is the last write under a controller's seat: the seat that it named, and the one that was held.
	guarded struct{ named, held int64 }
}

// snapshot is what the registry holds at a moment: the topic's partition, who is registered and who is live, and who
// holds the controller's seat. Values are replaced, never changed, so copies share them.
type snapshot struct {
	revision int64
	topic    int            // the life of the topic that exists; 0: none
	value    meta.Partition // of its partition
	deleted  tombstone
	minISR   int // the topic's configuration
	flush    bool
	seat     seat
	members  []member // by broker
}

// seat is the controller's key.
type seat struct {
	holder       *control
	registration int64 // of the holder's broker, with which it goes; 0: of none
	epoch        int64 // how many controllers there were
}

// tombstone is a deletion that is not confirmed by everybody who had a copy.
type tombstone struct {
	topic       int
	unconfirmed []meta.BrokerID
}

// member is a broker's registration.
type member struct {
	registration int64 // its create revision; 0: there is none
	life         int   // of the broker's process
	unclean      bool
	unfenced     bool // it was live once
	live         int64
	renewed      time.Duration
}

func (s *snapshot) live(id meta.BrokerID) int64 { return s.members[id-1].live }

// look is a copy of what the registry holds now.
func (r *registry) look() snapshot {
	s := r.snapshot
	s.members = slices.Clone(r.members)
	return s
}

func (r *registry) next() int64 {
	r.revision++
	return r.revision
}

// register takes a broker's place, fenced, under a new registration. A seat that the old one held is vacant.
func (r *registry) register(b *broker, life int) {
	r.members[b.id-1] = member{registration: r.next(), life: life, unclean: b.unclean, renewed: r.world.now}
}

// expire ends leases that were not renewed.
func (r *registry) expire() {
	for i := range r.members {
		if m := &r.members[i]; m.registration != 0 && r.world.now-m.renewed > leaseTTL {
			r.world.note("registry: the lease of broker %d ends", i+1)
			r.leave(meta.BrokerID(i + 1))
		}
	}
}

// leave ends a registration.
func (r *registry) leave(id meta.BrokerID) {
	r.members[id-1] = member{}
	r.next()
}

// elect gives the seat to who asks for it first, and tells the holder again what it holds; 0: somebody else holds it.
func (r *registry) elect(c *control) (epoch int64) {
	registration := int64(0)
	if c.broker != nil {
		m := &r.members[c.node-1]
		if m.registration == 0 || m.life != c.life {
			return 0
		}
		registration = m.registration
	}
	s := &r.seat
	held := s.holder != nil && (s.holder.broker == nil || r.members[s.holder.node-1].registration == s.registration)
	if held {
		if s.holder == c && s.registration == registration {
			return s.epoch
		}
		return 0
	}
	*s = seat{c, registration, s.epoch + 1}
	r.next()
	if s.epoch > 1 || r.world.options.Controllers > 0 {
		r.world.note("registry: %s is the controller, epoch %d", c, s.epoch)
	}
	return s.epoch
}

// vacate takes the seat away from a controller that does not know it yet.
func (r *registry) vacate() {
	r.world.note("registry: %s loses the seat", r.seat.holder)
	r.seat.holder = nil
	r.next()
}

// under tells whether a controller's write stands: whether it still holds the seat.
func (r *registry) under(epoch int64) bool {
	if epoch != r.seat.epoch || r.seat.holder == nil {
		if r.world.options.Mutant != ignoreSeat {
			return false
		}
	}
	r.guarded.named, r.guarded.held = epoch, r.seat.epoch
	return true
}

// put replaces the partition's value.
func (r *registry) put(value meta.Partition, why ...string) {
	w := r.world
	value.Version = r.value.Version + 1
	old := r.value
	r.value = value
	r.next()
	w.note("registry: leader=%d epoch=%d version=%d isr=%v elr=%v known=%v%s %v", value.Leader, value.LeaderEpoch, value.Version,
		value.ISR, value.ELR, value.LastKnownISR, recovering(&value), why)
	for _, set := range [][]meta.BrokerID{old.ISR, old.ELR} {
		for _, id := range set {
			w.thin = w.thin || !value.HasReplica(id)
		}
	}
}

func recovering(value *meta.Partition) string {
	if value.Recovery != 0 {
		return " recovering"
	}
	return ""
}

// decide is a controller's compare-and-set.
func (r *registry) decide(epoch int64, s *snapshot, next meta.Partition, why []string) (written, deposed bool) {
	if !r.under(epoch) {
		r.world.note("registry: refuses a decision of the controller of epoch %d, the seat is of epoch %d", epoch, r.seat.epoch)
		return false, true
	}
	if s.topic != r.topic || s.value.Version != r.value.Version {
		r.world.note("registry: refuses a decision about version %d, the value is at version %d", s.value.Version, r.value.Version)
		return false, false
	}
	r.put(next, why...)
	return true, false
}

// change is a leader's compare-and-set. ok is false if the writer is not live: then nothing is known of the value.
func (r *registry) change(from meta.BrokerID, epoch int64, topic int, c *replica.Change) (current meta.Partition, ok bool) {
	if epoch <= 0 || r.live(from) != epoch || topic != r.topic {
		return meta.Partition{}, false
	}
	can := r.value.Version == c.Value.Version
	for _, j := range c.Joining {
		can = can && (j.Epoch == 0 || r.live(j.Broker) == j.Epoch) // 0: a mutant's
	}
	if can {
		r.put(c.Value.Clone(), "by", from.String())
	}
	return r.value, true
}

// remove deletes the topic: its name is free at once, its copies go as the tombstone says.
func (r *registry) remove() {
	r.world.note("registry: the topic is deleted")
	r.deleted = tombstone{r.topic, slices.Clone(r.value.Replicas)}
	r.topic, r.value = 0, meta.Partition{Leader: meta.NoBroker}
	r.world.oracle = newOracle(0, r.world.values)
	r.next()
}

// confirm takes a broker off the tombstone, which goes with the last of them.
func (r *registry) confirm(id meta.BrokerID) {
	left := slices.DeleteFunc(slices.Clone(r.deleted.unconfirmed), func(other meta.BrokerID) bool { return other == id })
	r.deleted.unconfirmed = left
	if len(left) == 0 {
		r.world.note("registry: the deletion is confirmed by all")
		r.deleted = tombstone{}
	}
	r.next()
}

// create makes the topic anew, on live brokers first. It tells whether somebody is live.
func (r *registry) create(replicas int) bool {
	w := r.world
	value := meta.Partition{Leader: meta.NoBroker, MinISR: int32(r.minISR), Flush: r.flush, Version: 1}
	for _, live := range []bool{true, false} {
		for i := range w.brokers {
			if id := meta.BrokerID(i + 1); r.live(id) != 0 == live && len(value.Replicas) < replicas {
				value.Replicas = append(value.Replicas, id)
				if live {
					value.ISR = append(value.ISR, id)
				}
			}
		}
	}
	if len(value.ISR) == 0 {
		return false
	}
	value.Leader = value.ISR[0]
	r.lives++
	r.topic, r.value = r.lives, value
	w.oracle = newOracle(r.lives, w.values)
	w.thin = len(value.ISR) < value.MinISRBound()
	for _, b := range w.brokers {
		b.weak, b.lossy = false, false
	}
	r.next()
	w.note("registry: the topic is created: replicas=%v isr=%v", value.Replicas, value.ISR)
	return true
}

// weak tells how many brokers may lack what was acknowledged: they lost power and are not back in the ISR.
func (w *World) weak() int {
	value := &w.registry.value
	has := func(b *broker) bool {
		return !b.lossy && value.InSync(b.id) && b.holds() && b.agree() >= len(w.committed)
	}
	n, strong := 0, 0
	for _, b := range w.brokers {
		if b.weak && b.up && w.registry.live(b.id) != 0 && has(b) {
			b.weak = false
		}
		switch {
		case b.weak:
			n++
		case has(b):
			strong++
		}
	}
	if strong < max(value.MinISRBound(), w.options.MinISR) {
		return n
	}
	w.thin = false
	for _, b := range w.brokers {
		if b.weak && !value.HasReplica(b.id) {
			b.weak = false
			n--
		}
	}
	return n
}
