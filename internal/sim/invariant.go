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

func checked() []Invariant {
	return []Invariant{&NoDivergence{}, &TrueHighWatermark{}, &EpochLineage{}, &AckedDurable{}}
}

func name(i Invariant) string { return strings.TrimPrefix(fmt.Sprintf("%T", i), "*sim.") }

// NoDivergence (I2, I5): below the high watermark of any broker there is one history, and it never changes.
type NoDivergence struct{}

// Check implements Invariant.
func (*NoDivergence) Check(w *World) error {
	for _, b := range w.brokers {
		if !b.up || b.machine.Role() == replica.RoleNone || b.machine.Epoch() < w.relaxed {
			continue
		}
		high := int(b.machine.HighWatermark())
		if b.machine.Role() == replica.RoleLeader {
			for offset := len(w.committed); offset < high && b.agree() == offset; offset++ {
				w.committed = append(w.committed, b.disk.log[offset].value)
			}
		}
		if w.relaxed > 0 && b.machine.Role() == replica.RoleFollower && b.last() < w.relaxed {
			continue // it has taken nothing yet from the leader that was elected uncleanly
		}
		if at := b.agree(); at < min(high, len(w.committed)) {
			return fmt.Errorf("broker %d has record %d at offset %d, below its high watermark %d; committed was %d", b.id, b.disk.log[at].value, at, high, w.committed[at])
		}
		if high > len(w.committed) {
			return fmt.Errorf("follower %d has high watermark %d, no leader ever had more than %d", b.id, high, len(w.committed))
		}
	}
	return nil
}

// TrueHighWatermark (I3, StrongIsr): whatever was committed is on every member of the registry's ISR and ELR. A broker that
// lost power and has not been swept is a member in name only.
type TrueHighWatermark struct{}

// Check implements Invariant.
func (*TrueHighWatermark) Check(w *World) error {
	value := &w.registry.value
	for _, b := range w.brokers {
		if b.lossy || !value.InSync(b.id) && !slices.Contains(value.ELR, b.id) {
			continue
		}
		if at := b.agree(); at < len(w.committed) {
			return fmt.Errorf("broker %d of ISR %v and ELR %v holds what was committed up to %d of %d", b.id, value.ISR, value.ELR, at, len(w.committed))
		}
	}
	return nil
}

// EpochLineage (I6): epochs in a log never fall, one epoch has one leader, and one epoch wrote one record at an offset.
type EpochLineage struct{}

// Check implements Invariant.
func (*EpochLineage) Check(w *World) error {
	for _, b := range w.brokers {
		if b.up && b.machine.Role() == replica.RoleLeader {
			epoch := b.machine.Epoch()
			if other, known := w.leaders[epoch]; known && other != b.id {
				return fmt.Errorf("brokers %d and %d lead in epoch %d", other, b.id, epoch)
			}
			w.leaders[epoch] = b.id
		}
		for ; b.traced < len(b.disk.log); b.traced++ {
			offset, e := b.traced, b.disk.log[b.traced]
			if offset > 0 && e.epoch < b.disk.log[offset-1].epoch {
				return fmt.Errorf("broker %d has epoch %d at offset %d after epoch %d", b.id, e.epoch, offset, b.disk.log[offset-1].epoch)
			}
			if value := w.written[origin{e.epoch, int64(offset)}]; value != e.value {
				return fmt.Errorf("broker %d has record %d of epoch %d at offset %d, where that epoch's leader wrote %d last", b.id, e.value, e.epoch, offset, value)
			}
		}
	}
	return nil
}

// AckedDurable (I1): a leader of the registry's epoch has everything that acks=all was answered for.
type AckedDurable struct{}

// Check implements Invariant.
func (*AckedDurable) Check(w *World) error {
	value := &w.registry.value
	if value.Leader == meta.NoBroker || value.LeaderEpoch == w.ackedOf.epoch && len(w.acked) == w.ackedOf.count {
		return nil
	}
	b := w.broker(value.Leader)
	if !b.up || b.lossy || b.machine.Role() != replica.RoleLeader || b.machine.Epoch() != value.LeaderEpoch {
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

// Liveness (I16): when faults have ended, every replica is in sync again, and all logs are equal.
type Liveness struct{}

// Check implements Invariant; it holds only some time after the last fault.
func (*Liveness) Check(w *World) error {
	value := &w.registry.value
	if value.Leader == meta.NoBroker || len(value.ISR) < len(value.Replicas) {
		return fmt.Errorf("leader %d, ISR %v of %v, ELR %v", value.Leader, value.ISR, value.Replicas, value.ELR)
	}
	leader := w.broker(value.Leader)
	for _, b := range w.brokers {
		if !slices.Equal(b.disk.log, leader.disk.log) {
			return fmt.Errorf("broker %d's log ends at %d and differs from leader %d's, which ends at %d", b.id, len(b.disk.log), leader.id, len(leader.disk.log))
		}
		if b.machine.HighWatermark() != int64(len(b.disk.log)) {
			return fmt.Errorf("broker %d's high watermark is %d, its end %d", b.id, b.machine.HighWatermark(), len(b.disk.log))
		}
	}
	return (&AckedDurable{}).Check(w)
}
