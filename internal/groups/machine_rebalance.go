package groups

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// beat gives a member another session.
func (m *Machine) beat(member *member) {
	m.timers.set(&member.session, m.now.Add(member.sessionTimeout))
}

// rebalanceOrComplete begins a rebalance, or ends the one that goes on if nobody is missing.
func (m *Machine) rebalanceOrComplete(g *group) {
	if g.state == preparing || g.state == dead {
		m.completeIfJoined(g)
		return
	}
	m.prepareRebalance(g)
}

// completeIfJoined ends the joining if nobody is missing. The first rebalance of an empty group waits for its deadline.
func (m *Machine) completeIfJoined(g *group) {
	if g.state == preparing && !g.initial && g.allJoined() {
		m.completeJoin(g)
	}
}

// prepareRebalance calls all members to join.
func (m *Machine) prepareRebalance(g *group) {
	if g.state == completing {
		for _, member := range g.members {
			member.assignment = nil
		}
		m.propagate(g, kerr.RebalanceInProgress.Code)
	}
	clear(g.unsync)
	m.timers.cancel(&g.sync)
	g.initial = g.state == empty
	g.enter(preparing, m.now)
	switch {
	case g.initial:
		g.delay, g.newcomer = m.config.InitialRebalanceDelay, false
		g.remaining = max(g.rebalanceTimeout()-g.delay, 0)
		m.timers.set(&g.join, m.now.Add(g.delay))
	case g.allJoined():
		m.completeJoin(g)
	default:
		m.timers.set(&g.join, m.now.Add(g.rebalanceTimeout()))
	}
}

// joinExpired is the end of the time to join.
func (m *Machine) joinExpired(g *group) {
	if g.state != preparing {
		return
	}
	if g.initial && g.newcomer && g.remaining > 0 {
		g.newcomer = false
		waited := g.delay
		g.delay = min(m.config.InitialRebalanceDelay, g.remaining)
		g.remaining = max(g.remaining-waited, 0)
		m.timers.set(&g.join, m.now.Add(g.delay))
		return
	}
	m.completeJoin(g)
}

// completeJoin begins a generation with those who have joined. Dynamic members that have not are out; static ones keep
// their place until their session ends.
func (m *Machine) completeJoin(g *group) {
	m.timers.cancel(&g.join)
	g.initial = false
	for i := len(g.members) - 1; i >= 0; i-- {
		if late := g.members[i]; late.joining == coordinator.NoCall && late.instance == nil {
			m.remove(late)
		}
	}
	if len(g.members) > 0 && !g.electLeader() {
		// Only static members are left, and none of them has joined: their sessions decide.
		m.timers.set(&g.join, m.now.Add(g.rebalanceTimeout()))
		return
	}
	g.nextGeneration(m.now)
	if g.state == empty {
		g.written = true
		m.write(write{kind: emptyWrite, group: g}, []coordinator.Record{g.record(nil, m.now)})
		return
	}
	for _, member := range g.members {
		if member.joining != coordinator.NoCall {
			m.reply(member.joining, g.joinResponse(member, member.version, true))
			member.joining = coordinator.NoCall
		}
		member.fresh = false
		m.beat(member)
		g.unsync[member.id] = true
	}
	m.timers.set(&g.sync, m.now.Add(g.rebalanceTimeout()))
}

// remove takes a member out of the group and answers what it waits for.
func (m *Machine) remove(member *member) {
	if member.joining != coordinator.NoCall {
		resp := newJoinResponse("")
		resp.Version, resp.ErrorCode = member.version, kerr.UnknownMemberID.Code
		m.reply(member.joining, resp)
		member.joining = coordinator.NoCall
	}
	if member.syncing != coordinator.NoCall {
		m.reply(member.syncing, syncRefusal(kerr.UnknownMemberID.Code))
		member.syncing = coordinator.NoCall
	}
	m.timers.cancel(&member.session)
	member.group.drop(member)
}

// memberGone lets the group go on without members that were removed.
func (m *Machine) memberGone(g *group) {
	switch g.state {
	case stable, completing:
		m.prepareRebalance(g)
	case preparing:
		if g.allJoined() && (!g.initial || len(g.members) == 0) {
			m.completeJoin(g)
		}
	case empty, dead:
	}
}

// sessionExpired is a member that has not been heard of for its session timeout. One that is parked is alive, unless it
// has never had an answer.
func (m *Machine) sessionExpired(member *member) {
	g := member.group
	if g.byID[member.id] != member {
		return
	}
	if !member.fresh && (member.joining != coordinator.NoCall || member.syncing != coordinator.NoCall) {
		return // the answer begins a new session
	}
	m.remove(member)
	m.memberGone(g)
}

// pendingExpired is a member id that was not used in time.
func (m *Machine) pendingExpired(g *group, id string) {
	delete(g.pending, id)
	m.memberGoneFromPending(g)
}

// memberGoneFromPending is memberGone for somebody who was no member yet: nobody else has to join again.
func (m *Machine) memberGoneFromPending(g *group) {
	if g.state == preparing && !g.initial && g.allJoined() {
		m.completeJoin(g)
	}
}

// syncExpired is the end of the time to ask for the assignment: who has not is out.
func (m *Machine) syncExpired(g *group) {
	if g.state != completing && g.state != stable || len(g.unsync) == 0 {
		return
	}
	for i := len(g.members) - 1; i >= 0; i-- {
		if late := g.members[i]; g.unsync[late.id] {
			m.remove(late)
		}
	}
	m.prepareRebalance(g)
}
