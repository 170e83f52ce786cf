package groups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// Versions of the keys of __consumer_offsets. Keys of later protocols (from 3 on) are other kinds of groups.
const (
	oldestOffsetKey = 0
	offsetKey       = 1
	groupKey        = 2
)

// Versions of the values that are written, as Apache Kafka does.
const (
	offsetValue           = 3 // when the topic's id is not known
	offsetValueWithTopic  = 4
	offsetValueWithExpiry = 1 // of clients that ask for a retention of their own
	groupValue            = 3
)

// errShortKey is for a record without a version.
var errShortKey = errors.New("the key is shorter than its version")

// Replay implements coordinator.Machine. Records of kinds that are not known are skipped, as Apache Kafka does.
func (m *Machine) Replay(r coordinator.Record) error {
	if len(r.Key) < 2 {
		return errShortKey
	}
	switch version := binary.BigEndian.Uint16(r.Key); version {
	case oldestOffsetKey, offsetKey:
		return m.replayOffset(r)
	case groupKey:
		return m.replayGroup(r)
	}
	return nil
}

func (m *Machine) replayOffset(r coordinator.Record) error {
	var key kmsg.OffsetCommitKey
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("key of an offset: %w", err)
	}
	c := change{at: topicPartition{key.Topic, key.Partition}, deleted: r.Value == nil}
	g := m.groups[key.Group]
	if c.deleted {
		if g != nil {
			g.change(&c)
			m.forgetEmpty(g)
		}
		return nil
	}
	value := kmsg.NewOffsetCommitValue()
	if err := value.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("offset of group %q for partition %d of topic %q: %w", key.Group, key.Partition, key.Topic, err)
	}
	c.value = offset{
		at: value.Offset, epoch: value.LeaderEpoch, metadata: value.Metadata, topic: value.TopicID,
		commit: value.CommitTimestamp, expire: value.ExpireTimestamp,
	}
	if value.Version < 3 {
		c.value.epoch = -1
	}
	if value.Version != offsetValueWithExpiry {
		c.value.expire = -1
	}
	if g == nil {
		g = m.group(key.Group)
	}
	g.change(&c)
	return nil
}

// forgetEmpty drops a group that only its offsets had brought.
func (m *Machine) forgetEmpty(g *group) {
	if !g.written && len(g.offsets) == 0 {
		delete(m.groups, g.name)
	}
}

func (m *Machine) replayGroup(r coordinator.Record) error {
	var key kmsg.GroupMetadataKey
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("key of a group: %w", err)
	}
	offsets := make(map[topicPartition]offset)
	if known := m.groups[key.Group]; known != nil {
		offsets = known.offsets
	}
	if r.Value == nil {
		delete(m.groups, key.Group)
		if len(offsets) > 0 { // the tombstone of a group leaves the offsets that came after its own
			m.group(key.Group).offsets = offsets
		}
		return nil
	}
	value := kmsg.NewGroupMetadataValue()
	if err := value.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("generation of group %q: %w", key.Group, err)
	}
	m.groups[key.Group] = loadGroup(key.Group, &value, offsets)
	return nil
}

// loadGroup is a group as its last written generation had it.
func loadGroup(name string, value *kmsg.GroupMetadataValue, offsets map[topicPartition]offset) *group {
	g := newGroup(name)
	g.offsets, g.written = offsets, true
	g.generation, g.protocolType = value.Generation, value.ProtocolType
	if value.Protocol != nil {
		g.protocol, g.hasProtocol = *value.Protocol, true
	}
	if value.CurrentStateTimestamp >= 0 {
		g.since = time.UnixMilli(value.CurrentStateTimestamp)
	}
	for i := range value.Members {
		v := &value.Members[i]
		if g.byID[v.MemberID] != nil {
			continue
		}
		loaded := &member{
			id: v.MemberID, instance: v.InstanceID, client: Client{ID: v.ClientID, Host: v.ClientHost, protocolType: value.ProtocolType},
			sessionTimeout: duration(v.SessionTimeoutMillis), rebalanceTimeout: duration(v.RebalanceTimeoutMillis),
			assignment: v.Assignment,
		}
		if v.RebalanceTimeoutMillis < 0 {
			loaded.rebalanceTimeout = loaded.sessionTimeout
		}
		protocol := kmsg.NewJoinGroupRequestProtocol()
		protocol.Name, protocol.Metadata = g.protocol, v.Subscription
		loaded.protocols = []kmsg.JoinGroupRequestProtocol{protocol}
		loaded.session = timer{kind: sessionTimer, member: loaded}
		g.add(loaded)
	}
	if len(g.members) > 0 {
		g.state = stable
	}
	if value.Leader != nil && g.byID[*value.Leader] != nil {
		g.leader = *value.Leader
	}
	g.subscribed = g.subscriptions()
	return g
}

// record is the group's generation as it is written.
func (g *group) record(assignment map[string][]byte, now time.Time) coordinator.Record {
	value := kmsg.NewGroupMetadataValue()
	value.Version, value.ProtocolType, value.Generation = groupValue, g.protocolType, g.generation
	value.CurrentStateTimestamp = millis(g.since)
	if g.hasProtocol {
		value.Protocol = &g.protocol
	}
	if g.leader != "" {
		value.Leader = &g.leader
	}
	for _, m := range g.members {
		entry := kmsg.NewGroupMetadataValueMember()
		entry.MemberID, entry.InstanceID, entry.ClientID, entry.ClientHost = m.id, m.instance, m.client.ID, m.client.Host
		entry.RebalanceTimeoutMillis = int32(m.rebalanceTimeout.Milliseconds())
		entry.SessionTimeoutMillis = int32(m.sessionTimeout.Milliseconds())
		entry.Subscription, _ = m.metadata(g.protocol)
		entry.Assignment = assignment[m.id]
		value.Members = append(value.Members, entry)
	}
	return coordinator.Record{Key: g.key(), Value: value.AppendTo(nil), Timestamp: millis(now)}
}

// assignments are what the members have.
func (g *group) assignments() map[string][]byte {
	all := make(map[string][]byte, len(g.members))
	for _, m := range g.members {
		all[m.id] = m.assignment
	}
	return all
}

func (g *group) key() []byte {
	key := kmsg.GroupMetadataKey{Version: groupKey, Group: g.name}
	return key.AppendTo(nil)
}

func (g *group) tombstone(now time.Time) coordinator.Record {
	return coordinator.Record{Key: g.key(), Timestamp: millis(now)}
}

// record is a change as it is written.
func (c *change) record(group string, now time.Time) coordinator.Record {
	key := kmsg.OffsetCommitKey{Version: offsetKey, Group: group, Topic: c.at.topic, Partition: c.at.partition}
	r := coordinator.Record{Key: key.AppendTo(nil), Timestamp: millis(now)}
	if c.deleted {
		return r
	}
	value := kmsg.NewOffsetCommitValue()
	value.Version, value.Offset, value.LeaderEpoch, value.Metadata = offsetValue, c.value.at, c.value.epoch, c.value.metadata
	value.CommitTimestamp = c.value.commit
	switch {
	case c.value.expire >= 0:
		value.Version, value.ExpireTimestamp = offsetValueWithExpiry, c.value.expire
	case c.value.topic != [16]byte{}:
		value.Version, value.TopicID = offsetValueWithTopic, c.value.topic
	}
	r.Value = value.AppendTo(nil)
	return r
}
