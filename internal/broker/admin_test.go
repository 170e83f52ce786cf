package broker

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/server"
)

// topicValues are values for topic keys with the message of Apache Kafka 4.4 that refuses them, as INVALID_CONFIG;
// those without a message are accepted.
var topicValues = []struct{ key, value, want string }{
	{"retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
	{"retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"},
	{"retention.ms", " 5 ", ""},
	{"retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"},
	{"retention.ms", "1.5", "Invalid value 1.5 for configuration retention.ms: Not a number of type LONG"},
	{"retention.ms", "99999999999999999999", "Invalid value 99999999999999999999 for configuration retention.ms: Not a number of type LONG"},
	{"segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"},
	{"segment.bytes", "3000000000", "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT"},
	{"segment.bytes", "1048575", "Invalid value 1048575 for configuration segment.bytes: Value must be at least 1048576"},
	{"cleanup.policy", "foo", "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"},
	{"cleanup.policy", "", ""},
	{"cleanup.policy", "delete,delete", ""},
	{"cleanup.policy", "delete,,compact", "Configuration 'cleanup.policy' values must not be empty."},
	{"cleanup.policy", "[delete]", "Invalid value [delete] for configuration cleanup.policy: String must be one of: compact, delete"},
	{"cleanup.policy", "compact, delete", ""},
	{"cleanup.policy", "delete,foo", "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"},
	{"compression.type", "zip", "Invalid value zip for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
	{"compression.type", "none", "Invalid value none for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
	{"compression.type", "", "Invalid value  for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
	{"compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
	{"compression.gzip.level", "10", "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
	{"compression.gzip.level", "-1", ""},
	{"compression.lz4.level", "18", "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17"},
	{"compression.zstd.level", "23", "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22"},
	{"min.cleanable.dirty.ratio", "2", "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
	{"min.cleanable.dirty.ratio", "-0.1", "Invalid value -0.1 for configuration min.cleanable.dirty.ratio: Value must be at least 0"},
	{"min.cleanable.dirty.ratio", "x", "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"},
	{"preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"},
	{"preallocate", "TRUE", ""},
	{"preallocate", "", "Invalid value  for configuration preallocate: Expected value to be either true or false"},
	{"message.timestamp.type", "foo", "Invalid value foo for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime"},
	{"leader.replication.throttled.replicas", "foo", "Invalid value [foo] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
	{"leader.replication.throttled.replicas", "*", ""},
	{"leader.replication.throttled.replicas", "0:1", ""},
	{"leader.replication.throttled.replicas", "0:1,0:1", ""},
	{"leader.replication.throttled.replicas", "none", "Invalid value [none] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
	{"remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
	{"local.retention.ms", "-3", "Invalid value -3 for configuration local.retention.ms: Value must be at least -2"},
	{"local.retention.ms", "999999999999", ""},
	{"local.retention.bytes", "100", ""},
	{"max.compaction.lag.ms", "0", "Invalid value 0 for configuration max.compaction.lag.ms: Value must be at least 1"},
	{"internal.segment.bytes", "1000", ""},
	{"message.format.version", "3.0", "Unknown topic config name: message.format.version"},
	{"message.downconversion.enable", "true", "Unknown topic config name: message.downconversion.enable"},
	{"message.timestamp.difference.max.ms", "1", "Unknown topic config name: message.timestamp.difference.max.ms"},
	{"max.decompressed.message.bytes", "0", "Invalid value 0 for configuration max.decompressed.message.bytes: Value must be at least 1"},
	{"min.insync.replicas", "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"},
	{"min.insync.replicas", "3", ""},
	{"max.message.bytes", "-1", "Invalid value -1 for configuration max.message.bytes: Value must be at least 0"},
	{"flush.messages", "0", "Invalid value 0 for configuration flush.messages: Value must be at least 1"},
	{"index.interval.bytes", "-1", "Invalid value -1 for configuration index.interval.bytes: Value must be at least 0"},
	{"segment.index.bytes", "3", "Invalid value 3 for configuration segment.index.bytes: Value must be at least 4"},
	{"unclean.leader.election.enable", "x", "Invalid value x for configuration unclean.leader.election.enable: Expected value to be either true or false"},
	{"retention.bytes", "-5", ""},
	{"remote.copy.lag.ms", "-5", "Invalid value -5 for configuration remote.copy.lag.ms: Value must be at least -1"},
	{"remote.log.copy.disable", "true", ""},
	{"segment.jitter.ms", "-1", "Invalid value -1 for configuration segment.jitter.ms: Value must be at least 0"},
	{"errors.deadletterqueue.group.enable", "true", ""},
	{"remote.log.delete.on.disable", "true", ""},
}

// adminCluster is a server over an Image that holds the topics a and b, with the whole table of keys and these static
// settings. Nothing that is only checked needs more.
func adminCluster(t *testing.T, static map[string]string) *kgo.Client {
	t.Helper()
	table, err := server.NewConfigTable(Keys(), 1, static)
	if err != nil {
		t.Fatal(err)
	}
	image := meta.NewImage("test-cluster").Apply(&meta.Apply{
		Controller: 1, ControllerEpoch: 1, Revision: 1,
		Brokers: []meta.Broker{{ID: 1}},
		Topics:  []meta.TopicUpdate{{ID: meta.TopicID{1}, Name: "a"}, {ID: meta.TopicID{2}, Name: "b"}, {ID: meta.TopicID{3}, Name: "a_b"}},
		Partitions: []meta.PartitionUpdate{
			{ID: meta.TopicID{1}, State: meta.Partition{Replicas: []meta.BrokerID{1}, Version: 1}},
			{ID: meta.TopicID{2}, State: meta.Partition{Replicas: []meta.BrokerID{1}, Version: 1}},
			{ID: meta.TopicID{2}, Partition: 1, State: meta.Partition{Replicas: []meta.BrokerID{1}, Version: 1}},
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := controller.NewAdmin(controller.AdminConfig{
		Cluster: registry.NewCluster(registry.NewMemory(), "test", slog.New(slog.DiscardHandler)),
		Image:   func() *meta.Image { return image }, Random: rand.Reader, Keys: Keys(), CheckBroker: table.CheckBroker,
		Partitions: 1, Replication: 1, DeletionDisabled: static["delete.topic.enable"] == "false",
	})
	s, err := server.New(server.Config{
		Broker: 1, Admin: admin, Listeners: []server.Listener{{Net: listener, Name: "PLAINTEXT"}}, Configs: table,
		Image:     func() *meta.Image { return image },
		WaitImage: func(context.Context, int64) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client, err := kgo.NewClient(kgo.SeedBrokers(listener.Addr().String()), kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return client
}

// request asks the one broker.
func request[T any](t *testing.T, client *kgo.Client, req kmsg.Request) T {
	t.Helper()
	resp, err := client.SeedBrokers()[0].Request(t.Context(), req) // wherever the client would route it
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp.(T)
}

// outcome is a code's name and a message, as tests compare them.
func outcome(code int16, message *string) string {
	if code == 0 {
		return "ok"
	}
	name := "UNKNOWN_SERVER_ERROR"
	if err := kerr.TypedErrorForCode(code); err != nil {
		name = err.Message
	}
	if message == nil || *message == "" {
		return name
	}
	return name + ": " + *message
}

const (
	topicKind  = kmsg.ConfigResourceTypeTopic
	brokerKind = kmsg.ConfigResourceTypeBroker
	loggerKind = kmsg.ConfigResourceTypeBrokerLogger
	set        = kmsg.IncrementalAlterConfigOpSet
	remove     = kmsg.IncrementalAlterConfigOpDelete
	add        = kmsg.IncrementalAlterConfigOpAppend
	subtract   = kmsg.IncrementalAlterConfigOpSubtract
)

// op is one operation of an incremental change; the value is null without "=".
type op struct {
	op   kmsg.IncrementalAlterConfigOp
	text string
}

func incremental(kind kmsg.ConfigResourceType, name string, ops ...op) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = true
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, o := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		key, value, given := strings.Cut(o.text, "=")
		if c.Op, c.Name = o.op, key; given {
			c.Value = &value
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return req
}

// TestTopicValues sets every kind of right and wrong value, through both requests that judge values without needing to
// write (U-122, U-125).
func TestTopicValues(t *testing.T) {
	client := adminCluster(t, nil)
	for _, test := range topicValues {
		want := "ok"
		if test.want != "" {
			want = "INVALID_CONFIG: " + test.want
		}
		altered := request[*kmsg.IncrementalAlterConfigsResponse](t, client, incremental(topicKind, "a", op{set, test.key + "=" + test.value})).Resources[0]
		if got := outcome(altered.ErrorCode, altered.ErrorMessage); got != want {
			t.Errorf("incremental %s=%s: got %s\nwant %s", test.key, test.value, got, want)
		}
		old := kmsg.NewPtrAlterConfigsRequest()
		old.ValidateOnly = true
		old.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topicKind, ResourceName: "a", Configs: []kmsg.AlterConfigsRequestResourceConfig{
			{Name: test.key, Value: &test.value},
		}}}
		replaced := request[*kmsg.AlterConfigsResponse](t, client, old).Resources[0]
		if got := outcome(replaced.ErrorCode, replaced.ErrorMessage); got != want {
			t.Errorf("alter %s=%s: got %s\nwant %s", test.key, test.value, got, want)
		}
		if test.want == "" {
			continue
		}
		create := kmsg.NewPtrCreateTopicsRequest()
		create.ValidateOnly = true
		create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{
			{Name: test.key, Value: &test.value},
		}}}
		created := request[*kmsg.CreateTopicsResponse](t, client, create).Topics[0]
		if got := outcome(created.ErrorCode, created.ErrorMessage); got != want {
			t.Errorf("create with %s=%s: got %s\nwant %s", test.key, test.value, got, want)
		}
	}
}

// TestConfigRefusals holds what was answered by Apache Kafka 4.4 to requests that it refuses for other reasons than a
// value.
func TestConfigRefusals(t *testing.T) {
	tests := []struct {
		req  *kmsg.IncrementalAlterConfigsRequest
		want string
	}{
		{incremental(topicKind, "a", op{set, "min.compaction.lag.ms=100"}, op{set, "max.compaction.lag.ms=50"}), "INVALID_CONFIG: conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)"},
		{incremental(topicKind, "a", op{set, "log.flush.acks=true"}), "ok"},
		{incremental(topicKind, "a"), "ok"},
		{incremental(topicKind, "a", op{remove, "flush.ms"}), "ok"},
		{incremental(topicKind, "a", op{remove, "foo"}), "ok"},
		{incremental(topicKind, "a", op{set, "foo=1"}), "INVALID_CONFIG: Unknown topic config name: foo"},
		{incremental(topicKind, "a", op{add, "cleanup.policy=compact"}), "ok"},
		{incremental(topicKind, "a", op{subtract, "cleanup.policy=delete"}), "ok"},
		{incremental(topicKind, "a", op{add, "retention.ms=5"}), "INVALID_CONFIG: Can't APPEND to key retention.ms because its type is not LIST."},
		{incremental(topicKind, "a", op{subtract, "retention.ms=5"}), "INVALID_CONFIG: Can't SUBTRACT to key retention.ms because its type is not LIST."},
		{incremental(topicKind, "a", op{set, "retention.ms"}), "INVALID_REQUEST: Null value not supported for : retention.ms"},
		{incremental(topicKind, "a", op{add, "cleanup.policy"}), "INVALID_REQUEST: Null value not supported for : cleanup.policy"},
		{incremental(topicKind, "a", op{set, "retention.ms=1"}, op{remove, "retention.ms"}), "INVALID_REQUEST: Error due to duplicate config keys"},
		{incremental(topicKind, "a", op{9, "retention.ms=1"}), "INVALID_REQUEST: Unknown operations type 9"},
		{incremental(topicKind, "nosuch", op{set, "retention.ms=1"}), "UNKNOWN_TOPIC_OR_PARTITION: The topic 'nosuch' does not exist."},
		{incremental(topicKind, "", op{set, "retention.ms=1"}), "INVALID_REQUEST: Default topic resources are not allowed."},
		{incremental(topicKind, "a b", op{set, "retention.ms=1"}), "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{incremental(3, "a", op{set, "foo=1"}), "INVALID_REQUEST: Unknown resource type 3"},
		{incremental(0, "a", op{set, "foo=1"}), "INVALID_REQUEST: Unknown resource type 0"},

		{incremental(brokerKind, "1", op{set, "log.cleaner.threads=2"}), "ok"},
		{incremental(brokerKind, "01", op{set, "log.cleaner.threads=2"}), "ok"},
		{incremental(brokerKind, "", op{set, "log.cleaner.threads=2"}), "ok"},
		{incremental(brokerKind, "7", op{set, "log.cleaner.threads=2"}), "INVALID_REQUEST: Unexpected broker id, expected 1, but received 7"},
		{incremental(brokerKind, "x", op{set, "log.cleaner.threads=2"}), "INVALID_REQUEST: Node id must be an integer, but it is: x"},
		{incremental(brokerKind, "1", op{set, "num.partitions=2"}), "INVALID_REQUEST: Cannot update these configs dynamically: [num.partitions]"},
		{incremental(brokerKind, "", op{set, "log.retention.hours=2"}), "INVALID_REQUEST: Cannot update these configs dynamically: [log.retention.hours]"},
		{incremental(brokerKind, "1", op{set, "advertised.listeners=PLAINTEXT://a:1"}), "INVALID_REQUEST: Cannot update these configs dynamically: [advertised.listeners]"},
		{incremental(brokerKind, "1", op{remove, "num.partitions"}), "ok"},
		{incremental(brokerKind, "1", op{set, "foo.bar=2"}), "ok"},
		{incremental(brokerKind, "1", op{set, "ssl.keystore.location=/x"}), "INVALID_REQUEST: These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"},
		{incremental(brokerKind, "1", op{set, "sasl.kerberos.min.time.before.relogin=58000"}), "ok"},
		{incremental(brokerKind, "", op{set, "sasl.kerberos.min.time.before.relogin=58000"}), "INVALID_REQUEST: Cannot update these configs at default cluster level, broker id must be specified: [sasl.kerberos.min.time.before.relogin]"},
		{incremental(brokerKind, "", op{set, "sasl.kerberos.min.time.before.relogin=x"}), "INVALID_REQUEST: Invalid value x for configuration sasl.kerberos.min.time.before.relogin: Not a number of type LONG"},
		{incremental(brokerKind, "1", op{set, "ssl.provider=x"}), "ok"},
		{incremental(brokerKind, "", op{set, "listener.name.internal.max.connections=9"}), "ok"},
		{incremental(brokerKind, "1", op{set, "listener.name.internal.ssl.keystore.location=/x"}), "ok"},
		{incremental(brokerKind, "", op{set, "listener.name.internal.ssl.keystore.location=/x"}), "INVALID_REQUEST: Cannot update these configs at default cluster level, broker id must be specified: [listener.name.internal.ssl.keystore.location]"},
		{incremental(brokerKind, "1", op{set, "log.retention.ms=x"}), "INVALID_REQUEST: Invalid value x for configuration log.retention.ms: Not a number of type LONG"},
		{incremental(brokerKind, "", op{set, "log.segment.bytes=1"}), "INVALID_REQUEST: Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"},
		{incremental(brokerKind, "", op{set, "log.cleanup.policy=foo"}), "INVALID_REQUEST: Invalid value foo for configuration log.cleanup.policy: String must be one of: compact, delete"},
		{incremental(brokerKind, "", op{add, "log.cleanup.policy=compact"}), "ok"},
		{incremental(brokerKind, "1", op{set, "min.insync.replicas=2"}), "INVALID_CONFIG: Broker-level min.insync.replicas cannot be altered while ELR is enabled."},
		{incremental(brokerKind, "", op{set, "min.insync.replicas=2"}), "ok"},

		{incremental(loggerKind, "1", op{set, "root=DEBUG"}), "ok"},
		{incremental(loggerKind, "1", op{set, "nosuch=INFO"}), "INVALID_CONFIG: Logger nosuch does not exist!"},
		{incremental(loggerKind, "1", op{set, "root=LOUD"}), "INVALID_CONFIG: Cannot set the log level of root to LOUD as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"},
		{incremental(loggerKind, "1", op{remove, "root"}), "INVALID_REQUEST: Removing the log level of the root logger is not allowed"},
		{incremental(loggerKind, "1", op{add, "root=INFO"}), "INVALID_REQUEST: APPEND operation is not allowed for the BROKER_LOGGER resource"},
		{incremental(loggerKind, "7", op{set, "root=INFO"}), "INVALID_REQUEST: Unexpected node id. Expected 1, but received 7"},
		{incremental(loggerKind, "", op{set, "root=INFO"}), "INVALID_REQUEST: Node id must be an integer, but it is: "},
	}
	client := adminCluster(t, nil)
	for _, test := range tests {
		r := request[*kmsg.IncrementalAlterConfigsResponse](t, client, test.req).Resources[0]
		if got := outcome(r.ErrorCode, r.ErrorMessage); got != test.want {
			t.Errorf("%s %s %+v: got %s\nwant %s", r.ResourceType, r.ResourceName, test.req.Resources[0].Configs, got, test.want)
		}
	}

	twice := incremental(topicKind, "a", op{set, "retention.ms=1"})
	twice.Resources = append(twice.Resources, twice.Resources[0])
	resources := request[*kmsg.IncrementalAlterConfigsResponse](t, client, twice).Resources
	for _, r := range resources {
		if got := outcome(r.ErrorCode, r.ErrorMessage); got != "INVALID_REQUEST: Each resource must appear at most once." || len(resources) != 2 {
			t.Errorf("one resource twice: got %s", got)
		}
	}
}

func describe(kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	return req
}

// TestDescribeConfigsRefusals has the answers of Apache Kafka 4.4.
func TestDescribeConfigsRefusals(t *testing.T) {
	tests := []struct {
		kind kmsg.ConfigResourceType
		name string
		want string
	}{
		{topicKind, "nosuch", "UNKNOWN_TOPIC_OR_PARTITION"},
		{topicKind, "", "INVALID_TOPIC_EXCEPTION: Topic name is invalid: the empty string is not allowed"},
		{brokerKind, "7", "INVALID_REQUEST: Unexpected broker id, expected 1 or empty string, but received 7"},
		{brokerKind, "x", "INVALID_REQUEST: Broker id must be an integer, but it is: x"},
		{loggerKind, "7", "INVALID_REQUEST: Unexpected broker id, expected 1 but received 7"},
		{loggerKind, "", "INVALID_REQUEST: Broker id must not be empty"},
		{loggerKind, "x", "INVALID_REQUEST: Broker id must be an integer, but it is: x"},
		{kmsg.ConfigResourceTypeClientMetrics, "", "INVALID_REQUEST: Client metrics subscription name must not be empty"},
		{kmsg.ConfigResourceTypeGroupConfig, "", "INVALID_REQUEST: Group name must not be empty"},
		{3, "g", "INVALID_REQUEST: " + kerr.InvalidRequest.Description},
		{topicKind, "a", "ok"},
		{brokerKind, "", "ok"},
		{loggerKind, "1", "ok"},
		{kmsg.ConfigResourceTypeClientMetrics, "m", "ok"},
		{kmsg.ConfigResourceTypeGroupConfig, "g", "ok"},
	}
	client := adminCluster(t, nil)
	for _, test := range tests {
		r := request[*kmsg.DescribeConfigsResponse](t, client, describe(test.kind, test.name)).Resources[0]
		if got := outcome(r.ErrorCode, r.ErrorMessage); got != test.want {
			t.Errorf("%s %q: got %s, want %s", test.kind, test.name, got, test.want)
		}
	}
}

// described renders an entry: value, source and synonyms.
func described(c *kmsg.DescribeConfigsResponseResourceConfig) string {
	text := c.Name + "="
	if c.Value != nil {
		text += *c.Value
	}
	text += " " + c.Source.String()
	for _, s := range c.ConfigSynonyms {
		text += " " + s.Name + "="
		if s.Value != nil {
			text += *s.Value
		}
		text += "/" + s.Source.String()
	}
	return text
}

// TestDescribedSources shows where values come from; the lists of synonyms are those of Apache Kafka 4.4.
func TestDescribedSources(t *testing.T) {
	client := adminCluster(t, map[string]string{"log.segment.bytes": "2000000", "log.retention.minutes": "1", "num.partitions": "3"})
	tests := []struct {
		kind kmsg.ConfigResourceType
		name string
		key  string
		want string
	}{
		{topicKind, "a", "segment.bytes", "segment.bytes=2000000 STATIC_BROKER_CONFIG log.segment.bytes=2000000/STATIC_BROKER_CONFIG log.segment.bytes=1073741824/DEFAULT_CONFIG"},
		{topicKind, "a", "cleanup.policy", "cleanup.policy=delete DEFAULT_CONFIG log.cleanup.policy=delete/DEFAULT_CONFIG"},
		{topicKind, "a", "retention.ms", "retention.ms=60000 DEFAULT_CONFIG"},
		{topicKind, "a", "segment.ms", "segment.ms=604800000 DEFAULT_CONFIG"},
		{topicKind, "a", "remote.storage.enable", "remote.storage.enable=false DEFAULT_CONFIG"},
		{brokerKind, "1", "num.partitions", "num.partitions=3 STATIC_BROKER_CONFIG num.partitions=3/STATIC_BROKER_CONFIG num.partitions=1/DEFAULT_CONFIG"},
		{brokerKind, "1", "log.retention.ms", "log.retention.ms= DEFAULT_CONFIG"},
		{brokerKind, "1", "ssl.key.password", "ssl.key.password= DEFAULT_CONFIG"},
		{kmsg.ConfigResourceTypeGroupConfig, "g", "streams.assignor.name", "streams.assignor.name=sticky DEFAULT_CONFIG group.streams.assignors=sticky/DEFAULT_CONFIG"},
		{kmsg.ConfigResourceTypeClientMetrics, "m", "interval.ms", "interval.ms=300000 DEFAULT_CONFIG"},
		{loggerKind, "1", "root", "root=INFO DYNAMIC_BROKER_LOGGER_CONFIG"},
	}
	for _, test := range tests {
		r := request[*kmsg.DescribeConfigsResponse](t, client, describe(test.kind, test.name, test.key)).Resources[0]
		if len(r.Configs) != 1 {
			t.Errorf("%s %s: %d entries for one key", test.kind, test.key, len(r.Configs))
			continue
		}
		if got := described(&r.Configs[0]); got != test.want {
			t.Errorf("%s: got %s\nwant %s", test.kind, got, test.want)
		}
	}
}

// TestDescribedIsSettable sets every topic key, and every broker key that can change, to the value that is described
// (U-124).
func TestDescribedIsSettable(t *testing.T) {
	client := adminCluster(t, nil)
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
	}{{topicKind, "a"}, {brokerKind, "1"}, {brokerKind, "1"}} {
		all := request[*kmsg.DescribeConfigsResponse](t, client, describe(r.kind, r.name)).Resources[0].Configs
		tried := 0
		for _, c := range all {
			if c.ReadOnly || c.Value == nil {
				continue
			}
			tried++
			answer := request[*kmsg.IncrementalAlterConfigsResponse](t, client, incremental(r.kind, r.name, op{set, c.Name + "=" + *c.Value})).Resources[0]
			got := outcome(answer.ErrorCode, answer.ErrorMessage)
			perListener := strings.Contains(got, "only per-listener") || strings.Contains(got, "Broker-level min.insync.replicas")
			if got != "ok" && !perListener {
				t.Errorf("%s %s=%s: got %s", r.kind, c.Name, *c.Value, got)
			}
			if c.Documentation == nil || *c.Documentation == "" || c.ConfigType == 0 {
				t.Errorf("%s %s: without documentation or type", r.kind, c.Name)
			}
		}
		if tried < 30 {
			t.Errorf("%s: only %d keys can be set", r.kind, tried)
		}
	}
}

// TestCreateTopicsRefusals has the answers of Apache Kafka 4.4; the same come with and without validate_only (U-121).
func TestCreateTopicsRefusals(t *testing.T) {
	topic := func(name string, partitions int32, replication int16, assignment ...[]int32) kmsg.CreateTopicsRequestTopic {
		topic := kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: partitions, ReplicationFactor: replication}
		for _, a := range assignment {
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: a[0], Replicas: a[1:]})
		}
		return topic
	}
	null := topic("null", 1, 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	tests := []struct {
		topics []kmsg.CreateTopicsRequestTopic
		want   string
	}{
		{[]kmsg.CreateTopicsRequestTopic{topic("a", 1, 1)}, "TOPIC_ALREADY_EXISTS: Topic 'a' already exists."},
		{[]kmsg.CreateTopicsRequestTopic{topic("z", 0, 1)}, "INVALID_PARTITIONS: Number of partitions was set to an invalid non-positive value."},
		{[]kmsg.CreateTopicsRequestTopic{topic("z", -2, 2)}, "INVALID_PARTITIONS: Number of partitions was set to an invalid non-positive value."},
		{[]kmsg.CreateTopicsRequestTopic{topic("z", 1, 0)}, "INVALID_REPLICATION_FACTOR: Replication factor must be larger than 0, or -1 to use the default value."},
		{[]kmsg.CreateTopicsRequestTopic{topic("", 1, 1)}, "INVALID_TOPIC_EXCEPTION: Topic name is invalid: the empty string is not allowed"},
		{[]kmsg.CreateTopicsRequestTopic{topic("..", 1, 1)}, "INVALID_TOPIC_EXCEPTION: Topic name is invalid: '..' is not allowed"},
		{[]kmsg.CreateTopicsRequestTopic{topic("ä", 1, 1)}, "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{[]kmsg.CreateTopicsRequestTopic{topic("a.b", 1, 1)}, "INVALID_TOPIC_EXCEPTION: Topic 'a.b' collides with existing topic: a_b"},
		{[]kmsg.CreateTopicsRequestTopic{topic("__cluster_metadata", 1, 1)}, "INVALID_REQUEST: Creation of internal topic __cluster_metadata is prohibited."},
		{[]kmsg.CreateTopicsRequestTopic{topic("d", 1, 1), topic("d", 1, 1)}, "INVALID_REQUEST: Duplicate topic name."},
		{[]kmsg.CreateTopicsRequestTopic{null}, "INVALID_CONFIG: Null value not supported for topic configs: retention.ms"},
		{[]kmsg.CreateTopicsRequestTopic{topic("m", 20000, 1)}, "POLICY_VIOLATION: Excessively large number of partitions per request."},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", 1, -1, []int32{0, 1})}, "INVALID_REQUEST: A manual partition assignment was specified, but numPartitions was not set to -1."},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, 1, []int32{0, 1})}, "INVALID_REQUEST: A manual partition assignment was specified, but replication factor was not set to -1."},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, -1, []int32{1, 1})}, "INVALID_REPLICA_ASSIGNMENT: partitions should be a consecutive 0-based integer sequence"},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, -1, []int32{0, 1, 1})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes the broker 1 more than once."},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, -1, []int32{0, 1}, []int32{0, 1})}, "INVALID_REPLICA_ASSIGNMENT: Found multiple manual partition assignments for partition 0"},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, -1, []int32{0, 7})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes broker 7, but no such broker is registered."},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, -1, []int32{0, -1})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes broker -1, but no such broker is registered."},
		{[]kmsg.CreateTopicsRequestTopic{topic("s", -1, -1, []int32{0})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes an empty replica list."},
	}
	client := adminCluster(t, nil)
	for _, test := range tests {
		for _, validateOnly := range []bool{false, true} {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Topics, req.ValidateOnly = test.topics, validateOnly
			topics := request[*kmsg.CreateTopicsResponse](t, client, req).Topics
			if got := outcome(topics[0].ErrorCode, topics[0].ErrorMessage); got != test.want || len(topics) != 1 {
				t.Errorf("%s (validate %t): got %s\nwant %s", test.topics[0].Topic, validateOnly, got, test.want)
			}
		}
	}
}

// TestCreatePartitionsRefusals has the answers of Apache Kafka 4.4.
func TestCreatePartitionsRefusals(t *testing.T) {
	tests := []struct {
		topic      string
		count      int32
		assignment [][]int32
		want       string
	}{
		{"b", 2, nil, "INVALID_PARTITIONS: Topic already has 2 partition(s)."},
		{"b", 1, nil, "INVALID_PARTITIONS: The topic b currently has 2 partition(s); 1 would not be an increase."},
		{"b", -1, nil, "INVALID_PARTITIONS: The topic b currently has 2 partition(s); -1 would not be an increase."},
		{"nosuch", 3, nil, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"a b", 3, nil, "UNKNOWN_TOPIC_OR_PARTITION"},
		{"b", 20000, nil, "POLICY_VIOLATION: Excessively large number of additional partitions per request."},
		{"b", 4, [][]int32{{1}}, "INVALID_REPLICA_ASSIGNMENT: Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."},
		{"b", 3, [][]int32{{1}, {1}}, "INVALID_REPLICA_ASSIGNMENT: Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified."},
		{"b", 3, [][]int32{{7}}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes broker 7, but no such broker is registered."},
		{"b", 3, [][]int32{{1, 1}}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes the broker 1 more than once."},
		{"b", 3, [][]int32{{}}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes an empty replica list."},
	}
	client := adminCluster(t, nil)
	for _, test := range tests {
		req := kmsg.NewPtrCreatePartitionsRequest()
		topic := kmsg.CreatePartitionsRequestTopic{Topic: test.topic, Count: test.count}
		for _, replicas := range test.assignment {
			topic.Assignment = append(topic.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: replicas})
		}
		req.Topics = []kmsg.CreatePartitionsRequestTopic{topic}
		answer := request[*kmsg.CreatePartitionsResponse](t, client, req).Topics[0]
		if got := outcome(answer.ErrorCode, answer.ErrorMessage); got != test.want {
			t.Errorf("%s to %d %v: got %s\nwant %s", test.topic, test.count, test.assignment, got, test.want)
		}
	}
}

// TestDeleteTopicsRefusals has the answers of Apache Kafka 4.4, but for internal topics, which it deletes (U-113).
func TestDeleteTopicsRefusals(t *testing.T) {
	name := func(s string) *string { return &s }
	tests := []struct {
		topics []kmsg.DeleteTopicsRequestTopic
		want   string
	}{
		{[]kmsg.DeleteTopicsRequestTopic{{Topic: name("nosuch")}}, "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."},
		{[]kmsg.DeleteTopicsRequestTopic{{Topic: name("a b")}}, "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."},
		{[]kmsg.DeleteTopicsRequestTopic{{Topic: name("a")}, {Topic: name("a")}}, "INVALID_REQUEST: Duplicate topic name."},
		{[]kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{9}}}, "UNKNOWN_TOPIC_ID: This server does not host this topic ID."},
		{[]kmsg.DeleteTopicsRequestTopic{{}}, "INVALID_REQUEST: Neither topic name nor id were specified."},
		{[]kmsg.DeleteTopicsRequestTopic{{Topic: name("a"), TopicID: [16]byte{1}}}, "INVALID_REQUEST: You may not specify both topic name and topic id."},
	}
	client := adminCluster(t, nil)
	for _, test := range tests {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Topics = test.topics
		topics := request[*kmsg.DeleteTopicsResponse](t, client, req).Topics
		if got := outcome(topics[0].ErrorCode, topics[0].ErrorMessage); got != test.want || len(topics) != 1 {
			t.Errorf("%+v: got %s\nwant %s", test.topics, got, test.want)
		}
	}

	disabled := adminCluster(t, map[string]string{"delete.topic.enable": "false"})
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: name("a")}}
	answer := request[*kmsg.DeleteTopicsResponse](t, disabled, req).Topics[0]
	if got := outcome(answer.ErrorCode, answer.ErrorMessage); got != "TOPIC_DELETION_DISABLED" {
		t.Errorf("with delete.topic.enable=false: got %s", got)
	}
}
