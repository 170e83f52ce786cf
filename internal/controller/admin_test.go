package controller

import (
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// fixture is an Admin over a memory registry, whose image shows the registry as it is, with two live brokers, a fenced
// one, and the topics "taken" and "a.b".
type fixture struct {
	t       *testing.T
	cluster *registry.Cluster
	seat    registry.Seat
	*Admin
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, cluster: registry.NewCluster(registry.NewMemory(), "1.0", nil)}
	for id := meta.BrokerID(1); id <= 3; id++ {
		me, err := f.cluster.Register(t.Context(), id, registry.Registration{Directories: []meta.DirectoryID{{15: byte(id)}}}, 1e12)
		if err != nil {
			t.Fatal(err)
		}
		if id == 1 {
			if f.seat, _, err = f.cluster.Elect(t.Context(), id, me); err != nil {
				t.Fatal(err)
			}
		}
		if id < 3 {
			if _, err := f.cluster.Unfence(t.Context(), f.seat, *f.state().Brokers[id]); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Admin = NewAdmin(AdminConfig{
		Cluster: f.cluster, Image: f.image, Random: rand.Reader, Keys: testKeys(t), Partitions: 3, Replication: 2,
		CheckBroker: func(_ string, values map[string]string) error {
			for name := range values {
				if name != minISRKey {
					return fmt.Errorf("Cannot update these configs dynamically: Set(%s)", name)
				}
			}
			return nil
		},
	})
	for _, name := range []string{"taken", "a.b"} {
		if results, _, err := f.CreateTopics(t.Context(), []NewTopic{{Name: name, Partitions: 1, Replication: 2}}, false); err != nil || results[0].Err != nil {
			t.Fatal(results, err)
		}
	}
	return f
}

func (f *fixture) state() *registry.State {
	f.t.Helper()
	s, err := f.cluster.Snapshot(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) image() *meta.Image {
	s := f.state()
	im := meta.NewImage("c").Apply(statement(s, s.Seat, 0, marks{full: true}))
	for id, config := range s.TopicConfigs {
		im = im.WithTopicConfig(id, config.Values, config.Revision)
	}
	for name, config := range s.BrokerConfigs {
		im = im.WithConfig(meta.ConfigResource{Kind: meta.BrokerResource, Name: name}, config.Values, config.Revision)
	}
	return im
}

func text(s string) *string { return &s }

// check compares a result with the refusal that Kafka gives; want is "KIND: message", or "" for success.
func (f *fixture) check(name string, err error, want string) {
	f.t.Helper()
	got := ""
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		got = refusal.Kind.Error() + ": " + refusal.Message
	} else if err != nil {
		got = err.Error()
	}
	if got != want {
		f.t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
}

// U-92: every refusal has Kafka's code and words, and changes nothing.
func TestCreateTopicsRefusals(t *testing.T) {
	f := newFixture(t)
	before := f.state()
	many := func(brokers ...[]meta.BrokerID) (out []Assignment) {
		for n, ids := range brokers {
			out = append(out, Assignment{Partition: int32(n), Brokers: ids})
		}
		return out
	}
	long := strings.Repeat("x", configValueMax+1)
	for name, c := range map[string]struct {
		topic NewTopic
		want  string
	}{
		"exists":         {NewTopic{Name: "taken", Partitions: 1, Replication: 1}, "TOPIC_ALREADY_EXISTS: Topic 'taken' already exists."},
		"empty":          {NewTopic{Partitions: 1, Replication: 1}, "INVALID_TOPIC_EXCEPTION: Topic name is invalid: the empty string is not allowed"},
		"characters":     {NewTopic{Name: "a b", Partitions: 1, Replication: 1}, "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		"collision":      {NewTopic{Name: "a_b", Partitions: 1, Replication: 1}, "INVALID_TOPIC_EXCEPTION: Topic 'a_b' collides with existing topic: a.b"},
		"reserved":       {NewTopic{Name: "__cluster_metadata", Partitions: 1, Replication: 1}, "INVALID_REQUEST: Creation of internal topic __cluster_metadata is prohibited."},
		"no partitions":  {NewTopic{Name: "n", Partitions: 0, Replication: 1}, "INVALID_PARTITIONS: Number of partitions was set to an invalid non-positive value."},
		"-2 partitions":  {NewTopic{Name: "n", Partitions: -2, Replication: 1}, "INVALID_PARTITIONS: Number of partitions was set to an invalid non-positive value."},
		"no replicas":    {NewTopic{Name: "n", Partitions: 1, Replication: 0}, "INVALID_REPLICATION_FACTOR: Replication factor must be larger than 0, or -1 to use the default value."},
		"many replicas":  {NewTopic{Name: "n", Partitions: 1, Replication: 4}, "INVALID_REPLICATION_FACTOR: Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only 3 broker(s) are registered or some brokers have all their log directories cordoned."},
		"too many":       {NewTopic{Name: "n", Partitions: 10_001, Replication: 1}, "POLICY_VIOLATION: Excessively large number of partitions per request."},
		"null config":    {NewTopic{Name: "n", Partitions: 1, Replication: 1, Configs: []Setting{{Name: "retention.ms"}, {Name: "b"}}}, "INVALID_CONFIG: Null value not supported for topic configs: retention.ms,b"},
		"unknown config": {NewTopic{Name: "n", Partitions: 1, Replication: 1, Configs: []Setting{{"no.such", text("1")}}}, "INVALID_CONFIG: Unknown topic config name: no.such"},
		"bad config":     {NewTopic{Name: "n", Partitions: 1, Replication: 1, Configs: []Setting{{"retention.ms", text("x")}}}, "INVALID_CONFIG: Invalid value x for configuration retention.ms: Not a number of type LONG"},
		"long config":    {NewTopic{Name: "n", Partitions: 1, Replication: 1, Configs: []Setting{{"retention.ms", &long}}}, "INVALID_CONFIG: The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."},
		"both factors":   {NewTopic{Name: "n", Partitions: -1, Replication: 1, Assignments: many([]meta.BrokerID{1})}, "INVALID_REQUEST: A manual partition assignment was specified, but replication factor was not set to -1."},
		"both counts":    {NewTopic{Name: "n", Partitions: 1, Replication: -1, Assignments: many([]meta.BrokerID{1})}, "INVALID_REQUEST: A manual partition assignment was specified, but numPartitions was not set to -1."},
		"no list":        {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: many(nil)}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes an empty replica list."},
		"no broker":      {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: many([]meta.BrokerID{7})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes broker 7, but no such broker is registered."},
		"twice":          {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: many([]meta.BrokerID{1, 2, 1})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes the broker 1 more than once."},
		"uneven":         {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: many([]meta.BrokerID{1, 2}, []meta.BrokerID{1})}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s)."},
		"fenced":         {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: many([]meta.BrokerID{3})}, "INVALID_REPLICA_ASSIGNMENT: All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."},
		"repeated":       {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: []Assignment{{1, []meta.BrokerID{1}}, {1, []meta.BrokerID{1}}}}, "INVALID_REPLICA_ASSIGNMENT: Found multiple manual partition assignments for partition 1"},
		"gap":            {NewTopic{Name: "n", Partitions: -1, Replication: -1, Assignments: []Assignment{{0, []meta.BrokerID{1}}, {2, []meta.BrokerID{1}}}}, "INVALID_REPLICA_ASSIGNMENT: partitions should be a consecutive 0-based integer sequence"},
	} {
		results, revision, err := f.CreateTopics(t.Context(), []NewTopic{c.topic}, false)
		if err != nil || revision != 0 {
			t.Fatalf("%s: revision %d, %v", name, revision, err)
		}
		f.check(name, results[0].Err, c.want)
	}
	results, _, err := f.CreateTopics(t.Context(), []NewTopic{{Name: "d", Partitions: 1, Replication: 1}, {Name: "d", Partitions: 1, Replication: 1}}, false)
	if err != nil {
		t.Fatal(err)
	}
	f.check("duplicate", results[0].Err, "INVALID_REQUEST: Duplicate topic name.")
	if after := f.state(); !reflect.DeepEqual(before, after) {
		t.Errorf("refusals changed the registry: revision %d, then %d", before.Revision, after.Revision)
	}
}

func TestCreateTopics(t *testing.T) {
	f := newFixture(t)
	request := []NewTopic{
		{Name: "defaults", Partitions: -1, Replication: -1},
		{Name: "manual", Partitions: -1, Replication: -1, Assignments: []Assignment{{1, []meta.BrokerID{2, 3}}, {0, []meta.BrokerID{1, 2}}}},
		{Name: "configured", Partitions: 1, Replication: 1, Configs: []Setting{{minISRKey, text("2")}, {flushKey, text("true")}}},
		{Name: meta.DeletionTopic, Partitions: 1, Replication: 1},
		{Name: "taken", Partitions: 1, Replication: 1},
	}
	before := f.state().Revision
	results, revision, err := f.CreateTopics(t.Context(), request, true)
	if err != nil || revision != 0 || results[0].Err != nil || results[0].Partitions != 3 || !results[0].ID.IsZero() || f.state().Revision != before {
		t.Fatalf("validate only: %+v, %d, %v", results, revision, err)
	}
	results, revision, err = f.CreateTopics(t.Context(), request, false)
	if err != nil || revision != f.state().Revision {
		t.Fatalf("revision %d of %d, %v", revision, f.state().Revision, err)
	}
	f.check("taken", results[4].Err, "TOPIC_ALREADY_EXISTS: Topic 'taken' already exists.")
	image := f.image()
	if topic, _ := image.Topic("defaults"); len(topic.Partitions) != 3 || len(topic.Partitions[0].Replicas) != 2 || topic.ID != results[0].ID {
		t.Errorf("defaults: %+v", topic)
	}
	one := partition(image, "manual", 1)
	want := meta.Partition{
		Replicas: []meta.BrokerID{2, 3}, Leader: 2, ISR: []meta.BrokerID{2}, MinISR: 1, Dirs: []meta.DirectoryID{{15: 2}, {15: 3}}, Version: 1,
	}
	if !reflect.DeepEqual(one, want) {
		t.Errorf("manual: %+v", one)
	}
	if p := partition(image, "configured", 0); p.MinISR != 2 || !p.Flush || len(results[2].Config) != 2 {
		t.Errorf("configured: %+v, %v", p, results[2].Config)
	}
	if p := partition(image, meta.DeletionTopic, 0); !p.Flush {
		t.Errorf("D15: %+v", p)
	}
}

func TestDeleteTopics(t *testing.T) {
	f := newFixture(t)
	taken, _ := f.image().Topic("taken")
	other := meta.TopicID{1}
	before := f.state()
	results, revision, err := f.DeleteTopics(t.Context(), []OldTopic{
		{Name: "none"},
		{ID: other},
		{Name: "taken", ID: taken.ID},
		{},
		{Name: "a.b"}, {Name: "a.b"},
		{Name: "taken"}, {ID: taken.ID},
	})
	if err != nil || revision != 0 {
		t.Fatal(revision, err)
	}
	for i, want := range []string{
		"UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.",
		"UNKNOWN_TOPIC_ID: This server does not host this topic ID.",
		"INVALID_REQUEST: You may not specify both topic name and topic id.",
		"INVALID_REQUEST: Neither topic name nor id were specified.",
		"INVALID_REQUEST: Duplicate topic name.", "INVALID_REQUEST: Duplicate topic name.",
		"INVALID_REQUEST: The provided topic name maps to an ID that was already supplied.",
		"INVALID_REQUEST: The provided topic name maps to an ID that was already supplied.",
	} {
		f.check(fmt.Sprint("delete ", i), results[i].Err, want)
	}
	if !reflect.DeepEqual(before, f.state()) {
		t.Error("refusals changed the registry")
	}
	f.config.DeletionDisabled = true
	results, _, _ = f.DeleteTopics(t.Context(), []OldTopic{{Name: "taken"}})
	f.check("disabled", results[0].Err, "TOPIC_DELETION_DISABLED: Topic deletion is disabled.")
	f.config.DeletionDisabled = false
	results, revision, err = f.DeleteTopics(t.Context(), []OldTopic{{ID: taken.ID}, {Name: "a.b"}, {Name: "none"}})
	if err != nil || revision != f.state().Revision || results[0].Err != nil || results[0].Name != "taken" || results[1].Err != nil || results[1].ID.IsZero() || results[2].Err == nil {
		t.Errorf("got %+v, %d, %v", results, revision, err)
	}
	if len(f.image().Topics()) != 0 {
		t.Errorf("left %s", show(f.image()))
	}
}

func TestCreatePartitions(t *testing.T) {
	f := newFixture(t)
	before := f.state()
	for name, c := range map[string]struct {
		topic MorePartitions
		want  string
	}{
		"unknown":   {MorePartitions{Name: "none", Count: 2}, "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition."},
		"same":      {MorePartitions{Name: "taken", Count: 1}, "INVALID_PARTITIONS: Topic already has 1 partition(s)."},
		"fewer":     {MorePartitions{Name: "taken", Count: 0}, "INVALID_PARTITIONS: The topic taken currently has 1 partition(s); 0 would not be an increase."},
		"too many":  {MorePartitions{Name: "taken", Count: 10_002}, "POLICY_VIOLATION: Excessively large number of additional partitions per request."},
		"few lists": {MorePartitions{Name: "taken", Count: 3, Assignments: [][]meta.BrokerID{{1, 2}}}, "INVALID_REPLICA_ASSIGNMENT: Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."},
		"uneven":    {MorePartitions{Name: "taken", Count: 2, Assignments: [][]meta.BrokerID{{1}}}, "INVALID_REPLICA_ASSIGNMENT: The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s)."},
	} {
		results, revision, err := f.CreatePartitions(t.Context(), []MorePartitions{c.topic}, false)
		if err != nil || revision != 0 {
			t.Fatal(name, revision, err)
		}
		f.check(name, results[0], c.want)
	}
	if results, _, err := f.CreatePartitions(t.Context(), []MorePartitions{{Name: "taken", Count: 3}}, true); err != nil || results[0] != nil {
		t.Errorf("validate only: %v, %v", results, err)
	}
	if !reflect.DeepEqual(before, f.state()) {
		t.Error("refusals changed the registry")
	}
	results, revision, err := f.CreatePartitions(t.Context(), []MorePartitions{
		{Name: "taken", Count: 3, Assignments: [][]meta.BrokerID{{2, 1}, {1, 3}}}, {Name: "a.b", Count: 200},
	}, false)
	if err != nil || results[0] != nil || results[1] != nil || revision != f.state().Revision {
		t.Fatalf("got %v, %d, %v", results, revision, err)
	}
	if p := partition(f.image(), "taken", 2); !slices.Equal(p.Replicas, []meta.BrokerID{1, 3}) || !slices.Equal(p.ISR, []meta.BrokerID{1}) {
		t.Errorf("got %+v", p)
	}
	if got := f.image().PartitionCount(); got != 203 {
		t.Errorf("%d partitions", got)
	}
}

func TestAlterConfigs(t *testing.T) {
	f := newFixture(t)
	topic := meta.TopicConfig("taken")
	one := func(name string, operation Operation, value *string) []Alteration {
		return []Alteration{{name, operation, value}}
	}
	before := f.state()
	for name, c := range map[string]struct {
		alter AlterConfig
		want  string
	}{
		"no topic":   {AlterConfig{meta.TopicConfig("none"), one("retention.ms", Set, text("1"))}, "UNKNOWN_TOPIC_OR_PARTITION: The topic 'none' does not exist."},
		"default":    {AlterConfig{meta.TopicConfig(""), one("retention.ms", Set, text("1"))}, "INVALID_REQUEST: Default topic resources are not allowed."},
		"unknown":    {AlterConfig{topic, one("no.such", Set, text("1"))}, "INVALID_CONFIG: Unknown topic config name: no.such"},
		"bad":        {AlterConfig{topic, one("retention.ms", Set, text("x"))}, "INVALID_CONFIG: Invalid value x for configuration retention.ms: Not a number of type LONG"},
		"null":       {AlterConfig{topic, one("retention.ms", Set, nil)}, "INVALID_REQUEST: Null value not supported for : retention.ms"},
		"twice":      {AlterConfig{topic, append(one("retention.ms", Set, text("1")), one("retention.ms", Unset, nil)...)}, "INVALID_REQUEST: Error due to duplicate config keys"},
		"no list":    {AlterConfig{topic, one("retention.ms", Append, text("1"))}, "INVALID_CONFIG: Can't APPEND to key retention.ms because its type is not LIST."},
		"operation":  {AlterConfig{topic, one("retention.ms", 9, text("1"))}, "INVALID_REQUEST: Unknown operations type 9"},
		"no broker":  {AlterConfig{meta.BrokerConfig(9), one(minISRKey, Set, text("1"))}, "BROKER_ID_NOT_REGISTERED: No node with id 9 found."},
		"no number":  {AlterConfig{meta.ConfigResource{Kind: meta.BrokerResource, Name: "x"}, one(minISRKey, Set, text("1"))}, "INVALID_REQUEST: Node id must be an integer, but it is: x"},
		"not now":    {AlterConfig{meta.BrokerConfig(1), one("node.id", Set, text("1"))}, "INVALID_CONFIG: Cannot update these configs dynamically: Set(node.id)"},
		"other kind": {AlterConfig{meta.ConfigResource{Kind: 99, Name: "x"}, nil}, "INVALID_REQUEST: Unknown resource type UNKNOWN"},
	} {
		for _, validateOnly := range []bool{true, false} {
			results, revision, err := f.AlterConfigs(t.Context(), []AlterConfig{c.alter}, validateOnly)
			if err != nil {
				t.Fatal(name, revision, err)
			}
			f.check(name, results[0], c.want)
		}
	}
	results, _, err := f.AlterConfigs(t.Context(), []AlterConfig{{topic, nil}, {topic, nil}}, false)
	if err != nil {
		t.Fatal(err)
	}
	f.check("one resource twice", results[0], "INVALID_REQUEST: Each resource must appear at most once.")
	if after := f.state(); !reflect.DeepEqual(before.TopicConfigs, after.TopicConfigs) || !reflect.DeepEqual(before.BrokerConfigs, after.BrokerConfigs) {
		t.Error("refusals changed the registry")
	}
	for i, c := range []struct {
		changes []Alteration
		want    map[string]string
	}{
		{one("cleanup.policy", Append, text("compact")), map[string]string{"cleanup.policy": "delete,compact"}},
		{one("cleanup.policy", Append, text("compact")), map[string]string{"cleanup.policy": "delete,compact"}},
		{append(one("cleanup.policy", Subtract, text("delete,none")), one("retention.ms", Set, text("5"))...), map[string]string{"cleanup.policy": "compact", "retention.ms": "5"}},
		{one("cleanup.policy", Unset, nil), map[string]string{"retention.ms": "5"}},
	} {
		results, revision, err := f.AlterConfigs(t.Context(), []AlterConfig{{topic, c.changes}}, false)
		if err != nil || results[0] != nil || revision != f.state().Revision {
			t.Fatal(i, results, revision, err)
		}
		if got := f.image().Config(topic); !reflect.DeepEqual(got, c.want) {
			t.Errorf("step %d: %v, want %v", i, got, c.want)
		}
	}
	results, _, err = f.ReplaceConfigs(t.Context(), []ReplaceConfig{
		{topic, []Setting{{"cleanup.policy", text("compact")}}},
		{meta.DefaultBrokerConfig, []Setting{{minISRKey, text("2")}}},
		{meta.TopicConfig("a.b"), []Setting{{"retention.ms", nil}}},
	}, false)
	if err != nil || results[0] != nil || results[1] != nil {
		t.Fatal(results, err)
	}
	f.check("null", results[2], "INVALID_REQUEST: Null value not supported for : retention.ms")
	if got := f.image().Config(topic); !reflect.DeepEqual(got, map[string]string{"cleanup.policy": "compact"}) {
		t.Errorf("replaced: %v", got)
	}
	if got := f.image().Config(meta.DefaultBrokerConfig); !reflect.DeepEqual(got, map[string]string{minISRKey: "2"}) {
		t.Errorf("default: %v", got)
	}
}

// Leaders and replicas are spread evenly, never twice on one broker, over as many racks as there can be, and a fenced broker
// is a last resort.
func TestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var brokers []meta.Broker
		live, racks := 0, make(map[string]bool)
		for i := range rapid.IntRange(1, 7).Draw(t, "brokers") {
			b := meta.Broker{ID: meta.BrokerID(i + 1), Rack: rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "rack"), Fenced: rapid.IntRange(0, 3).Draw(t, "fenced") == 0}
			if !b.Fenced {
				live++
				racks[b.Rack] = true
			}
			brokers = append(brokers, b)
		}
		partitions, replicas := rapid.IntRange(1, 40).Draw(t, "partitions"), rapid.IntRange(1, 8).Draw(t, "replicas")
		assignments, refusal := Place(brokers, partitions, replicas, rapid.IntRange(0, 99).Draw(t, "start"))
		if refusal != nil {
			if live > 0 && replicas <= len(brokers) {
				t.Fatalf("refused: %v", refusal)
			}
			return
		}
		leads := make(map[meta.BrokerID]int)
		for _, assignment := range assignments {
			if len(assignment) != replicas || len(slices.Compact(slices.Sorted(slices.Values(assignment)))) != replicas {
				t.Fatalf("assignment %v", assignment)
			}
			leads[assignment[0]]++
			fenced := 0
			used := make(map[string]bool)
			for _, id := range assignment {
				if brokers[id-1].Fenced {
					fenced++
				} else {
					used[brokers[id-1].Rack] = true
				}
			}
			if len(used) != min(len(racks), replicas, live) {
				t.Fatalf("assignment %v has racks %v of %v", assignment, used, racks)
			}
			if brokers[assignment[0]-1].Fenced || fenced != max(0, replicas-live) {
				t.Fatalf("assignment %v of %+v", assignment, brokers)
			}
		}
		for id, n := range leads {
			if n > partitions/live+1 {
				t.Fatalf("broker %d leads %d of %d", id, n, partitions)
			}
		}
	})
}
