package server

import "github.com/tidemark-io/tidemark/internal/meta"

// groupKeys are what can be configured for a group. They are described with the broker's values; groups are not
// served yet, so nothing can be set.
var groupKeys = []meta.ConfigKey{
	{
		Name: "consumer.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1), Synonym: "group.consumer.session.timeout.ms",
		Doc: "Milliseconds without a heartbeat after which a member of the consumer group is removed.",
	},
	{
		Name: "consumer.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1), Synonym: "group.consumer.heartbeat.interval.ms",
		Doc: "Milliseconds between heartbeats of members of the consumer group.",
	},
	{
		Name: "consumer.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), Synonym: "group.consumer.assignment.interval.ms",
		Doc: "Milliseconds between two assignments of the consumer group at least.",
	},
	{
		Name: "share.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1), Synonym: "group.share.session.timeout.ms",
		Doc: "Milliseconds without a heartbeat after which a member of the share group is removed.",
	},
	{
		Name: "share.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1), Synonym: "group.share.heartbeat.interval.ms",
		Doc: "Milliseconds between heartbeats of members of the share group.",
	},
	{
		Name: "share.record.lock.duration.ms", Type: meta.IntType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1000), Synonym: "group.share.record.lock.duration.ms",
		Doc: "Milliseconds that a record stays with one consumer of the share group.",
	},
	{
		Name: "share.delivery.count.limit", Type: meta.IntType, HasDefault: true, Default: "5", Valid: meta.AtLeast(2), Synonym: "group.share.delivery.count.limit",
		Doc: "Deliveries of a record of the share group.",
	},
	{
		Name: "share.partition.max.record.locks", Type: meta.IntType, HasDefault: true, Default: "2000", Valid: meta.AtLeast(100), Synonym: "group.share.partition.max.record.locks",
		Doc: "Records of a partition that may be in delivery at once.",
	},
	{
		Name: "share.auto.offset.reset", Type: meta.StringType, HasDefault: true, Default: "latest",
		Doc: "Where a new share group begins: latest, earliest or by_duration:PnDTnHnMn.nS.",
	},
	{
		Name: "share.isolation.level", Type: meta.StringType, HasDefault: true, Default: "read_uncommitted", Valid: meta.OneOf("read_committed", "read_uncommitted"),
		Doc: "Whether the share group reads uncommitted records.",
	},
	{
		Name: "share.renew.acknowledge.enable", Type: meta.BoolType, HasDefault: true, Default: "true",
		Doc: "Whether consumers may renew their hold of a record.",
	},
	{
		Name: "share.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), Synonym: "group.share.assignment.interval.ms",
		Doc: "Milliseconds between two assignments of the share group at least.",
	},
	{
		Name: "streams.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "45000", Valid: meta.AtLeast(1), Synonym: "group.streams.session.timeout.ms",
		Doc: "Milliseconds without a heartbeat after which a member of the streams group is removed.",
	},
	{
		Name: "streams.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1), Synonym: "group.streams.heartbeat.interval.ms",
		Doc: "Milliseconds between heartbeats of members of the streams group.",
	},
	{
		Name: "streams.num.standby.replicas", Type: meta.IntType, HasDefault: true, Default: "0", Valid: meta.AtLeast(0), Synonym: "group.streams.num.standby.replicas",
		Doc: "Standby copies of the tasks of the streams group.",
	},
	{
		Name: "streams.initial.rebalance.delay.ms", Type: meta.IntType, HasDefault: true, Default: "3000", Valid: meta.AtLeast(0), Synonym: "group.streams.initial.rebalance.delay.ms",
		Doc: "Milliseconds that the first assignment waits for more members.",
	},
	{
		Name: "streams.assignment.interval.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), Synonym: "group.streams.assignment.interval.ms",
		Doc: "Milliseconds between two assignments of the streams group at least.",
	},
	{
		Name: "streams.rack.aware.assignment.tags", Type: meta.ListType, HasDefault: true, Synonym: "group.streams.rack.aware.assignment.tags",
		Doc: "Client tags over which standby copies are spread.",
	},
	{
		Name: "streams.assignor.name", Type: meta.StringType, Synonym: "group.streams.assignors",
		Doc: "Assignor of the streams group.",
	},
	{
		Name: "errors.deadletterqueue.topic.name", Type: meta.StringType, HasDefault: true,
		Doc: "Topic for records that could not be delivered.",
	},
	{
		Name: "errors.deadletterqueue.copy.record.enable", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether undeliverable records are copied to that topic.",
	},
}

// clientMetricsKeys are what can be configured for a client metrics subscription (KIP-714). They are described with
// their defaults; subscriptions are not served.
var clientMetricsKeys = []meta.ConfigKey{
	{
		Name: "interval.ms", Type: meta.IntType, HasDefault: true, Default: "300000", Valid: meta.Between(100, 3600000),
		Doc: "Milliseconds between two reports of a client.",
	},
	{
		Name: "match", Type: meta.ListType, HasDefault: true,
		Doc: "Which clients report, as key=pattern,....",
	},
	{
		Name: "metrics", Type: meta.ListType, HasDefault: true,
		Doc: "Prefixes of the metrics that clients report.",
	},
}
