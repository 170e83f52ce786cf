package suites

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// kafkaVersion is the version of Apache Kafka's artifacts in compat/kafka/pom.xml.
const kafkaVersion = "4.4.0"

// transcripts are what the tools print, one test each.
//
//go:embed transcripts/*.txt
var transcripts embed.FS

// kafkaTools are Apache Kafka's own command-line tools, held against what they print on Apache Kafka.
func kafkaTools() Suite {
	return Suite{
		Name:    "kafka-tools",
		Source:  "Maven artifact org.apache.kafka:kafka-tools " + kafkaVersion,
		CI:      []string{"groups-describe", "groups-reset", "records"},
		Prepare: rememberKafka,
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			kafka, err := recallKafka(s.Dir)
			if err != nil {
				return nil, err
			}
			return runTranscripts(ctx, s, kafka)
		},
	}
}

func runTranscripts(ctx context.Context, s *Stage, kafka *compat.Kafka) (results []Result, err error) {
	scripts, err := readTranscripts()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "compat-tools-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tools := kafka.Tools()
	defer func() { err = errors.Join(err, tools.Stop()) }()
	p := &player{kafka: kafka, tools: tools, addr: s.Addr, dir: dir}
	for _, script := range scripts {
		if s.Only != nil && !slices.Contains(s.Only, script.name) || skipped(s.Skip, script.name) {
			continue
		}
		started := time.Now()
		result := Result{Test: script.name, Status: Passed}
		if err := p.play(ctx, script); err != nil {
			fmt.Fprintf(s.Log, "%s\n%v\n", script.name, err)
			result.Status, result.Detail = Failed, firstLines(err.Error())
		}
		result.Took = time.Since(started)
		results = append(results, result)
	}
	return results, nil
}

// firstLines is the beginning of a long explanation.
func firstLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[:min(len(lines), detailLines)], "\n")
}

// readTranscripts are all transcripts, in the order of their names.
func readTranscripts() ([]*transcript, error) {
	names, err := fs.Glob(transcripts, "transcripts/*.txt")
	if err != nil {
		return nil, err
	}
	var scripts []*transcript
	for _, name := range names {
		text, err := transcripts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		script, err := parseTranscript(strings.TrimSuffix(filepath.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, script)
	}
	return scripts, nil
}

// kafkaFile keeps, in a suite's directory, where Apache Kafka's jars are: a namespace has no network to ask Maven.
const kafkaFile = "kafka-environ"

func rememberKafka(_ context.Context, dir string) error {
	kafka, err := compat.OpenKafka()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, kafkaFile), []byte(kafka.Environ()), 0o600)
}

func recallKafka(dir string) (*compat.Kafka, error) {
	text, err := os.ReadFile(filepath.Join(dir, kafkaFile))
	if err != nil {
		return nil, err
	}
	name, value, _ := strings.Cut(string(text), "=")
	if err := os.Setenv(name, value); err != nil {
		return nil, err
	}
	return compat.OpenKafka()
}

// toolClasses are the classes behind the scripts of Apache Kafka's bin directory.
var toolClasses = map[string]string{
	"kafka-broker-api-versions":    "org.apache.kafka.tools.BrokerApiVersionsCommand",
	"kafka-client-metrics":         "org.apache.kafka.tools.ClientMetricsCommand",
	"kafka-cluster":                "org.apache.kafka.tools.ClusterTool",
	"kafka-configs":                "org.apache.kafka.tools.ConfigCommand",
	"kafka-console-consumer":       "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-console-producer":       "org.apache.kafka.tools.ConsoleProducer",
	"kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
	"kafka-consumer-groups":        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-consumer-perf-test":     "org.apache.kafka.tools.ConsumerPerformance",
	"kafka-delete-records":         "org.apache.kafka.tools.DeleteRecordsCommand",
	"kafka-e2e-latency":            "org.apache.kafka.tools.EndToEndLatency",
	"kafka-features":               "org.apache.kafka.tools.FeatureCommand",
	"kafka-get-offsets":            "org.apache.kafka.tools.GetOffsetShell",
	"kafka-groups":                 "org.apache.kafka.tools.GroupsCommand",
	"kafka-log-dirs":               "org.apache.kafka.tools.LogDirsCommand",
	"kafka-producer-perf-test":     "org.apache.kafka.tools.ProducerPerformance",
	"kafka-topics":                 "org.apache.kafka.tools.TopicCommand",
	"kafka-transactions":           "org.apache.kafka.tools.TransactionsCommand",
	"kafka-verifiable-consumer":    "org.apache.kafka.tools.VerifiableConsumer",
	"kafka-verifiable-producer":    "org.apache.kafka.tools.VerifiableProducer",
	"client-compatibility-test":    "org.apache.kafka.tools.ClientCompatibilityTest",
	"kafka-leader-election":        "org.apache.kafka.tools.LeaderElectionCommand",
	"kafka-reassign-partitions":    "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
	"kafka-metadata-quorum":        "org.apache.kafka.tools.MetadataQuorumCommand",
	"kafka-share-groups":           "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
	"kafka-streams-groups":         "org.apache.kafka.tools.streams.StreamsGroupCommand",
}
