package broker

import (
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/internal/groups"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// roles passes on what replicas say of leadership. Replicas are there before the coordinators are, but nothing is applied
// before both.
type roles struct{ broker *Broker }

// RoleChanged implements replica.RoleListener.
func (r roles) RoleChanged(topic string, partition meta.TopicIDPartition) {
	r.broker.groups.RoleChanged(topic, partition)
}

// newGroups makes the coordinator of groups as the properties file wants it.
func (b *Broker) newGroups() (*groups.Coordinator, error) {
	codec := record.Codec(b.setting("offsets.topic.compression.codec"))
	if codec > record.Zstd {
		return nil, fmt.Errorf("offsets.topic.compression.codec is %d: there are 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) and 4 (zstd)", codec)
	}
	return groups.New(groups.CoordinatorConfig{
		Broker: b.config.BrokerID, Table: b.table, Image: b.state.load, WaitImage: b.state.wait, Admin: b.admin,
		Topic: groups.OffsetsTopic{
			Partitions:   int32(b.setting("offsets.topic.num.partitions")),
			Replication:  int16(b.setting("offsets.topic.replication.factor")),
			SegmentBytes: int32(b.setting("offsets.topic.segment.bytes")),
		},
		Machine: groups.Config{
			SessionTimeoutMin:     b.duration("group.min.session.timeout.ms"),
			SessionTimeoutMax:     b.duration("group.max.session.timeout.ms"),
			InitialRebalanceDelay: b.initialRebalanceDelay(),
			SizeMax:               int(b.setting("group.max.size")),
			MetadataBytesMax:      int(b.setting("offset.metadata.max.bytes")),
			OffsetsRetention:      time.Duration(b.setting("offsets.retention.minutes")) * time.Minute,
			OffsetsRetentionCheck: b.duration("offsets.retention.check.interval.ms"),
		},
		Codec: codec, CommitTimeout: b.duration("offsets.commit.timeout.ms"),
		LoadBytes: int32(b.setting("offsets.load.buffer.size")), Now: b.config.Now, Logger: b.logger,
		Registerer: b.gatherer,
	})
}

// initialRebalanceDelay is what the properties file says, and nothing on a broker that is alone: its clients find each
// other without waiting.
func (b *Broker) initialRebalanceDelay() time.Duration {
	const key = "group.initial.rebalance.delay.ms"
	if _, set := b.configs.Lookup(emptyImage)(key); !set && len(b.config.Cluster) < 2 {
		return 0
	}
	return b.duration(key)
}
