package server

import "github.com/tidemark-io/tidemark/internal/meta"

// classicGroupKeys are about classic groups and the offsets that groups commit.
var classicGroupKeys = inBroker(false, []meta.ConfigKey{
	{
		Name: "offsets.commit.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "5000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds that an offset commit waits for its replicas.",
	},
	{
		Name: "offsets.load.buffer.size", Type: meta.IntType, HasDefault: true, Default: "5242880", Valid: meta.AtLeast(1),
		Doc: "Bytes read at once when offsets are loaded.",
	},
	{
		Name: "offsets.topic.replication.factor", Type: meta.ShortType, HasDefault: true, Default: "3", Valid: meta.AtLeast(1),
		Doc: "Replicas of the offsets topic.",
	},
	{
		Name: "offsets.topic.num.partitions", Type: meta.IntType, HasDefault: true, Default: "50", Valid: meta.AtLeast(1),
		Doc: "Partitions of the offsets topic; do not change it once the topic exists.",
	},
	{
		Name: "offsets.topic.segment.bytes", Type: meta.IntType, HasDefault: true, Default: "104857600", Valid: meta.AtLeast(1),
		Doc: "Segment size of the offsets topic.",
	},
	{
		Name: "offsets.topic.compression.codec", Type: meta.IntType, HasDefault: true, Default: "0",
		Doc: "Compression of the offsets topic, as the number of the codec.",
	},
	{
		Name: "offsets.retention.minutes", Type: meta.IntType, HasDefault: true, Default: "10080", Valid: meta.AtLeast(1),
		Doc: "Minutes that the offsets of an empty group are kept.",
	},
	{
		Name: "offsets.retention.check.interval.ms", Type: meta.LongType, HasDefault: true, Default: "600000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between removals of old offsets.",
	},
	{
		Name: "group.min.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "6000",
		Doc: "Shortest session timeout of a classic member.",
	},
	{
		Name: "group.max.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "1800000",
		Doc: "Longest session timeout of a classic member.",
	},
	{
		Name: "group.initial.rebalance.delay.ms", Type: meta.IntType, HasDefault: true, Default: "3000",
		Doc: "Milliseconds that the first rebalance of an empty classic group waits for more members. Unless it is set, a broker that is alone does not wait.",
	},
	{
		Name: "group.max.size", Type: meta.IntType, HasDefault: true, Default: "2147483647", Valid: meta.AtLeast(1),
		Doc: "Members of a classic group at most.",
	},
})
