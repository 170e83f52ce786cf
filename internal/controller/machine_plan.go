package controller

import (
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Facts is what a decision about one partition rests on besides its value.
type Facts struct {
	// Unfenced tells whether a broker is registered and live.
	Unfenced func(meta.BrokerID) bool

	// Unclean is the broker that is being swept after it lost what its disk had not synced; NoBroker for none. It is still
	// fenced.
	Unclean meta.BrokerID
	// Intact says that Unclean's disk is the one that held its copies and kept all that it had synced: in partitions whose
	// value says flushed it has everything that was acknowledged (D9).
	Intact bool

	// End is where a broker's copy ends, as it has told since its last start; nil: nobody has told anything. It counts for
	// values that wait for the longest copy.
	End func(meta.BrokerID) (meta.LogEnd, bool)

	Wants
}

// Wants is what a topic's configuration wants of its partitions.
type Wants struct {
	// MinISR is min.insync.replicas. ByFactor: min_isr is one less than the replicas that are there, as internal topics have it
	// (D15).
	MinISR   int32
	ByFactor bool
	Flush    bool // log.flush.acks
	// UncleanElection is unclean.leader.election.enable: where nobody who may have everything is unfenced, any unfenced replica
	// leads.
	UncleanElection bool
}

// ReasonUnclean is Plan's reason for a leader that may lack what was acknowledged, because the topic allows that.
const ReasonUnclean = "an unclean election: nobody who has everything is there"

// Plan decides about one partition (D6, D8, D9). It returns the value to write and why, or no reasons when the value is
// right as it is. It is idempotent: the value that it returns needs nothing more under the same facts, except that a
// sweep of an unclean leader always raises the epoch.
//
// The rules, in order:
//
//  1. The value follows the configuration: min_isr, and flush with a new epoch. ELR goes under a leader that has enough in
//     sync by the new min_isr (KIP-966); while it has not, its high watermark rests, and who was eligible still is.
//  2. An unclean broker leaves ISR and ELR, and is remembered in last_known_isr; if it led, the epoch rises (E-8). When
//     it was the only one that ever mattered, it leads on: nobody else has more. Where everything acknowledged was synced
//     and its disk is intact, it keeps its place; if it led, the epoch rises all the same.
//  3. A fenced leader is replaced only if an unfenced successor exists in ISR, else in ELR; otherwise the value stays,
//     and the leader resumes its epoch when it is unfenced.
//     When everybody who may have everything has restarted uncleanly, the longest copy leads, once all of them are
//     unfenced and have told where they end: nobody has more, though something may be lost. Where the topic allows it, any
//     unfenced replica leads rather than nobody. Both begin to recover, alone in sync.
//  4. A fenced follower leaves the ISR of a serving leader.
//  5. A reassignment whose new replicas are all in sync is complete: one write drops the old ones.
//  6. Whoever changes the ISR recomputes ELR and last_known_isr.
func Plan(value *meta.Partition, f Facts) (next meta.Partition, reasons []string) {
	d := decision{Partition: value.Clone(), facts: f, raise: false}
	d.followConfig()
	d.sweep()
	d.elect()
	d.shrink()
	d.finishMove()
	if len(d.reasons) == 0 {
		return *value, nil
	}
	if d.raise {
		d.LeaderEpoch++
	}
	return d.Partition, d.reasons
}

// decision is a value under change.
type decision struct {
	meta.Partition
	facts   Facts
	raise   bool // the leader epoch rises, once
	reasons []string
}

func (d *decision) because(reason string) { d.reasons = append(d.reasons, reason) }

func (d *decision) followConfig() {
	d.followMinISR()
	if d.Flush != d.facts.Flush {
		d.Flush, d.Flushed = d.facts.Flush, false
		d.raise = true
		d.because("log.flush.acks changed")
	}
}

func (d *decision) followMinISR() {
	minISR := d.facts.MinISR
	if d.facts.ByFactor {
		minISR = minISRByFactor(len(difference(d.Replicas, d.Adding)))
	}
	if d.MinISR == minISR {
		return
	}
	d.MinISR = minISR
	if d.Leader != meta.NoBroker {
		d.SettleISR(nil)
	}
	d.because("min.insync.replicas changed")
}

// minISRByFactor is min_isr of an internal topic with so many replicas (D15).
func minISRByFactor(replicas int) int32 { return int32(max(1, replicas-1)) }

func (d *decision) sweep() {
	lost := d.facts.Unclean
	if lost == meta.NoBroker {
		return
	}
	led := d.Leader == lost
	if !d.InSync(lost) && !slices.Contains(d.ELR, lost) && !led {
		return
	}
	d.because("broker restarted uncleanly")
	d.raise = d.raise || led
	if d.facts.Intact && d.Flushed {
		if !led {
			d.reasons = d.reasons[:len(d.reasons)-1]
		}
		return
	}
	d.ISR, d.ELR = without(d.ISR, lost), without(d.ELR, lost)
	d.LastKnownISR = with(d.LastKnownISR, lost)
	if len(d.ISR) == 0 && len(d.ELR) == 0 && len(d.LastKnownISR) == 1 {
		// All that was acknowledged lately was acknowledged by this broker alone.
		d.leadUncleanly(lost) // what the others have above its end goes, even below their high watermarks
		return
	}
	switch {
	case led:
		d.Leader = meta.NoBroker
	case d.Leader != meta.NoBroker && d.facts.Unfenced(d.Leader):
		d.SettleISR(nil)
	}
}

// elect finds a leader where there is none, or replaces one that is fenced.
func (d *decision) elect() {
	if d.Leader != meta.NoBroker && (d.facts.Unfenced(d.Leader) || d.Leader == d.facts.Unclean) {
		return
	}
	successor := d.first(d.ISR)
	if successor == meta.NoBroker {
		successor = d.first(d.ELR)
	}
	why := "new leader"
	if successor == meta.NoBroker {
		why = "the longest copy of all that restarted uncleanly leads"
		if successor = d.longest(); successor == meta.NoBroker {
			why = ReasonUnclean
			if successor = d.first(d.Replicas); successor == meta.NoBroker || !d.facts.UncleanElection {
				return
			}
		}
		if why == ReasonUnclean {
			d.LastKnownISR = nil
		}
		d.because(why)
		d.leadUncleanly(successor)
		return
	}
	d.because(why)
	d.raise = true
	old := d.ISR
	d.Leader = successor
	d.ISR = slices.DeleteFunc(slices.Clone(d.ISR), func(id meta.BrokerID) bool { return !d.facts.Unfenced(id) })
	d.ISR = with(d.ISR, successor)
	d.SettleISR(old)
}

// leadUncleanly makes a broker leader that may lack what was committed: it is alone in sync, and recovers first.
// Whoever holds what it lacks has to give that up, so nobody else is eligible any more.
func (d *decision) leadUncleanly(leader meta.BrokerID) {
	d.Leader, d.ISR, d.ELR = leader, []meta.BrokerID{leader}, nil
	d.UncleanEpoch, d.Recovery = d.LeaderEpoch+1, 1
	d.raise = true
	d.SettleISR(nil)
}

// longest is the broker with the longest copy of those who may have everything, if all of them have told where they end.
func (d *decision) longest() meta.BrokerID {
	if !d.WaitsForLongest() || d.facts.End == nil {
		return meta.NoBroker
	}
	best, most := meta.NoBroker, meta.LogEnd{Epoch: meta.NoEpoch, End: -1}
	for _, id := range d.LastKnownISR {
		end, known := d.facts.End(id)
		if !known || !d.facts.Unfenced(id) {
			return meta.NoBroker
		}
		if end.Longer(most) {
			best, most = id, end
		}
	}
	return best
}

// first is the first unfenced broker of the assignment that is in the set.
func (d *decision) first(set []meta.BrokerID) meta.BrokerID {
	for _, id := range d.Replicas {
		if slices.Contains(set, id) && d.facts.Unfenced(id) {
			return id
		}
	}
	return meta.NoBroker
}

// shrink takes fenced followers out of the ISR of a leader that serves.
func (d *decision) shrink() {
	if d.Leader == meta.NoBroker || !d.facts.Unfenced(d.Leader) {
		return
	}
	fenced := func(id meta.BrokerID) bool { return id != d.Leader && !d.facts.Unfenced(id) }
	if !slices.ContainsFunc(d.ISR, fenced) {
		return
	}
	old := d.ISR
	d.ISR = slices.DeleteFunc(slices.Clone(d.ISR), fenced)
	d.because("broker is fenced")
	d.SettleISR(old)
}

func without(set []meta.BrokerID, id meta.BrokerID) []meta.BrokerID {
	return slices.DeleteFunc(slices.Clone(set), func(other meta.BrokerID) bool { return other == id })
}

func with(set []meta.BrokerID, id meta.BrokerID) []meta.BrokerID {
	if slices.Contains(set, id) {
		return set
	}
	return append(slices.Clone(set), id)
}
