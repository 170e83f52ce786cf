package groups

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// Sync is a SyncGroup request (key 14): the leader brings the assignment, everybody gets theirs.
func (m *Machine) Sync(call coordinator.Call, req *kmsg.SyncGroupRequest, now time.Time) coordinator.Effects {
	m.begin(now)
	if code := m.sync(call, req); code != 0 {
		m.reply(call, syncRefusal(code))
	}
	return m.end()
}

// sync answers, parks the call, or returns the code to refuse it with.
func (m *Machine) sync(call coordinator.Call, req *kmsg.SyncGroupRequest) int16 {
	g := m.groups[req.Group]
	if code := checkGeneration(g, req.Group, req.MemberID, req.InstanceID, req.Generation); code != 0 {
		return code
	}
	if differs(req.ProtocolType, g.protocolType, g.protocolType != "") || differs(req.Protocol, g.protocol, g.hasProtocol) {
		return kerr.InconsistentGroupProtocol.Code
	}
	member := g.byID[req.MemberID]
	switch g.state {
	case preparing:
		return kerr.RebalanceInProgress.Code
	case completing:
		if member.syncing != coordinator.NoCall { // its client has given it up
			m.reply(member.syncing, syncRefusal(kerr.RebalanceInProgress.Code))
		}
		member.syncing = call
		m.synced(g, member)
		if g.leader == member.id {
			m.assign(g, req)
		}
	case stable:
		m.synced(g, member)
		m.reply(call, g.syncResponse(member, 0))
	default:
		return kerr.UnknownMemberID.Code
	}
	return 0
}

// checkGeneration is what heartbeats and syncs have to be.
func checkGeneration(g *group, name, id string, instance *string, generation int32) int16 {
	switch {
	case name == "":
		return kerr.InvalidGroupID.Code
	case g == nil:
		return kerr.UnknownMemberID.Code
	case g.state == dead:
		return kerr.CoordinatorNotAvailable.Code
	}
	if code := g.check(id, instance); code != 0 {
		return code
	}
	if generation != g.generation {
		return kerr.IllegalGeneration.Code
	}
	return 0
}

// differs compares what a client says, if it does, with what the group has.
func differs(said *string, known string, has bool) bool {
	return said != nil && has && *said != known
}

// synced notes that a member has asked for its assignment.
func (m *Machine) synced(g *group, member *member) {
	delete(g.unsync, member.id)
	if len(g.unsync) == 0 {
		m.timers.cancel(&g.sync)
	}
}

// assign writes what the leader has assigned. A member that it left out has nothing.
func (m *Machine) assign(g *group, req *kmsg.SyncGroupRequest) {
	assignment := make(map[string][]byte, len(req.GroupAssignment))
	for i := range req.GroupAssignment {
		assignment[req.GroupAssignment[i].MemberID] = req.GroupAssignment[i].MemberAssignment
	}
	g.written = true
	m.write(write{kind: assignmentWrite, group: g, generation: g.generation, assignment: assignment},
		[]coordinator.Record{g.record(assignment, m.now)})
}

// assignmentWritten makes the group stable and tells everybody who waits. If the group has gone on meanwhile, nothing
// happens.
func (m *Machine) assignmentWritten(w *write, code int16) {
	g := w.group
	if g.state != completing || g.generation != w.generation {
		return
	}
	if code != 0 {
		for _, member := range g.members {
			member.assignment = nil
		}
		m.propagate(g, code)
		m.prepareRebalance(g)
		return
	}
	for _, member := range g.members {
		member.assignment = w.assignment[member.id]
	}
	m.propagate(g, 0)
	g.enter(stable, m.now)
}

// propagate answers all parked syncs.
func (m *Machine) propagate(g *group, code int16) {
	for _, member := range g.members {
		if member.syncing == coordinator.NoCall {
			continue
		}
		m.reply(member.syncing, g.syncResponse(member, code))
		member.syncing = coordinator.NoCall
		m.beat(member) // its session may have run out while it was parked
	}
}

func (g *group) syncResponse(member *member, code int16) *kmsg.SyncGroupResponse {
	resp := syncRefusal(code)
	if code != 0 {
		return resp
	}
	protocol, protocolType := g.protocol, g.protocolType
	resp.Protocol, resp.ProtocolType = &protocol, &protocolType
	if member.assignment != nil {
		resp.MemberAssignment = member.assignment
	}
	return resp
}

func syncRefusal(code int16) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode, resp.MemberAssignment = code, []byte{}
	return resp
}

// Heartbeat is a Heartbeat request (key 12).
func (m *Machine) Heartbeat(call coordinator.Call, req *kmsg.HeartbeatRequest, now time.Time) coordinator.Effects {
	m.begin(now)
	resp := kmsg.NewPtrHeartbeatResponse()
	g := m.groups[req.Group]
	resp.ErrorCode = checkGeneration(g, req.Group, req.MemberID, req.InstanceID, req.Generation)
	if resp.ErrorCode == 0 {
		m.beat(g.byID[req.MemberID])
		if g.state == preparing {
			resp.ErrorCode = kerr.RebalanceInProgress.Code
		}
	}
	m.reply(call, resp)
	return m.end()
}

// Leave is a LeaveGroup request (key 13). Before v3 it is about one member.
func (m *Machine) Leave(call coordinator.Call, req *kmsg.LeaveGroupRequest, now time.Time) coordinator.Effects {
	m.begin(now)
	resp := kmsg.NewPtrLeaveGroupResponse()
	m.reply(call, resp)
	g := m.groups[req.Group]
	switch {
	case req.Group == "":
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return m.end()
	case g != nil && g.state == dead:
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		return m.end()
	}
	leaving := req.Members
	if req.Version < 3 {
		only := kmsg.NewLeaveGroupRequestMember()
		only.MemberID = req.MemberID
		leaving = []kmsg.LeaveGroupRequestMember{only}
	}
	left := false
	for i := range leaving {
		entry := kmsg.NewLeaveGroupResponseMember()
		entry.MemberID, entry.InstanceID = leaving[i].MemberID, leaving[i].InstanceID
		entry.ErrorCode = kerr.UnknownMemberID.Code
		if g != nil {
			entry.ErrorCode = m.leave(g, &leaving[i])
		}
		left = left || entry.ErrorCode == 0
		resp.Members = append(resp.Members, entry)
	}
	if req.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	if left {
		m.memberGone(g)
	}
	return m.end()
}

// leave removes one member. An administrator names a static member by its instance alone.
func (m *Machine) leave(g *group, who *kmsg.LeaveGroupRequestMember) int16 {
	id := who.MemberID
	if g.pending[id] != nil && who.InstanceID == nil {
		m.dropPending(g, id)
		return 0
	}
	if id == "" && who.InstanceID != nil {
		holder := g.static[*who.InstanceID]
		if holder == nil {
			return kerr.UnknownMemberID.Code
		}
		id = holder.id
	}
	if code := g.check(id, who.InstanceID); code != 0 {
		return code
	}
	m.remove(g.byID[id])
	return 0
}
