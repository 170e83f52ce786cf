package suites

import "context"

const (
	franzModule  = "github.com/twmb/franz-go"
	franzVersion = "v1.22.3"
)

// franzTests are the tests of pkg/kgo that speak to a broker. The others are unit tests, and pass without one.
var franzTests = []string{
	"Test848RegexBrokerResolves", "TestAddRemovePartitions", "TestClient_Produce", "TestClient_ProduceLargeMessages",
	"TestConsumeMaxDecompressBatchBytes", "TestConsumeRegex", "TestConsumeRegexShareSkipsInternal", "TestConsumeTopicRetrieval",
	"TestConsumeTopicRetrieval_Many", "TestDirectPartitionPurge", "TestGroupETL", "TestGroupSimple", "TestHookPollStart",
	"TestIssue1034", "TestIssue325", "TestIssue337", "TestIssue434", "TestIssue523", "TestIssue648", "TestIssue769", "TestIssue810",
	"TestIssue831", "TestIssue865", "TestIssueFetchLargerThanBrokerMaxReadBytes", "TestIssueProduceBrokerTooOldFailsRecords",
	"TestIssueProduceSyncManualPartitionNegativeDoesNotPanic", "TestPauseIssue489", "TestPauseIssueOct2023", "TestPing", "TestPooling",
	"TestShareGroup", "TestShareGroupAckOnClose", "TestShareGroupETL", "TestShareGroupOffsetsAdmin", "TestTxnEtl",
	"TestUnknownGroupOffsetFetchPinned",
}

// franzGo is the client's own test of pkg/kgo.
func franzGo() Suite {
	tests := goTests{module: franzModule, version: franzVersion, pkg: "pkg/kgo", flat: true}
	return Suite{
		Name:    "franz-go",
		Source:  "Go module " + franzModule + " " + franzVersion,
		CI:      []string{"TestClient_Produce", "TestConsumeRegex", "TestGroupSimple", "TestIssue865", "TestPing"},
		Prepare: tests.prepare,
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			return tests.run(ctx, s, franzTests, "KGO_SEEDS="+s.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=20000")
		},
	}
}

// franzGoChaos is the client's test of groups, with connections that each live for about a second.
func franzGoChaos() Suite {
	tests := goTests{module: franzModule, version: franzVersion, pkg: "pkg/kgo", flat: true}
	return Suite{
		Name:    "franz-go-chaos",
		Source:  "Go module " + franzModule + " " + franzVersion + ": its groups, on connections of a second",
		Prepare: tests.prepare,
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			return tests.run(ctx, s, []string{"TestGroupETL"}, "KGO_SEEDS="+s.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=20000", "KGO_TEST_CHAOS=1")
		},
	}
}
