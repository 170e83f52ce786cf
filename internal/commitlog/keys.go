package commitlog

import (
	"math"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Keys lists every configuration key of topics, those of Kafka 4.4 and tidemark's own, and the broker's keys about
// logs: the fallbacks of topic keys, and what concerns the data directory as a whole. Names, types, defaults, ranges
// and ways of change are Kafka's (U-123).
var Keys = append(topicKeys(), logKeys()...)

func topicKeys() []meta.ConfigKey {
	return scoped(true, false, []meta.ConfigKey{
		{
			Name: "segment.bytes", Type: meta.IntType, HasDefault: true, Default: "1073741824", Valid: meta.AtLeast(1 << 20), Synonym: "log.segment.bytes",
			Doc: "Size in bytes at which a segment file is closed and a new one begun. Smaller segments are deleted, compacted and tiered sooner, but mean more files.",
		},
		{
			Name: "segment.ms", Type: meta.LongType, HasDefault: true, Default: "604800000", Valid: meta.AtLeast(1), Synonym: "log.roll.ms",
			Units: []meta.UnitKey{{Name: "log.roll.hours", Millis: 3_600_000}},
			Doc:   "Age in milliseconds at which a segment is closed even if it is not full, so that retention and compaction can take it.",
		},
		{
			Name: "segment.jitter.ms", Type: meta.LongType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0), Synonym: "log.roll.jitter.ms",
			Units: []meta.UnitKey{{Name: "log.roll.jitter.hours", Millis: 3_600_000}},
			Doc:   "Up to this many milliseconds, drawn at random, are subtracted from segment.ms, so that not all partitions roll at once.",
		},
		{
			Name: "segment.index.bytes", Type: meta.IntType, HasDefault: true, Default: "10485760", Valid: meta.AtLeast(4), Synonym: "log.index.size.max.bytes",
			Doc: "Size in bytes up to which the index files of a segment may grow; a full index closes the segment.",
		},
		{
			Name: "flush.messages", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(1), Synonym: "log.flush.interval.messages",
			Doc: "Number of records after which a partition is synced to disk. Prefer log.flush.acks where acknowledged records must survive a power cut of every replica.",
		},
		{
			Name: "flush.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Synonym: "log.flush.interval.ms",
			Units: []meta.UnitKey{{Name: "log.flush.scheduler.interval.ms", Millis: 1}},
			Doc:   "Milliseconds after which a partition with unsynced records is synced to disk.",
		},
		{
			Name: "retention.bytes", Type: meta.LongType, HasDefault: true, Default: "-1", Synonym: "log.retention.bytes",
			Doc: "Size in bytes above which a partition's oldest segments are deleted; -1 keeps all. Multiply by the number of partitions for the topic's size.",
		},
		{
			Name: "retention.ms", Type: meta.LongType, HasDefault: true, Default: "604800000", Valid: meta.AtLeast(-1), Synonym: "log.retention.ms",
			Units: []meta.UnitKey{{Name: "log.retention.minutes", Millis: 60_000}, {Name: "log.retention.hours", Millis: 3_600_000}},
			Doc:   "Milliseconds for which records are kept before their segment is deleted; -1 keeps them for ever.",
		},
		{
			Name: "max.message.bytes", Type: meta.IntType, HasDefault: true, Default: "1048588", Valid: meta.AtLeast(0), Synonym: "message.max.bytes",
			Doc: "Largest record batch accepted, in bytes, after compression.",
		},
		{
			Name: "max.decompressed.message.bytes", Type: meta.IntType, HasDefault: true, Default: "2147483639", Valid: meta.Between(1, math.MaxInt32-8), Synonym: "max.decompressed.message.bytes",
			Doc: "Largest record batch accepted, in bytes, after decompression: the bound against compression bombs.",
		},
		{
			Name: "index.interval.bytes", Type: meta.IntType, HasDefault: true, Default: "4096", Valid: meta.AtLeast(0), Synonym: "log.index.interval.bytes",
			Doc: "Bytes of log between two entries of the offset index. Denser indexes find an offset with less reading and take more memory.",
		},
		{
			Name: "delete.retention.ms", Type: meta.LongType, HasDefault: true, Default: "86400000", Valid: meta.AtLeast(0), Synonym: "log.cleaner.delete.retention.ms",
			Doc: "Milliseconds for which a compacted topic keeps tombstones, so that a consumer that began at the start still sees the deletion.",
		},
		{
			Name: "min.compaction.lag.ms", Type: meta.LongType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0), Synonym: "log.cleaner.min.compaction.lag.ms",
			Doc: "Milliseconds for which a record stays uncompacted.",
		},
		{
			Name: "max.compaction.lag.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(1), Synonym: "log.cleaner.max.compaction.lag.ms",
			Doc: "Milliseconds after which a record must be eligible for compaction whatever the dirty ratio.",
		},
		{
			Name: "file.delete.delay.ms", Type: meta.LongType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(0), Synonym: "log.segment.delete.delay.ms",
			Doc: "Milliseconds between the renaming of a deleted segment's files and their removal from the disk.",
		},
		{
			Name: "min.cleanable.dirty.ratio", Type: meta.DoubleType, HasDefault: true, Default: "0.5", Valid: meta.Between(0, 1), Synonym: "log.cleaner.min.cleanable.ratio",
			Doc: "Share of a compacted log that must be new before it is compacted again. Lower means less disk and more work.",
		},
		{
			Name: "cleanup.policy", Type: meta.ListType, HasDefault: true, Default: "delete", Valid: meta.ListOf("compact", "delete"), Synonym: "log.cleanup.policy",
			Doc: "What becomes of old records: delete (by time and size), compact (the last record of each key stays), both, or, when empty, nothing.",
		},
		{
			Name: "unclean.leader.election.enable", Type: meta.BoolType, HasDefault: true, Default: "false", Synonym: "unclean.leader.election.enable",
			Doc: "Whether a replica that was not in sync may become leader when nobody else can, at the price of losing records.",
		},
		{
			Name: "min.insync.replicas", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1), Synonym: "min.insync.replicas",
			Doc: "Number of replicas that must be in sync for a produce with acks=all to be accepted.",
		},
		{
			Name: "compression.type", Type: meta.StringType, HasDefault: true, Default: "producer", Valid: meta.OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Synonym: "compression.type",
			Doc: "Compression of stored batches; producer keeps what the producer chose.",
		},
		{
			Name: "compression.gzip.level", Type: meta.IntType, HasDefault: true, Default: "-1", Valid: meta.BetweenOr(1, 9, -1), Synonym: "compression.gzip.level",
			Doc: "Level of gzip when compression.type is gzip; -1 is the library's default.",
		},
		{
			Name: "compression.lz4.level", Type: meta.IntType, HasDefault: true, Default: "9", Valid: meta.Between(1, 17), Synonym: "compression.lz4.level",
			Doc: "Level of lz4 when compression.type is lz4.",
		},
		{
			Name: "compression.zstd.level", Type: meta.IntType, HasDefault: true, Default: "3", Valid: meta.Between(-131072, 22), Synonym: "compression.zstd.level",
			Doc: "Level of zstd when compression.type is zstd.",
		},
		{
			Name: "preallocate", Type: meta.BoolType, HasDefault: true, Default: "false", Synonym: "log.preallocate", NoEffect: true,
			Doc: "Whether a segment file takes its full size on disk when it is created.",
		},
		{
			Name: "message.timestamp.type", Type: meta.StringType, HasDefault: true, Default: "CreateTime", Valid: meta.OneOf("CreateTime", "LogAppendTime"), Synonym: "log.message.timestamp.type",
			Doc: "Whether a record's timestamp is the producer's (CreateTime) or the time of the append (LogAppendTime).",
		},
		{
			Name: "message.timestamp.before.max.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Synonym: "log.message.timestamp.before.max.ms",
			Doc: "How many milliseconds a record's timestamp may lie before the broker's clock.",
		},
		{
			Name: "message.timestamp.after.max.ms", Type: meta.LongType, HasDefault: true, Default: "3600000", Valid: meta.AtLeast(0), Synonym: "log.message.timestamp.after.max.ms",
			Doc: "How many milliseconds a record's timestamp may lie after the broker's clock. Raise it only for producers with a wrong clock: future timestamps keep records from being deleted.",
		},
		{
			Name: "leader.replication.throttled.replicas", Type: meta.ListType, HasDefault: true, Valid: meta.ThrottledReplicas(),
			Doc: "Replicas whose leaders throttle replication, as partition:broker,..., or * for all.",
		},
		{
			Name: "follower.replication.throttled.replicas", Type: meta.ListType, HasDefault: true, Valid: meta.ThrottledReplicas(),
			Doc: "Replicas whose followers throttle replication, as partition:broker,..., or * for all.",
		},
		{
			Name: "remote.storage.enable", Type: meta.BoolType, HasDefault: true, Default: "false", NoEffect: true,
			Doc: "Whether closed segments of the topic are copied to the object store.",
		},
		{
			Name: "local.retention.ms", Type: meta.LongType, HasDefault: true, Default: "-2", Valid: meta.AtLeast(-2), Synonym: "log.local.retention.ms", NoEffect: true,
			Doc: "Milliseconds for which segments stay on local disk after being copied to the object store; -2 means retention.ms.",
		},
		{
			Name: "local.retention.bytes", Type: meta.LongType, HasDefault: true, Default: "-2", Valid: meta.AtLeast(-2), Synonym: "log.local.retention.bytes", NoEffect: true,
			Doc: "Bytes of a partition that stay on local disk after being copied to the object store; -2 means retention.bytes.",
		},
		{
			Name: "remote.log.copy.disable", Type: meta.BoolType, HasDefault: true, Default: "false", NoEffect: true,
			Doc: "Whether copying to the object store is stopped while its segments remain readable.",
		},
		{
			Name: "remote.copy.lag.ms", Type: meta.LongType, HasDefault: true, Default: "0", Valid: meta.AtLeast(-1), Synonym: "log.remote.copy.lag.ms", NoEffect: true,
			Doc: "Milliseconds that a closed segment waits before it is copied to the object store; -1 waits for local retention.",
		},
		{
			Name: "remote.copy.lag.bytes", Type: meta.LongType, HasDefault: true, Default: "-1", Valid: meta.AtLeast(-1), Synonym: "log.remote.copy.lag.bytes", NoEffect: true,
			Doc: "Bytes of closed segments that wait before they are copied to the object store; -1 sets no such bound.",
		},
		{
			Name: "remote.log.delete.on.disable", Type: meta.BoolType, HasDefault: true, Default: "false", NoEffect: true,
			Doc: "Whether the topic's segments in the object store are deleted when remote.storage.enable is turned off.",
		},
		{
			Name: "errors.deadletterqueue.group.enable", Type: meta.BoolType, HasDefault: true, Default: "false", NoEffect: true,
			Doc: "Whether the topic may serve as the dead-letter queue of share groups.",
		},
		{
			Name: "internal.segment.bytes", Type: meta.IntType, Internal: true,
			Doc: "segment.bytes without its lower bound, for tests.",
		},
		{
			Name: "log.flush.acks", Type: meta.BoolType, HasDefault: true, Default: "false", Synonym: "log.flush.acks",
			Doc: "Whether a produce is answered only after its records are synced to disk, and consumers see only synced records. Off, as in Kafka, the operating system decides; on, acknowledged records survive a power cut.",
		},
	})
}

func logKeys() []meta.ConfigKey {
	return scoped(false, true, []meta.ConfigKey{
		{
			Name: "log.local.retention.ms", Type: meta.LongType, HasDefault: true, Default: "-2", Valid: meta.AtLeast(-2), Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Default of local.retention.ms.",
		},
		{
			Name: "log.local.retention.bytes", Type: meta.LongType, HasDefault: true, Default: "-2", Valid: meta.AtLeast(-2), Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Default of local.retention.bytes.",
		},
		{
			Name: "log.remote.copy.lag.ms", Type: meta.LongType, HasDefault: true, Default: "0", Valid: meta.AtLeast(-1), Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Default of remote.copy.lag.ms.",
		},
		{
			Name: "log.remote.copy.lag.bytes", Type: meta.LongType, HasDefault: true, Default: "-1", Valid: meta.AtLeast(-1), Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Default of remote.copy.lag.bytes.",
		},
		{
			Name: "message.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048588", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of max.message.bytes.",
		},
		{
			Name: "max.decompressed.message.bytes", Type: meta.IntType, HasDefault: true, Default: "2147483639", Valid: meta.Between(1, math.MaxInt32-8), Dynamic: meta.ClusterWide,
			Doc: "Default of the topics' max.decompressed.message.bytes.",
		},
		{
			Name: "compression.type", Type: meta.StringType, HasDefault: true, Default: "producer", Valid: meta.OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Dynamic: meta.ClusterWide,
			Doc: "Default of the topics' compression.type.",
		},
		{
			Name: "compression.gzip.level", Type: meta.IntType, HasDefault: true, Default: "-1", Valid: meta.BetweenOr(1, 9, -1), Dynamic: meta.ClusterWide,
			Doc: "Default of the topics' compression.gzip.level.",
		},
		{
			Name: "compression.lz4.level", Type: meta.IntType, HasDefault: true, Default: "9", Valid: meta.Between(1, 17), Dynamic: meta.ClusterWide,
			Doc: "Default of the topics' compression.lz4.level.",
		},
		{
			Name: "compression.zstd.level", Type: meta.IntType, HasDefault: true, Default: "3", Valid: meta.Between(-131072, 22), Dynamic: meta.ClusterWide,
			Doc: "Default of the topics' compression.zstd.level.",
		},
		{
			Name: "log.cleaner.threads", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Number of partitions compacted at once.",
		},
		{
			Name: "log.cleaner.io.max.bytes.per.second", Type: meta.DoubleType, HasDefault: true, Default: "1.7976931348623157E308", Dynamic: meta.ClusterWide,
			Doc: "Bound of the bytes per second that compaction reads and writes.",
		},
		{
			Name: "log.cleaner.dedupe.buffer.size", Type: meta.LongType, HasDefault: true, Default: "134217728", Dynamic: meta.ClusterWide,
			Doc: "Memory in bytes for the key maps of compaction.",
		},
		{
			Name: "log.cleaner.io.buffer.size", Type: meta.IntType, HasDefault: true, Default: "524288", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Memory in bytes for the read and write buffers of compaction.",
		},
		{
			Name: "log.cleaner.io.buffer.load.factor", Type: meta.DoubleType, HasDefault: true, Default: "0.9", Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "How full the key map of compaction may become.",
		},
		{
			Name: "log.cleaner.backoff.ms", Type: meta.LongType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Milliseconds between looks for logs to compact when there are none.",
		},
		{
			Name: "log.cleaner.min.cleanable.ratio", Type: meta.DoubleType, HasDefault: true, Default: "0.5", Valid: meta.Between(0, 1), Dynamic: meta.ClusterWide,
			Doc: "Default of min.cleanable.dirty.ratio.",
		},
		{
			Name: "log.cleaner.enable", Type: meta.BoolType, HasDefault: true, Default: "true",
			Doc: "Whether compacted topics are compacted. Turning it off lets them grow without bound.",
		},
		{
			Name: "log.cleaner.delete.retention.ms", Type: meta.LongType, HasDefault: true, Default: "86400000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of delete.retention.ms.",
		},
		{
			Name: "log.cleaner.min.compaction.lag.ms", Type: meta.LongType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of min.compaction.lag.ms.",
		},
		{
			Name: "log.cleaner.max.compaction.lag.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
			Doc: "Default of max.compaction.lag.ms.",
		},
		{
			Name: "log.dir", Type: meta.ListType, HasDefault: true, Default: "./tidemark-data",
			Doc: "The data directory, when log.dirs is unset.",
		},
		{
			Name: "log.dirs", Type: meta.ListType,
			Doc: "The data directory. Exactly one is supported.",
		},
		{
			Name: "cordoned.log.dirs", Type: meta.ListType, HasDefault: true, Dynamic: meta.PerBroker, NoEffect: true,
			Doc: "Data directories that get no new partitions.",
		},
		{
			Name: "log.segment.bytes", Type: meta.IntType, HasDefault: true, Default: "1073741824", Valid: meta.AtLeast(1 << 20), Dynamic: meta.ClusterWide,
			Doc: "Default of segment.bytes.",
		},
		{
			Name: "log.roll.ms", Type: meta.LongType, Dynamic: meta.ClusterWide,
			Doc: "Default of segment.ms; unset means log.roll.hours.",
		},
		{
			Name: "log.roll.hours", Type: meta.IntType, HasDefault: true, Default: "168", Valid: meta.AtLeast(1),
			Doc: "Default of segment.ms in hours, when log.roll.ms is unset.",
		},
		{
			Name: "log.roll.jitter.ms", Type: meta.LongType, Dynamic: meta.ClusterWide,
			Doc: "Default of segment.jitter.ms; unset means log.roll.jitter.hours.",
		},
		{
			Name: "log.roll.jitter.hours", Type: meta.IntType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0),
			Doc: "Default of segment.jitter.ms in hours, when log.roll.jitter.ms is unset.",
		},
		{
			Name: "log.retention.ms", Type: meta.LongType, Dynamic: meta.ClusterWide,
			Doc: "Default of retention.ms; unset means log.retention.minutes.",
		},
		{
			Name: "log.retention.minutes", Type: meta.IntType,
			Doc: "Default of retention.ms in minutes, when log.retention.ms is unset; unset means log.retention.hours.",
		},
		{
			Name: "log.retention.hours", Type: meta.IntType, HasDefault: true, Default: "168",
			Doc: "Default of retention.ms in hours, when neither log.retention.ms nor log.retention.minutes is set.",
		},
		{
			Name: "log.retention.bytes", Type: meta.LongType, HasDefault: true, Default: "-1", Dynamic: meta.ClusterWide,
			Doc: "Default of retention.bytes.",
		},
		{
			Name: "log.retention.check.interval.ms", Type: meta.LongType, HasDefault: true, Default: "300000", Valid: meta.AtLeast(1),
			Doc: "Milliseconds between looks for segments that retention allows to delete.",
		},
		{
			Name: "log.cleanup.policy", Type: meta.ListType, HasDefault: true, Default: "delete", Valid: meta.ListOf("compact", "delete"), Dynamic: meta.ClusterWide,
			Doc: "Default of cleanup.policy.",
		},
		{
			Name: "log.index.size.max.bytes", Type: meta.IntType, HasDefault: true, Default: "10485760", Valid: meta.AtLeast(4), Dynamic: meta.ClusterWide,
			Doc: "Default of segment.index.bytes.",
		},
		{
			Name: "log.index.interval.bytes", Type: meta.IntType, HasDefault: true, Default: "4096", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of index.interval.bytes.",
		},
		{
			Name: "log.flush.interval.messages", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
			Doc: "Default of flush.messages.",
		},
		{
			Name: "log.segment.delete.delay.ms", Type: meta.LongType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of file.delete.delay.ms.",
		},
		{
			Name: "log.flush.scheduler.interval.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807",
			Doc: "Milliseconds between looks for partitions whose flush.ms has passed.",
		},
		{
			Name: "log.flush.interval.ms", Type: meta.LongType, Dynamic: meta.ClusterWide,
			Doc: "Default of flush.ms; unset means log.flush.scheduler.interval.ms.",
		},
		{
			Name: "log.flush.offset.checkpoint.interval.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(0),
			Doc: "Milliseconds between writes of the recovery-point checkpoint, from which a start after a crash scans.",
		},
		{
			Name: "log.flush.start.offset.checkpoint.interval.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(0), NoEffect: true,
			Doc: "Milliseconds between writes of the log-start-offset checkpoint.",
		},
		{
			Name: "log.preallocate", Type: meta.BoolType, HasDefault: true, Default: "false", Dynamic: meta.ClusterWide, NoEffect: true,
			Doc: "Default of preallocate.",
		},
		{
			Name: "num.recovery.threads.per.data.dir", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
			Doc: "Number of logs opened, and after a crash scanned, at once. A change takes effect at the next start.",
		},
		{
			Name: "log.message.timestamp.type", Type: meta.StringType, HasDefault: true, Default: "CreateTime", Valid: meta.OneOf("CreateTime", "LogAppendTime"), Dynamic: meta.ClusterWide,
			Doc: "Default of message.timestamp.type.",
		},
		{
			Name: "log.message.timestamp.before.max.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of message.timestamp.before.max.ms.",
		},
		{
			Name: "log.message.timestamp.after.max.ms", Type: meta.LongType, HasDefault: true, Default: "3600000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Default of message.timestamp.after.max.ms.",
		},
		{
			Name: "log.dir.failure.timeout.ms", Type: meta.LongType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1), NoEffect: true,
			Doc: "Milliseconds after which a broker whose failed directory was not reported stops.",
		},
		{
			Name: "producer.id.expiration.ms", Type: meta.IntType, HasDefault: true, Default: "86400000", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
			Doc: "Milliseconds after its last write for which an idempotent producer is remembered.",
		},
		{
			Name: "log.flush.acks", Type: meta.BoolType, HasDefault: true, Default: "false", Dynamic: meta.ClusterWide,
			Doc: "Default of the topics' log.flush.acks.",
		},
		{
			Name: "log.storage.free.min.bytes", Type: meta.LongType, HasDefault: true, Default: "134217728", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
			Doc: "Free bytes on the data directory's disk below which produce requests are refused, so that the registry and deletions keep working.",
		},
	})
}

// scoped marks where all of the keys may be set.
func scoped(topic, broker bool, keys []meta.ConfigKey) []meta.ConfigKey {
	for i := range keys {
		keys[i].Topic, keys[i].Broker = topic, broker
	}
	return keys
}
