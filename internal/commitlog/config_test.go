package commitlog

import (
	"math"
	"testing"
	"time"
)

func lookup(values map[string]string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		value, set := values[key]
		return value, set
	}
}

func TestDefaultConfig(t *testing.T) {
	got := DefaultConfig()
	want := Config{
		SegmentBytes: 1 << 30, SegmentAge: 7 * 24 * time.Hour, IndexBytesMax: 10 << 20, IndexInterval: 4096,
		RetentionBytes: -1, Retention: 7 * 24 * time.Hour, CleanupDelete: true,
		DeleteRetention: 24 * time.Hour, MaxCompactionLag: math.MaxInt64, MinCleanableRatio: 0.5,
		FileDeleteDelay: time.Minute, FlushMessages: math.MaxInt64, FlushInterval: math.MaxInt64,
		MessageBytesMax: 1<<20 + 12, DecompressedBytesMax: math.MaxInt32 - 8,
		TimestampBeforeMax: math.MaxInt64, TimestampAfterMax: time.Hour,
		Compression: "producer", ProducerExpiry: 24 * time.Hour,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseConfigFallsBackToBrokerKeys(t *testing.T) {
	tests := []struct {
		name          string
		topic, broker map[string]string
		want          func(*Config)
	}{
		{"topic wins", map[string]string{"retention.ms": "5"}, map[string]string{"log.retention.ms": "7"},
			func(c *Config) { c.Retention = 5 * time.Millisecond }},
		{"milliseconds before minutes", nil, map[string]string{"log.retention.ms": "7", "log.retention.minutes": "1"},
			func(c *Config) { c.Retention = 7 * time.Millisecond }},
		{"minutes before hours", nil, map[string]string{"log.retention.hours": "7", "log.retention.minutes": "1"},
			func(c *Config) { c.Retention = time.Minute }},
		{"hours", nil, map[string]string{"log.retention.hours": "2"}, func(c *Config) { c.Retention = 2 * time.Hour }},
		{"no bound in hours", nil, map[string]string{"log.retention.hours": "-1"}, func(c *Config) { c.Retention = -1 }},
		{"below -1", map[string]string{"retention.bytes": "-5"}, nil, func(c *Config) {}},
		{"longer than a Duration", map[string]string{"retention.ms": "9223372036854775807"}, nil,
			func(c *Config) { c.Retention = math.MaxInt64 }},
		{"policies", map[string]string{"cleanup.policy": "compact, delete"}, nil, func(c *Config) { c.CleanupCompact = true }},
		{"no policy", map[string]string{"cleanup.policy": ""}, nil, func(c *Config) { c.CleanupDelete = false }},
		{"level of the codec", map[string]string{"compression.type": "zstd"}, map[string]string{"compression.zstd.level": "7"},
			func(c *Config) { c.Compression, c.CompressionLevel = "zstd", 7 }},
		{"flush", nil, map[string]string{"log.flush.acks": "true"}, func(c *Config) { c.FlushAcks = true }},
		{"small segments for tests", map[string]string{"internal.segment.bytes": "1000"}, nil,
			func(c *Config) { c.SegmentBytes = 1000 }},
		{"producers", nil, map[string]string{"producer.id.expiration.ms": "1000"},
			func(c *Config) { c.ProducerExpiry = time.Second }},
		{"a key of a newer version", map[string]string{"future.key": "x"}, nil, func(c *Config) {}},
	}
	for _, test := range tests {
		want := DefaultConfig()
		test.want(&want)
		got, err := ParseConfig(test.topic, lookup(test.broker))
		if err != nil || got != want {
			t.Errorf("%s: got %+v, error %v\nwant %+v", test.name, got, err, want)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	tests := []struct {
		topic, broker map[string]string
		want          string
	}{
		{map[string]string{"retention.ms": "abc"}, nil, "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{nil, map[string]string{"log.retention.hours": "x"}, "Invalid value x for configuration log.retention.hours: Not a number of type LONG"},
		{map[string]string{"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"}, nil, "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (50)"},
		{map[string]string{"min.insync.replicas": "0"}, nil, "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"},
	}
	for _, test := range tests {
		if _, err := ParseConfig(test.topic, lookup(test.broker)); err == nil || err.Error() != test.want {
			t.Errorf("%v %v: got error %v, want %s", test.topic, test.broker, err, test.want)
		}
	}
}

// TestKeysAreSound checks every row: a default that its own rule accepts, and a documentation text.
func TestKeysAreSound(t *testing.T) {
	for _, key := range Keys {
		if key.HasDefault {
			if got, err := key.Parse(key.Default); err != nil || got != key.Default {
				t.Errorf("%s: default %q parses to %q, error %v", key.Name, key.Default, got, err)
			}
		}
		if key.Doc == "" || key.Topic == key.Broker {
			t.Errorf("%s: needs a text and exactly one scope", key.Name)
		}
		if key.Topic && key.Synonym != "" && configKeys.Broker(key.Synonym) == nil && key.Name != key.Synonym {
			t.Errorf("%s: its fallback %s is no key", key.Name, key.Synonym)
		}
	}
}
