package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// Invariant is what must hold after every event.
type Invariant interface {
	// Check returns what is wrong, or nil.
	Check(w *World) error
}

// checked are the invariants that are checked after every event. NoDivergence comes first: it learns what is committed.
func checked() []Invariant {
	return []Invariant{
		&NoDivergence{}, &TrueHighWatermark{}, &NoUncommittedRead{}, &RepeatableRead{}, &EpochLineage{}, &Idempotence{}, &AckedDurable{},
		&MetadataFence{},
	}
}

func name(i Invariant) string { return strings.TrimPrefix(fmt.Sprintf("%T", i), "*sim.") }

// AckedDurable (I1): a leader of the registry's epoch has everything that acks=all was answered for, at the offset that was
// answered, however many processes were killed, stopped or cut off, and after fewer power cuts than min.insync; with
// log.flush.acks after any.
type AckedDurable struct{}

// Check implements Invariant.
func (*AckedDurable) Check(w *World) error {
	value := &w.registry.value
	if value.Leader == meta.NoBroker || value.LeaderEpoch == w.ackedOf.epoch && len(w.acked) == w.ackedOf.count {
		return nil
	}
	b := w.broker(value.Leader)
	if !b.up || b.lossy || !b.holds() || b.machine.Role() != replica.RoleLeader || b.machine.Epoch() != value.LeaderEpoch {
		return nil
	}
	w.ackedOf.epoch, w.ackedOf.count = value.LeaderEpoch, len(w.acked)
	for offset, want := range w.acked {
		if offset >= int64(len(b.disk.log)) || b.disk.log[offset].value != want {
			return fmt.Errorf("leader %d of epoch %d, whose log ends at %d, lacks record %d at offset %d, which was acknowledged", b.id, value.LeaderEpoch, len(b.disk.log), want, offset)
		}
	}
	return nil
}

// NoDivergence (I2): below the high watermark of any broker there is one history, record for record with epochs and
// sequences, and it never changes.
type NoDivergence struct{}

// Check implements Invariant.
func (*NoDivergence) Check(w *World) error {
	for _, b := range w.brokers {
		if !b.up || b.machine.Role() == replica.RoleNone || !b.holds() || b.machine.Epoch() < w.relaxed {
			continue
		}
		high := int(b.machine.HighWatermark())
		if high > len(w.committed) && b.machine.Role() == replica.RoleLeader {
			for offset := len(w.committed); offset < high && b.agree() == offset; offset++ {
				w.committed = append(w.committed, b.disk.log[offset])
			}
		}
		if b.behind() {
			continue
		}
		if at := b.agree(); at < min(high, len(w.committed)) {
			return fmt.Errorf("broker %d has record %d at offset %d, below its high watermark %d; committed was %d", b.id, b.disk.log[at].value, at, high, w.committed[at].value)
		}
		if high > len(w.committed) && w.relaxed == 0 { // else it may know it from before the unclean election
			return fmt.Errorf("follower %d has high watermark %d, no leader ever had more than %d", b.id, high, len(w.committed))
		}
	}
	return nil
}

// behind tells of a follower that has taken nothing yet from the leader that was elected uncleanly.
func (b *broker) behind() bool {
	return b.world.relaxed > 0 && b.machine.Role() == replica.RoleFollower && b.lastEpoch() < b.world.relaxed
}

// TrueHighWatermark (I3, StrongIsr): whatever was committed is on every member of the registry's ISR and ELR. A broker that
// lost power and has not been swept is a member in name only.
type TrueHighWatermark struct{}

// Check implements Invariant.
func (*TrueHighWatermark) Check(w *World) error {
	value := &w.registry.value
	for _, b := range w.brokers {
		if b.lossy || b.verified == len(w.committed) && b.holds() || !value.InSync(b.id) && !slices.Contains(value.ELR, b.id) {
			continue
		}
		at := 0
		if b.holds() {
			at = b.agree()
		}
		if at < len(w.committed) {
			return fmt.Errorf("broker %d of ISR %v and ELR %v holds what was committed up to %d of %d", b.id, value.ISR, value.ELR, at, len(w.committed))
		}
	}
	return nil
}

// NoUncommittedRead (I4): a consumer is shown nothing, by a leader or by a follower, but what is committed.
type NoUncommittedRead struct{}

// Check implements Invariant.
func (*NoUncommittedRead) Check(w *World) error {
	for _, r := range w.unread {
		if r.offset >= int64(len(w.committed)) {
			return fmt.Errorf("broker %d showed record %d at offset %d, committed is what is below %d", r.broker, r.record.value, r.offset, len(w.committed))
		}
		if committed := w.committed[r.offset]; r.record != committed {
			return fmt.Errorf("broker %d showed record %d at offset %d, committed is %d", r.broker, r.record.value, r.offset, committed.value)
		}
	}
	return nil
}

// RepeatableRead (I5): an offset never shows two records, and no offset is left out.
type RepeatableRead struct{}

// Check implements Invariant.
func (*RepeatableRead) Check(w *World) error {
	for _, r := range w.unread {
		switch {
		case r.offset > int64(len(w.read)):
			return fmt.Errorf("broker %d showed offset %d after %d", r.broker, r.offset, len(w.read)-1)
		case r.offset == int64(len(w.read)):
			w.read = append(w.read, r.record.value)
		case w.read[r.offset] != r.record.value:
			return fmt.Errorf("broker %d showed record %d at offset %d, where record %d was shown before", r.broker, r.record.value, r.offset, w.read[r.offset])
		}
	}
	w.unread = w.unread[:0]
	return nil
}

// EpochLineage (I6): epochs in a log never fall, one epoch has one leader, one epoch wrote one record at an offset, and the
// lineage says of each epoch where the log's first record of it is.
type EpochLineage struct{}

// Check implements Invariant.
func (*EpochLineage) Check(w *World) error {
	for _, b := range w.brokers {
		if !b.holds() {
			continue
		}
		if b.up && b.machine.Role() == replica.RoleLeader {
			epoch := b.machine.Epoch()
			if other, known := w.leaders[epoch]; known && other != b.id {
				return fmt.Errorf("brokers %d and %d lead in epoch %d", other, b.id, epoch)
			} else if !known {
				w.leaders[epoch] = b.id
			}
		}
		for ; b.traced < len(b.disk.log); b.traced++ {
			if err := b.trace(b.traced); err != nil {
				return err
			}
		}
	}
	return nil
}

// trace checks one record of a log against the one before it.
func (b *broker) trace(offset int) error {
	e, before := b.disk.log[offset], meta.NoEpoch
	if offset > 0 {
		before = b.disk.log[offset-1].epoch
	}
	if e.epoch < before {
		return fmt.Errorf("broker %d has epoch %d at offset %d after epoch %d", b.id, e.epoch, offset, before)
	}
	if value := b.world.written[origin{e.epoch, int64(offset)}]; value != e.value {
		return fmt.Errorf("broker %d has record %d of epoch %d at offset %d, where that epoch's leader wrote %d last", b.id, e.value, e.epoch, offset, value)
	}
	if e.epoch > before && b.up {
		if start, found := b.disk.epochs.Floor(e.epoch); !found || start.Epoch != e.epoch || start.Start != int64(offset) {
			return fmt.Errorf("broker %d begins epoch %d at offset %d, its lineage says epoch %d from %d", b.id, e.epoch, offset, start.Epoch, start.Start)
		}
	}
	return nil
}

// Idempotence (I7): in no log does a producer's batch come twice, out of order, or after a gap; and no producer is refused
// that has made no mistake. Only an unclean election may take a producer's first batches away.
type Idempotence struct{}

// Check implements Invariant.
func (*Idempotence) Check(w *World) error {
	if w.refused != nil {
		return fmt.Errorf("a producer that has not lost anything was refused: %w", w.refused)
	}
	for _, b := range w.brokers {
		if !b.holds() {
			continue
		}
		for ; b.sequenced < len(b.disk.log); b.sequenced++ {
			e := &b.disk.log[b.sequenced]
			if e.producer == 0 {
				continue
			}
			last := &b.last[e.producer]
			want := int32(0)
			switch {
			case !last.seen && w.relaxed > 0:
				want = e.sequence
			case last.seen && e.term < last.term:
				return fmt.Errorf("broker %d has a batch of epoch %d of producer %d at offset %d after epoch %d", b.id, e.term, e.producer, b.sequenced, last.term)
			case last.seen && e.term == last.term:
				want = last.sequence + 1
			}
			if e.sequence != want {
				return fmt.Errorf("broker %d has sequence %d of producer %d in its epoch %d at offset %d, want %d", b.id, e.sequence, e.producer, e.term, b.sequenced, want)
			}
			*last = sequenced{true, e.term, e.sequence}
		}
	}
	return nil
}

// MetadataFence (I15): every write of a controller stood under the seat that it names, and no broker obeys a controller
// older than one that it has heard.
type MetadataFence struct{}

// Check implements Invariant.
func (*MetadataFence) Check(w *World) error {
	if g := w.registry.guarded; g.named != g.held {
		return fmt.Errorf("the controller of epoch %d changed the registry in epoch %d", g.named, g.held)
	}
	for _, b := range w.brokers {
		if b.obeyed < b.heard {
			return fmt.Errorf("broker %d obeyed a controller of epoch %d, it had heard epoch %d", b.id, b.obeyed, b.heard)
		}
	}
	return nil
}

// Liveness (I16): when faults have ended, every replica is in sync again, and all logs are equal.
type Liveness struct{}

// Check implements Invariant; it holds only some time after the last fault.
func (*Liveness) Check(w *World) error {
	value := &w.registry.value
	if w.registry.topic == 0 || value.Leader == meta.NoBroker || len(value.ISR) < len(value.Replicas) || len(value.Adding)+len(value.Removing) > 0 || value.Recovery != 0 {
		return fmt.Errorf("leader %d, replicas %v (adding %v, removing %v), ISR %v, ELR %v%s", value.Leader, value.Replicas, value.Adding, value.Removing,
			value.ISR, value.ELR, recovering(value))
	}
	if w.registry.deleted.topic != 0 {
		return fmt.Errorf("the deletion of topic %d is not confirmed by %v", w.registry.deleted.topic, w.registry.deleted.unconfirmed)
	}
	leader := w.broker(value.Leader)
	for _, b := range w.brokers {
		if !value.HasReplica(b.id) {
			if b.disk.topic != 0 {
				return fmt.Errorf("broker %d has a copy of topic %d, which is not its", b.id, b.disk.topic)
			}
			continue
		}
		if !slices.Equal(b.disk.log, leader.disk.log) {
			return fmt.Errorf("broker %d's log ends at %d and differs from leader %d's, which ends at %d", b.id, len(b.disk.log), leader.id, len(leader.disk.log))
		}
		if b.machine.HighWatermark() != int64(len(b.disk.log)) {
			return fmt.Errorf("broker %d's high watermark is %d, its end %d", b.id, b.machine.HighWatermark(), len(b.disk.log))
		}
	}
	for _, p := range w.clients {
		if len(p.flight) > 0 {
			return fmt.Errorf("producer %d has %d batches without an answer", p.id, len(p.flight))
		}
	}
	return (&AckedDurable{}).Check(w)
}
