package commitlog

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Config is how one partition's log behaves: the effective values of the topic's configuration. Sizes are bytes. A
// zero Config is of no use: begin with DefaultConfig or ParseConfig.
type Config struct {
	SegmentBytes  int32         // a segment that would grow beyond this is closed; segment.bytes
	SegmentAge    time.Duration // a segment older than this is closed; segment.ms
	SegmentJitter time.Duration // up to this is subtracted from SegmentAge, at random; segment.jitter.ms
	IndexBytesMax int32         // a segment whose offset or time index reaches this is closed; segment.index.bytes
	IndexInterval int32         // bytes of log between index entries; index.interval.bytes

	RetentionBytes int64         // the oldest segments above this go; -1: no bound; retention.bytes
	Retention      time.Duration // segments whose newest record is older go; -1: no bound; retention.ms
	CleanupDelete  bool          // retention applies; cleanup.policy
	CleanupCompact bool          // compaction applies; cleanup.policy

	DeleteRetention   time.Duration // tombstones stay this long; delete.retention.ms
	MinCompactionLag  time.Duration // a younger record stays uncompacted; min.compaction.lag.ms
	MaxCompactionLag  time.Duration // an older record must be compacted; max.compaction.lag.ms
	MinCleanableRatio float64       // dirty share of the log that starts a compaction, 0 to 1; min.cleanable.dirty.ratio
	FileDeleteDelay   time.Duration // between the renaming of files and their removal; file.delete.delay.ms
	Preallocate       bool          // a segment file takes SegmentBytes when created; preallocate

	FlushMessages int64         // sync after so many records; flush.messages
	FlushInterval time.Duration // sync what is older than this; flush.ms
	FlushAcks     bool          // answer produces after a sync (D9); log.flush.acks

	MessageBytesMax      int32         // largest batch as stored; max.message.bytes
	DecompressedBytesMax int32         // largest batch decompressed; max.decompressed.message.bytes
	LogAppendTime        bool          // records get the time of the append; message.timestamp.type
	TimestampBeforeMax   time.Duration // how far a timestamp may lie in the past; message.timestamp.before.max.ms
	TimestampAfterMax    time.Duration // how far it may lie in the future; message.timestamp.after.max.ms
	Compression          string        // "producer" (as they come), "uncompressed", "gzip", "snappy", "lz4", "zstd"; compression.type
	CompressionLevel     int           // of Compression; 0 where there is no level

	ProducerExpiry time.Duration // idempotent producers are forgotten this long after their last write; producer.id.expiration.ms
}

// DefaultConfig is the Config of a topic for which nothing was set anywhere.
func DefaultConfig() Config {
	c, err := ParseConfig(nil, func(string) (string, bool) { return "", false })
	if err != nil {
		panic(fmt.Sprintf("the defaults of the configuration table are invalid: %v", err))
	}
	return c
}

// ParseConfig computes the effective configuration of a topic from what was set for the topic itself and what was set
// for the broker: broker returns a key's value and whether it was set at all (per broker, as the cluster's default or
// in the properties file). Unknown topic keys are ignored: they were refused when they were set, unless a newer version
// wrote them. The error is the refusal of the first invalid value.
func ParseConfig(topic map[string]string, broker meta.ConfigLookup) (Config, error) {
	r := resolver{topic: topic, broker: broker}
	c := Config{
		SegmentBytes:         r.int32("segment.bytes"),
		SegmentAge:           r.duration("segment.ms"),
		SegmentJitter:        r.duration("segment.jitter.ms"),
		IndexBytesMax:        r.int32("segment.index.bytes"),
		IndexInterval:        r.int32("index.interval.bytes"),
		RetentionBytes:       max(-1, r.int64("retention.bytes")),
		Retention:            r.duration("retention.ms"),
		DeleteRetention:      r.duration("delete.retention.ms"),
		MinCompactionLag:     r.duration("min.compaction.lag.ms"),
		MaxCompactionLag:     r.duration("max.compaction.lag.ms"),
		MinCleanableRatio:    r.float("min.cleanable.dirty.ratio"),
		FileDeleteDelay:      r.duration("file.delete.delay.ms"),
		Preallocate:          r.bool("preallocate"),
		FlushMessages:        r.int64("flush.messages"),
		FlushInterval:        r.duration("flush.ms"),
		FlushAcks:            r.bool("log.flush.acks"),
		MessageBytesMax:      r.int32("max.message.bytes"),
		DecompressedBytesMax: r.int32("max.decompressed.message.bytes"),
		LogAppendTime:        r.text("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMax:   r.duration("message.timestamp.before.max.ms"),
		TimestampAfterMax:    r.duration("message.timestamp.after.max.ms"),
		Compression:          r.text("compression.type"),
		ProducerExpiry:       r.duration("producer.id.expiration.ms"),
	}
	policies := meta.SplitList(r.text("cleanup.policy"))
	c.CleanupDelete = slices.Contains(policies, "delete")
	c.CleanupCompact = slices.Contains(policies, "compact")
	switch c.Compression {
	case "gzip", "lz4", "zstd":
		c.CompressionLevel = int(r.int32("compression." + c.Compression + ".level"))
	}
	if topic["internal.segment.bytes"] != "" {
		c.SegmentBytes = r.int32("internal.segment.bytes")
	}
	if r.err == nil {
		r.err = configKeys.CheckTopic(knownOnly(topic), broker)
	}
	return c, r.err
}

// knownOnly leaves out what this version has no key for.
func knownOnly(topic map[string]string) map[string]string {
	values := make(map[string]string, len(topic))
	for name, value := range topic {
		if configKeys.Topic(name) != nil {
			values[name] = value
		}
	}
	return values
}

// configKeys finds the topics' keys of Keys.
var configKeys = func() *meta.ConfigKeys {
	all, err := meta.NewConfigKeys(Keys)
	if err != nil {
		panic(err) // the table above is wrong
	}
	return all
}()

// resolver computes effective values and keeps the first error.
type resolver struct {
	topic  map[string]string
	broker meta.ConfigLookup
	err    error
}

func (r *resolver) text(name string) string {
	if r.err != nil {
		return ""
	}
	var value string
	if key := configKeys.Topic(name); key != nil {
		value, r.err = key.Effective(r.topic, r.broker)
		return value
	}
	key := configKeys.Broker(name)
	set, found := r.broker(name)
	if !found {
		return key.Default
	}
	value, r.err = key.Parse(set)
	return value
}

func (r *resolver) int64(name string) int64 {
	value := r.text(name)
	if r.err != nil {
		return 0
	}
	var n int64
	n, r.err = strconv.ParseInt(value, 10, 64)
	return n
}

// int32 narrows a value whose key's type bounds it.
func (r *resolver) int32(name string) int32 { return int32(min(r.int64(name), math.MaxInt32)) }

func (r *resolver) bool(name string) bool { return r.text(name) == "true" }

func (r *resolver) float(name string) float64 {
	value := r.text(name)
	if r.err != nil {
		return 0
	}
	var f float64
	f, r.err = strconv.ParseFloat(value, 64)
	return f
}

// duration converts milliseconds. What a Duration cannot hold becomes the longest; negative values stay -1.
func (r *resolver) duration(name string) time.Duration {
	switch millis := r.int64(name); {
	case millis < 0:
		return -1
	case millis > math.MaxInt64/int64(time.Millisecond):
		return math.MaxInt64
	default:
		return time.Duration(millis) * time.Millisecond
	}
}
