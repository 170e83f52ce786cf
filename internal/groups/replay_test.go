package groups

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// FuzzReplay feeds records as they might be found in a log: whatever they are, a machine refuses them or goes on, and what it
// writes of the state can be read again.
func FuzzReplay(f *testing.F) {
	s := newScript()
	s.auto = true
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, group0, "consumer", 10_000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = "range"
	join.Protocols = append(join.Protocols, protocol)
	s.apply(s.m.Join(1, Client{ID: "c"}, "1", join, s.now))
	s.settle()
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = group0, "c-1", 1
	s.apply(s.m.Sync(2, sync, s.now))
	for _, r := range s.log {
		f.Add(r.Key, r.Value)
	}
	offset := change{at: topicPartition{"t", 1}, value: offset{at: 5, topic: [16]byte{1}, expire: -1}}
	r := offset.record(group0, s.now)
	f.Add(r.Key, r.Value)
	f.Add(r.Key, []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := NewMachine(DefaultConfig())
		if m.Replay(coordinator.Record{Key: key, Value: value}) != nil {
			return
		}
		m.Loaded(time.UnixMilli(0))
		for _, g := range m.sorted() {
			again := NewMachine(DefaultConfig())
			if err := again.Replay(g.record(g.assignments(), time.UnixMilli(0))); err != nil {
				t.Fatal(err)
			}
			if got, want := len(again.groups[g.name].members), len(g.members); got != want {
				t.Fatalf("%d members of %d", got, want)
			}
		}
	})
}

// BenchmarkHeartbeat is a heartbeat of one of 1,500 members in 500 groups.
func BenchmarkHeartbeat(b *testing.B) {
	m, now := NewMachine(DefaultConfig()), time.UnixMilli(1_000_000)
	var beats []*kmsg.HeartbeatRequest
	for n := range 500 {
		value := kmsg.NewGroupMetadataValue()
		value.Version, value.ProtocolType, value.Generation = groupValue, "consumer", 1
		for i := range 3 {
			entry := kmsg.NewGroupMetadataValueMember()
			entry.MemberID, entry.SessionTimeoutMillis = fmt.Sprint(i), 45_000
			value.Members = append(value.Members, entry)
			beat := kmsg.NewPtrHeartbeatRequest()
			beat.Group, beat.MemberID, beat.Generation = fmt.Sprint(n), entry.MemberID, 1
			beats = append(beats, beat)
		}
		key := kmsg.GroupMetadataKey{Version: groupKey, Group: fmt.Sprint(n)}
		if err := m.Replay(coordinator.Record{Key: key.AppendTo(nil), Value: value.AppendTo(nil)}); err != nil {
			b.Fatal(err)
		}
	}
	m.Loaded(now)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		now = now.Add(2 * time.Millisecond)
		if at, waits := m.Deadline(); waits && !at.After(now) {
			m.Wake(now)
		}
		m.Heartbeat(1, beats[n%len(beats)], now)
	}
}

// BenchmarkCommit is a commit of one offset, and its outcome.
func BenchmarkCommit(b *testing.B) {
	m, now := NewMachine(DefaultConfig()), time.UnixMilli(1_000_000)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 9, group0, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	topic.Partitions = append(topic.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	b.ReportAllocs()
	for b.Loop() {
		e := m.Commit(1, req, now)
		m.Written(e.Writes[0].ID, nil, now)
	}
}
