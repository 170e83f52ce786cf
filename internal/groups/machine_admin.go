package groups

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// classicType is the type of the groups here, as ListGroups names it.
const classicType = "classic"

// sorted are all groups by name, so that what an event does does not depend on chance.
func (m *Machine) sorted() []*group {
	groups := make([]*group, 0, len(m.groups))
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		groups = append(groups, m.groups[name])
	}
	return groups
}

// List is a ListGroups request (key 16). Filters are compared without regard to case; none of a kind lets everything
// through. The answer is a []kmsg.ListGroupsResponseGroup.
func (m *Machine) List(call coordinator.Call, states, types []string, now time.Time) coordinator.Effects {
	m.begin(now)
	listed := []kmsg.ListGroupsResponseGroup{}
	for _, g := range m.sorted() {
		if g.state == dead || !wanted(states, g.state.String()) || !wanted(types, classicType) {
			continue
		}
		entry := kmsg.NewListGroupsResponseGroup()
		entry.Group, entry.ProtocolType, entry.GroupState, entry.GroupType = g.name, g.protocolType, g.state.String(), classicType
		listed = append(listed, entry)
	}
	m.reply(call, listed)
	return m.end()
}

func wanted(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}

// Describe is one group of a DescribeGroups request (key 15). The answer is a *kmsg.DescribeGroupsResponseGroup.
func (m *Machine) Describe(call coordinator.Call, name string, version int16, now time.Time) coordinator.Effects {
	m.begin(now)
	resp := kmsg.NewDescribeGroupsResponseGroup()
	resp.Group = name
	g := m.groups[name]
	if g == nil || g.state == dead {
		resp.State = dead.String()
		if version >= 6 {
			message := "Group " + name + " not found."
			resp.ErrorCode, resp.ErrorMessage = kerr.GroupIDNotFound.Code, &message
		}
		m.reply(call, &resp)
		return m.end()
	}
	resp.State, resp.ProtocolType = g.state.String(), g.protocolType
	if g.state == stable {
		resp.Protocol = g.protocol
	}
	for _, member := range g.members {
		entry := kmsg.NewDescribeGroupsResponseGroupMember()
		entry.MemberID, entry.InstanceID = member.id, member.instance
		entry.ClientID, entry.ClientHost = member.client.ID, member.client.Host
		entry.MemberAssignment, entry.ProtocolMetadata = []byte{}, []byte{}
		if member.assignment != nil {
			entry.MemberAssignment = member.assignment
		}
		if g.state == stable {
			entry.ProtocolMetadata, _ = member.metadata(g.protocol)
		}
		resp.Members = append(resp.Members, entry)
	}
	m.reply(call, &resp)
	return m.end()
}

// Delete is one group of a DeleteGroups request (key 42). The answer is a *kmsg.DeleteGroupsResponseGroup.
func (m *Machine) Delete(call coordinator.Call, name string, now time.Time) coordinator.Effects {
	m.begin(now)
	g := m.groups[name]
	switch {
	case g == nil || g.state == dead:
		m.reply(call, deleteResponse(name, kerr.GroupIDNotFound.Code))
	case g.state != empty:
		m.reply(call, deleteResponse(name, kerr.NonEmptyGroup.Code))
	default:
		m.deleteGroup(call, g)
	}
	return m.end()
}

func deleteResponse(name string, code int16) *kmsg.DeleteGroupsResponseGroup {
	resp := kmsg.NewDeleteGroupsResponseGroup()
	resp.Group, resp.ErrorCode = name, code
	return &resp
}

// deleteGroup writes the end of an empty group: tombstones of all its offsets, then of itself. Until they are written the
// group is dead, and whoever joins is sent away to come again.
func (m *Machine) deleteGroup(call coordinator.Call, g *group) {
	var changes []change
	for _, at := range g.partitions() {
		changes = append(changes, change{at: at, deleted: true})
	}
	w := write{kind: deletionWrite, group: g, call: call, changes: changes, response: nil}
	var last []coordinator.Record
	if g.written {
		last = []coordinator.Record{g.tombstone(m.now)}
	}
	if len(changes)+len(last) == 0 { // the log has never heard of it
		m.forget(g)
		m.reply(call, deleteResponse(g.name, 0))
		return
	}
	for _, t := range g.pending {
		m.timers.cancel(t)
	}
	clear(g.pending)
	g.enter(dead, m.now)
	m.writeOffsets(w, last)
}

// deletionWritten forgets the group, or keeps it after all.
func (m *Machine) deletionWritten(w *write, code int16) {
	m.fold(w, code)
	if code == 0 {
		m.forget(w.group)
	} else {
		w.group.enter(empty, m.now)
	}
	m.reply(w.call, deleteResponse(w.group.name, code))
}

func (m *Machine) forget(g *group) {
	for _, t := range g.pending {
		m.timers.cancel(t)
	}
	m.timers.cancel(&g.join)
	m.timers.cancel(&g.sync)
	delete(m.groups, g.name)
}
