package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	saramaModule     = "github.com/IBM/sarama"
	saramaVersion    = "v1.61.1"
	toxiproxyModule  = "github.com/Shopify/toxiproxy/v2"
	toxiproxyVersion = "v2.12.0"
)

// The tests reach brokers 1 to 5 through proxies on these ports, which they tell to cut connections. Behind all five is the
// one broker, which is called broker 1 and advertises the first proxy.
const (
	saramaBroker    = "127.0.0.1:29090"
	saramaFirstPort = 29091
	toxiproxyAddr   = "127.0.0.1:8474"
)

// sarama is the client's functional test.
func sarama() Suite {
	tests := goTests{module: saramaModule, version: saramaVersion, pkg: ".", tags: "functional", patch: lonelyTopics}
	const docker, cluster = "works on brokers in a Docker environment of its own", "wants several brokers"
	return Suite{
		Name:   "sarama",
		Source: "Go module " + saramaModule + " " + saramaVersion + ", tag functional, topics with one replica",
		Listen: saramaBroker,
		Settings: []string{
			fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", saramaFirstPort),
			"auto.create.topics.enable=false",
		},
		Skip: map[string]string{
			"TestConsumerFetchFollowerFailover":        cluster,
			"TestFuncAdminAlterPartitionReassignments": cluster,
			"TestFuncAdminDescribeLogDirs":             cluster,
			"TestFuncAdminListConsumerGroupOffsets":    docker,
			"TestFuncIdempotentBufferedSequence":       docker,
			"TestFuncTxnProduceWithBrokerFailure":      docker,
		},
		CI: []string{"TestFuncAdminListOffsets", "TestFuncConsumerGroupPartitioning", "TestFuncOffsetManager", "TestFuncProducing", "TestVersionMatrix"},
		Prepare: func(ctx context.Context, dir string) error {
			if err := prepareToxiproxy(ctx, dir); err != nil {
				return err
			}
			return tests.prepare(ctx, dir)
		},
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			stop, err := startToxiproxy(ctx, s)
			if err != nil {
				return nil, err
			}
			defer stop()
			return tests.run(ctx, s, saramaTests, "TOXIPROXY_ADDR=http://"+toxiproxyAddr, "KAFKA_VERSION=4.3.1")
		},
	}
}

// lonelyTopics has the tests create their topics with as many replicas as there are brokers.
func lonelyTopics(src string) error {
	path := filepath.Join(src, "functional_test.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	was, is := []byte("ReplicationFactor: 3,"), []byte("ReplicationFactor: 1,")
	if !bytes.Contains(text, was) {
		return fmt.Errorf("%s creates no topic with three replicas", path)
	}
	return os.WriteFile(path, bytes.ReplaceAll(text, was, is), 0o644)
}

func toxiproxyBinary(dir string) string { return filepath.Join(dir, "toxiproxy-"+toxiproxyVersion) }

func prepareToxiproxy(ctx context.Context, dir string) error {
	if _, err := os.Stat(toxiproxyBinary(dir)); err == nil {
		return nil
	}
	src := filepath.Join(dir, "toxiproxy-src")
	if err := fetchModule(ctx, toxiproxyModule, toxiproxyVersion, src); err != nil {
		return err
	}
	return goCommand(ctx, src, "build", "-mod=mod", "-o", toxiproxyBinary(dir), "./cmd/server")
}

// startToxiproxy starts the five proxies, and returns when they are there.
func startToxiproxy(ctx context.Context, s *Stage) (stop func(), err error) {
	type proxy struct {
		Name     string `json:"name"`
		Listen   string `json:"listen"`
		Upstream string `json:"upstream"`
		Enabled  bool   `json:"enabled"`
	}
	var proxies []proxy
	for i := range 5 {
		proxies = append(proxies, proxy{fmt.Sprintf("kafka%d", i+1), fmt.Sprintf("127.0.0.1:%d", saramaFirstPort+i), s.Addr, true})
	}
	config, err := json.Marshal(proxies)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.Dir, "proxies.json")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(toxiproxyAddr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := command(ctx, toxiproxyBinary(s.Dir), "-host", host, "-port", port, "-config", path)
	cmd.Env = append(os.Environ(), "LOG_LEVEL=warn")
	cmd.Stdout, cmd.Stderr = s.Log, s.Log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	last := fmt.Sprintf("127.0.0.1:%d", saramaFirstPort+len(proxies)-1)
	if err := awaitPort(ctx, last); err != nil {
		stop()
		return nil, fmt.Errorf("start toxiproxy: %w", err)
	}
	return stop, nil
}

// awaitPort waits until somebody listens at addr.
func awaitPort(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at %s: %w", addr, err)
		case <-tick.C:
		}
	}
}

// saramaTests are the functional tests: those that are there only with the tag.
var saramaTests = []string{
	"TestAsyncProducerRemoteBrokerClosed", "TestConsumerFetchFollowerFailover", "TestConsumerGroupDeadlock",
	"TestConsumerHighWaterMarkOffset", "TestConsumerPartialBatchRecovery", "TestFuncAdminAlterConfig",
	"TestFuncAdminAlterConsumerGroupOffsets", "TestFuncAdminAlterPartitionReassignments", "TestFuncAdminDeleteGroup",
	"TestFuncAdminDeleteRecords", "TestFuncAdminDeleteTopic", "TestFuncAdminDescribeConfig",
	"TestFuncAdminDescribeGroups", "TestFuncAdminDescribeLogDirs", "TestFuncAdminElectLeadersV1",
	"TestFuncAdminIncrementalAlterConfigs", "TestFuncAdminListConsumerGroupOffsets",
	"TestFuncAdminListConsumerGroupOffsetsBatch", "TestFuncAdminListConsumerGroups", "TestFuncAdminListOffsets",
	"TestFuncAdminNetworkErrorClosesControllerConnection", "TestFuncAdminQuotas", "TestFuncAdminUpdateFeatures",
	"TestFuncClientCoordinator", "TestFuncClientMetadata", "TestFuncConnectionFailure",
	"TestFuncConsumerGroupCooperative", "TestFuncConsumerGroupExcessConsumers", "TestFuncConsumerGroupFuzzy",
	"TestFuncConsumerGroupOffsetDeletion", "TestFuncConsumerGroupPartitioning",
	"TestFuncConsumerGroupPartitioningStateful", "TestFuncConsumerGroupRebalanceAfterAddingPartitions",
	"TestFuncConsumerGroupStaticMembership_Basic", "TestFuncConsumerGroupStaticMembership_Fenced",
	"TestFuncConsumerGroupStaticMembership_RejoinAndLeave", "TestFuncConsumerOffsetOutOfRange",
	"TestFuncDescribeProducers", "TestFuncDescribeTransactions", "TestFuncIdempotentBufferedSequence",
	"TestFuncInitProducerId3", "TestFuncJavaInteropCooperativeRebalance", "TestFuncJoinGroupVersionSelection",
	"TestFuncListTransactions", "TestFuncMultiPartitionProduce", "TestFuncOffsetManager", "TestFuncProducing",
	"TestFuncProducingFlushing", "TestFuncProducingGzip", "TestFuncProducingIdempotentWithBrokerFailure",
	"TestFuncProducingNoResponse", "TestFuncProducingSnappy", "TestFuncProducingToInvalidTopic", "TestFuncProducingZstd",
	"TestFuncTxnAbortedProduce", "TestFuncTxnCommitNoMessages", "TestFuncTxnProduce",
	"TestFuncTxnProduceAndCommitOffset", "TestFuncTxnProduceEpochBump", "TestFuncTxnProduceMultiTxn",
	"TestFuncTxnProduceNoBegin", "TestFuncTxnProduceWithBrokerFailure", "TestInterceptors",
	"TestJavaConsumerCompressionRoundTrip", "TestJavaMurmur2PartitionerInterop", "TestJavaProducerCompressionRoundTrip",
	"TestReadOnlyAndAllCommittedMessages", "TestVersionMatrix", "TestVersionMatrixIdempotent", "TestVersionMatrixLZ4",
	"TestVersionMatrixZstd",
}
