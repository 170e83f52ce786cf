package broker

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// live is a whole broker with two connections: what one was answered, the other must see at once (D13).
func live(t *testing.T, settings map[string]string) (ask, look *kgo.Client) {
	b := start(t, filepath.Join(t.TempDir(), "data"), settings)
	return b.client(), b.client()
}

func createTopic(t *testing.T, client *kgo.Client, topic kmsg.CreateTopicsRequestTopic, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.ValidateOnly = []kmsg.CreateTopicsRequestTopic{topic}, validateOnly
	return request[*kmsg.CreateTopicsResponse](t, client, req).Topics[0]
}

// topicOf asks for one topic's metadata without creating it.
func topicOf(t *testing.T, client *kgo.Client, name string, create bool) kmsg.MetadataResponseTopic {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = create
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	return request[*kmsg.MetadataResponse](t, client, req).Topics[0]
}

func describedTopic(t *testing.T, client *kgo.Client, topic, key string) string {
	t.Helper()
	r := request[*kmsg.DescribeConfigsResponse](t, client, describe(topicKind, topic, key)).Resources[0]
	if len(r.Configs) != 1 {
		t.Fatalf("%d entries for one key", len(r.Configs))
	}
	return described(&r.Configs[0])
}

func TestAdminTopicLife(t *testing.T) {
	ask, look := live(t, map[string]string{"num.partitions": "2"})
	value := "1000"
	wanted := kmsg.CreateTopicsRequestTopic{
		Topic: "life", NumPartitions: -1, ReplicationFactor: -1,
		Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: &value}},
	}

	only := createTopic(t, ask, wanted, true)
	if got := outcome(only.ErrorCode, only.ErrorMessage); got != "ok" || only.NumPartitions != 2 || len(only.Configs) == 0 {
		t.Errorf("validate only: got %s, %+v", got, only)
	}
	if unknown := topicOf(t, look, "life", false); outcome(unknown.ErrorCode, nil) != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("validate only has created the topic: %+v", unknown)
	}

	created := createTopic(t, ask, wanted, false)
	if got := outcome(created.ErrorCode, created.ErrorMessage); got != "ok" || created.NumPartitions != 2 || created.ReplicationFactor != 1 {
		t.Fatalf("create: got %s, %+v", got, created)
	}
	if !slices.IsSortedFunc(created.Configs, func(x, y kmsg.CreateTopicsResponseTopicConfig) int { return compareText(x.Name, y.Name) }) {
		t.Error("the configuration in the answer is not sorted")
	}
	i := slices.IndexFunc(created.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool { return c.Name == "retention.ms" })
	if c := created.Configs[i]; *c.Value != "1000" || kmsg.ConfigSource(c.Source) != kmsg.ConfigSourceDynamicTopicConfig {
		t.Errorf("the answer says %+v", c)
	}
	seen := topicOf(t, look, "life", false)
	if seen.TopicID != created.TopicID || len(seen.Partitions) != 2 || seen.Partitions[1].Leader != 1 {
		t.Errorf("the other connection sees %+v", seen)
	}

	again := createTopic(t, ask, wanted, true)
	if got := outcome(again.ErrorCode, again.ErrorMessage); got != "TOPIC_ALREADY_EXISTS: Topic 'life' already exists." {
		t.Errorf("validate only again (U-121): got %s", got)
	}

	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "life", Count: 5}}
	grow.ValidateOnly = true
	request[*kmsg.CreatePartitionsResponse](t, ask, grow)
	if n := len(topicOf(t, look, "life", false).Partitions); n != 2 {
		t.Errorf("validate only has grown the topic to %d partitions", n)
	}
	grow.ValidateOnly = false
	if grown := request[*kmsg.CreatePartitionsResponse](t, ask, grow).Topics[0]; grown.ErrorCode != 0 {
		t.Errorf("grow: got %s", outcome(grown.ErrorCode, grown.ErrorMessage))
	}
	if n := len(topicOf(t, look, "life", false).Partitions); n != 5 {
		t.Errorf("the other connection sees %d partitions, want 5", n)
	}

	dirs := request[*kmsg.DescribeLogDirsResponse](t, look, kmsg.NewPtrDescribeLogDirsRequest()).Dirs
	if len(dirs) != 1 || len(dirs[0].Topics) != 1 || len(dirs[0].Topics[0].Partitions) != 5 || dirs[0].TotalBytes <= 0 || dirs[0].UsableBytes <= 0 {
		t.Errorf("log dirs: %+v", dirs)
	}

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: created.TopicID}}
	deleted := request[*kmsg.DeleteTopicsResponse](t, ask, remove).Topics[0]
	if got := outcome(deleted.ErrorCode, deleted.ErrorMessage); got != "ok" || *deleted.Topic != "life" {
		t.Errorf("delete by id: got %s of %v", got, deleted.Topic)
	}
	if gone := topicOf(t, look, "life", false); outcome(gone.ErrorCode, nil) != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("the other connection still sees %+v", gone)
	}
}

func compareText(x, y string) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// TestAutoCreation asks for topics that do not exist.
func TestAutoCreation(t *testing.T) {
	_, look := live(t, nil)
	made := topicOf(t, look, "made", true)
	if made.ErrorCode != 0 || len(made.Partitions) != 1 || made.Partitions[0].Leader != 1 {
		t.Errorf("got %s, %+v: want the topic, ready", outcome(made.ErrorCode, nil), made)
	}
	for name, want := range map[string]string{
		"a b": "INVALID_TOPIC_EXCEPTION", "__consumer_offsets": "UNKNOWN_TOPIC_OR_PARTITION",
	} {
		if topic := topicOf(t, look, name, true); outcome(topic.ErrorCode, nil) != want {
			t.Errorf("%s: got %s, want %s", name, outcome(topic.ErrorCode, nil), want)
		}
	}
	_, look = live(t, map[string]string{"auto.create.topics.enable": "false"})
	if topic := topicOf(t, look, "unmade", true); outcome(topic.ErrorCode, nil) != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Errorf("with auto.create.topics.enable=false: got %s", outcome(topic.ErrorCode, nil))
	}
}

// TestInternalTopicsStay is U-113.
func TestInternalTopicsStay(t *testing.T) {
	ask, look := live(t, nil)
	createTopic(t, ask, kmsg.CreateTopicsRequestTopic{Topic: "__consumer_offsets", NumPartitions: 1, ReplicationFactor: 1}, false)
	name := "__consumer_offsets"
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	answer := request[*kmsg.DeleteTopicsResponse](t, ask, remove).Topics[0]
	if got := outcome(answer.ErrorCode, answer.ErrorMessage); got != "INVALID_TOPIC_EXCEPTION: Cannot delete internal topic __consumer_offsets." {
		t.Errorf("got %s", got)
	}
	if topic := topicOf(t, look, name, false); topic.ErrorCode != 0 || !topic.IsInternal {
		t.Errorf("afterwards: %+v", topic)
	}
}

// TestAlterConfigs changes a topic and the brokers' defaults, and looks at it from another connection each time.
func TestAlterConfigs(t *testing.T) {
	ask, look := live(t, nil)
	createTopic(t, ask, kmsg.CreateTopicsRequestTopic{Topic: "a", NumPartitions: 1, ReplicationFactor: 1}, false)
	alter := func(want string, kind kmsg.ConfigResourceType, name string, ops ...op) {
		t.Helper()
		req := incremental(kind, name, ops...)
		req.ValidateOnly = false
		r := request[*kmsg.IncrementalAlterConfigsResponse](t, ask, req).Resources[0]
		if got := outcome(r.ErrorCode, r.ErrorMessage); got != want {
			t.Errorf("%+v: got %s, want %s", ops, got, want)
		}
	}
	see := func(key, want string) {
		t.Helper()
		if got := describedTopic(t, look, "a", key); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}

	alter("ok", topicKind, "a", op{set, "retention.ms= 5000"})
	see("retention.ms", "retention.ms=5000 DYNAMIC_TOPIC_CONFIG retention.ms=5000/DYNAMIC_TOPIC_CONFIG")
	alter("ok", topicKind, "a", op{add, "cleanup.policy=compact"})
	see("cleanup.policy", "cleanup.policy=delete,compact DYNAMIC_TOPIC_CONFIG cleanup.policy=delete,compact/DYNAMIC_TOPIC_CONFIG log.cleanup.policy=delete/DEFAULT_CONFIG")
	alter("ok", topicKind, "a", op{subtract, "cleanup.policy=delete"})
	see("cleanup.policy", "cleanup.policy=compact DYNAMIC_TOPIC_CONFIG cleanup.policy=compact/DYNAMIC_TOPIC_CONFIG log.cleanup.policy=delete/DEFAULT_CONFIG")

	// A refusal changes nothing, not even what was right beside what was wrong (U-92).
	alter("INVALID_CONFIG: Unknown topic config name: foo", topicKind, "a", op{set, "retention.ms=7"}, op{set, "foo=1"})
	see("retention.ms", "retention.ms=5000 DYNAMIC_TOPIC_CONFIG retention.ms=5000/DYNAMIC_TOPIC_CONFIG")

	// The old request replaces everything.
	flush := "77"
	old := kmsg.NewPtrAlterConfigsRequest()
	old.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topicKind, ResourceName: "a", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "flush.ms", Value: &flush}}}}
	request[*kmsg.AlterConfigsResponse](t, ask, old)
	see("flush.ms", "flush.ms=77 DYNAMIC_TOPIC_CONFIG flush.ms=77/DYNAMIC_TOPIC_CONFIG")
	see("retention.ms", "retention.ms=604800000 DEFAULT_CONFIG")

	alter("ok", brokerKind, "", op{set, "log.retention.ms=88"})
	see("retention.ms", "retention.ms=88 DYNAMIC_DEFAULT_BROKER_CONFIG log.retention.ms=88/DYNAMIC_DEFAULT_BROKER_CONFIG log.retention.hours=168/DEFAULT_CONFIG")
	alter("ok", brokerKind, "1", op{set, "log.retention.ms=99"})
	see("retention.ms", "retention.ms=99 DYNAMIC_BROKER_CONFIG log.retention.ms=99/DYNAMIC_BROKER_CONFIG log.retention.ms=88/DYNAMIC_DEFAULT_BROKER_CONFIG log.retention.hours=168/DEFAULT_CONFIG")
	alter("ok", brokerKind, "1", op{remove, "log.retention.ms"})
	alter("ok", brokerKind, "", op{remove, "log.retention.ms"})
	see("retention.ms", "retention.ms=604800000 DEFAULT_CONFIG")
}

// TestEveryVersion sends each admin request in every version that is served and decodes the answer.
func TestEveryVersion(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	b.create("a", nil)
	a, one := "a", "1"
	requests := []func() kmsg.Request{
		func() kmsg.Request {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{{Topic: &a}}
			return req
		},
		func() kmsg.Request {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.ValidateOnly = true
			req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "a b"}}
			return req
		},
		func() kmsg.Request {
			req := kmsg.NewPtrDeleteTopicsRequest()
			nosuch := "nosuch"
			req.TopicNames, req.Topics = []string{nosuch}, []kmsg.DeleteTopicsRequestTopic{{Topic: &nosuch}, {TopicID: [16]byte{1}}}
			return req
		},
		func() kmsg.Request {
			req := kmsg.NewPtrCreatePartitionsRequest()
			req.ValidateOnly = true
			req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 2}, {Topic: "nosuch", Count: 2}}
			return req
		},
		func() kmsg.Request { return describe(topicKind, "a") },
		func() kmsg.Request { return describe(brokerKind, "1") },
		func() kmsg.Request {
			req := kmsg.NewPtrAlterConfigsRequest()
			req.ValidateOnly = true
			req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topicKind, ResourceName: "a", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "flush.ms", Value: &one}}}}
			return req
		},
		func() kmsg.Request { return incremental(topicKind, "a", op{set, "flush.ms=1"}) },
		func() kmsg.Request { return kmsg.NewPtrDescribeClusterRequest() },
		func() kmsg.Request { return kmsg.NewPtrDescribeLogDirsRequest() },
		func() kmsg.Request { return kmsg.NewPtrListConfigResourcesRequest() },
		func() kmsg.Request {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.ResponsePartitionLimit = 10
			return req
		},
	}
	oldest := map[int16]int16{19: 2, 20: 1, 32: 1, 35: 1} // the others begin at 0
	for _, make := range requests {
		key := make().Key()
		for version := oldest[key]; version <= make().MaxVersion(); version++ {
			versions := kversion.Stable()
			versions.SetMaxKeyVersion(key, version)
			client := b.client(kgo.MaxVersions(versions))
			resp, err := client.SeedBrokers()[0].Request(t.Context(), make())
			if err != nil || resp.GetVersion() != version {
				t.Errorf("key %d: asked version %d, got %+v, %v", key, version, resp, err)
			}
			client.Close()
		}
	}
}
