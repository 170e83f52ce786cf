package suites

import "context"

const (
	kafkaGoModule  = "github.com/segmentio/kafka-go"
	kafkaGoVersion = "v0.4.51"
)

// kafkaGoTests are the tests of the client's package that speak to a broker. The others are unit tests, and pass without one.
var kafkaGoTests = []string{
	"TestAlterUserScramCredentials", "TestBatchDontExpectEOF", "TestClient", "TestClientAddOffsetsToTxn",
	"TestClientAddPartitionsToTxn", "TestClientAlterClientQuotas", "TestClientAlterConfigs",
	"TestClientAlterPartitionReassignments", "TestClientAlterPartitionReassignmentsMultiTopics", "TestClientApiVersions",
	"TestClientCreateACLs", "TestClientCreatePartitions", "TestClientCreatePartitionsNoAssignments",
	"TestClientCreateTopics", "TestClientDeleteACLs", "TestClientDeleteGroups", "TestClientDeleteOffset",
	"TestClientDeleteTopics", "TestClientDescribeACLs", "TestClientDescribeConfigs", "TestClientDescribeGroups",
	"TestClientElectLeaders", "TestClientFetch", "TestClientFetchCompressed", "TestClientFindCoordinator",
	"TestClientHeartbeat", "TestClientIncrementalAlterConfigs", "TestClientInitProducerId", "TestClientJoinGroup",
	"TestClientLeaveGroup", "TestClientListGroups", "TestClientListOffsets", "TestClientListPartitionReassignments",
	"TestClientMetadata", "TestClientOffsetCommit", "TestClientPipeline", "TestClientProduce",
	"TestClientProduceAndConsume", "TestClientProduceCompressed", "TestClientProduceEmptyRecords",
	"TestClientProduceNilRecords", "TestClientRawProduce", "TestClientRawProduceCompressed",
	"TestClientRawProduceEmptyRecords", "TestClientRawProduceNilRecords", "TestClientSyncGroup",
	"TestClientTxnOffsetCommit", "TestCloseLeavesGroup", "TestConn", "TestConnCreateTopics", "TestConsumerGroup",
	"TestConsumerGroupWithGroupTopicsMultiple", "TestConsumerGroupWithGroupTopicsSingle",
	"TestConsumerGroupWithMissingTopic", "TestConsumerGroupWithTopic", "TestDescribeUserScramCredentials", "TestDialer",
	"TestDialerResolver", "TestDialerTLS", "TestOffsetFetchRequestWithNoTopic", "TestOffsetFetchRequestWithOneTopic",
	"TestReadPartitionsNoTopic", "TestReadTruncatedMessages", "TestReader", "TestReaderConsumerGroup",
	"TestReaderOnNonZeroPartition", "TestReaderReadCompactedMessage", "TestReaderTruncatedResponse",
	"TestRebalanceTooManyConsumers", "TestUnsupportedSASLMechanism", "TestWriteV2RecordBatch", "TestWriter",
}

// kafkaGo is the client's own test.
func kafkaGo() Suite {
	tests := goTests{module: kafkaGoModule, version: kafkaGoVersion, pkg: "."}
	const nilHelper = "its helper calls a function that is nil, which ends the whole program"
	return Suite{
		Name:     "kafka-go",
		Source:   "Go module " + kafkaGoModule + " " + kafkaGoVersion,
		Listen:   "localhost:9092",
		Settings: []string{"auto.create.topics.enable=true", "message.max.bytes=200000000"},
		Skip: map[string]string{
			"TestReaderConsumerGroup/consumer_group_commits_on_close":                       nilHelper,
			"TestReaderConsumerGroup/verify_offset_committed":                               nilHelper,
			"TestReaderConsumerGroup/verify_offset_committed_when_using_interval_committer": nilHelper,
			"TestUnsupportedSASLMechanism":                                                  "wants a second listener, with SASL, on port 9093",
		},
		CI:      []string{"TestClientCreateTopics", "TestClientFetch", "TestClientOffsetCommit", "TestClientProduce", "TestConsumerGroup"},
		Prepare: tests.prepare,
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			return tests.run(ctx, s, kafkaGoTests, "KAFKA_VERSION=4.4.0")
		},
	}
}
