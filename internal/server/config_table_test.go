package server

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// tableKeys are enough keys to see every kind of fallback.
var tableKeys = []meta.ConfigKey{
	{Name: "retention.ms", Type: meta.LongType, HasDefault: true, Default: "604800000", Topic: true, Synonym: "log.retention.ms", Units: []meta.UnitKey{{Name: "log.retention.hours", Millis: 3_600_000}}},
	{Name: "log.retention.ms", Type: meta.LongType, Broker: true, Dynamic: meta.ClusterWide},
	{Name: "log.retention.hours", Type: meta.IntType, HasDefault: true, Default: "168", Broker: true},
	{Name: "log.cleaner.threads", Type: meta.IntType, HasDefault: true, Default: "1", Broker: true, Dynamic: meta.ClusterWide, Valid: meta.AtLeast(0)},
	{Name: "ssl.key.password", Type: meta.PasswordType, Broker: true, Dynamic: meta.PerBroker, Sensitive: true},
}

func newTable(t *testing.T, static map[string]string) *ConfigTable {
	t.Helper()
	keys, err := meta.NewConfigKeys(tableKeys)
	if err != nil {
		t.Fatal(err)
	}
	table, err := NewConfigTable(keys, 1, static)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestConfigTableRefusesStaticValues(t *testing.T) {
	keys, err := meta.NewConfigKeys(tableKeys)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		static map[string]string
		want   string
	}{
		{map[string]string{"nosuch.key": "1"}, "unknown configuration key nosuch.key"},
		{map[string]string{"retention.ms": "1"}, "unknown configuration key retention.ms"},
		{map[string]string{"log.cleaner.threads": "-1"}, "Invalid value -1 for configuration log.cleaner.threads: Value must be at least 0"},
		{map[string]string{"listener.name.x.nosuch": "1"}, "unknown configuration key listener.name.x.nosuch"},
		{map[string]string{"listener.name.x.ssl.key.password": "secret"}, ""},
	} {
		_, err := NewConfigTable(keys, 1, test.static)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%v: got error %q, want %q", test.static, got, test.want)
		}
	}
}

// TestConfigTableLevels sets one key level by level, from the last that counts to the first.
func TestConfigTableLevels(t *testing.T) {
	image := meta.NewImage("test-cluster")
	for _, step := range []struct {
		set  func()
		want string
	}{
		{func() {}, "1"},
		{func() {
			image = image.WithConfig(meta.DefaultBrokerConfig, map[string]string{"log.cleaner.threads": "3"}, 1)
		}, "3"},
		{func() {
			image = image.WithConfig(meta.BrokerConfig(2), map[string]string{"log.cleaner.threads": "5"}, 2)
		}, "3"},
		{func() {
			image = image.WithConfig(meta.BrokerConfig(1), map[string]string{"log.cleaner.threads": "4"}, 3)
		}, "4"},
		{func() {
			image = image.WithConfig(meta.BrokerConfig(1), map[string]string{"log.cleaner.threads": "x"}, 4)
		}, "1"},
	} {
		step.set()
		if got := newTable(t, nil).Value(image, "log.cleaner.threads"); got != step.want {
			t.Errorf("got %s, want %s", got, step.want)
		}
	}
	if got := newTable(t, map[string]string{"log.cleaner.threads": " 2 "}).Int(meta.NewImage(""), "log.cleaner.threads"); got != 2 {
		t.Errorf("static value: got %d, want 2", got)
	}
	if got := newTable(t, nil).Value(image, "nosuch"); got != "" {
		t.Errorf("a key that does not exist: got %s", got)
	}
}

func TestConfigTableTopicValue(t *testing.T) {
	image := meta.NewImage("test-cluster")
	for _, test := range []struct {
		static, topic map[string]string
		want          string
	}{
		{nil, nil, "604800000"},
		{map[string]string{"log.retention.hours": "1"}, nil, "3600000"},
		{map[string]string{"log.retention.hours": "1", "log.retention.ms": "7"}, nil, "7"},
		{map[string]string{"log.retention.ms": "7"}, map[string]string{"retention.ms": " 5"}, "5"},
	} {
		if got := newTable(t, test.static).TopicValue(image, test.topic, "retention.ms"); got != test.want {
			t.Errorf("%v %v: got %s, want %s", test.static, test.topic, got, test.want)
		}
	}
}

// TestSecretsStaySecret looks for a password in everything that is described.
func TestSecretsStaySecret(t *testing.T) {
	s, _, _ := adminServer(t)
	s.config.Configs = newTable(t, map[string]string{"ssl.key.password": "secret", "listener.name.x.ssl.key.password": "secret"})
	d := describer{server: s, image: s.config.Image(), req: describeAll()}
	found := 0
	for _, entry := range d.brokerEntries() {
		if entry.IsSensitive {
			found++
		}
		if entry.IsSensitive && entry.Value != nil {
			t.Errorf("%s is described as %s", entry.Name, *entry.Value)
		}
		for _, synonym := range entry.ConfigSynonyms {
			if synonym.Value != nil && *synonym.Value == "secret" {
				t.Errorf("a synonym of %s is described as %s", entry.Name, *synonym.Value)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d keys are described as sensitive, want 2", found)
	}
}

func describeAll() *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	return req
}
