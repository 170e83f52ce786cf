package compat

import (
	"fmt"
	"strings"
	"testing"
)

// The classes behind those of Apache Kafka's scripts that tests here run; all of them are played in the suite kafka-tools.
const (
	topicsTool     = "org.apache.kafka.tools.TopicCommand"
	producerTool   = "org.apache.kafka.tools.ConsoleProducer"
	consumerTool   = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	verifyConsumer = "org.apache.kafka.tools.VerifiableConsumer"
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

// TestConsoleClients has Kafka's console producer write and its console consumer read.
func TestConsoleClients(t *testing.T) {
	kafka, broker := mustKafka(t), mustBroker(t)
	run := func(input, class string, args ...string) string {
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
	run("", topicsTool, "--create", "--topic", "console", "--partitions", "1")
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "key%d:value %d\n", i, i)
	}
	run(lines.String(), producerTool, "--topic", "console", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	got := run("", consumerTool, "--topic", "console", "--partition", "0", "--offset", "earliest", "--max-messages", "1000",
		"--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
	if got != lines.String() {
		t.Errorf("the consumer printed %d bytes, the producer read %d", len(got), lines.Len())
	}
}
