package broker

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var kafkaAt = flag.String("kafka", "", "host:port of an Apache Kafka broker with id 1 and no groups: record its answers about groups")

// groupAnswers are what Apache Kafka 4.4.0 answers to the questions below.
const groupAnswers = "testdata/groups-kafka-4.4.txt"

// TestGroupAnswersAreKafkas asks questions about groups in every version and state, the wrong ones above all, and compares
// each answer, field by field, with what Apache Kafka said (U-118, U-119). With -kafka it records instead.
func TestGroupAnswersAreKafkas(t *testing.T) {
	addr := *kafkaAt
	if addr == "" {
		addr = start(t, t.TempDir(), map[string]string{"offsets.topic.num.partitions": "5"}).Addrs()[0].String()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("asker"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{t: t, client: client, port: port, ids: make(map[string]string)}
	a.questions()
	got := a.said.String()
	if *kafkaAt != "" {
		if err := os.WriteFile(groupAnswers, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(groupAnswers)
	if err != nil {
		t.Fatal(err)
	}
	compareLines(t, string(want), got)
}

// compareLines reports the answers that differ, each with its question.
func compareLines(t *testing.T, want, got string) {
	t.Helper()
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	if len(wants) != len(gots) {
		t.Fatalf("%d answers, recorded are %d", len(gots), len(wants))
	}
	for i := range wants {
		if wants[i] != gots[i] {
			t.Errorf("\n got %s\nwant %s", gots[i], wants[i])
		}
	}
}

// asker asks one broker and writes down the answers, with everything that is chance taken out.
type asker struct {
	t      *testing.T
	client *kgo.Client
	port   string
	ids    map[string]string // of members, as said to as written
	topic  [16]byte
	said   strings.Builder
}

// ask sends one request in one version, and writes the answer.
func (a *asker) ask(about string, req kmsg.Request, version int16) kmsg.Response {
	a.t.Helper()
	return a.note(about, version, <-a.send(req, version))
}

// send sends a request whose answer may have to wait for others, on a connection of its own.
func (a *asker) send(req kmsg.Request, version int16) <-chan kmsg.Response {
	answer := make(chan kmsg.Response, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(a.client.OptValue(kgo.SeedBrokers).([]string)...), kgo.ClientID("asker"))
	if err != nil {
		a.t.Fatal(err)
	}
	go func() {
		defer client.Close()
		ctx, cancel := context.WithTimeout(a.t.Context(), patience)
		defer cancel()
		resp, err := client.SeedBrokers()[0].Request(ctx, pinned{req, version})
		if err != nil {
			a.t.Errorf("%T v%d: %v", req, version, err)
			resp = req.ResponseKind()
		}
		answer <- resp
	}()
	return answer
}

var uuid = regexp.MustCompile(`"([a-z]*)-[0-9a-f]{8}-[0-9a-f-]{27}"`)

func (a *asker) note(about string, version int16, resp kmsg.Response) kmsg.Response {
	a.t.Helper()
	text, err := json.Marshal(resp)
	if err != nil {
		a.t.Fatal(err)
	}
	said := strings.NewReplacer(`"Port":`+a.port, `"Port":"P"`, ids(a.topic), `"T"`).Replace(string(text))
	said = uuid.ReplaceAllStringFunc(said, func(id string) string {
		name := uuid.FindStringSubmatch(id)[1]
		if a.ids[id] == "" {
			n := 1
			for _, known := range a.ids {
				if strings.HasPrefix(known, name+"#") {
					n++
				}
			}
			a.ids[id] = fmt.Sprintf("%s#%d", name, n)
		}
		return `"` + a.ids[id] + `"`
	})
	name, _ := strings.CutPrefix(fmt.Sprintf("%T", resp), "*kmsg.")
	fmt.Fprintf(&a.said, "%s v%d, %s: %s\n", strings.TrimSuffix(name, "Response"), version, about, said)
	return resp
}

// ids is a topic id as JSON has it.
func ids(id [16]byte) string {
	text, err := json.Marshal(id)
	if err != nil {
		return ""
	}
	return string(text)
}

func (a *asker) join(group, member, instance string, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30_000, 30_000
	if instance != "" {
		req.InstanceID = &instance
	}
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = []string{"kt"}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", subscription.AppendTo(nil)
	req.Protocols = append(req.Protocols, protocol)
	if change != nil {
		change(req)
	}
	return req
}

func syncOf(group, member string, generation int32, assign ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	protocol, kind := "range", "consumer"
	req.Protocol, req.ProtocolType = &protocol, &kind
	for _, m := range assign {
		entry := kmsg.NewSyncGroupRequestGroupAssignment()
		entry.MemberID, entry.MemberAssignment = m, []byte("assigned")
		req.GroupAssignment = append(req.GroupAssignment, entry)
	}
	return req
}

func beatOf(group, member string, generation int32) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	return req
}

func leaveOf(group string, members ...string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, members[0]
	for _, m := range members {
		entry := kmsg.NewLeaveGroupRequestMember()
		entry.MemberID = m
		if instance, is := strings.CutPrefix(m, "instance:"); is {
			entry.MemberID, entry.InstanceID = "", &instance
		}
		req.Members = append(req.Members, entry)
	}
	return req
}

func (a *asker) commit(group, member string, generation int32, topic string, partitions ...int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	req.RetentionTimeMillis = -1
	entry := kmsg.NewOffsetCommitRequestTopic()
	entry.Topic = topic
	if topic == "kt" {
		entry.TopicID = a.topic
	}
	for _, n := range partitions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = n, 5, 0
		entry.Partitions = append(entry.Partitions, p)
	}
	req.Topics = append(req.Topics, entry)
	return req
}

func (a *asker) fetch(group string, all bool, topics ...string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	entry := kmsg.NewOffsetFetchRequestGroup()
	entry.Group = group
	for _, topic := range topics {
		old := kmsg.NewOffsetFetchRequestTopic()
		old.Topic, old.Partitions = topic, []int32{0, 1, 9}
		req.Topics = append(req.Topics, old)
		one := kmsg.NewOffsetFetchRequestGroupTopic()
		one.Topic, one.Partitions = topic, []int32{0, 1, 9}
		if topic == "kt" {
			one.TopicID = a.topic
		}
		entry.Topics = append(entry.Topics, one)
	}
	if all {
		req.Topics, entry.Topics = nil, nil
	}
	req.Groups = append(req.Groups, entry)
	return req
}

func describeOf(groups ...string) *kmsg.DescribeGroupsRequest {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups, req.IncludeAuthorizedOperations = groups, true
	return req
}

func deleteOf(groups ...string) *kmsg.DeleteGroupsRequest {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = groups
	return req
}

func listOf(states, types []string) *kmsg.ListGroupsRequest {
	req := kmsg.NewPtrListGroupsRequest()
	req.StatesFilter, req.TypesFilter = states, types
	return req
}

func dropOf(group, topic string, partitions ...int32) *kmsg.OffsetDeleteRequest {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	entry := kmsg.NewOffsetDeleteRequestTopic()
	entry.Topic = topic
	for _, n := range partitions {
		entry.Partitions = append(entry.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: n})
	}
	req.Topics = append(req.Topics, entry)
	return req
}

// questions are all that is asked, in an order that takes one group through its states.
func (a *asker) questions() {
	admin := kadm.NewClient(a.client)
	created, err := admin.CreateTopic(a.t.Context(), 2, 1, nil, "kt")
	if err != nil {
		a.t.Fatal(err)
	}
	a.topic = created.ID
	for _, err := admin.FetchOffsets(a.t.Context(), "warm"); err != nil; { // the offsets topic is there from now on
		if _, err = admin.FetchOffsets(a.t.Context(), "warm"); a.t.Context().Err() != nil {
			a.t.Fatal(err)
		}
	}
	a.coordinators()
	a.unknownGroups()
	a.simpleGroup()
	a.lifeOfAGroup()
	a.staticMembers()
	a.oldJoins()
}

func (a *asker) coordinators() {
	for version := int16(0); version <= 6; version++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", ""}
		a.ask("a group", req, version)
	}
}

func (a *asker) unknownGroups() {
	for _, group := range []string{"", "nobody"} {
		for _, version := range []int16{0, 5, 9} {
			a.ask("member of "+group, a.join(group, "m", "", nil), version)
		}
		a.ask("of "+group, syncOf(group, "m", 1), 3)
		a.ask("of "+group, syncOf(group, "m", 1), 5)
		a.ask("of "+group, beatOf(group, "m", 1), 0)
		a.ask("of "+group, beatOf(group, "m", 1), 4)
		for version := int16(0); version <= 5; version++ {
			a.ask("of "+group, leaveOf(group, "m", "n", "instance:i"), version)
		}
		for version := int16(2); version <= 10; version++ {
			a.ask("of "+group, a.commit(group, "m", 1, "kt", 0), version)
		}
		for version := int16(1); version <= 10; version++ {
			a.ask("of "+group, a.fetch(group, false, "kt", "none"), version)
			if version >= 2 {
				a.ask("all of "+group, a.fetch(group, true), version)
			}
		}
		for version := int16(0); version <= 6; version++ {
			a.ask(group, describeOf(group), version)
		}
		for version := int16(0); version <= 3; version++ {
			a.ask(group, deleteOf(group, group), version)
		}
		a.ask(group, dropOf(group, "kt", 0), 0)
	}
	empty := syncOf("nobody", "m", 1)
	empty.Protocol = nil
	a.ask("without a protocol", empty, 5)
}

func (a *asker) simpleGroup() {
	for version := int16(2); version <= 10; version++ {
		a.ask("simple", a.commit("simple", "", -1, "kt", 0, 1, 9), version)
	}
	a.ask("unknown topic", a.commit("simple", "", -1, "none", 0), 9)
	a.ask("unknown topic id", a.commit("simple", "", -1, "none", 0), 10)
	long := a.commit("simple", "", -1, "kt", 1)
	text := strings.Repeat("m", 4097)
	long.Topics[0].Partitions[0].Metadata = &text
	a.ask("long metadata", long, 9)
	note := a.commit("simple", "", -1, "kt", 1)
	text = "é"
	note.Topics[0].Partitions[0].Metadata, note.Topics[0].Partitions[0].Offset = &text, -7
	a.ask("negative offset", note, 9)
	nothing := a.commit("simple", "", -1, "kt")
	nothing.Topics = nil
	a.ask("nothing", nothing, 9)
	a.ask("no partitions", a.commit("simple", "", -1, "kt"), 9)
	a.ask("generation of an empty group", a.commit("simple", "", 0, "kt", 0), 9)
	a.ask("member of an empty group", a.commit("simple", "m", -1, "kt", 0), 9)
	for version := int16(1); version <= 10; version++ {
		a.ask("simple", a.fetch("simple", false, "kt", "none"), version)
		if version >= 2 {
			a.ask("all of simple", a.fetch("simple", true), version)
		}
	}
	a.ask("simple", describeOf("simple"), 6)
	a.ask("simple", listOf(nil, nil), 5)
	a.ask("heartbeat", beatOf("simple", "m", 0), 4)
	a.ask("sync", syncOf("simple", "m", 0), 5)
	a.ask("leave", leaveOf("simple", "m"), 5)
	a.ask("topics and partitions", dropOf("simple", "kt", 0, 9), 0)
	a.ask("unknown topic", dropOf("simple", "none", 0), 0)
	a.ask("after the deletion", a.fetch("simple", true), 7)
	a.ask("simple", deleteOf("simple"), 3)
	a.ask("simple", describeOf("simple"), 5)
}

func (a *asker) lifeOfAGroup() {
	a.ask("a short session", a.join("g", "", "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5999 }), 9)
	a.ask("a long session", a.join("g", "", "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1_800_001 }), 6)
	a.ask("no protocols", a.join("g", "", "", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }), 9)
	a.ask("no protocol type", a.join("g", "", "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }), 9)
	first := a.ask("the first", a.join("g", "", "", nil), 9).(*kmsg.JoinGroupResponse).MemberID
	a.ask("an id was given", describeOf("g"), 6)
	a.ask("a member id that was given", beatOf("g", first, 0), 4)
	a.ask("the first again", a.join("g", first, "", nil), 9)
	a.ask("completing", describeOf("g"), 6)
	a.ask("completing", listOf([]string{"completingrebalance"}, []string{"Classic"}), 5)
	a.ask("completing", beatOf("g", first, 1), 4)
	a.ask("completing", a.commit("g", first, 1, "kt", 0), 9)
	a.ask("completing, an old generation", a.commit("g", first, 0, "kt", 0), 9)
	a.ask("completing, nobody", a.commit("g", "", -1, "kt", 0), 9)
	a.ask("completing", a.join("g", first, "", nil), 9)
	a.ask("another protocol", a.join("g", "", "", func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" }), 9)
	a.ask("another type", a.join("g", "", "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }), 9)
	other := "other"
	wrong := syncOf("g", first, 1)
	wrong.Protocol = &other
	a.ask("another protocol", wrong, 5)
	a.ask("a generation to come", syncOf("g", first, 2), 5)
	a.ask("the leader", syncOf("g", first, 1, first), 5)
	a.ask("stable", syncOf("g", first, 1), 3)
	a.ask("stable", describeOf("g"), 6)
	a.ask("stable", describeOf("g"), 0)
	for version := int16(0); version <= 5; version++ {
		a.ask("everything", listOf(nil, nil), version)
	}
	a.ask("states", listOf([]string{"Empty", "bogus"}, nil), 5)
	a.ask("types", listOf(nil, []string{"consumer"}), 5)
	a.ask("bogus types", listOf(nil, []string{"bogus"}), 5)
	a.ask("stable", a.commit("g", first, 1, "kt", 0, 1), 9)
	a.ask("stable, an old generation", a.commit("g", first, 0, "kt", 0), 8)
	a.ask("stable, a stranger", a.commit("g", "stranger", 1, "kt", 0), 8)
	a.ask("stable, nobody", a.commit("g", "", -1, "kt", 0), 8)
	a.ask("stable, no generation", a.commit("g", first, -1, "kt", 0), 8)
	a.ask("subscribed", dropOf("g", "kt", 0), 0)
	a.ask("stable", deleteOf("g"), 3)
	a.ask("stable", deleteOf("g"), 1)
	second := a.ask("the second", a.join("g", "", "", nil), 5).(*kmsg.JoinGroupResponse).MemberID
	parked := a.send(a.join("g", second, "", nil), 5)
	a.awaitState("g", "PreparingRebalance")
	a.ask("preparing", beatOf("g", first, 1), 4)
	a.ask("preparing", syncOf("g", first, 1), 5)
	a.ask("preparing", a.commit("g", first, 1, "kt", 0), 9)
	a.ask("preparing", describeOf("g"), 6)
	a.ask("the first rejoins", a.join("g", first, "", nil), 7)
	a.note("the second was parked", 5, <-parked)
	waiting := a.send(syncOf("g", second, 2), 3)
	a.ask("the leader leaves one out", syncOf("g", first, 2, first), 3)
	a.note("the one left out", 3, <-waiting)
	a.ask("a follower rejoins", a.join("g", second, "", nil), 9)
	a.ask("several", leaveOf("g", "stranger", second, ""), 5)
	a.ask("the first is called", beatOf("g", first, 2), 3)
	a.ask("the last", leaveOf("g", first), 1)
	a.ask("empty", describeOf("g"), 6)
	a.ask("empty", listOf([]string{"EMPTY"}, nil), 4)
	a.ask("empty", a.fetch("g", true), 10)
	a.ask("empty", dropOf("g", "kt", 0), 0)
	a.ask("empty", a.join("g", first, "", nil), 9)
	a.ask("empty", deleteOf("g", "g"), 3)
	a.ask("deleted", describeOf("g"), 6)
	a.ask("deleted", a.fetch("g", true), 8)
}

func (a *asker) staticMembers() {
	first := a.ask("static", a.join("s", "", "i", nil), 9).(*kmsg.JoinGroupResponse).MemberID
	withInstance := func(instance string) func(*kmsg.SyncGroupRequest) *kmsg.SyncGroupRequest {
		return func(r *kmsg.SyncGroupRequest) *kmsg.SyncGroupRequest { r.InstanceID = &instance; return r }
	}
	a.ask("static", withInstance("i")(syncOf("s", first, 1, first)), 5)
	a.ask("static", describeOf("s"), 6)
	second := a.ask("static comes back", a.join("s", "", "i", nil), 9).(*kmsg.JoinGroupResponse).MemberID
	a.ask("fenced", withInstance("i")(syncOf("s", first, 1)), 5)
	a.ask("without its instance", syncOf("s", first, 1), 5)
	a.ask("fenced", a.join("s", first, "i", nil), 9)
	instance := "i"
	beat := beatOf("s", first, 1)
	beat.InstanceID = &instance
	a.ask("fenced", beat, 4)
	commit := a.commit("s", first, 1, "kt", 0)
	commit.InstanceID = &instance
	a.ask("fenced", commit, 9)
	stranger := "j"
	commit.InstanceID = &stranger
	a.ask("unknown instance", commit, 9)
	a.ask("comes back in an old version", a.join("s", "", "i", nil), 5)
	a.ask("the assignment", describeOf("s"), 6)
	a.ask("old id", leaveOf("s", second), 4)
	a.ask("unknown instance", leaveOf("s", "instance:j"), 5)
	a.ask("by instance", leaveOf("s", "instance:i"), 5)
	a.ask("gone", describeOf("s"), 6)
}

// oldJoins joins in the versions before member ids were required.
func (a *asker) oldJoins() {
	for version := int16(0); version < 4; version++ {
		group := fmt.Sprint("old", version)
		id := a.ask("old", a.join(group, "", "", nil), version).(*kmsg.JoinGroupResponse).MemberID
		a.ask("old", syncOf(group, id, 1, id), version)
		a.ask("old", a.commit(group, id, 1, "kt", 0), version+2)
		a.ask("old", beatOf(group, id, 1), version)
		a.ask("old", leaveOf(group, id), version)
	}
}

// awaitState waits until a group is in a state.
func (a *asker) awaitState(group, state string) {
	for range 10_000 {
		resp := (<-a.send(describeOf(group), 5)).(*kmsg.DescribeGroupsResponse)
		if resp.Groups[0].State == state {
			return
		}
	}
	a.t.Fatalf("%s is never %s", group, state)
}
