package groups

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// Client is who sends a request.
type Client struct {
	// ID is the client id of the request, Host the address as describe calls show it: "/127.0.0.1".
	ID, Host string

	protocolType string // that the member came with
}

// Versions of JoinGroup from which a dynamic member must come back with the id that it was given (KIP-394), from which
// a member that leads an unchanged assignment need not compute it (KIP-814).
const (
	memberIDRequiredVersion = 4
	skipAssignmentVersion   = 9
)

// Join is a JoinGroup request (key 11). newID is a fresh random text, for the id of a new member.
func (m *Machine) Join(call coordinator.Call, client Client, newID string, req *kmsg.JoinGroupRequest, now time.Time) coordinator.Effects {
	m.begin(now)
	switch {
	case req.Group == "":
		m.refuseJoin(call, req, req.MemberID, kerr.InvalidGroupID.Code)
	case duration(req.SessionTimeoutMillis) < m.config.SessionTimeoutMin || duration(req.SessionTimeoutMillis) > m.config.SessionTimeoutMax:
		m.refuseJoin(call, req, req.MemberID, kerr.InvalidSessionTimeout.Code)
	case m.groups[req.Group] == nil && req.MemberID != "":
		m.refuseJoin(call, req, req.MemberID, kerr.UnknownMemberID.Code)
	default:
		client.protocolType = req.ProtocolType
		m.join(&joinCall{call, client, newID, req}, m.group(req.Group))
	}
	return m.end()
}

// joinCall is a join that is looked at.
type joinCall struct {
	call   coordinator.Call
	client Client
	newID  string
	req    *kmsg.JoinGroupRequest
}

func (m *Machine) refuseJoin(call coordinator.Call, req *kmsg.JoinGroupRequest, member string, code int16) {
	resp := newJoinResponse(member)
	resp.Version, resp.ErrorCode = req.Version, code
	m.reply(call, resp)
}

// newJoinResponse is a response without a group.
func newJoinResponse(member string) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID, resp.Generation = member, -1
	return resp
}

// join is a request to a group that exists now.
func (m *Machine) join(j *joinCall, g *group) {
	switch {
	case !m.hasRoom(g, j.req.MemberID):
		if existing := g.byID[j.req.MemberID]; existing != nil {
			m.remove(existing)
		}
		m.dropPending(g, j.req.MemberID)
		m.refuseJoin(j.call, j.req, "", kerr.GroupMaxSizeReached.Code)
	case g.state == dead:
		m.refuseJoin(j.call, j.req, j.req.MemberID, kerr.CoordinatorNotAvailable.Code)
	case !g.supports(j.req.ProtocolType, j.req.Protocols):
		m.refuseJoin(j.call, j.req, j.req.MemberID, kerr.InconsistentGroupProtocol.Code)
	case j.req.MemberID == "":
		m.joinNew(j, g)
	default:
		m.joinAgain(j, g)
	}
}

// hasRoom tells whether the group may take (back) a member. While it prepares, those who came first stay.
func (m *Machine) hasRoom(g *group, id string) bool {
	existing := g.byID[id]
	switch g.state {
	case preparing:
		return existing != nil && existing.joining != coordinator.NoCall || g.joined() < m.config.SizeMax
	case completing, stable:
		return existing != nil || len(g.members) < m.config.SizeMax
	case empty, dead:
	}
	return true
}

// joinNew is the join of somebody without an id.
func (m *Machine) joinNew(j *joinCall, g *group) {
	if j.req.InstanceID != nil {
		id := *j.req.InstanceID + "-" + j.newID
		if old := g.static[*j.req.InstanceID]; old != nil {
			m.replaceStatic(j, g, old, id)
			return
		}
		m.addMember(j, g, id)
		return
	}
	id := j.client.ID + "-" + j.newID
	if j.req.Version < memberIDRequiredVersion {
		m.addMember(j, g, id)
		return
	}
	pending := &timer{kind: pendingTimer, group: g, id: id}
	g.pending[id] = pending
	m.timers.set(pending, m.now.Add(duration(j.req.SessionTimeoutMillis)))
	m.refuseJoin(j.call, j.req, id, kerr.MemberIDRequired.Code)
}

// joinAgain is the join of somebody with an id.
func (m *Machine) joinAgain(j *joinCall, g *group) {
	id := j.req.MemberID
	if g.pending[id] != nil && j.req.InstanceID == nil {
		m.addMember(j, g, id)
		return
	}
	if code := g.check(id, j.req.InstanceID); code != 0 {
		m.refuseJoin(j.call, j.req, id, code)
		return
	}
	existing := g.byID[id]
	switch {
	case g.state == preparing:
		m.updateMember(j, existing)
		m.rebalanceOrComplete(g)
	case g.state == empty:
		m.refuseJoin(j.call, j.req, id, kerr.UnknownMemberID.Code)
	case !existing.matches(j.req.Protocols), g.state == stable && g.leader == id:
		// A leader that joins again wants a new assignment, of topics that have changed for example.
		m.updateMember(j, existing)
		m.rebalanceOrComplete(g)
	default: // the answer was lost, or nothing has changed
		m.reply(j.call, g.joinResponse(existing, j.req.Version, g.state == completing))
	}
}

// addMember puts a new member into the group.
func (m *Machine) addMember(j *joinCall, g *group, id string) {
	m.dropPending(g, id)
	added := &member{id: id, instance: j.req.InstanceID, client: j.client, fresh: true}
	added.session = timer{kind: sessionTimer, member: added}
	g.add(added)
	m.updateMember(j, added)
	if g.state == preparing && g.initial {
		g.newcomer = true
	}
	// A member that waits for its first answer cannot send heartbeats, and its disconnection is not seen: it is given up
	// some day, or a client that tries again and again would fill the group.
	m.timers.set(&added.session, m.now.Add(newMemberTimeout))
	m.rebalanceOrComplete(g)
}

// updateMember takes over what a join says, and parks it. An older join of the member that is still parked is answered:
// its client has given it up.
func (m *Machine) updateMember(j *joinCall, member *member) {
	if member.joining != coordinator.NoCall {
		m.refuseJoin(member.joining, j.req, member.id, kerr.UnknownMemberID.Code)
	}
	member.protocols = j.req.Protocols
	member.sessionTimeout = duration(j.req.SessionTimeoutMillis)
	member.rebalanceTimeout = duration(j.req.RebalanceTimeoutMillis)
	if j.req.Version < 1 || j.req.RebalanceTimeoutMillis < 0 {
		member.rebalanceTimeout = member.sessionTimeout
	}
	member.joining, member.version = j.call, j.req.Version
}

// replacement is a static member that came back under a new id.
type replacement struct {
	call    coordinator.Call
	version int16
	leader  string // before
	member  *member
	oldID   string
	old     member // what it was
}

// replaceStatic gives the place of a static member to the instance that has come back without its id (KIP-345). The old
// id is fenced.
func (m *Machine) replaceStatic(j *joinCall, g *group, old *member, id string) {
	r := &replacement{call: j.call, version: j.req.Version, leader: g.leader, member: old, oldID: old.id, old: *old}
	if old.joining != coordinator.NoCall {
		m.refuseJoin(old.joining, j.req, old.id, kerr.FencedInstanceID.Code)
		old.joining = coordinator.NoCall
	}
	if old.syncing != coordinator.NoCall {
		m.reply(old.syncing, syncRefusal(kerr.FencedInstanceID.Code))
		old.syncing = coordinator.NoCall
	}
	g.rename(old, id)
	old.client = j.client
	m.updateMember(j, old)
	m.beat(old)
	switch {
	case g.state == stable && g.selectProtocol() == g.protocol:
		// Nothing changes for the others. The new id is told when it is written, so that a coordinator that takes over
		// knows it.
		m.write(write{kind: staticWrite, group: g, replaced: r}, []coordinator.Record{g.record(g.assignments(), m.now)})
	case g.state == stable, g.state == completing:
		// The leader may have computed an assignment for the old id already.
		m.prepareRebalance(g)
	default:
		m.completeIfJoined(g)
	}
}

// rename changes a member's id.
func (g *group) rename(member *member, id string) {
	delete(g.byID, member.id)
	if g.unsync[member.id] {
		delete(g.unsync, member.id)
		g.unsync[id] = true
	}
	if g.leader == member.id {
		g.leader = id
	}
	member.id = id
	g.byID[id] = member
}

// staticWritten answers a static member that has its place back.
func (m *Machine) staticWritten(w *write, code int16) {
	r, g := w.replaced, w.group
	if r.member.joining != r.call || g.byID[r.member.id] != r.member {
		return // answered meanwhile, in a rebalance or because it was replaced again
	}
	if code != 0 {
		newID := r.member.id
		g.rename(r.member, r.oldID)
		r.member.protocols, r.member.client = r.old.protocols, r.old.client
		r.member.sessionTimeout, r.member.rebalanceTimeout = r.old.sessionTimeout, r.old.rebalanceTimeout
		r.member.joining = coordinator.NoCall
		if g.leader == newID {
			g.leader = r.oldID
		}
		m.beat(r.member)
		resp := g.joinResponse(r.member, r.version, false)
		resp.MemberID, resp.LeaderID, resp.ErrorCode = "", r.leader, code
		m.reply(r.call, resp)
		return
	}
	if g.state != stable {
		return // a rebalance has begun, and answers
	}
	r.member.joining = coordinator.NoCall
	m.beat(r.member)
	leads := g.leader == r.member.id
	resp := g.joinResponse(r.member, r.version, leads && r.version >= skipAssignmentVersion)
	switch {
	case r.version >= skipAssignmentVersion:
		resp.SkipAssignment = leads
	default:
		// An old client that finds itself the leader would assign: it is told that the old id leads.
		resp.LeaderID = r.leader
	}
	m.reply(r.call, resp)
}

// joinResponse is the answer for the current generation; the leader is told the members.
func (g *group) joinResponse(to *member, version int16, withMembers bool) *kmsg.JoinGroupResponse {
	resp := newJoinResponse(to.id)
	resp.Version = version
	resp.Generation, resp.LeaderID = g.generation, g.leader
	protocol, protocolType := g.protocol, g.protocolType
	if g.hasProtocol {
		resp.Protocol = &protocol
	}
	if protocolType != "" {
		resp.ProtocolType = &protocolType
	}
	if !withMembers || g.leader != to.id {
		return resp
	}
	for _, member := range g.members {
		entry := kmsg.NewJoinGroupResponseMember()
		entry.MemberID, entry.InstanceID = member.id, member.instance
		entry.ProtocolMetadata, _ = member.metadata(g.protocol)
		resp.Members = append(resp.Members, entry)
	}
	return resp
}

// dropPending forgets an id that was handed out.
func (m *Machine) dropPending(g *group, id string) {
	if t := g.pending[id]; t != nil {
		m.timers.cancel(t)
		delete(g.pending, id)
	}
}
