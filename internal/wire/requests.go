package wire

// requestFields holds, for each key of the table, the fields of its request: what API.Check walks. A test encodes
// every request at every version with kmsg and demands that the walk ends exactly at its end.
var requestFields = map[int16][]field{
	0: { // Produce
		text().null(), // transactional id
		fixed(2),      // acks
		fixed(4),      // timeout
		array(
			text().to(12),
			fixed(16).from(13), // topic id
			array(
				fixed(4),        // partition
				opaque().null(), // records
			),
		),
	},
	1: { // Fetch
		fixed(4).to(14), // replica id; a tagged field since 15
		fixed(4),        // max wait
		fixed(4),        // min bytes
		fixed(4),        // max bytes
		fixed(1),        // isolation level
		fixed(4).from(7),
		fixed(4).from(7), // session id and epoch
		array(
			text().to(12),
			fixed(16).from(13), // topic id
			array(
				fixed(4),          // partition
				fixed(4).from(9),  // current leader epoch
				fixed(8),          // offset
				fixed(4).from(12), // last fetched epoch
				fixed(8).from(5),  // log start offset
				fixed(4),          // max bytes
			),
		),
		array( // forgotten
			text().to(12),
			fixed(16).from(13),
			list(fixed(4)),
		).from(7),
		text().from(11), // rack
	},
	2: { // ListOffsets
		fixed(4),         // replica id
		fixed(1).from(2), // isolation level
		array(
			text(),
			array(
				fixed(4),         // partition
				fixed(4).from(4), // current leader epoch
				fixed(8),         // timestamp
			),
		),
		fixed(4).from(10), // timeout
	},
	3: { // Metadata
		array(
			fixed(16).from(10),
			text().nullFrom(10),
		).nullFrom(1),
		fixed(1).from(4),        // allow auto creation
		fixed(1).from(8).to(10), // include cluster operations
		fixed(1).from(8),        // include topic operations
	},
	8: { // OffsetCommit
		text(),                 // group
		fixed(4),               // generation
		text(),                 // member id
		text().null().from(7),  // instance id
		fixed(8).from(2).to(4), // retention
		array(
			text().to(9),
			fixed(16).from(10), // topic id
			array(
				fixed(4),         // partition
				fixed(8),         // offset
				fixed(4).from(6), // leader epoch
				text().null(),    // metadata
			),
		),
	},
	9: { // OffsetFetch
		text().to(7), // group
		array(
			text(),
			list(fixed(4)),
		).to(7).nullFrom(2),
		array(
			text(),                // group
			text().null().from(9), // member id
			fixed(4).from(9),      // member epoch
			array(
				text().to(9),
				fixed(16).from(10), // topic id
				list(fixed(4)),
			).null(),
		).from(8),
		fixed(1).from(7), // require stable
	},
	10: { // FindCoordinator
		text().to(3),
		fixed(1).from(1),
		list(text()).from(4),
	},
	11: { // JoinGroup
		text(),                // group
		fixed(4),              // session timeout
		fixed(4).from(1),      // rebalance timeout
		text(),                // member id
		text().null().from(5), // instance id
		text(),                // protocol type
		array(
			text(),
			opaque(),
		),
		text().null().from(8), // reason
	},
	12: { // Heartbeat
		text(),
		fixed(4),
		text(),
		text().null().from(3),
	},
	13: { // LeaveGroup
		text(),
		text().to(2),
		array(
			text(),
			text().null(),
			text().null().from(5), // reason
		).from(3),
	},
	14: { // SyncGroup
		text(),
		fixed(4),
		text(),
		text().null().from(3), // instance id
		text().null().from(5), // protocol type
		text().null().from(5), // protocol
		array(
			text(),
			opaque(),
		),
	},
	15: { // DescribeGroups
		list(text()),
		fixed(1).from(3),
	},
	16: { // ListGroups
		list(text()).from(4),
		list(text()).from(5),
	},
	18: { // ApiVersions
		text().from(3),
		text().from(3),
		text().null().from(5), // cluster id
		fixed(4).from(5),      // node id
	},
	19: { // CreateTopics
		array(
			text(),
			fixed(4),
			fixed(2),
			array(
				fixed(4),
				list(fixed(4)),
			),
			array(
				text(),
				text().null(),
			),
		),
		fixed(4),
		fixed(1),
	},
	20: { // DeleteTopics
		list(text()).to(5),
		array(
			text().null(),
			fixed(16),
		).from(6),
		fixed(4),
	},
	21: { // DeleteRecords
		array(
			text(),
			array(
				fixed(4),
				fixed(8),
			),
		),
		fixed(4),
	},
	22: { // InitProducerId
		text().null(),
		fixed(4),
		fixed(8).from(3),
		fixed(2).from(3),
		fixed(1).from(6),
		fixed(1).from(6),
	},
	23: { // OffsetForLeaderEpoch
		fixed(4).from(3),
		array(
			text(),
			array(
				fixed(4),
				fixed(4).from(2),
				fixed(4),
			),
		),
	},
	32: { // DescribeConfigs
		array(
			fixed(1),
			text(),
			list(text()).null(),
		),
		fixed(1).from(1),
		fixed(1).from(3),
	},
	33: { // AlterConfigs
		array(
			fixed(1),
			text(),
			array(
				text(),
				text().null(),
			),
		),
		fixed(1),
	},
	35: { // DescribeLogDirs
		array(
			text(),
			list(fixed(4)),
		).null(),
	},
	37: { // CreatePartitions
		array(
			text(),
			fixed(4),
			array(
				list(fixed(4)),
			).null(),
		),
		fixed(4),
		fixed(1),
	},
	42: { // DeleteGroups
		list(text()),
	},
	43: { // ElectLeaders
		fixed(1).from(1), // election type
		array(
			text(),
			list(fixed(4)), // partitions
		).null(),
		fixed(4), // timeout
	},
	44: { // IncrementalAlterConfigs
		array(
			fixed(1),
			text(),
			array(
				text(),
				fixed(1),
				text().null(),
			),
		),
		fixed(1),
	},
	45: { // AlterPartitionReassignments
		fixed(4),         // timeout
		fixed(1).from(1), // whether the replication factor may change
		array(
			text(),
			array(
				fixed(4),              // partition
				list(fixed(4)).null(), // replicas
			),
		),
	},
	46: { // ListPartitionReassignments
		fixed(4), // timeout
		array(
			text(),
			list(fixed(4)), // partitions
		).null(),
	},
	47: { // OffsetDelete
		text(),
		array(
			text(),
			array(
				fixed(4),
			),
		),
	},
	55: { // DescribeQuorum
		array(
			text(),
			array(
				fixed(4), // partition
			),
		),
	},
	57: { // UpdateFeatures
		fixed(4),
		array(
			text(),
			fixed(2),         // level
			fixed(1).to(0),   // whether a downgrade is allowed
			fixed(1).from(1), // upgrade type
		),
		fixed(1).from(1), // validate only
	},
	60: { // DescribeCluster
		fixed(1),
		fixed(1).from(1),
		fixed(1).from(2),
	},
	61: { // DescribeProducers
		array(
			text(),
			list(fixed(4)),
		),
	},
	64: { // UnregisterBroker
		fixed(4), // broker
	},
	74: { // ListConfigResources
		list(fixed(1)).from(1),
	},
	75: { // DescribeTopicPartitions
		array(
			text(),
		),
		fixed(4),
		object(text(), fixed(4)).null(), // cursor
	},
}
