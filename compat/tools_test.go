package compat

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// kafkaTools are the classes behind Apache Kafka's scripts.
const (
	topicsTool      = "org.apache.kafka.tools.TopicCommand"
	configsTool     = "org.apache.kafka.tools.ConfigCommand"
	producerTool    = "org.apache.kafka.tools.ConsoleProducer"
	consumerTool    = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	getOffsetsTool  = "org.apache.kafka.tools.GetOffsetShell"
	deleteRecsTool  = "org.apache.kafka.tools.DeleteRecordsCommand"
	logDirsTool     = "org.apache.kafka.tools.LogDirsCommand"
	apiVersionsTool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
	clusterTool     = "org.apache.kafka.tools.ClusterTool"
	groupsTool      = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	verifyProducer  = "org.apache.kafka.tools.VerifiableProducer"
	verifyConsumer  = "org.apache.kafka.tools.VerifiableConsumer"
)

func mustKafka(t *testing.T) *Kafka {
	t.Helper()
	kafka, err := OpenKafka()
	if err != nil {
		t.Fatal(err)
	}
	return kafka
}

// mustBroker starts a broker that the test stops.
func mustBroker(t *testing.T, settings ...string) *Broker {
	t.Helper()
	broker, err := StartBroker(t.TempDir(), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Stop(); err != nil {
			t.Error(err)
		}
	})
	return broker
}

// TestKafkaTools runs Apache Kafka's own command-line tools, unmodified, and checks what they print.
func TestKafkaTools(t *testing.T) {
	kafka, broker := mustKafka(t), mustBroker(t)
	run := func(t *testing.T, input, class string, args ...string) string {
		t.Helper()
		out, err := Run(kafka.Command(t.Context(), class, append(args, "--bootstrap-server", broker.Addr)...), input)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.Stderr, "Exception") {
			t.Fatalf("%s complains: %s", class, out.Stderr)
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
		expect(t, run(t, "", topicsTool, "--create", "--topic", "tools", "--partitions", "3", "--config", "retention.ms=3600000"),
			`^Created topic tools\.$`)
		expect(t, run(t, "", topicsTool, "--list"), `^tools$`)
		expect(t, run(t, "", topicsTool, "--describe", "--topic", "tools"),
			`Topic: tools\s+TopicId: [A-Za-z0-9_-]{22}\s+PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=3600000`,
			`Partition: 2\s+Leader: 1\s+Replicas: 1\s+Isr: 1`)
		run(t, "", topicsTool, "--alter", "--topic", "tools", "--partitions", "4")
		expect(t, run(t, "", topicsTool, "--describe", "--topic", "tools"), `PartitionCount: 4`)
		run(t, "", topicsTool, "--create", "--topic", "doomed")
		run(t, "", topicsTool, "--delete", "--topic", "doomed")
		if list := run(t, "", topicsTool, "--list"); strings.Contains(list, "doomed") {
			t.Errorf("the deleted topic is still listed:\n%s", list)
		}
	})

	t.Run("kafka-configs", func(t *testing.T) {
		topic := []string{"--entity-type", "topics", "--entity-name", "tools"}
		expect(t, run(t, "", configsTool, append(topic, "--alter", "--add-config", "segment.bytes=1048576,cleanup.policy=[compact,delete]")...),
			`^Completed updating config for topic tools\.$`)
		expect(t, run(t, "", configsTool, append(topic, "--describe")...), `segment\.bytes=1048576`, `cleanup\.policy=compact,delete`)
		run(t, "", configsTool, append(topic, "--alter", "--delete-config", "segment.bytes,cleanup.policy")...)
		expect(t, run(t, "", configsTool, append(topic, "--describe", "--all")...), `segment\.bytes=1073741824`, `retention\.ms=3600000`)
		broker := []string{"--entity-type", "brokers", "--entity-name", "1"}
		expect(t, run(t, "", configsTool, append(broker, "--alter", "--add-config", "log.cleaner.threads=2")...),
			`^Completed updating config for broker 1\.$`)
		expect(t, run(t, "", configsTool, append(broker, "--describe")...), `log\.cleaner\.threads=2`)
		expect(t, run(t, "", configsTool, append(broker, "--describe", "--all")...), `num\.partitions=1`)
	})

	t.Run("kafka-console-producer and consumer", func(t *testing.T) {
		run(t, "", topicsTool, "--create", "--topic", "console", "--partitions", "1")
		var lines strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&lines, "key%d:value %d\n", i, i)
		}
		run(t, lines.String(), producerTool, "--topic", "console", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
		got := run(t, "", consumerTool, "--topic", "console", "--partition", "0", "--offset", "earliest", "--max-messages", "1000",
			"--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
		if got != lines.String() {
			t.Errorf("the consumer printed %d bytes, the producer read %d", len(got), lines.Len())
		}
	})

	t.Run("kafka-get-offsets", func(t *testing.T) {
		expect(t, run(t, "", getOffsetsTool, "--topic", "console"), `^console:0:1000$`)
		expect(t, run(t, "", getOffsetsTool, "--topic", "console", "--time", "earliest"), `^console:0:0$`)
		expect(t, run(t, "", getOffsetsTool, "--topic", "console", "--time", "max-timestamp"), `^console:0:\d+$`)
	})

	t.Run("kafka-delete-records", func(t *testing.T) {
		plan := t.TempDir() + "/plan.json"
		writeFile(t, plan, `{"partitions":[{"topic":"console","partition":0,"offset":400}],"version":1}`)
		expect(t, run(t, "", deleteRecsTool, "--offset-json-file", plan), `partition: console-0\s+low_watermark: 400`)
		expect(t, run(t, "", getOffsetsTool, "--topic", "console", "--time", "earliest"), `^console:0:400$`)
	})

	t.Run("kafka-log-dirs", func(t *testing.T) {
		expect(t, run(t, "", logDirsTool, "--describe", "--topic-list", "console"),
			`"broker":1`, `"partition":"console-0"`, `"size":[1-9]\d*`)
	})

	t.Run("kafka-consumer-groups", func(t *testing.T) {
		expect(t, run(t, "", verifyProducer, "--topic", "grouped", "--max-messages", "1000"), `"sent":1000,"acked":1000`)
		expect(t, run(t, "", verifyConsumer, "--topic", "grouped", "--group-id", "readers", "--max-messages", "1000", "--reset-policy", "earliest"),
			`"name":"offsets_committed"`, `"name":"shutdown_complete"`)
		expect(t, run(t, "", groupsTool, "--list"), `^readers$`)
		expect(t, run(t, "", groupsTool, "--list", "--state"), `^readers\s+Classic\s+Empty\s*$|^readers\s+Empty\s*$`)
		one := []string{"--group", "readers"}
		expect(t, run(t, "", groupsTool, append(one, "--describe", "--offsets")...), `^readers\s+grouped\s+0\s+1000\s+1000\s+0\s`)
		expect(t, run(t, "", groupsTool, append(one, "--describe", "--state")...), `^readers\s+.*Empty\s+0\s*$`)
		expect(t, run(t, "", groupsTool, append(one, "--reset-offsets", "--topic", "grouped", "--shift-by", "-10", "--execute")...), `^readers\s+grouped\s+0\s+990`)
		expect(t, run(t, "", groupsTool, append(one, "--delete-offsets", "--topic", "grouped")...), `^grouped\s+0\s+Successful`)
		expect(t, run(t, "", groupsTool, append(one, "--delete")...), `Deletion of requested consumer groups \('readers'\) was successful`)
	})

	t.Run("kafka-broker-api-versions", func(t *testing.T) {
		expect(t, run(t, "", apiVersionsTool), `^localhost:\d+ \(id: 1 rack: null isFenced: false\) -> \($|^127\.0\.0\.1:\d+ \(id: 1`,
			`Produce\(0\): 0 to 13`, `Fetch\(1\): 4 to 18`, `Metadata\(3\): 0 to 13`, `JoinGroup\(11\): 0 to 9`, `EndTxn\(26\): UNSUPPORTED`)
	})

	t.Run("kafka-cluster", func(t *testing.T) {
		out, err := Run(kafka.Command(t.Context(), clusterTool, "cluster-id", "--bootstrap-server", broker.Addr), "")
		if err != nil {
			t.Fatal(err)
		}
		expect(t, out.Stdout, `^Cluster ID: [A-Za-z0-9_-]{22}$`)
	})
}
