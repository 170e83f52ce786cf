package replica

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// leader is what a machine knows while it leads.
//
//	event                        effects
//	FollowerFetched              the follower's end counts; the high watermark may rise; once the follower has reached the
//	                             high watermark and the epoch's start, a change that adds it to the ISR
//	  of another leader epoch    ignored (KIP-320)
//	  of no current broker epoch ignored: it may read, but never counts
//	  of another broker epoch    what was known is forgotten; a member counts again once the value was read anew (D6)
//	Tick                         a member that has not caught up for lagMax: a change that removes it from the ISR
//	ChangeDone, refused          the change is off: a broker that it would have added lives in another epoch by now
//	ChangeDone, unknown          old and new members both count; after a pause the same change is asked for again, and
//	                             the registry's answer settles it
//	RoleChanged                  settles the change, whoever wrote the newer value
//
// One change is in flight at most. Until it is settled the high watermark is bound by the old and by the new members, and
// min.insync counts the old ones.
type leader struct {
	epochStart int64 // of value.LeaderEpoch
	others     []progress
	change     *Change // in flight; its fields are never modified
	unknown    bool    // the outcome of change is not known, it is to be asked for again
	notBefore  time.Time
}

// progress is what a leader knows of another replica, in this leader epoch.
type progress struct {
	broker    meta.BrokerID
	life      int64 // the broker epoch in which it fetched, 0 before its first fetch that counts
	end       int64 // everything below is on its disk (synced, in a flush partition); -1 unknown
	start     int64 // its log's start; -1 unknown
	current   bool  // the broker is live in that epoch
	unproven  bool  // it came back in another life: a member counts once the value was read anew
	holds     bool  // it caught up lately and will join: the high watermark waits for it
	ignored   ignored
	caughtUp  time.Time
	fetched   time.Time // its last fetch, and the leader's end then
	leaderEnd int64
}

// Change is a partition value that its leader wants written by compare-and-set.
type Change struct {
	// Value is the new value. Its Version is that of the value which it replaces.
	Value meta.Partition
	// Joining are the brokers that it adds to the ISR. The write must fail unless each of them is live in that broker
	// epoch: the one in which it fetched (D8).
	Joining []Joining

	shrinks bool  // for metrics
	leaving []Lag // for the journal
}

// Joining is a broker that enters an ISR on the strength of fetches that it sent in a broker epoch.
type Joining struct {
	Broker meta.BrokerID
	Epoch  int64
}

// String is for scripts.
func (c *Change) String() string {
	s := fmt.Sprintf("change version=%d isr=%v elr=%v", c.Value.Version, c.Value.ISR, c.Value.ELR)
	for _, j := range c.Joining {
		s += fmt.Sprintf(" joining=%d@%d", j.Broker, j.Epoch)
	}
	if c.Value.Recovery != 0 {
		s += " recovering"
	}
	if c.Value.Flushed {
		s += " flushed"
	}
	return s
}

// Outcome is what became of a Change.
type Outcome uint8

// The outcomes. One that wrote the value, or met a newer one, is told by RoleChanged with that value.
const (
	// OutcomeUnknown is a change that may be written, or may be written yet.
	OutcomeUnknown Outcome = iota
	// OutcomeRefused is a change that was not and will not be written: a broker that it adds does not live in that epoch.
	OutcomeRefused
)

// FollowerFetch is a fetch of another replica from the log of this one.
type FollowerFetch struct {
	Broker      meta.BrokerID
	BrokerEpoch int64
	Current     bool       // BrokerEpoch is the one in which the broker is known to be live
	Epoch       meta.Epoch // the leader epoch in which it was read
	Offset      int64      // everything below is on the follower's disk (synced, in a flush partition)
	LogStart    int64
	LeaderEnd   int64 // the end of the leader's log when it was read
	Diverges    bool  // the logs part below Offset: the fetch acknowledges nothing (E-43)
}

// changePause is how long a leader waits after a change that was refused, or whose outcome is unknown.
const changePause = time.Second

// lead begins a term.
func (m *Machine) lead(log LogState, before *meta.Partition, e *Effects, now time.Time) {
	e.Follow = m.role == RoleFollower // no more
	m.role = RoleLeader
	old := m.leader.others
	m.leader = leader{epochStart: m.written}
	if m.lacks(TrustResumed) && m.value.LeaderEpoch <= log.Epochs.LatestEpoch() {
		m.leader.epochStart, m.high = 0, m.written
	}
	for _, id := range m.value.Replicas {
		if id == m.self {
			continue
		}
		p := progress{broker: id, end: -1, start: -1}
		if m.value.InSync(id) {
			p.caughtUp = now
		}
		if i := slices.IndexFunc(old, func(q progress) bool { return q.broker == id }); i >= 0 && m.lacks(KeepProgress) {
			p = old[i]
		}
		m.leader.others = append(m.leader.others, p)
	}
	e.Wake = true
	if m.value.LeaderEpoch > log.Epochs.LatestEpoch() {
		e.AssignEpoch, e.Epoch, e.EpochStart = true, m.value.LeaderEpoch, m.written
	}
	m.advance(e)
	// After flush was switched off, the appends that wait for a group commit still get theirs.
	e.Sync = (m.value.Flush || before.Flush) && m.synced < m.written
	m.proposeMarks(e)
}

// adopt takes a newer value of the same term: whatever change was in flight, it is settled.
func (m *Machine) adopt(before *meta.Partition, e *Effects) {
	m.leader.change, m.leader.unknown = nil, false
	if !slices.Equal(before.Replicas, m.value.Replicas) {
		old := m.leader.others
		m.leader.others = nil
		for _, id := range m.value.Replicas {
			if i := slices.IndexFunc(old, func(q progress) bool { return q.broker == id }); i >= 0 {
				m.leader.others = append(m.leader.others, old[i])
			} else if id != m.self {
				m.leader.others = append(m.leader.others, progress{broker: id, end: -1, start: -1})
			}
		}
	}
	for i := range m.leader.others {
		if p := &m.leader.others[i]; m.value.InSync(p.broker) {
			p.holds = false
		}
	}
	m.advance(e)
	e.Sync = (m.value.Flush || before.Flush) && m.synced < m.written
	m.proposeMarks(e)
}

// Compare compares a reader's log with this one: the reader's last record, before offset, is of epoch last. It returns nil
// if this log has that record too, or else the end of this log's highest epoch not above last (E-43). ErrOffsetOutOfRange:
// this log has no such epoch.
func (m *Machine) Compare(last meta.Epoch, offset int64, epochs commitlog.Epochs, logEnd int64) (*EpochEnd, error) {
	epoch, end := epochs.EndFor(last, logEnd)
	if epoch < 0 || end < 0 {
		return nil, fmt.Errorf("this log has no epoch up to %d: %w", last, ErrOffsetOutOfRange)
	}
	if end < offset || epoch < last && !m.lacks(TruncateOneRound) {
		return &EpochEnd{epoch, end}, nil
	}
	return nil, nil
}

// FollowerFetched tells that another replica has everything below its fetch offset.
func (m *Machine) FollowerFetched(f FollowerFetch, now time.Time) Effects {
	p := m.other(f.Broker)
	switch {
	case m.role != RoleLeader || p == nil || f.Offset > f.LeaderEnd:
		return Effects{Ignored: true}
	case f.Epoch != m.value.LeaderEpoch && !m.lacks(AnyEpochFetches):
		return Effects{Ignored: true}
	case f.Diverges && !m.lacks(CountDiverging):
		return Effects{Ignored: true}
	case !f.Current: // it may read, but it never counts (D6)
		return m.ignore(p, &f, now)
	case f.BrokerEpoch < p.life: // sent before the broker started anew
		return m.ignore(p, &f, now)
	}
	var e Effects
	if f.LeaderEnd > m.written { // readers see the log's end before the machine is told
		m.written = f.LeaderEnd
		e.Sync = m.value.Flush
	}
	if f.BrokerEpoch != p.life && !m.lacks(KeepEnds) {
		p.unproven = m.value.InSync(f.Broker) && p.life != 0
		e.Reread = p.unproven
		p.end, p.leaderEnd, p.caughtUp = -1, 0, time.Time{}
		if m.value.InSync(f.Broker) {
			p.caughtUp = now
		}
	}
	p.life, p.current, p.ignored = f.BrokerEpoch, true, counted
	p.end, p.start = max(p.end, f.Offset), max(p.start, f.LogStart)
	switch {
	case f.Offset >= m.written:
		p.caughtUp = now
	case f.Offset >= p.leaderEnd && p.fetched.After(p.caughtUp):
		p.caughtUp = p.fetched // it now has what there was at its last fetch
	}
	p.fetched, p.leaderEnd = now, m.written
	p.holds = m.willJoin(p, now)
	m.advance(&e)
	m.proposeJoin(&e, f.Broker, now)
	m.proposeMarks(&e)
	m.check()
	return e
}

// BrokersChanged tells the broker epochs of the live brokers, 0 for one that is fenced.
func (m *Machine) BrokersChanged(live func(meta.BrokerID) int64) Effects {
	var e Effects
	if m.role != RoleLeader {
		return Effects{Ignored: true}
	}
	for i := range m.leader.others {
		p := &m.leader.others[i]
		p.current = p.life != 0 && live(p.broker) == p.life
		p.holds = p.holds && p.current
	}
	m.advance(&e)
	return e
}

// Tick looks at the clock: who lags leaves the ISR, and what was refused or unknown is tried again.
func (m *Machine) Tick(now time.Time) Effects {
	var e Effects
	if m.role != RoleLeader {
		return Effects{Ignored: true}
	}
	for i := range m.leader.others {
		p := &m.leader.others[i]
		p.holds = m.willJoin(p, now)
		e.Reread = e.Reread || p.unproven
	}
	m.advance(&e)
	switch {
	case m.leader.change != nil && m.leader.unknown && !now.Before(m.leader.notBefore):
		m.leader.unknown = false
		e.Change = m.leader.change
	case m.leader.change == nil:
		m.proposeShrink(&e, now)
		m.proposeJoin(&e, meta.NoBroker, now)
		m.proposeMarks(&e)
	}
	return e
}

// Stalled tells that this broker did nothing for a while: that its followers have not fetched says nothing about them (D8).
func (m *Machine) Stalled(now time.Time) {
	for i := range m.leader.others {
		if p := &m.leader.others[i]; m.value.InSync(p.broker) {
			p.caughtUp = now
		}
	}
}

// ChangeDone tells what became of the change of a value with that version.
func (m *Machine) ChangeDone(version int64, outcome Outcome, now time.Time) Effects {
	c := m.leader.change
	if m.role != RoleLeader || c == nil || c.Value.Version != version {
		return Effects{Ignored: true}
	}
	var e Effects
	m.leader.notBefore = now.Add(changePause)
	m.explainOutcome(c, outcome, &e, now)
	if outcome == OutcomeUnknown && !m.lacks(ForgetUnknown) {
		m.leader.unknown = true
	} else {
		m.leader.change, m.leader.unknown = nil, false
		m.advance(&e)
	}
	return e
}

// ValueRead tells that the value was read linearizably and had this version: what is known of the ISR is true.
func (m *Machine) ValueRead(version int64) Effects {
	if m.role != RoleLeader || version != m.value.Version {
		return Effects{Ignored: true}
	}
	var e Effects
	for i := range m.leader.others {
		m.leader.others[i].unproven = false
	}
	m.advance(&e)
	m.proposeMarks(&e)
	return e
}

// LowWatermark is the lowest log start of the replicas that are live, of which start is this one's; -1 while that
// of one is unknown.
func (m *Machine) LowWatermark(start int64) int64 {
	low := start
	for i := range m.leader.others {
		if p := &m.leader.others[i]; p.current || m.value.InSync(p.broker) {
			low = min(low, p.start)
		}
	}
	return low
}

// other finds what is known of another replica.
func (m *Machine) other(id meta.BrokerID) *progress {
	for i := range m.leader.others {
		if m.leader.others[i].broker == id {
			return &m.leader.others[i]
		}
	}
	return nil
}

// short tells that fewer replicas are in sync than acks=all demands: min.insync, but never more than there are (D8). A
// change in flight does not count.
func (m *Machine) short() bool {
	isr := len(m.value.ISR)
	if m.lacks(IgnorePending) && m.leader.change != nil {
		isr = len(m.leader.change.Value.ISR)
	}
	return isr < m.value.MinISRBound()
}

// memberEnd is the end offset up to which a replica is known to hold the log, -1 if nothing is known.
func (m *Machine) memberEnd(id meta.BrokerID) int64 {
	if id == m.self {
		if m.value.Flush && !m.lacks(CountWritten) {
			return m.synced
		}
		return m.written
	}
	p := m.other(id)
	if m.lacks(IgnoreUnknownEnds) && (p == nil || p.end < 0) {
		return math.MaxInt64
	}
	if p != nil && !p.unproven {
		return p.end
	}
	return -1
}

// advance raises the high watermark to the lowest end in the ISR, in what a change in flight would make of it, and of
// those who are about to join. It rests while the ISR is short: else who leaves it could not stay eligible (KIP-966). A
// leader that is not in its own ISR (a value never written by a correct controller) counts itself all the same.
func (m *Machine) advance(e *Effects) {
	e.Short = m.short()
	if e.Short && !m.lacks(AdvanceWhenShort) {
		return
	}
	high := m.memberEnd(m.self)
	for _, member := range m.value.ISR {
		high = min(high, m.memberEnd(member))
	}
	if len(m.leader.others) > 0 {
		high = min(high, m.pendingEnd())
	}
	if high > m.high {
		m.high = high
		e.Advanced, e.HighWatermark = true, high
	}
}

// pendingEnd is the lowest end of those who are not in the ISR yet but hold the high watermark.
func (m *Machine) pendingEnd() int64 {
	end := int64(math.MaxInt64)
	if c := m.leader.change; c != nil && !m.lacks(IgnorePending) {
		for _, member := range c.Value.ISR {
			end = min(end, m.memberEnd(member))
		}
	}
	for i := range m.leader.others {
		if p := &m.leader.others[i]; p.holds {
			end = min(end, p.end)
		}
	}
	return end
}

// willJoin tells whether a replica outside the ISR is so close that the high watermark waits for it: otherwise it would
// chase it for ever while producers write.
func (m *Machine) willJoin(p *progress, now time.Time) bool {
	return p.current && !m.value.InSync(p.broker) && p.end >= 0 && now.Sub(p.caughtUp) <= m.lagMax
}

// proposeJoin asks for a change that adds who is in sync: it lives in the epoch in which it fetched, and has reached the
// high watermark and the epoch's start. Before that start its log may lack what an earlier leader committed. Only
// who has just fetched, or caught up lately, is considered: an end alone may be that of a broker long silent. Nobody joins a
// leader that was elected uncleanly and has not recovered.
func (m *Machine) proposeJoin(e *Effects, fetched meta.BrokerID, now time.Time) {
	if m.leader.change != nil || now.Before(m.leader.notBefore) || m.value.Recovery != 0 {
		return
	}
	var joining []Joining
	for i := range m.leader.others {
		p := &m.leader.others[i]
		reached := (p.end >= m.high || m.lacks(JoinBelowHigh)) && (p.end >= m.leader.epochStart || m.lacks(JoinBelowEpochStart))
		if p.current && p.end >= 0 && reached && !m.value.InSync(p.broker) && (p.holds || p.broker == fetched) {
			j := Joining{p.broker, p.life}
			if m.lacks(JoinAnyLife) {
				j.Epoch = 0
			}
			joining = append(joining, j)
		}
	}
	if len(joining) == 0 {
		return
	}
	isr := slices.Clone(m.value.ISR)
	for _, j := range joining {
		isr = append(isr, j.Broker)
	}
	m.propose(e, isr, joining)
}

// proposeShrink asks for a change that removes who has lagged for too long.
func (m *Machine) proposeShrink(e *Effects, now time.Time) {
	lags := func(id meta.BrokerID) bool {
		p := m.other(id)
		return p != nil && (p.end != m.written || p.unproven) && now.Sub(p.caughtUp) > m.lagMax
	}
	if now.Before(m.leader.notBefore) || !slices.ContainsFunc(m.value.ISR, lags) {
		return
	}
	m.propose(e, slices.DeleteFunc(slices.Clone(m.value.ISR), lags), nil)
	for _, id := range m.value.ISR {
		if lags(id) {
			m.leader.change.leaving = append(m.leader.change.leaving, m.lag(m.other(id), now))
		}
	}
}

func (m *Machine) propose(e *Effects, isr []meta.BrokerID, joining []Joining) {
	c := &Change{Value: m.value.Clone(), Joining: joining, shrinks: len(joining) == 0}
	c.Value.ChangeISR(isr)
	m.leader.change = c
	e.Change = c
	m.advance(e)
}

// proposeMarks asks for the write of what the leader alone can tell: that it has recovered, once its own copy reaches the
// start of its epoch as the partition demands, and `flushed`, once every member of ISR and ELR has synced that
// start (D9).
func (m *Machine) proposeMarks(e *Effects) {
	recovered := m.value.Recovery != 0 && m.memberEnd(m.self) >= m.leader.epochStart
	flushed := m.value.Flush && !m.value.Flushed && m.reachedStart(m.value.ISR) && m.reachedStart(m.value.ELR)
	if m.leader.change != nil || !recovered && !flushed {
		return
	}
	c := &Change{Value: m.value.Clone()}
	if recovered {
		c.Value.Recovery = 0
	}
	c.Value.Flushed = c.Value.Flushed || flushed
	m.leader.change = c
	e.Change = c
}

// reachedStart tells whether replicas are known to hold everything up to the epoch's start.
func (m *Machine) reachedStart(members []meta.BrokerID) bool {
	for _, member := range members {
		if m.memberEnd(member) < m.leader.epochStart {
			return false
		}
	}
	return true
}
