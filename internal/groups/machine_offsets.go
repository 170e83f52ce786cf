package groups

import (
	"cmp"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// offset is what a group has committed for a partition.
type offset struct {
	at       int64
	epoch    int32 // of the leader that served the records before it, -1 if the client did not say (U-69)
	metadata string
	topic    [16]byte // id of the topic; zero in records that do not have it
	commit   int64    // milliseconds since the epoch
	expire   int64    // milliseconds since the epoch at which it goes whatever the retention is; -1 for none
}

// change is what a write does to one offset; deleted is a tombstone.
type change struct {
	at      topicPartition
	value   offset
	deleted bool
}

func compareTopicPartition(a, b topicPartition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}

// Commit is an OffsetCommit request (key 8) about partitions that exist. The answer has them in the request's order.
func (m *Machine) Commit(call coordinator.Call, req *kmsg.OffsetCommitRequest, now time.Time) coordinator.Effects {
	m.begin(now)
	g := m.groups[req.Group]
	if code := checkCommit(g, req); code != 0 {
		m.reply(call, commitResponse(req, code))
		return m.end()
	}
	if g == nil { // a consumer without group membership (U-118)
		g = m.group(req.Group)
	}
	if member := g.byID[req.MemberID]; member != nil && (g.state == stable || g.state == preparing) {
		m.beat(member)
	}
	resp := commitResponse(req, 0)
	expire := int64(-1)
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		expire = millis(now) + req.RetentionTimeMillis
	}
	var changes []change
	for i := range req.Topics {
		topic := &req.Topics[i]
		for j := range topic.Partitions {
			p := &topic.Partitions[j]
			value := offset{at: p.Offset, epoch: p.LeaderEpoch, topic: topic.TopicID, commit: millis(now), expire: expire}
			if p.Metadata != nil {
				value.metadata = *p.Metadata
			}
			if utf16Len(value.metadata) > m.config.MetadataBytesMax {
				resp.Topics[i].Partitions[j].ErrorCode = kerr.OffsetMetadataTooLarge.Code
				continue
			}
			changes = append(changes, change{at: topicPartition{topic.Topic, p.Partition}, value: value})
		}
	}
	m.writeOffsets(write{kind: offsetsWrite, group: g, call: call, response: resp, changes: changes}, nil)
	return m.end()
}

// utf16Len is the length of a text as Kafka counts it for its limits.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// checkCommit tells who may commit: members of the current generation, and anybody while the group has no members.
func checkCommit(g *group, req *kmsg.OffsetCommitRequest) int16 {
	switch {
	case g == nil && req.Generation < 0:
		return 0
	case g == nil && req.Version >= 9:
		return kerr.GroupIDNotFound.Code
	case g == nil:
		return kerr.IllegalGeneration.Code
	case g.state == dead:
		return kerr.CoordinatorNotAvailable.Code
	case req.Generation < 0 && g.state == empty:
		return 0
	case req.Generation >= 0 || req.MemberID != "" || req.InstanceID != nil:
		if code := g.check(req.MemberID, req.InstanceID); code != 0 {
			return code
		}
		if req.Generation != g.generation {
			return kerr.IllegalGeneration.Code
		}
	default:
		return kerr.UnknownMemberID.Code
	}
	if g.state == completing {
		return kerr.RebalanceInProgress.Code
	}
	return 0
}

// commitResponse answers every partition of a request with one code.
func commitResponse(req *kmsg.OffsetCommitRequest, code int16) *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &resp.Topics[i]
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		t.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(req.Topics[i].Partitions))
		for j := range t.Partitions {
			t.Partitions[j].Partition, t.Partitions[j].ErrorCode = req.Topics[i].Partitions[j].Partition, code
		}
	}
	return resp
}

// writeOffsets writes changes to offsets, and whatever records follow them. Without any record the call is answered at
// once.
func (m *Machine) writeOffsets(w write, following []coordinator.Record) {
	records := make([]coordinator.Record, 0, len(w.changes)+len(following))
	for i := range w.changes {
		records = append(records, w.changes[i].record(w.group.name, m.now))
		w.group.writing[w.changes[i].at]++
	}
	records = append(records, following...)
	if len(records) == 0 {
		m.reply(w.call, w.response)
		return
	}
	m.write(w, records)
}

// offsetsWritten makes changes visible, and answers.
func (m *Machine) offsetsWritten(w *write, code int16) {
	m.fold(w, code)
	if code != 0 {
		switch resp := w.response.(type) {
		case *kmsg.OffsetCommitResponse:
			failPartitions(resp, code)
		case *kmsg.OffsetDeleteResponse:
			resp.ErrorCode, resp.Topics = code, nil
		}
	}
	m.reply(w.call, w.response)
}

// fold applies what was written.
func (m *Machine) fold(w *write, code int16) {
	g := w.group
	for i := range w.changes {
		at := w.changes[i].at
		if g.writing[at]--; g.writing[at] == 0 {
			delete(g.writing, at)
		}
		if code == 0 {
			g.change(&w.changes[i])
		}
	}
}

func (g *group) change(c *change) {
	if c.deleted {
		delete(g.offsets, c.at)
		return
	}
	g.offsets[c.at] = c.value
}

func failPartitions(resp *kmsg.OffsetCommitResponse, code int16) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == 0 {
				p.ErrorCode = code
			}
		}
	}
}

// Fetch is one group of an OffsetFetch request (key 9), by topic name; nil topics are all. An offset that was not
// committed is -1 without an error.
func (m *Machine) Fetch(call coordinator.Call, req *kmsg.OffsetFetchRequestGroup, now time.Time) coordinator.Effects {
	m.begin(now)
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	g := m.groups[req.Group]
	if g == nil || g.state == dead {
		g = newGroup(req.Group)
	}
	if req.Topics == nil {
		resp.Topics = g.allOffsets()
	}
	for i := range req.Topics {
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for _, partition := range req.Topics[i].Partitions {
			topic.Partitions = append(topic.Partitions, g.fetched(topicPartition{topic.Topic, partition}, topic.TopicID))
		}
		resp.Topics = append(resp.Topics, topic)
	}
	m.reply(call, &resp)
	return m.end()
}

// allOffsets are the committed offsets, sorted.
func (g *group) allOffsets() []kmsg.OffsetFetchResponseGroupTopic {
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	for _, at := range g.partitions() {
		if _, committed := g.offsets[at]; !committed {
			continue
		}
		if len(topics) == 0 || topics[len(topics)-1].Topic != at.topic {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic = at.topic
			topics = append(topics, topic)
		}
		last := &topics[len(topics)-1]
		last.Partitions = append(last.Partitions, g.fetched(at, [16]byte{}))
	}
	return topics
}

// fetched is what is committed for a partition. An offset of an earlier topic of the same name is none of the one with the
// id that is asked for; a zero id is any.
func (g *group) fetched(at topicPartition, id [16]byte) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = at.partition, -1, -1
	metadata := ""
	none := [16]byte{}
	if committed, found := g.offsets[at]; found && (id == none || committed.topic == none || committed.topic == id) {
		p.Offset, p.LeaderEpoch, metadata = committed.at, committed.epoch, committed.metadata
	}
	p.Metadata = &metadata
	return p
}

// DeleteOffsets is an OffsetDelete request (key 47) about partitions that exist.
func (m *Machine) DeleteOffsets(call coordinator.Call, req *kmsg.OffsetDeleteRequest, now time.Time) coordinator.Effects {
	m.begin(now)
	resp := kmsg.NewPtrOffsetDeleteResponse()
	g := m.groups[req.Group]
	switch {
	case req.Group == "":
		resp.ErrorCode = kerr.InvalidGroupID.Code
	case g == nil || g.state == dead:
		resp.ErrorCode = kerr.GroupIDNotFound.Code
	case g.state != empty && g.protocolType != consumerType: // what its members read is not known
		resp.ErrorCode = kerr.NonEmptyGroup.Code
	}
	if resp.ErrorCode != 0 {
		m.reply(call, resp)
		return m.end()
	}
	var changes []change
	for i := range req.Topics {
		topic := kmsg.NewOffsetDeleteResponseTopic()
		topic.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			entry := kmsg.NewOffsetDeleteResponseTopicPartition()
			entry.Partition = p.Partition
			at := topicPartition{topic.Topic, p.Partition}
			switch _, committed := g.offsets[at]; {
			case g.subscribes(topic.Topic):
				entry.ErrorCode = kerr.GroupSubscribedToTopic.Code
			case committed || g.writing[at] > 0:
				changes = append(changes, change{at: at, deleted: true})
			}
			topic.Partitions = append(topic.Partitions, entry)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	m.writeOffsets(write{kind: offsetsWrite, group: g, call: call, response: resp, changes: changes}, nil)
	return m.end()
}

// TopicsDeleted drops the offsets of topics that are gone, in all groups.
func (m *Machine) TopicsDeleted(topics map[string]bool, now time.Time) coordinator.Effects {
	m.begin(now)
	for _, g := range m.sorted() {
		var changes []change
		for _, at := range g.partitions() {
			if topics[at.topic] {
				changes = append(changes, change{at: at, deleted: true})
			}
		}
		if len(changes) > 0 {
			m.writeOffsets(write{kind: offsetsWrite, group: g, changes: changes}, nil)
		}
	}
	return m.end()
}

// expireOffsets drops the offsets that nobody has used for the retention time (KIP-211), and the groups that have
// nothing left.
func (m *Machine) expireOffsets() {
	m.timers.set(&m.expire, m.now.Add(m.config.OffsetsRetentionCheck))
	for _, g := range m.sorted() {
		var changes []change
		for _, at := range g.partitions() {
			if value, committed := g.offsets[at]; committed && g.writing[at] == 0 && m.expired(g, at, &value) {
				changes = append(changes, change{at: at, deleted: true})
			}
		}
		switch {
		case g.state == empty && len(g.pending) == 0 && len(changes) == len(g.offsets) && len(g.writing) == 0:
			m.deleteGroup(coordinator.NoCall, g)
		case len(changes) > 0:
			m.writeOffsets(write{kind: offsetsWrite, group: g, changes: changes}, nil)
		}
	}
}

// expired tells whether an offset may go. The clock of a group with members stands still for what they read; that of an
// empty one begins when its last member leaves; that of offsets without a group, with the commit.
func (m *Machine) expired(g *group, at topicPartition, value *offset) bool {
	if g.subscribes(at.topic) && g.state != empty {
		return false
	}
	base := value.commit
	switch {
	case value.expire >= 0:
		return millis(m.now) >= value.expire
	case g.protocolType == "":
	case g.state == empty:
		base = max(base, millis(g.since))
	case g.state == stable && g.protocolType == consumerType && g.subscribed != nil:
	default:
		return false
	}
	return millis(m.now)-base >= m.config.OffsetsRetention.Milliseconds()
}
