package groups

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// TestMachine runs the scripts of testdata/machine. A script drives one machine, and prints every effect and, after each
// event, the groups. Calls are numbered; the ids that client c (or instance c) is given are c-1, c-2, ... in this order.
//
//	config [delay=D] [size=N] [retention=D]
//	join client=C [member=M] [instance=I] [v=9] [protocols=(range,rr)] [topics=(t)] [type=T] [session=10s] [rebalance=60s]
//	sync member=M gen=G [assign=(M=text,...)] [protocol=P]
//	heartbeat|leave member=M [gen=G] [instance=I] [v=V]
//	commit [member=M] [gen=G] [instance=I] [v=V] [metadata=N] [retention=MS] offset=(t/0=5,...)
//	fetch [offset=(t/0,...)]; delete-offsets offset=(t/0); topics-deleted topics=(t)
//	list [states=(S)] [types=(T)]; describe [v=6]; delete
//	written [fail]: every write so far has its outcome; auto: writes have theirs at once from now on
//	advance D: the clock runs, and deadlines pass
//	restart: a new machine reads the log
func TestMachine(t *testing.T) {
	datadriven.Walk(t, "testdata/machine", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.run(t, d)
			fmt.Fprintf(&s.out, "-- %s\n", s.state())
			return s.out.String()
		})
	})
}

// script drives a machine as a runner does, with a log in memory.
type script struct {
	m       *Machine
	config  Config
	now     time.Time
	call    coordinator.Call
	ids     map[string]int
	auto    bool
	pending []coordinator.Write
	log     []coordinator.Record
	out     strings.Builder
}

func newScript() *script {
	config := DefaultConfig()
	config.InitialRebalanceDelay = 0
	s := &script{config: config, now: time.UnixMilli(1_000_000_000), ids: make(map[string]int)}
	s.m = NewMachine(config)
	s.m.Loaded(s.now)
	return s
}

const group0 = "g"

func (s *script) run(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	arg := func(name, byDefault string) string {
		d.MaybeScanArgs(t, name, &byDefault)
		return byDefault
	}
	args := func(name string) []string {
		for _, a := range d.CmdArgs {
			if a.Key == name {
				return a.Vals
			}
		}
		return nil
	}
	number := func(name string, byDefault int) int {
		d.MaybeScanArgs(t, name, &byDefault)
		return byDefault
	}
	span := func(name, byDefault string) time.Duration {
		value, err := time.ParseDuration(arg(name, byDefault))
		if err != nil {
			d.Fatalf(t, "%s: %v", name, err)
		}
		return value
	}
	var instance *string
	if i := arg("instance", ""); i != "" {
		instance = &i
	}
	s.call++
	switch d.Cmd {
	case "config":
		s.m.config.InitialRebalanceDelay, s.m.config.SizeMax = span("delay", "0s"), number("size", 1<<30)
		s.m.config.OffsetsRetention = span("retention", "168h")
		s.config = s.m.config
	case "join":
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version = int16(number("v", 9))
		req.Group, req.MemberID, req.InstanceID, req.ProtocolType = group0, arg("member", ""), instance, arg("type", "consumer")
		req.SessionTimeoutMillis = int32(span("session", "10s").Milliseconds())
		req.RebalanceTimeoutMillis = int32(span("rebalance", "60s").Milliseconds())
		protocols := args("protocols")
		if protocols == nil {
			protocols = []string{"range"}
		}
		for _, name := range protocols {
			p := kmsg.NewJoinGroupRequestProtocol()
			metadata := kmsg.NewConsumerMemberMetadata()
			metadata.Topics = args("topics")
			p.Name, p.Metadata = name, metadata.AppendTo(nil)
			req.Protocols = append(req.Protocols, p)
		}
		client := arg("client", "c")
		name := arg("instance", client)
		if req.MemberID == "" {
			s.ids[name]++
		}
		s.apply(s.m.Join(s.call, Client{ID: client, Host: "/h"}, fmt.Sprint(s.ids[name]), req, s.now))
	case "sync":
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID, req.InstanceID, req.Generation = group0, arg("member", ""), instance, int32(number("gen", -1))
		if p := arg("protocol", ""); p != "" {
			req.Protocol = &p
		}
		for _, a := range args("assign") {
			entry := kmsg.NewSyncGroupRequestGroupAssignment()
			member, text, _ := strings.Cut(a, "=")
			entry.MemberID, entry.MemberAssignment = member, []byte(text)
			req.GroupAssignment = append(req.GroupAssignment, entry)
		}
		s.apply(s.m.Sync(s.call, req, s.now))
	case "heartbeat":
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.InstanceID, req.Generation = group0, arg("member", ""), instance, int32(number("gen", -1))
		s.apply(s.m.Heartbeat(s.call, req, s.now))
	case "leave":
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Version = int16(number("v", 5))
		req.Group, req.MemberID = group0, arg("member", "")
		entry := kmsg.NewLeaveGroupRequestMember()
		entry.MemberID, entry.InstanceID = req.MemberID, instance
		req.Members = []kmsg.LeaveGroupRequestMember{entry}
		s.apply(s.m.Leave(s.call, req, s.now))
	case "commit":
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version = int16(number("v", 9))
		req.Group, req.MemberID, req.InstanceID, req.Generation = group0, arg("member", ""), instance, int32(number("gen", -1))
		req.RetentionTimeMillis = int64(number("retention", -1))
		text := strings.Repeat("m", number("metadata", 0))
		for _, o := range args("offset") {
			topic, partition, at := scanOffset(o)
			entry := kmsg.NewOffsetCommitRequestTopic()
			entry.Topic = topic
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, at, 7, &text
			entry.Partitions = append(entry.Partitions, p)
			req.Topics = append(req.Topics, entry)
		}
		s.apply(s.m.Commit(s.call, req, s.now))
	case "fetch":
		req := kmsg.NewOffsetFetchRequestGroup()
		req.Group = group0
		for _, o := range args("offset") {
			topic, partition, _ := scanOffset(o)
			entry := kmsg.NewOffsetFetchRequestGroupTopic()
			entry.Topic, entry.Partitions = topic, []int32{partition}
			req.Topics = append(req.Topics, entry)
		}
		s.apply(s.m.Fetch(s.call, &req, s.now))
	case "delete-offsets":
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group0
		for _, o := range args("offset") {
			topic, partition, _ := scanOffset(o)
			entry := kmsg.NewOffsetDeleteRequestTopic()
			entry.Topic, entry.Partitions = topic, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}
			req.Topics = append(req.Topics, entry)
		}
		s.apply(s.m.DeleteOffsets(s.call, req, s.now))
	case "topics-deleted":
		names := make(map[string]bool)
		for _, topic := range args("topics") {
			names[topic] = true
		}
		s.apply(s.m.TopicsDeleted(names, s.now))
	case "list":
		s.apply(s.m.List(s.call, args("states"), args("types"), s.now))
	case "describe":
		s.apply(s.m.Describe(s.call, group0, int16(number("v", 6)), s.now))
	case "delete":
		s.apply(s.m.Delete(s.call, group0, s.now))
	case "written":
		var err error
		if d.HasArg("fail") {
			err = replica.ErrNotEnoughReplicas
		}
		s.written(err)
	case "auto":
		s.auto = true
		s.written(nil)
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.advance(by)
	case "restart":
		s.restart()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	s.settle()
}

// settle wakes the machine for what is due now, as the runner does after each round.
func (s *script) settle() {
	for {
		at, waits := s.m.Deadline()
		if !waits || at.After(s.now) {
			return
		}
		s.apply(s.m.Wake(s.now))
	}
}

func (s *script) advance(by time.Duration) {
	end := s.now.Add(by)
	for {
		at, waits := s.m.Deadline()
		if !waits || at.After(end) {
			break
		}
		if at.After(s.now) {
			s.now = at
		}
		before := s.out.Len()
		s.apply(s.m.Wake(s.now))
		if s.out.Len() > before {
			fmt.Fprintf(&s.out, "   (%v before the end)\n", end.Sub(s.now))
		}
	}
	s.now = end
}

func (s *script) restart() {
	s.pending = nil
	s.m = NewMachine(s.config)
	for _, r := range s.log {
		if err := s.m.Replay(r); err != nil {
			fmt.Fprintf(&s.out, "replay: %v\n", err)
		}
	}
	s.apply(s.m.Loaded(s.now))
}

func (s *script) written(err error) {
	for len(s.pending) > 0 {
		w := s.pending[0]
		s.pending = s.pending[1:]
		if err == nil {
			s.log = append(s.log, w.Records...)
		}
		s.apply(s.m.Written(w.ID, err, s.now))
	}
}

func (s *script) apply(e coordinator.Effects) {
	for _, w := range e.Writes {
		for _, r := range w.Records {
			fmt.Fprintf(&s.out, "write %s\n", showRecord(r))
		}
		s.pending = append(s.pending, w)
	}
	for _, r := range e.Replies {
		fmt.Fprintf(&s.out, "#%d %s\n", r.Call, showReply(r.Value))
	}
	if s.auto {
		s.written(nil)
	}
}

func scanOffset(s string) (topic string, partition int32, at int64) {
	where, value, _ := strings.Cut(s, "=")
	topic, number, _ := strings.Cut(where, "/")
	fmt.Sscan(number, &partition)
	fmt.Sscan(value, &at)
	return topic, partition, at
}

func showRecord(r coordinator.Record) string {
	if r.Key[1] == groupKey {
		var key kmsg.GroupMetadataKey
		if err := key.ReadFrom(r.Key); err != nil {
			return err.Error()
		}
		if r.Value == nil {
			return fmt.Sprintf("group %s tombstone", key.Group)
		}
		var value kmsg.GroupMetadataValue
		if err := value.ReadFrom(r.Value); err != nil {
			return err.Error()
		}
		text := fmt.Sprintf("group %s v%d type=%q gen=%d protocol=%s leader=%s since=%d", key.Group, value.Version, value.ProtocolType,
			value.Generation, show(value.Protocol), show(value.Leader), value.CurrentStateTimestamp)
		for _, m := range value.Members {
			text += fmt.Sprintf(" %s:%s(%d,%d)%q", m.MemberID, show(m.InstanceID), m.SessionTimeoutMillis, m.RebalanceTimeoutMillis, m.Assignment)
		}
		return text
	}
	var key kmsg.OffsetCommitKey
	if err := key.ReadFrom(r.Key); err != nil {
		return err.Error()
	}
	if r.Value == nil {
		return fmt.Sprintf("offset %s %s/%d tombstone", key.Group, key.Topic, key.Partition)
	}
	var value kmsg.OffsetCommitValue
	if err := value.ReadFrom(r.Value); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("offset %s %s/%d v%d at=%d epoch=%d expire=%d", key.Group, key.Topic, key.Partition, value.Version, value.Offset, value.LeaderEpoch, value.ExpireTimestamp)
}

func show(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

// said is a code's name; empty for none.
func said(code int16) string {
	if code == 0 {
		return "ok"
	}
	var e *kerr.Error
	if errors.As(kerr.ErrorForCode(code), &e) {
		return e.Message
	}
	return fmt.Sprint(code)
}

func showReply(value any) string {
	switch r := value.(type) {
	case *kmsg.JoinGroupResponse:
		text := fmt.Sprintf("join %s member=%s gen=%d protocol=%s leader=%s", said(r.ErrorCode), r.MemberID, r.Generation, show(r.Protocol), r.LeaderID)
		if r.SkipAssignment {
			text += " skip"
		}
		for _, m := range r.Members {
			text += " +" + m.MemberID
		}
		return text
	case *kmsg.SyncGroupResponse:
		return fmt.Sprintf("sync %s %q", said(r.ErrorCode), r.MemberAssignment)
	case *kmsg.HeartbeatResponse:
		return "heartbeat " + said(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		text := "leave " + said(r.ErrorCode)
		for _, m := range r.Members {
			text += fmt.Sprintf(" %s:%s", m.MemberID, said(m.ErrorCode))
		}
		return text
	case *kmsg.OffsetCommitResponse:
		text := "commit"
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				text += fmt.Sprintf(" %s/%d:%s", t.Topic, p.Partition, said(p.ErrorCode))
			}
		}
		return text
	case *kmsg.OffsetFetchResponseGroup:
		text := "fetch " + said(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				text += fmt.Sprintf(" %s/%d=%d(%d)", t.Topic, p.Partition, p.Offset, p.LeaderEpoch)
			}
		}
		return text
	case *kmsg.OffsetDeleteResponse:
		text := "delete-offsets " + said(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				text += fmt.Sprintf(" %s/%d:%s", t.Topic, p.Partition, said(p.ErrorCode))
			}
		}
		return text
	case *kmsg.DeleteGroupsResponseGroup:
		return "delete " + said(r.ErrorCode)
	case *kmsg.DescribeGroupsResponseGroup:
		text := fmt.Sprintf("describe %s %s type=%q protocol=%q", said(r.ErrorCode), r.State, r.ProtocolType, r.Protocol)
		for _, m := range r.Members {
			text += fmt.Sprintf(" %s(%s,%s,%d)%q", m.MemberID, m.ClientID, m.ClientHost, len(m.ProtocolMetadata), m.MemberAssignment)
		}
		return text
	case []kmsg.ListGroupsResponseGroup:
		text := "list"
		for _, g := range r {
			text += fmt.Sprintf(" %s(%q,%s,%s)", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
		return text
	}
	return fmt.Sprintf("%T", value)
}

// state shows the groups and how long the machine wants to sleep.
func (s *script) state() string {
	var all []string
	for _, g := range s.m.sorted() {
		text := fmt.Sprintf("%s %s gen=%d leader=%s", g.name, g.state, g.generation, g.leader)
		for _, m := range g.members {
			text += " " + m.id
			if m.joining != coordinator.NoCall {
				text += fmt.Sprintf("(join #%d)", m.joining)
			}
			if m.syncing != coordinator.NoCall {
				text += fmt.Sprintf("(sync #%d)", m.syncing)
			}
		}
		var pending []string
		for id := range g.pending {
			pending = append(pending, " ?"+id)
		}
		slices.Sort(pending)
		all = append(all, text+strings.Join(pending, ""))
	}
	if len(all) == 0 {
		return "no group"
	}
	return strings.Join(all, "; ")
}
