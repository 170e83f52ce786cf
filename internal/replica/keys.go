package replica

import "github.com/tidemark-io/tidemark/internal/meta"

// Keys lists the broker's configuration keys about replication, as Kafka 4.4 has them.
var Keys = []meta.ConfigKey{
	{
		Broker: true, Name: "num.replica.alter.log.dirs.threads", Type: meta.IntType, NoEffect: true,
		Doc: "Threads for moving replicas between directories.",
	},
	{
		Broker: true, Name: "default.replication.factor", Type: meta.IntType, HasDefault: true, Default: "1",
		Doc: "Replicas of a topic created without a number of its own.",
	},
	{
		Broker: true, Name: "replica.lag.time.max.ms", Type: meta.LongType, HasDefault: true, Default: "30000",
		Doc: "Milliseconds after which a follower that has not caught up leaves the in-sync replicas.",
	},
	{
		Broker: true, Name: "replica.socket.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "30000",
		Doc: "Milliseconds that a follower waits for an answer of the leader.",
	},
	{
		Broker: true, Name: "replica.socket.receive.buffer.bytes", Type: meta.IntType, HasDefault: true, Default: "65536", NoEffect: true,
		Doc: "Receive buffer in bytes of a follower's connections.",
	},
	{
		Broker: true, Name: "replica.fetch.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048576", Valid: meta.AtLeast(0),
		Doc: "Bytes that a follower asks for per partition and fetch.",
	},
	{
		Broker: true, Name: "replica.fetch.wait.max.ms", Type: meta.IntType, HasDefault: true, Default: "500",
		Doc: "Milliseconds that a leader may hold a follower's fetch until there is something to answer.",
	},
	{
		Broker: true, Name: "replica.fetch.backoff.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0),
		Doc: "Milliseconds that a follower waits after a failed fetch.",
	},
	{
		Broker: true, Name: "replica.fetch.min.bytes", Type: meta.IntType, HasDefault: true, Default: "1",
		Doc: "Bytes for which a leader waits before it answers a follower's fetch.",
	},
	{
		Broker: true, Name: "replica.fetch.response.max.bytes", Type: meta.IntType, HasDefault: true, Default: "10485760", Valid: meta.AtLeast(0),
		Doc: "Bytes of one whole answer to a follower's fetch.",
	},
	{
		Broker: true, Name: "num.replica.fetchers", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Number of fetching connections to each leader.",
	},
	{
		Broker: true, Name: "replica.high.watermark.checkpoint.interval.ms", Type: meta.LongType, HasDefault: true, Default: "5000",
		Doc: "Milliseconds between writes of the high-watermark checkpoint.",
	},
	{
		Broker: true, Name: "fetch.purgatory.purge.interval.requests", Type: meta.IntType, HasDefault: true, Default: "1000", NoEffect: true,
		Doc: "How often finished fetch requests are cleared from the waiting list. Waiting here needs no clearing.",
	},
	{
		Broker: true, Name: "producer.purgatory.purge.interval.requests", Type: meta.IntType, HasDefault: true, Default: "1000", NoEffect: true,
		Doc: "How often finished produce requests are cleared from the waiting list. Waiting here needs no clearing.",
	},
	{
		Broker: true, Name: "delete.records.purgatory.purge.interval.requests", Type: meta.IntType, HasDefault: true, Default: "1", NoEffect: true,
		Doc: "How often finished delete-records requests are cleared from the waiting list. Waiting here needs no clearing.",
	},
	{
		Broker: true, Name: "auto.leader.rebalance.enable", Type: meta.BoolType, HasDefault: true, Default: "true",
		Doc: "Whether leadership returns to the preferred replica by itself.",
	},
	{
		Broker: true, Name: "leader.imbalance.check.interval.seconds", Type: meta.LongType, HasDefault: true, Default: "300", Valid: meta.AtLeast(1),
		Doc: "Seconds between looks for leaders that are not the preferred replica.",
	},
	{
		Broker: true, Name: "unclean.leader.election.interval.ms", Type: meta.LongType, HasDefault: true, Default: "300000", Valid: meta.AtLeast(1), Internal: true, NoEffect: true,
		Doc: "Milliseconds between looks for leaderless partitions that allow an unclean election.",
	},
	{
		Broker: true, Name: "unclean.leader.election.enable", Type: meta.BoolType, HasDefault: true, Default: "false", Dynamic: meta.ClusterWide,
		Doc: "Default of the topics' unclean.leader.election.enable.",
	},
	{
		Broker: true, Name: "replica.selector.class", Type: meta.StringType,
		Doc: "How the replica that a consumer reads from is chosen: org.apache.kafka.common.replica.RackAwareReplicaSelector for one in the consumer's rack (client.rack), else the leader. Other classes are refused.",
	},
	{
		Broker: true, Name: "follower.fetch.last.tiered.offset.enable", Type: meta.BoolType, HasDefault: true, Default: "false", Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Whether a new follower begins at the last offset in the object store.",
	},
	{
		Broker: true, Name: "min.insync.replicas", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Default of the topics' min.insync.replicas.",
	},
	{
		Broker: true, Name: "leader.replication.throttled.rate", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Bytes per second that leaders send to throttled replicas that are not in sync (leader.replication.throttled.replicas).",
	},
	{
		Broker: true, Name: "follower.replication.throttled.rate", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Bytes per second that throttled followers which are not in sync receive (follower.replication.throttled.replicas).",
	},
	{
		Broker: true, Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Bytes per second for moving replicas between directories.",
	},
}
