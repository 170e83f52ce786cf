package compat

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The classes behind the scripts that concern replicas and leaders.
const (
	clusterTopics   = "org.apache.kafka.tools.TopicCommand"
	clusterReassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	clusterConfigs  = "org.apache.kafka.tools.ConfigCommand"
	clusterElect    = "org.apache.kafka.tools.LeaderElectionCommand"
	clusterQuorum   = "org.apache.kafka.tools.MetadataQuorumCommand"
	clusterProducer = "org.apache.kafka.tools.VerifiableProducer"
	clusterConsumer = "org.apache.kafka.tools.VerifiableConsumer"
)

// startTrio starts three brokers that find each other, and waits until the cluster is healthy.
func startTrio(t *testing.T) [3]*Broker {
	t.Helper()
	ports, err := freePorts(6)
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for i := range 3 {
		_, registry, _ := strings.Cut(ports[2*i+1], ":")
		entries = append(entries, fmt.Sprintf("%d@%s/%s", i+1, ports[2*i], registry))
	}
	type started struct {
		at     int
		broker *Broker
		err    error
	}
	results := make(chan started)
	dir := t.TempDir()
	for i := range 3 {
		go func() {
			broker, err := StartBroker(filepath.Join(dir, fmt.Sprint(i+1)), fmt.Sprintf("node.id=%d", i+1), "cluster.brokers="+strings.Join(entries, ","))
			results <- started{i, broker, err}
		}()
	}
	var brokers [3]*Broker
	for range 3 {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		brokers[r.at] = r.broker
		t.Cleanup(func() {
			if err := r.broker.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	awaitHealth(t, brokers[0])
	return brokers
}

// awaitHealth returns when `tidemark cluster status` is content.
func awaitHealth(t *testing.T, broker *Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := broker.Tidemark("", "cluster", "status")
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// TestKafkaToolsOnCluster runs the tools that concern replicas and leaders against three brokers.
func TestKafkaToolsOnCluster(t *testing.T) {
	kafka, err := OpenKafka()
	if err != nil {
		t.Fatal(err)
	}
	tools := kafka.Tools()
	t.Cleanup(func() { _ = tools.Stop() })
	brokers := startTrio(t)
	all := brokers[0].Addr + "," + brokers[1].Addr + "," + brokers[2].Addr
	run := func(t *testing.T, class string, args ...string) string {
		t.Helper()
		out, err := tools.Run(t.Context(), "", class, append([]string{"--bootstrap-server", all}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if out.Exit != 0 || strings.Contains(out.Stderr, "Exception") {
			t.Fatalf("%s %v ended with %d: %s\n%s", class, args, out.Exit, out.Stdout, out.Stderr)
		}
		return out.Stdout
	}
	// The verifiable clients say how it went while their process ends: each gets one of its own.
	alone := func(t *testing.T, class string, args ...string) string {
		t.Helper()
		out, err := Run(kafka.Command(t.Context(), class, append(args, "--bootstrap-server", all)...), "")
		if err != nil {
			t.Fatal(err)
		}
		return out.Stdout
	}
	expect := func(t *testing.T, got string, patterns ...string) {
		t.Helper()
		for _, pattern := range patterns {
			if !regexp.MustCompile(`(?m)` + pattern).MatchString(got) {
				t.Errorf("no line matches %q in:\n%s", pattern, got)
			}
		}
	}

	t.Run("kafka-topics", func(t *testing.T) {
		run(t, clusterTopics, "--create", "--topic", "copies", "--replica-assignment", "1:2,2:3,3:1")
		expect(t, run(t, clusterTopics, "--describe", "--topic", "copies"),
			`PartitionCount: 3\s+ReplicationFactor: 2`, `Partition: 1\s+Leader: 2\s+Replicas: 2,3\s+Isr: 2,3`)
		if got := run(t, clusterTopics, "--describe", "--under-replicated-partitions"); strings.Contains(got, "copies") {
			t.Errorf("under-replicated: %s", got)
		}
	})
	t.Run("kafka-metadata-quorum", func(t *testing.T) {
		out := run(t, clusterQuorum, "describe", "--status")
		expect(t, out, `^LeaderId:\s+[123]$`, `^CurrentVoters:\s+\[.*"id": 1.*"id": 2.*"id": 3`)
	})
	t.Run("kafka-verifiable-producer", func(t *testing.T) {
		expect(t, alone(t, clusterProducer, "--topic", "copies", "--max-messages", "3000", "--acks", "-1"), `"acked":3000`)
	})
	t.Run("kafka-reassign-partitions", func(t *testing.T) {
		plan := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(plan, []byte(`{"version":1,"partitions":[{"topic":"copies","partition":0,"replicas":[3,2]},{"topic":"copies","partition":1,"replicas":[1,2]}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, run(t, clusterReassign, "--reassignment-json-file", plan, "--execute", "--throttle", "50000000"),
			`The inter-broker throttle limit was set to 50000000 B/s`, `Successfully started partition reassignments for copies-0,copies-1`)
		const throttled = "replication.throttled"
		if got := run(t, clusterConfigs, "--describe", "--entity-type", "topics", "--entity-name", "copies"); !strings.Contains(got, throttled) {
			t.Errorf("nothing of the topic is throttled:\n%s", got)
		}
		awaitHealth(t, brokers[0])
		expect(t, run(t, clusterReassign, "--reassignment-json-file", plan, "--verify"),
			`Reassignment of partition copies-0 is completed`, `Reassignment of partition copies-1 is completed`,
			`Clearing broker-level throttles on brokers 1,2,3`, `Clearing topic-level throttles on topic copies`)
		for _, of := range [][]string{{"--entity-type", "topics", "--entity-name", "copies"}, {"--entity-type", "brokers", "--entity-name", "1"}} {
			if got := run(t, clusterConfigs, append([]string{"--describe"}, of...)...); strings.Contains(got, throttled) {
				t.Errorf("still throttled:\n%s", got)
			}
		}
		expect(t, run(t, clusterReassign, "--list"), `No partition reassignments found`)
		expect(t, run(t, clusterTopics, "--describe", "--topic", "copies"), `Partition: 0\s+Leader: [23]\s+Replicas: 3,2\s+Isr: [23],[23]`)
	})
	t.Run("kafka-leader-election", func(t *testing.T) {
		out := run(t, clusterElect, "--election-type", "PREFERRED", "--all-topic-partitions")
		if strings.Contains(out, "Error") {
			t.Errorf("%s", out)
		}
		awaitHealth(t, brokers[0])
		expect(t, run(t, clusterTopics, "--describe", "--topic", "copies"), `Partition: 0\s+Leader: 3\s`, `Partition: 1\s+Leader: 1\s`)
	})
	t.Run("a broker dies", func(t *testing.T) {
		brokers[2].Kill()
		expect(t, alone(t, clusterProducer, "--topic", "copies", "--max-messages", "2000", "--acks", "-1"), `"acked":2000`)
		expect(t, run(t, clusterTopics, "--describe", "--under-replicated-partitions"), `Topic: copies`)
		expect(t, alone(t, clusterConsumer, "--topic", "copies", "--group-id", "readers", "--max-messages", "5000", "--reset-policy", "earliest"), `"name":"shutdown_complete"`)
	})
}
