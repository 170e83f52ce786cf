package server

import "github.com/tidemark-io/tidemark/internal/meta"

// coordinatorKeys are accepted and described; what they are about is not served yet.
var coordinatorKeys = inBroker(true, []meta.ConfigKey{
	{
		Name: "group.coordinator.rebalance.protocols", Type: meta.ListType, HasDefault: true, Default: "classic,consumer,streams", Valid: meta.ListOf("consumer", "classic", "share", "streams"),
		Doc: "Group protocols that are served.",
	},
	{
		Name: "group.coordinator.threads", Type: meta.IntType, HasDefault: true, Default: "4", Valid: meta.AtLeast(1),
		Doc: "Threads of the group coordinator.",
	},
	{
		Name: "group.coordinator.background.threads", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1),
		Doc: "Threads that compute assignments.",
	},
	{
		Name: "group.coordinator.append.linger.ms", Type: meta.IntType, HasDefault: true, Default: "-1", Valid: meta.AtLeast(-1),
		Doc: "Milliseconds that the group coordinator gathers writes; -1 adapts.",
	},
	{
		Name: "group.coordinator.cached.buffer.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048588", Valid: meta.AtLeast(512 << 10), Dynamic: meta.ClusterWide,
		Doc: "Largest write buffer that the group coordinator keeps.",
	},
	{
		Name: "group.consumer.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds without a heartbeat after which a member of a consumer group is removed.",
	},
	{
		Name: "group.consumer.min.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1),
		Doc: "Smallest group setting of the session timeout of consumer groups.",
	},
	{
		Name: "group.consumer.max.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(1),
		Doc: "Largest group setting of the session timeout of consumer groups.",
	},
	{
		Name: "group.consumer.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between heartbeats of members of consumer groups.",
	},
	{
		Name: "group.consumer.min.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Smallest group setting of the heartbeat interval of consumer groups.",
	},
	{
		Name: "group.consumer.max.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(1),
		Doc: "Largest group setting of the heartbeat interval of consumer groups.",
	},
	{
		Name: "group.consumer.max.size", Type: meta.IntType, HasDefault: true, Default: "2147483647", Valid: meta.AtLeast(1),
		Doc: "Members of a consumer group at most.",
	},
	{
		Name: "group.consumer.assignors", Type: meta.ListType, HasDefault: true, Default: "uniform,range",
		Doc: "Assignors of consumer groups; the first is the default.",
	},
	{
		Name: "group.consumer.migration.policy", Type: meta.StringType, HasDefault: true, Default: "bidirectional", Valid: meta.OneOfFold("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
		Doc: "Which way groups may change between the classic and the consumer protocol.",
	},
	{
		Name: "group.consumer.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Milliseconds between two assignments of a consumer group at least.",
	},
	{
		Name: "group.consumer.min.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0),
		Doc: "Smallest group setting of the assignment interval of consumer groups.",
	},
	{
		Name: "group.consumer.max.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(0),
		Doc: "Largest group setting of the assignment interval of consumer groups.",
	},
	{
		Name: "group.consumer.assignor.offload.enable", Type: meta.BoolType, HasDefault: true, Default: "true", Dynamic: meta.ClusterWide, Internal: true,
		Doc: "Whether assignments of consumer groups are computed in the background.",
	},
	{
		Name: "group.consumer.regex.refresh.interval.ms", Type: meta.IntType, HasDefault: true, Default: "600000", Valid: meta.AtLeast(10000), Internal: true,
		Doc: "Milliseconds between evaluations of regular expressions of topics.",
	},
	{
		Name: "group.share.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds without a heartbeat after which a member of a share group is removed.",
	},
	{
		Name: "group.share.min.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1),
		Doc: "Smallest group setting of the session timeout of share groups.",
	},
	{
		Name: "group.share.max.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(1),
		Doc: "Largest group setting of the session timeout of share groups.",
	},
	{
		Name: "group.share.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between heartbeats of members of share groups.",
	},
	{
		Name: "group.share.min.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Smallest group setting of the heartbeat interval of share groups.",
	},
	{
		Name: "group.share.max.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(1),
		Doc: "Largest group setting of the heartbeat interval of share groups.",
	},
	{
		Name: "group.share.max.size", Type: meta.IntType, HasDefault: true, Default: "200", Valid: meta.Between(1, 1000),
		Doc: "Members of a share group at most.",
	},
	{
		Name: "group.share.assignors", Type: meta.ListType, HasDefault: true, Default: "simple",
		Doc: "Assignors of share groups.",
	},
	{
		Name: "group.share.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Milliseconds between two assignments of a share group at least.",
	},
	{
		Name: "group.share.min.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0),
		Doc: "Smallest group setting of the assignment interval of share groups.",
	},
	{
		Name: "group.share.max.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(0),
		Doc: "Largest group setting of the assignment interval of share groups.",
	},
	{
		Name: "group.share.assignor.offload.enable", Type: meta.BoolType, HasDefault: true, Default: "true", Dynamic: meta.ClusterWide, Internal: true,
		Doc: "Whether assignments of share groups are computed in the background.",
	},
	{
		Name: "group.share.initialize.retry.interval.ms", Type: meta.IntType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds between attempts to set up a share group's state.",
	},
	{
		Name: "errors.deadletterqueue.auto.create.topics.enable", Type: meta.BoolType, HasDefault: true, Default: "false", Dynamic: meta.ClusterWide,
		Doc: "Whether dead-letter topics of share groups are created by themselves.",
	},
	{
		Name: "errors.deadletterqueue.topic.name.prefix", Type: meta.StringType, HasDefault: true, Default: "dlq.", Dynamic: meta.ClusterWide,
		Doc: "Prefix of the names of dead-letter topics.",
	},
	{
		Name: "group.streams.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds without a heartbeat after which a member of a streams group is removed.",
	},
	{
		Name: "group.streams.min.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1),
		Doc: "Smallest group setting of the session timeout of streams groups.",
	},
	{
		Name: "group.streams.max.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(1),
		Doc: "Largest group setting of the session timeout of streams groups.",
	},
	{
		Name: "group.streams.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between heartbeats of members of streams groups.",
	},
	{
		Name: "group.streams.min.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Smallest group setting of the heartbeat interval of streams groups.",
	},
	{
		Name: "group.streams.max.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(1),
		Doc: "Largest group setting of the heartbeat interval of streams groups.",
	},
	{
		Name: "group.streams.max.size", Type: meta.IntType, HasDefault: true, Default: "2147483647", Valid: meta.AtLeast(1),
		Doc: "Members of a streams group at most.",
	},
	{
		Name: "group.streams.num.standby.replicas", Type: meta.IntType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0),
		Doc: "Standby copies of the tasks of a streams group.",
	},
	{
		Name: "group.streams.max.standby.replicas", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(0),
		Doc: "Largest group setting of the standby copies.",
	},
	{
		Name: "group.streams.initial.rebalance.delay.ms", Type: meta.IntType, HasDefault: true, Default: "3000", Valid: meta.AtLeast(0),
		Doc: "Milliseconds that the first assignment of a new streams group waits for more members.",
	},
	{
		Name: "group.streams.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Milliseconds between two assignments of a streams group at least.",
	},
	{
		Name: "group.streams.min.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0),
		Doc: "Smallest group setting of the assignment interval of streams groups.",
	},
	{
		Name: "group.streams.max.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(0),
		Doc: "Largest group setting of the assignment interval of streams groups.",
	},
	{
		Name: "group.streams.assignors", Type: meta.ListType, HasDefault: true, Default: "sticky",
		Doc: "Assignors of streams groups.",
	},
	{
		Name: "group.streams.assignor.offload.enable", Type: meta.BoolType, HasDefault: true, Default: "true", Dynamic: meta.ClusterWide, Internal: true,
		Doc: "Whether assignments of streams groups are computed in the background.",
	},
	{
		Name: "group.streams.task.offset.interval.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds between reports of task offsets.",
	},
	{
		Name: "group.streams.min.task.offset.interval.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Smallest group setting of the reports.",
	},
	{
		Name: "group.streams.num.warmup.replicas", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(0), Internal: true,
		Doc: "Warm-up copies of the tasks of a streams group.",
	},
	{
		Name: "group.streams.max.warmup.replicas", Type: meta.IntType, HasDefault: true, Default: "20", Valid: meta.AtLeast(0), Internal: true,
		Doc: "Largest group setting of the warm-up copies.",
	},
	{
		Name: "group.streams.rack.aware.assignment.tags", Type: meta.ListType, HasDefault: true,
		Doc: "Client tags over which standby copies are spread.",
	},
	{
		Name: "group.streams.topology.description.plugin.class", Type: meta.ClassType,
		Doc: "Plug-in that stores topology descriptions. Plug-ins are not supported.",
	},
	{
		Name: "group.streams.acceptable.recovery.lag", Type: meta.LongType, HasDefault: true, Default: "10000", Valid: meta.AtLeast(0), Internal: true,
		Doc: "Lag below which a task counts as caught up.",
	},
	{
		Name: "group.share.delivery.count.limit", Type: meta.IntType, HasDefault: true, Default: "5", Valid: meta.Between(2, 10),
		Doc: "Deliveries of a record of a share group.",
	},
	{
		Name: "group.share.max.delivery.count.limit", Type: meta.IntType, HasDefault: true, Default: "10", Valid: meta.Between(5, 25),
		Doc: "Largest group setting of the deliveries.",
	},
	{
		Name: "group.share.min.delivery.count.limit", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.Between(2, 5),
		Doc: "Smallest group setting of the deliveries.",
	},
	{
		Name: "group.share.record.lock.duration.ms", Type: meta.IntType, HasDefault: true, Default: "30000", Valid: meta.Between(1000, 3600000),
		Doc: "Milliseconds that a record of a share group stays with one consumer.",
	},
	{
		Name: "group.share.min.record.lock.duration.ms", Type: meta.IntType, HasDefault: true, Default: "15000", Valid: meta.Between(1000, 30000),
		Doc: "Smallest group setting of that time.",
	},
	{
		Name: "group.share.max.record.lock.duration.ms", Type: meta.IntType, HasDefault: true, Default: "60000", Valid: meta.Between(30000, 3600000),
		Doc: "Largest group setting of that time.",
	},
	{
		Name: "group.share.partition.max.record.locks", Type: meta.IntType, HasDefault: true, Default: "2000", Valid: meta.Between(100, 10000),
		Doc: "Records of a partition that may be in delivery at once.",
	},
	{
		Name: "group.share.max.partition.max.record.locks", Type: meta.IntType, HasDefault: true, Default: "4000", Valid: meta.Between(2000, 10000),
		Doc: "Largest group setting of the records in delivery.",
	},
	{
		Name: "group.share.min.partition.max.record.locks", Type: meta.IntType, HasDefault: true, Default: "100", Valid: meta.Between(100, 2000),
		Doc: "Smallest group setting of the records in delivery.",
	},
	{
		Name: "share.fetch.purgatory.purge.interval.requests", Type: meta.IntType, HasDefault: true, Default: "1000",
		Doc: "How often finished share fetches are cleared from the waiting list.",
	},
	{
		Name: "group.share.max.share.sessions", Type: meta.IntType, HasDefault: true, Default: "2000", Valid: meta.AtLeast(1),
		Doc: "Share sessions that are kept.",
	},
	{
		Name: "group.share.persister.class.name", Type: meta.StringType, HasDefault: true, Default: "org.apache.kafka.server.share.persister.DefaultStatePersister", Internal: true,
		Doc: "Plug-in that stores share groups' state. Plug-ins are not supported.",
	},
	{
		Name: "group.share.dlq.manager.class.name", Type: meta.StringType, HasDefault: true, Default: "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager", Internal: true,
		Doc: "Plug-in of dead-letter queues. Plug-ins are not supported.",
	},
	{
		Name: "share.coordinator.state.topic.num.partitions", Type: meta.IntType, HasDefault: true, Default: "50", Valid: meta.AtLeast(1),
		Doc: "Partitions of the share state topic.",
	},
	{
		Name: "share.coordinator.state.topic.replication.factor", Type: meta.ShortType, HasDefault: true, Default: "3", Valid: meta.AtLeast(1),
		Doc: "Replicas of the share state topic.",
	},
	{
		Name: "share.coordinator.state.topic.min.isr", Type: meta.ShortType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1),
		Doc: "In-sync replicas that the share state topic needs.",
	},
	{
		Name: "share.coordinator.state.topic.segment.bytes", Type: meta.IntType, HasDefault: true, Default: "104857600", Valid: meta.AtLeast(1),
		Doc: "Segment size of the share state topic.",
	},
	{
		Name: "share.coordinator.threads", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1),
		Doc: "Threads of the share coordinator.",
	},
	{
		Name: "share.coordinator.snapshot.update.records.per.snapshot", Type: meta.IntType, HasDefault: true, Default: "500", Valid: meta.Between(0, 500),
		Doc: "Changes between two snapshots of share state.",
	},
	{
		Name: "share.coordinator.load.buffer.size", Type: meta.IntType, HasDefault: true, Default: "5242880", Valid: meta.AtLeast(1),
		Doc: "Bytes read at once when share state is loaded.",
	},
	{
		Name: "share.coordinator.state.topic.compression.codec", Type: meta.IntType, HasDefault: true, Default: "0",
		Doc: "Compression of the share state topic, as the number of the codec.",
	},
	{
		Name: "share.coordinator.append.linger.ms", Type: meta.IntType, HasDefault: true, Default: "-1", Valid: meta.AtLeast(-1),
		Doc: "Milliseconds that the share coordinator gathers writes; -1 adapts.",
	},
	{
		Name: "share.coordinator.write.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds that a write of share state waits for its replicas.",
	},
	{
		Name: "share.coordinator.state.topic.prune.interval.ms", Type: meta.IntType, HasDefault: true, Default: "300000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds between prunings of the share state topic.",
	},
	{
		Name: "share.coordinator.cold.partition.snapshot.interval.ms", Type: meta.IntType, HasDefault: true, Default: "300000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds between snapshots of idle share partitions.",
	},
	{
		Name: "share.coordinator.cached.buffer.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048588", Valid: meta.AtLeast(512 << 10), Dynamic: meta.ClusterWide,
		Doc: "Largest write buffer that the share coordinator keeps.",
	},
	{
		Name: "transaction.state.log.min.isr", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1),
		Doc: "In-sync replicas that the transaction topic needs.",
	},
	{
		Name: "transaction.state.log.load.buffer.size", Type: meta.IntType, HasDefault: true, Default: "5242880", Valid: meta.AtLeast(1),
		Doc: "Bytes read at once when transactions are loaded.",
	},
	{
		Name: "transaction.state.log.replication.factor", Type: meta.ShortType, HasDefault: true, Default: "3", Valid: meta.AtLeast(1),
		Doc: "Replicas of the transaction topic.",
	},
	{
		Name: "transaction.state.log.num.partitions", Type: meta.IntType, HasDefault: true, Default: "50", Valid: meta.AtLeast(1),
		Doc: "Partitions of the transaction topic; do not change it once the topic exists.",
	},
	{
		Name: "transaction.state.log.segment.bytes", Type: meta.IntType, HasDefault: true, Default: "104857600", Valid: meta.AtLeast(1),
		Doc: "Segment size of the transaction topic.",
	},
	{
		Name: "transaction.partition.verification.enable", Type: meta.BoolType, HasDefault: true, Default: "true", Dynamic: meta.ClusterWide,
		Doc: "Whether a transactional write is checked against the transaction coordinator.",
	},
	{
		Name: "producer.id.expiration.check.interval.ms", Type: meta.IntType, HasDefault: true, Default: "600000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds between removals of forgotten producers.",
	},
	{
		Name: "transactional.id.expiration.ms", Type: meta.IntType, HasDefault: true, Default: "604800000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds after which an unused transactional id is forgotten.",
	},
	{
		Name: "transaction.max.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "900000", Valid: meta.AtLeast(1),
		Doc: "Longest transaction timeout that a client may ask for.",
	},
	{
		Name: "transaction.abort.timed.out.transaction.cleanup.interval.ms", Type: meta.IntType, HasDefault: true, Default: "10000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between looks for timed-out transactions.",
	},
	{
		Name: "transaction.remove.expired.transaction.cleanup.interval.ms", Type: meta.IntType, HasDefault: true, Default: "3600000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between removals of forgotten transactional ids.",
	},
	{
		Name: "transaction.two.phase.commit.enable", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether transactions may be prepared for two-phase commit.",
	},
	{
		Name: "add.partitions.to.txn.retry.backoff.max.ms", Type: meta.IntType, HasDefault: true, Default: "100", Valid: meta.AtLeast(0),
		Doc: "Milliseconds after which a partition is not verified again.",
	},
	{
		Name: "add.partitions.to.txn.retry.backoff.ms", Type: meta.IntType, HasDefault: true, Default: "20", Valid: meta.AtLeast(1),
		Doc: "Milliseconds before a partition is verified again.",
	},
})
