package server

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// adminServer is a server that is not started, for calls of handlers, with brokers 1 (itself), 2 (without the client's
// listener) and 3 (fenced), and the named topics: "name" or "name:leader", two partitions each.
func adminServer(t *testing.T, topics ...string) (*Server, *client, *meta.Image) {
	t.Helper()
	image := adminImage(topics...)
	s, err := New(Config{
		Broker: 1, Listeners: []Listener{{Name: "PLAINTEXT"}}, Image: func() *meta.Image { return image },
		WaitImage: func(context.Context, int64) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092}
	return s, &client{listener: &s.config.Listeners[0], local: local, remote: local}, image
}

func adminImage(topics ...string) *meta.Image {
	apply := &meta.Apply{Controller: 1, ControllerEpoch: 1, Revision: 10, Brokers: []meta.Broker{
		{ID: 1, Rack: "r1", Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "one", Port: 9092}}},
		{ID: 2, Endpoints: []meta.Endpoint{{Listener: "OTHER", Host: "two", Port: 9093}}},
		{ID: 3, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "three", Port: 9094}}, Registration: 3, Fenced: true},
		{ID: 4, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "four", Port: 9095}}, Rack: "r4", Fenced: true},
	}}
	for i, topic := range topics {
		name, leaderText, _ := strings.Cut(topic, ":")
		leader, err := strconv.Atoi(leaderText)
		if err != nil {
			leader = 1
		}
		id := topicID(i + 1)
		apply.Topics = append(apply.Topics, meta.TopicUpdate{ID: id, Name: name})
		for n := range int32(2) {
			apply.Partitions = append(apply.Partitions, meta.PartitionUpdate{ID: id, Partition: n, State: meta.Partition{
				Replicas: []meta.BrokerID{1, 3}, ISR: []meta.BrokerID{1}, Leader: meta.BrokerID(leader), LeaderEpoch: 5, Version: 1,
			}})
		}
	}
	return meta.NewImage("test-cluster").Apply(apply)
}

func topicID(n int) meta.TopicID { return meta.TopicID{15: byte(n)} }

// metadataOf summarises an answer: topic=error(partition errors), in order.
func metadataOf(t *testing.T, s *Server, c *client, req *kmsg.MetadataRequest) string {
	t.Helper()
	resp, err := s.metadata(t.Context(), c, req)
	if err != nil {
		t.Fatal(err)
	}
	m := resp.(*kmsg.MetadataResponse)
	var out []string
	if m.ErrorCode != 0 {
		out = append(out, "error "+codeName(m.ErrorCode))
	}
	for _, topic := range m.Topics {
		name := "null"
		if topic.Topic != nil {
			name = *topic.Topic
		}
		text := name + "=" + codeName(topic.ErrorCode)
		for _, p := range topic.Partitions {
			text += " " + strconv.Itoa(int(p.Leader)) + ":" + codeName(p.ErrorCode)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func codeName(code int16) string {
	if code == 0 {
		return "ok"
	}
	if err := kerr.TypedErrorForCode(code); err != nil {
		return err.Message
	}
	return strconv.Itoa(int(code))
}

// TestMetadataForms asks for topics in every way that the protocol has; the error codes are those of Apache Kafka 4.4
// (U-136).
func TestMetadataForms(t *testing.T) {
	const noAuto = false
	named := func(names ...string) []kmsg.MetadataRequestTopic {
		topics := []kmsg.MetadataRequestTopic{}
		for _, name := range names {
			topics = append(topics, kmsg.MetadataRequestTopic{Topic: &name})
		}
		return topics
	}
	byID := func(name *string, ids ...meta.TopicID) []kmsg.MetadataRequestTopic {
		var topics []kmsg.MetadataRequestTopic
		for _, id := range ids {
			topics = append(topics, kmsg.MetadataRequestTopic{Topic: name, TopicID: id})
		}
		return topics
	}
	a := "a"
	tests := []struct {
		name    string
		version int16
		topics  []kmsg.MetadataRequestTopic
		want    string
	}{
		{"v0 empty is all", 0, named(), "a=ok 1:ok 1:ok; away=ok -1:LEADER_NOT_AVAILABLE -1:LEADER_NOT_AVAILABLE; fenced=ok -1:LEADER_NOT_AVAILABLE -1:LEADER_NOT_AVAILABLE"},
		{"v1 null is all", 1, nil, "a=ok 1:ok 1:ok; away=ok -1:LEADER_NOT_AVAILABLE -1:LEADER_NOT_AVAILABLE; fenced=ok -1:LEADER_NOT_AVAILABLE -1:LEADER_NOT_AVAILABLE"},
		{"v1 empty is none", 1, named(), ""},
		{"v13 null is all", 13, nil, "a=ok 1:ok 1:ok; away=ok -1:LISTENER_NOT_FOUND -1:LISTENER_NOT_FOUND; fenced=ok -1:LEADER_NOT_AVAILABLE -1:LEADER_NOT_AVAILABLE"},
		{"v13 empty is none", 13, named(), ""},
		{"unknown", 13, named("nosuch"), "nosuch=UNKNOWN_TOPIC_OR_PARTITION"},
		{"illegal", 13, named("a b", "", "."), "a b=INVALID_TOPIC_EXCEPTION; =INVALID_TOPIC_EXCEPTION; .=INVALID_TOPIC_EXCEPTION"},
		{"twice", 13, named("a", "a"), "a=ok 1:ok 1:ok"},
		{"by id", 12, byID(nil, topicID(1)), "a=ok 1:ok 1:ok"},
		{"by unknown id", 12, byID(nil, topicID(9)), "null=UNKNOWN_TOPIC_ID"},
		{"by unknown id with a name", 12, byID(&a, topicID(9)), "null=UNKNOWN_TOPIC_ID"},
		{"ids and names", 12, append(byID(nil, topicID(9)), named("a")...), "null=UNKNOWN_TOPIC_ID"},
		{"by id before it was served", 10, byID(&a, topicID(1)), "error INVALID_REQUEST; a=INVALID_REQUEST"},
		{"neither", 12, byID(nil, meta.TopicID{}), "error INVALID_REQUEST; null=INVALID_REQUEST"},
	}
	s, c, _ := adminServer(t, "a", "away:2", "fenced:3")
	for _, test := range tests {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics, req.AllowAutoTopicCreation = test.version, test.topics, noAuto
		if req.Version < 4 && test.name == "unknown" {
			t.Fatal("would create the topic")
		}
		if got := metadataOf(t, s, c, req); got != test.want {
			t.Errorf("%s: got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestMetadataFields(t *testing.T) {
	s, c, _ := adminServer(t, "a", "__consumer_offsets")
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, nil
	resp, _ := s.metadata(t.Context(), c, req)
	m := resp.(*kmsg.MetadataResponse)
	if *m.ClusterID != "test-cluster" || m.ControllerID != 1 {
		t.Errorf("cluster %s, controller %d", *m.ClusterID, m.ControllerID)
	}
	if len(m.Brokers) != 1 || m.Brokers[0].NodeID != 1 || *m.Brokers[0].Rack != "r1" {
		t.Errorf("brokers %+v: want broker 1 of rack r1 alone; 2 has no such listener, 3 is fenced", m.Brokers)
	}
	if m.AuthorizedOperations != -2147483648 || m.Topics[0].AuthorizedOperations != -2147483648 {
		t.Errorf("operations %d and %d without being asked", m.AuthorizedOperations, m.Topics[0].AuthorizedOperations)
	}
	internal, plain := m.Topics[0], m.Topics[1]
	if !internal.IsInternal || plain.IsInternal || plain.TopicID != topicID(1) {
		t.Errorf("topics %+v and %+v", internal, plain)
	}
	p := plain.Partitions[1]
	if p.Partition != 1 || p.LeaderEpoch != 5 || len(p.Replicas) != 2 || len(p.ISR) != 1 || len(p.OfflineReplicas) != 1 || p.OfflineReplicas[0] != 3 {
		t.Errorf("partition %+v", p)
	}

	req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
	resp, _ = s.metadata(t.Context(), c, req)
	m = resp.(*kmsg.MetadataResponse)
	if m.AuthorizedOperations != 8096 || m.Topics[0].AuthorizedOperations != 3576 {
		t.Errorf("operations %d and %d, want those of Kafka", m.AuthorizedOperations, m.Topics[0].AuthorizedOperations)
	}
}

// TestAddressToldToClients is U-132: the address that the client dialled, unless the listener advertises one.
func TestAddressToldToClients(t *testing.T) {
	s, c, image := adminServer(t)
	self, _ := image.Broker(1)
	tests := []struct {
		local      net.Addr
		advertised string
		want       address
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092}, "", address{"localhost", 9092}},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 9092}, "", address{"localhost", 9092}},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 1, 1), Port: 9092}, "", address{"127.0.1.1", 9092}}, // where Debian puts a host's name
		{&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 9099}, "", address{"10.1.2.3", 9099}},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 9099}, "", address{"2001:db8::1", 9099}},
		{&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 9099}, "broker.example", address{"broker.example", 19092}},
	}
	for _, test := range tests {
		asking := *c
		asking.local = test.local
		asking.listener = &Listener{Name: "PLAINTEXT", Host: test.advertised, Port: 19092}
		if got, found := s.brokerAddress(&asking, &self); got != test.want || !found {
			t.Errorf("dialled %s, advertised %q: told %v", test.local, test.advertised, got)
		}
	}
	other := meta.Broker{ID: 4, Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: "four", Port: 1}}}
	if got, found := s.brokerAddress(c, &other); got != (address{"four", 1}) || !found {
		t.Errorf("another broker: told %v", got)
	}
}

// TestDescribeTopicPartitionsPages turns pages; the answers are those of Apache Kafka 4.4 (U-85).
func TestDescribeTopicPartitionsPages(t *testing.T) {
	tests := []struct {
		name   string
		topics []string
		limit  int32
		cursor string // topic:partition
		want   string
	}{
		{"all", nil, 2000, "", "a 0 1; b 0 1"},
		{"one page", nil, 3, "", "a 0 1; b 0; next b:1"},
		{"next page", nil, 3, "b:1", "b 1"},
		{"page ends with a topic", nil, 2, "", "a 0 1; next b:0"},
		{"no limit is one", []string{"b"}, 0, "", "b 0; next b:1"},
		{"sorted, each once", []string{"b", "a b", "nosuch", "b", "a"}, 9, "", "a 0 1; a b INVALID_TOPIC_EXCEPTION; b 0 1; nosuch UNKNOWN_TOPIC_OR_PARTITION"},
		{"beyond the end", []string{"b"}, 9, "b:99", "b"},
		{"cursor of a deleted topic", nil, 9, "aa:0", "b 0 1"},
		{"negative cursor", []string{"b"}, 9, "b:-1", "b INVALID_REQUEST"},
		{"cursor elsewhere", []string{"b", "a"}, 9, "c:0", "b INVALID_REQUEST; a INVALID_REQUEST"},
	}
	s, c, _ := adminServer(t, "a", "b")
	for _, test := range tests {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = test.limit
		for _, name := range test.topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		if topic, partition, found := strings.Cut(test.cursor, ":"); found {
			n, err := strconv.Atoi(partition)
			if err != nil {
				t.Fatal(err)
			}
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: int32(n)}
		}
		resp, err := s.describeTopicPartitions(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		if got := pageOf(resp.(*kmsg.DescribeTopicPartitionsResponse)); got != test.want {
			t.Errorf("%s: got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func pageOf(page *kmsg.DescribeTopicPartitionsResponse) string {
	var out []string
	for _, topic := range page.Topics {
		text := *topic.Topic
		if topic.ErrorCode != 0 {
			text += " " + codeName(topic.ErrorCode)
		}
		for _, p := range topic.Partitions {
			text += " " + strconv.Itoa(int(p.Partition))
		}
		out = append(out, text)
	}
	if next := page.NextCursor; next != nil {
		out = append(out, "next "+next.Topic+":"+strconv.Itoa(int(next.Partition)))
	}
	return strings.Join(out, "; ")
}

func TestDescribeCluster(t *testing.T) {
	s, c, _ := adminServer(t)
	ask := func(change func(*kmsg.DescribeClusterRequest)) *kmsg.DescribeClusterResponse {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version = 2
		change(req)
		resp, err := s.describeCluster(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*kmsg.DescribeClusterResponse)
	}
	plain := ask(func(*kmsg.DescribeClusterRequest) {})
	if len(plain.Brokers) != 1 || plain.ClusterID != "test-cluster" || plain.ControllerID != 1 || plain.ClusterAuthorizedOperations != -2147483648 {
		t.Errorf("got %+v", plain)
	}
	fenced := ask(func(req *kmsg.DescribeClusterRequest) {
		req.IncludeFencedBrokers, req.IncludeClusterAuthorizedOperations = true, true
	})
	if len(fenced.Brokers) != 3 || !fenced.Brokers[1].IsFenced || IsDown(&fenced.Brokers[1]) || fenced.ClusterAuthorizedOperations != 8096 {
		t.Errorf("with fenced brokers: got %+v", fenced)
	}
	// D6: one that is down is told by where it was last, fenced as in Kafka, and marked for those who ask.
	if four := &fenced.Brokers[2]; four.NodeID != 4 || four.Host != "four" || *four.Rack != "r4" || !four.IsFenced || IsDown(four) {
		t.Errorf("a broker that is down: got %+v", four)
	}
	marked := ask(AskForDown)
	if len(marked.Brokers) != 3 || IsDown(&marked.Brokers[0]) || IsDown(&marked.Brokers[1]) || !IsDown(&marked.Brokers[2]) {
		t.Errorf("with marks: got %+v", marked)
	}
	controllers := ask(func(req *kmsg.DescribeClusterRequest) { req.EndpointType = 2 })
	if codeName(controllers.ErrorCode) != "MISMATCHED_ENDPOINT_TYPE" ||
		*controllers.ErrorMessage != "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER" {
		t.Errorf("controllers: got %s, %s", codeName(controllers.ErrorCode), *controllers.ErrorMessage)
	}
	neither := ask(func(req *kmsg.DescribeClusterRequest) { req.EndpointType = 3 })
	if codeName(neither.ErrorCode) != "UNSUPPORTED_ENDPOINT_TYPE" || *neither.ErrorMessage != "Unsupported endpoint type 3" {
		t.Errorf("endpoint 3: got %s, %s", codeName(neither.ErrorCode), *neither.ErrorMessage)
	}
}

func TestListConfigResources(t *testing.T) {
	tests := []struct {
		version int16
		kinds   []int8
		want    string
	}{
		{0, nil, "ok"},
		{1, nil, "ok 8/1 8/2 8/3 4/1 4/2 4/3 2/a 2/b"},
		{1, []int8{2}, "ok 2/a 2/b"},
		{1, []int8{16, 32}, "ok"},
		{1, []int8{3}, "UNSUPPORTED_VERSION"},
	}
	s, c, _ := adminServer(t, "a", "b")
	for _, test := range tests {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version, req.ResourceTypes = test.version, test.kinds
		resp, err := s.listConfigResources(t.Context(), c, req)
		if err != nil {
			t.Fatal(err)
		}
		list := resp.(*kmsg.ListConfigResourcesResponse)
		got := codeName(list.ErrorCode)
		for _, r := range list.ConfigResources {
			got += " " + strconv.Itoa(int(r.Type)) + "/" + r.Name
		}
		if got != test.want {
			t.Errorf("v%d %v: got %s, want %s", test.version, test.kinds, got, test.want)
		}
	}
}

// TestDescribeConfigsIsBounded asks for one topic more often than an answer holds.
func TestDescribeConfigsIsBounded(t *testing.T) {
	s, c, _ := adminServer(t, "a")
	req := kmsg.NewPtrDescribeConfigsRequest()
	for range describedResourcesMax + 1 {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "a"})
	}
	resp, err := s.describeConfigs(t.Context(), c, req)
	if err != nil {
		t.Fatal(err)
	}
	resources := resp.(*kmsg.DescribeConfigsResponse).Resources
	last, before := resources[describedResourcesMax], resources[describedResourcesMax-1]
	if codeName(before.ErrorCode) != "ok" || *last.ErrorMessage != "One request may describe at most 20000 resources." {
		t.Errorf("the last is %s, %s; the one before %s", codeName(last.ErrorCode), *last.ErrorMessage, codeName(before.ErrorCode))
	}
}
