package replica

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/invariant"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// Role is what a broker does for one of its replicas.
type Role uint8

// The roles of a replica.
const (
	// RoleNone is a replica that has heard no partition value yet, or whose life here is over (see Machine.Closed).
	RoleNone Role = iota
	// RoleLeader takes appends and decides the high watermark.
	RoleLeader
	// RoleFollower keeps a copy. It serves nobody while it knows no leader.
	RoleFollower
)

// String is the role in lower case.
func (r Role) String() string {
	switch r {
	case RoleLeader:
		return "leader"
	case RoleFollower:
		return "follower"
	default:
		return "none"
	}
}

// Machine decides for one replica: its role, its high watermark, who may append, who is answered, who is in sync, what is
// fetched and what is cut off. It does no I/O, takes no lock and reads no clock: [Replica] is its runner, calls one method
// per event under its lock and does the Effects.
//
// Transitions (self is this broker; "value" is the partition value of the registry). What a leader does besides is in
// machine_leader.go, what a follower does in machine_follower.go:
//
//	from       event                              to         effects
//	any        RoleChanged, value not newer       unchanged  ignored: the order is (leader epoch, version)
//	any        RoleChanged, leader = self,        leader     the log takes the epoch, starting at its end; the epoch's
//	           epoch above the log's latest                  start is that end; fetches wake to check their epoch
//	none       RoleChanged, leader = self,        leader     nothing is written; the epoch's start is the log end at
//	           epoch = the log's latest                      load (a resumed epoch, D8)
//	leader     RoleChanged, leader = self,        leader     the new ISR, min.insync and flush count from here on; a
//	           same epoch, newer version                     change in flight is settled by it
//	any        RoleChanged, leader ≠ self         follower   waiting produces fail with "not leader"; fetches wake; what
//	                                                         wrote nothing leaves the lineage; fetching begins anew
//	leader     Appended, Synced                   leader     the high watermark may rise; produces complete; fetches
//	                                                         wake; a flush partition asks for a group commit
//	any        StartRaised                        unchanged  the high watermark is at least the log's start
//	any        Closed                             none       every waiting request fails with the reason given
//
// Invariants, checked after every event:
//
//   - log start ≤ high watermark ≤ written end; synced end ≤ written end. The high watermark of a leader never falls in one
//     life; a follower's falls only with its log end, and below what was committed only after an unclean election (D9).
//   - The high watermark of a leader never passes the end of a member of the ISR, or of a broker that a change in flight
//     puts into it; in a flush partition ends are synced ends (D9), so no consumer sees, and no acks=all request is
//     answered for, bytes that a power cut can take.
//   - It rests while fewer are in the ISR than acks=all demands, and a member whose end is unknown holds it.
//   - An end counts only in the leader epoch and the broker epoch in which the member fetched (D6).
//   - Role, epoch, ISR and flush change only by a newer value (D8).
//   - The epoch's start is ≤ the written end; while the high watermark is below it, the latest offset is not known to
//     be committed and is not answered, and nobody joins the ISR below it.
type Machine struct {
	self   meta.BrokerID
	lagMax time.Duration
	mutant Mutant // what this build leaves out; None but in the simulator's

	role    Role
	value   meta.Partition // as last applied; its slices are never modified
	applied bool           // whether a value was applied

	start, written, synced int64 // the log's start, end and synced end
	high                   int64 // high watermark

	leader   leader   // while it leads
	follower follower // while it follows
}

// NewMachine is the machine of a replica of broker self, before it has heard anything. A follower that has not caught up
// for lagMax is out of sync (replica.lag.time.max.ms).
func NewMachine(self meta.BrokerID, lagMax time.Duration) Machine {
	return Machine{self: self, lagMax: lagMax, value: meta.Partition{Leader: meta.NoBroker, LeaderEpoch: meta.NoEpoch}}
}

// LogState is what the machine needs to know about a log when it is opened, takes a new role, or was truncated.
type LogState struct {
	Start, Written, Synced int64            // start offset, end offset, and the end of what a power cut cannot take
	Epochs                 commitlog.Epochs // the lineage
}

// Effects is what the runner must do after an event, in the order of the fields. The zero value is nothing.
type Effects struct {
	Ignored     bool       // the event is older than what is known: nothing changed
	AssignEpoch bool       // tell the log that Epoch starts at EpochStart, before anything else is appended
	Epoch       meta.Epoch // with AssignEpoch
	EpochStart  int64      // with AssignEpoch

	Advanced      bool  // the high watermark rose: produces that wait for it complete, fetches count what is new
	HighWatermark int64 // with Advanced
	SyncedTo      bool  // the synced end rose: produces that wait for it complete
	Synced        int64 // with SyncedTo
	Short         bool  // the ISR is below min.insync: acks=all requests complete as "not enough replicas after append"

	Fail error // every waiting produce completes with it
	Wake bool  // every waiting fetch wakes: the terms that it checked have changed

	Sync   bool    // ask for a group commit of the log
	Change *Change // write the partition value by compare-and-set, then tell ChangeDone; not to be modified
	Reread bool    // read the partition value linearizably, then tell ValueRead

	Truncate     bool   // truncate the log to TruncateTo, then tell Truncated
	TruncateTo   int64  // with Truncate
	Lost         int64  // with Truncate: records below the high watermark that go, after an unclean election (D9)
	StartOver    bool   // empty the log and let it start at StartAt, then tell Truncated
	StartAt      int64  // with StartOver
	Append       bool   // append the records of the answer, then tell Followed
	RaiseStart   bool   // raise the log's start to NewStart, then tell StartRaised
	NewStart     int64  // with RaiseStart
	Follow       bool   // where to fetch from has changed: ask FetchFrom
	Backoff      bool   // the answer helped nothing: fetch again after a while
	RefuseFollow string // the replica stays out of sync and fetches no more in this epoch; why, for an alarm

	Journal []meta.Event // what a person who asks why should read; also with Ignored. It is left out of String
}

// String lists what is set, for scripts.
func (e Effects) String() string {
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(e.Ignored, "ignored")
	add(e.AssignEpoch, "assign-epoch epoch=%d start=%d", e.Epoch, e.EpochStart)
	add(e.Advanced, "high-watermark %d", e.HighWatermark)
	add(e.SyncedTo, "synced %d", e.Synced)
	add(e.Short, "short-of-replicas")
	add(e.Fail != nil, "fail-waiting %q", fmt.Sprint(e.Fail))
	add(e.Wake, "wake-fetches")
	add(e.Sync, "sync")
	add(e.Change != nil, "%s", e.Change)
	add(e.Reread, "reread-value")
	add(e.Truncate && e.Lost == 0, "truncate-to %d", e.TruncateTo)
	add(e.Truncate && e.Lost > 0, "truncate-to %d committed-lost=%d", e.TruncateTo, e.Lost)
	add(e.StartOver, "start-over-at %d", e.StartAt)
	add(e.Append, "append")
	add(e.RaiseStart, "raise-start %d", e.NewStart)
	add(e.Follow, "follow")
	add(e.Backoff, "back-off")
	add(e.RefuseFollow != "", "refuse-follow %q", e.RefuseFollow)
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "\n")
}

// RoleChanged applies a partition value of the registry. checkpoint is the high watermark known from an earlier life of
// the replica (0 if none); it counts only for the first value. log counts unless this broker goes on leading in the same
// epoch. The machine keeps the value's slices and never modifies them.
func (m *Machine) RoleChanged(value meta.Partition, log LogState, checkpoint int64, now time.Time) Effects {
	if !m.Supersedes(&value) {
		return Effects{Ignored: true}
	}
	var e Effects
	before, beforeRole, first, change := m.value, m.role, !m.applied, m.leader.change
	goesOn := m.GoesOn(&value)
	m.value, m.applied = value, true
	if goesOn {
		m.adopt(&before, &e)
		m.explainValue(&before, change, &e, now)
		m.check()
		return e
	}
	was := m.high
	m.start, m.written, m.synced = log.Start, log.Written, min(log.Synced, log.Written)
	if first {
		m.high = checkpoint
	}
	m.high = max(min(m.high, m.written), m.start)
	if m.high > was {
		e.Advanced, e.HighWatermark = true, m.high
	}
	if value.Leader == m.self {
		m.lead(log, &before, &e, now)
	} else {
		m.follow(log, &e, follows{before: &before, role: beforeRole, first: first})
	}
	if !first { // what every replica hears when it is opened is no news
		m.explainValue(&before, change, &e, now)
	}
	m.check()
	return e
}

// Supersedes tells whether a value is newer than the one applied, if there is one.
func (m *Machine) Supersedes(value *meta.Partition) bool { return !m.applied || value.Newer(&m.value) }

// GoesOn tells whether this broker leads, and by the value goes on leading in the same epoch: its appends go on too.
func (m *Machine) GoesOn(value *meta.Partition) bool {
	return m.role == RoleLeader && value.Leader == m.self && value.LeaderEpoch == m.value.LeaderEpoch
}

// Appended tells that the log's end is now written. The runner may report ends late and out of order: an older end
// changes nothing.
func (m *Machine) Appended(written int64) Effects {
	if written <= m.written {
		return Effects{Ignored: true}
	}
	var e Effects
	m.written = written
	if m.role == RoleLeader {
		m.advance(&e)
	}
	e.Sync = m.value.Flush && m.role != RoleNone
	m.check()
	return e
}

// Synced tells that a group commit has made everything below synced durable.
func (m *Machine) Synced(synced int64) Effects {
	synced = min(synced, m.written)
	if synced <= m.synced {
		return Effects{Ignored: true}
	}
	e := Effects{SyncedTo: true, Synced: synced}
	m.synced = synced
	e.Sync = m.value.Flush && m.synced < m.written && m.role != RoleNone
	switch m.role {
	case RoleLeader:
		m.advance(&e)
		m.proposeMarks(&e)
	case RoleFollower:
		e.Follow = m.value.Flush && m.synced == m.written // what it fetches next acknowledges this
	case RoleNone:
	}
	m.check()
	return e
}

// StartRaised tells that the log now starts at start (DeleteRecords, retention). Records below a log's start are gone,
// so the high watermark is never below it.
func (m *Machine) StartRaised(start int64) Effects {
	if start <= m.start {
		return Effects{Ignored: true}
	}
	var e Effects
	m.start = start
	m.written, m.synced = max(m.written, start), max(m.synced, start)
	if m.high < start {
		m.high = start
		e.Advanced, e.HighWatermark = true, start
	}
	m.check()
	return e
}

// Closed ends the replica's life on this broker: it was deleted, its log failed, or the broker stops. Waiting requests
// fail with reason.
func (m *Machine) Closed(reason error) Effects {
	m.role = RoleNone
	return Effects{Fail: reason, Wake: true}
}

// CheckLeader tells whether the replica leads in the epoch that a client believes in: ErrNotLeader if it does not lead;
// ErrFencedEpoch if current is older than its epoch, ErrUnknownEpoch if newer; meta.NoEpoch is not checked.
func (m *Machine) CheckLeader(current meta.Epoch) error {
	if err := m.CheckEpoch(current); err != nil {
		return err
	}
	if m.role != RoleLeader {
		return ErrNotLeader
	}
	return nil
}

// CheckEpoch is CheckLeader without the demand for leadership.
func (m *Machine) CheckEpoch(current meta.Epoch) error {
	switch {
	case m.role == RoleNone:
		return ErrNotLeader
	case current == meta.NoEpoch || current == m.value.LeaderEpoch:
		return nil
	case current < m.value.LeaderEpoch:
		return ErrFencedEpoch
	default:
		return ErrUnknownEpoch
	}
}

// CheckAppend tells whether a produce with these acks may be appended: what CheckLeader says, and ErrNotEnoughReplicas
// for acks=all when the ISR is smaller than min.insync demands.
func (m *Machine) CheckAppend(current meta.Epoch, acks int16) error {
	if err := m.CheckLeader(current); err != nil {
		return err
	}
	if acks == AcksAll && m.short() {
		return ErrNotEnoughReplicas
	}
	return nil
}

// Role is what this broker does for the replica.
func (m *Machine) Role() Role { return m.role }

// Epoch is the leader epoch of the applied value, meta.NoEpoch before the first.
func (m *Machine) Epoch() meta.Epoch { return m.value.LeaderEpoch }

// Value is the partition value as last applied; its slices must not be modified.
func (m *Machine) Value() meta.Partition { return m.value }

// HighWatermark is the offset below which records are committed.
func (m *Machine) HighWatermark() int64 { return m.high }

// LatestKnown tells whether the leader's high watermark has reached the start of its epoch, so that the latest offset
// can be answered.
func (m *Machine) LatestKnown() bool { return m.high >= m.leader.epochStart }

func (m *Machine) check() {
	invariant.Check(m.start <= m.high && m.high <= m.written, "high watermark %d is outside [%d, %d]", m.high, m.start, m.written)
	invariant.Check(m.synced <= m.written, "synced end %d is above the end %d", m.synced, m.written)
	if invariant.Enabled && m.role == RoleLeader && !slices.Contains(m.value.ISR, m.self) {
		invariant.Check(len(m.value.ISR) == 0, "leader %d is not in its ISR %v", m.self, m.value.ISR)
	}
}
