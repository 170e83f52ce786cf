package groups

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// state is where a group is in its life; the table is at Machine.
type state uint8

const (
	empty state = iota
	preparing
	completing
	stable
	dead
)

// String is the state's name in the protocol.
func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// group is one classic group, or the offsets of consumers that use no group protocol.
type group struct {
	name  string
	state state
	since time.Time // of the state

	generation   int32
	protocolType string // empty before the first member, and for groups of offsets alone
	protocol     string // that the generation uses; hasProtocol tells an empty name from none
	hasProtocol  bool
	leader       string // member id; empty for none

	members []*member // in the order in which they came
	byID    map[string]*member
	static  map[string]*member // by instance id
	pending map[string]*timer  // ids handed out with MEMBER_ID_REQUIRED, not used yet
	unsync  map[string]bool    // members whose sync is awaited

	// subscribed are the topics of the members of a consumer group. It is nil when they are not known.
	subscribed map[string]bool

	join, sync timer
	// The first rebalance of an empty group is prolonged while members come.
	initial   bool          // the join deadline is that of such a rebalance
	newcomer  bool          // somebody came since the deadline was set
	delay     time.Duration // that was waited for last
	remaining time.Duration // that may still be waited

	offsets map[topicPartition]offset
	writing map[topicPartition]int // offsets on their way to the log
	written bool                   // a group record is in the log, or on its way
}

type topicPartition struct {
	topic     string
	partition int32
}

// member is one member of a group.
type member struct {
	group    *group
	id       string
	instance *string
	client   Client

	rebalanceTimeout time.Duration
	sessionTimeout   time.Duration
	protocols        []kmsg.JoinGroupRequestProtocol
	assignment       []byte

	fresh   bool             // has never been answered: it cannot send heartbeats
	joining coordinator.Call // the parked JoinGroup
	version int16            // of it
	syncing coordinator.Call // the parked SyncGroup
	session timer
}

func newGroup(name string) *group {
	g := &group{
		name: name, byID: make(map[string]*member), static: make(map[string]*member), pending: make(map[string]*timer),
		unsync: make(map[string]bool), offsets: make(map[topicPartition]offset), writing: make(map[topicPartition]int),
	}
	g.join = timer{kind: joinTimer, group: g}
	g.sync = timer{kind: syncTimer, group: g}
	return g
}

// enter changes the state.
func (g *group) enter(s state, now time.Time) { g.state, g.since = s, now }

// add puts a member in, with its parked join.
func (g *group) add(m *member) {
	if len(g.members) == 0 {
		g.protocolType = m.protocolTypeOr(g.protocolType)
	}
	if g.leader == "" {
		g.leader = m.id
	}
	m.group = g
	g.members = append(g.members, m)
	g.byID[m.id] = m
	if m.instance != nil {
		g.static[*m.instance] = m
	}
}

// protocolTypeOr is what the group's type is with this member first in it.
func (m *member) protocolTypeOr(known string) string {
	if m.client.protocolType != "" {
		return m.client.protocolType
	}
	return known
}

// drop takes a member out. Whoever calls it has answered the member and stops its timers.
func (g *group) drop(m *member) {
	g.members = slices.DeleteFunc(g.members, func(other *member) bool { return other == m })
	delete(g.byID, m.id)
	delete(g.unsync, m.id)
	if m.instance != nil && g.static[*m.instance] == m {
		delete(g.static, *m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// joined counts the members whose join is parked.
func (g *group) joined() int {
	n := 0
	for _, m := range g.members {
		if m.joining != coordinator.NoCall {
			n++
		}
	}
	return n
}

// allJoined tells whether nobody is missing.
func (g *group) allJoined() bool { return g.joined() == len(g.members) && len(g.pending) == 0 }

// rebalanceTimeout is the longest that a member needs.
func (g *group) rebalanceTimeout() time.Duration {
	longest := time.Duration(0)
	for _, m := range g.members {
		longest = max(longest, m.rebalanceTimeout)
	}
	return longest
}

// electLeader keeps a leader that has joined, else takes the first member that has; false if nobody has.
func (g *group) electLeader() bool {
	if m := g.byID[g.leader]; m != nil && m.joining != coordinator.NoCall {
		return true
	}
	for _, m := range g.members {
		if m.joining != coordinator.NoCall {
			g.leader = m.id
			return true
		}
	}
	return false
}

// supports tells whether a member with these protocols can be in the group: all its members have one in common.
func (g *group) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == empty || len(g.members) == 0 {
		return protocolType != "" && len(protocols) > 0
	}
	if protocolType != g.protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return g.supportedByAll(p.Name) })
}

func (g *group) supportedByAll(protocol string) bool {
	for _, m := range g.members {
		if _, found := m.metadata(protocol); !found {
			return false
		}
	}
	return true
}

// selectProtocol lets each member vote for the first of its protocols that all have. Among equals the one wins that was
// voted for first.
func (g *group) selectProtocol() string {
	votes := make(map[string]int)
	best := ""
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.supportedByAll(p.Name) {
				votes[p.Name]++
				break
			}
		}
	}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if votes[p.Name] > votes[best] {
				best = p.Name
			}
		}
	}
	return best
}

// metadata is what the member says for a protocol.
func (m *member) metadata(protocol string) ([]byte, bool) {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata, true
		}
	}
	return nil, false
}

// matches tells whether the member has said the same before.
func (m *member) matches(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// check tells whether a member may speak: it exists, and its instance is its own (KIP-345).
func (g *group) check(id string, instance *string) int16 {
	if instance != nil {
		switch holder := g.static[*instance]; {
		case holder == nil:
			return kerr.UnknownMemberID.Code
		case holder.id != id:
			return kerr.FencedInstanceID.Code
		}
	}
	if g.byID[id] == nil {
		return kerr.UnknownMemberID.Code
	}
	return 0
}

// nextGeneration begins a generation with the members that there are.
func (g *group) nextGeneration(now time.Time) {
	g.generation++
	clear(g.unsync)
	if len(g.members) == 0 {
		g.protocol, g.hasProtocol, g.leader = "", false, ""
		g.enter(empty, now)
	} else {
		g.protocol, g.hasProtocol = g.selectProtocol(), true
		g.enter(completing, now)
	}
	g.subscribed = g.subscriptions()
}

// consumerType is the protocol type whose subscriptions can be read.
const consumerType = "consumer"

// subscriptions are the topics that the members of a consumer group want; nil when that cannot be told.
func (g *group) subscriptions() map[string]bool {
	if g.protocolType != consumerType {
		return nil
	}
	topics := make(map[string]bool)
	for _, m := range g.members {
		metadata, _ := m.metadata(g.protocol)
		var subscription kmsg.ConsumerMemberMetadata
		if err := subscription.ReadFrom(metadata); err != nil {
			return nil
		}
		for _, topic := range subscription.Topics {
			topics[topic] = true
		}
	}
	return topics
}

// subscribes tells whether the offsets of a topic belong to a live subscription. A consumer group whose subscriptions
// cannot be read counts as subscribed to everything.
func (g *group) subscribes(topic string) bool {
	if g.subscribed == nil {
		return g.protocolType == consumerType
	}
	return g.subscribed[topic]
}

// partitions lists the offsets of the group, those on their way too, in order.
func (g *group) partitions() []topicPartition {
	all := maps.Clone(g.writing)
	for at := range g.offsets {
		all[at] = 0
	}
	return slices.SortedFunc(maps.Keys(all), compareTopicPartition)
}
