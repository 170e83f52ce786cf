package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

const (
	// librdkafkaJobs is how many numbers run at once. Most of them wait most of the time.
	librdkafkaJobs = 5
	// librdkafkaPatience bounds one number. The tests have timeouts of their own, which end nearly all of them earlier.
	librdkafkaPatience = 6 * time.Minute
)

// librdkafka is the numbered tests of librdkafka, with the classic protocol of groups.
func librdkafka() Suite {
	return librdkafkaSuite("librdkafka", "default", true, []string{
		"0001_multiobj", "0003_msgmaxsize", "0012_produce_consume", "0017_compression", "0019_list_groups", "0022_consume_batch",
		"0029_assign_offset", "0031_get_offsets", "0034_offset_reset", "0054_offset_time", "0059_bsearch", "0070_null_empty",
		"0073_headers", "0081_admin/do_test_AlterConfigs", "0081_admin/do_test_DeleteRecords", "0081_admin/do_test_DeleteGroups",
		"0081_admin/do_test_ListConsumerGroupOffsets", "0081_admin/do_test_ListOffsets", "0082_fetch_max_bytes", "0090_idempotence",
		"0130_store_offsets", "0132_strategy_ordering",
	}, map[string]string{
		"0098_consumer_txn":               needsReplicas,
		"0101_fetch_from_follower":        needsReplicas,
		"0103_transactions":               needsReplicas,
		"0081_admin/do_test_CreateAcls":   needsAuthorizer,
		"0081_admin/do_test_DescribeAcls": needsAuthorizer,
		"0081_admin/do_test_DeleteAcls":   needsAuthorizer,
		"0109_auto_create_topics":         needsAuthorizer,
		"0115_producer_auth":              needsAuthorizer,
		"0119_consumer_auth":              needsAuthorizer,
	})
}

// Why a test runs on no lone broker without security.
const (
	needsReplicas   = "makes topics of three replicas, and the broker is alone"
	needsAuthorizer = "wants a broker with an authorizer"
)

// librdkafkaNoAutoCreate is those few of the numbered tests that want a broker that creates no topic by itself.
func librdkafkaNoAutoCreate() Suite {
	return librdkafkaSuite("librdkafka-noautocreate", "noautocreate", false, nil, map[string]string{
		"0107_topic_recreate": needsReplicas, "0111_delay_create_topics": needsReplicas,
	})
}

func librdkafkaSuite(name, scenario string, autoCreate bool, ci []string, skip map[string]string) Suite {
	return Suite{
		Name:   name,
		Source: "npm package " + compat.LibrdkafkaPackage + ", which ships the source of librdkafka 2.15.1",
		Settings: []string{
			fmt.Sprintf("auto.create.topics.enable=%t", autoCreate), "num.partitions=4", "log.cleaner.backoff.ms=1000",
			// Several tests start two members and count on a first rebalance with both, as Kafka's default has it.
			"group.initial.rebalance.delay.ms=3000",
		},
		Prepare: prepareLibrdkafka,
		Run: func(ctx context.Context, s *Stage) ([]Result, error) {
			return runLibrdkafka(ctx, s, scenario)
		},
		CI:   ci,
		Skip: skip,
	}
}

// librdkafkaDir is shared by the suites that are built from the same source.
func librdkafkaDir(dir string) string { return filepath.Join(filepath.Dir(dir), "rdkafka") }

// prepareLibrdkafka builds the tests, and makes what they take for an installation of Apache Kafka.
func prepareLibrdkafka(ctx context.Context, dir string) error {
	shared := librdkafkaDir(dir)
	built, err := compat.BuildLibrdkafka(ctx, shared)
	if err != nil {
		return err
	}
	if err := buildLibrdkafkaTests(ctx, filepath.Join(built.Dir, "tests")); err != nil {
		return err
	}
	kafka, err := compat.OpenKafka()
	if err != nil {
		return err
	}
	bin := filepath.Join(shared, "kafka", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for script, class := range map[string]string{
		"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
	} {
		text := "#!/bin/sh\nexec '" + strings.Join(kafka.Command(ctx, class).Args, "' '") + "' \"$@\"\n"
		if err := os.WriteFile(filepath.Join(bin, script), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// buildLibrdkafkaTests makes the test program, without optimization: it waits more than it computes.
func buildLibrdkafkaTests(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "test-runner")); err == nil {
		return nil
	}
	build := exec.CommandContext(ctx, "make", fmt.Sprintf("-j%d", runtime.NumCPU()), "build")
	build.Dir = dir
	build.Env = append(os.Environ(), "CFLAGS=-O0", "CXXFLAGS=-O0")
	if _, err := compat.Run(build, ""); err != nil {
		return fmt.Errorf("build the tests of librdkafka: %w", err)
	}
	return nil
}

// runLibrdkafka runs the tests of a scenario, several processes at once.
func runLibrdkafka(ctx context.Context, s *Stage, scenario string) ([]Result, error) {
	shared := librdkafkaDir(s.Dir)
	built, err := compat.BuildLibrdkafka(ctx, shared)
	if err != nil {
		return nil, err
	}
	plan, results, err := planLibrdkafka(filepath.Join(built.Dir, "tests"), scenario, s.Only, s.Skip)
	if err != nil {
		return nil, err
	}
	if scenario != "default" || s.Only != nil {
		results = nil // what is left out is listed once
	}
	runner := librdkafkaRunner{built: built, kafka: filepath.Join(shared, "kafka"), scenario: scenario, addr: s.Addr}
	var running sync.WaitGroup
	var lock sync.Mutex
	slots := make(chan struct{}, librdkafkaJobs)
	for _, process := range plan {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			log, ended := runner.run(ctx, process)
			lock.Lock()
			defer lock.Unlock()
			results = append(results, ended...)
			fmt.Fprintf(s.Log, "\n--- librdkafka %s %s\n%s", process.number, process.subtest, log)
		})
	}
	running.Wait()
	return results, ctx.Err()
}

// librdkafkaRunner runs tests of one scenario against one broker.
type librdkafkaRunner struct {
	built    *compat.Librdkafka
	kafka    string // what the tests take for an installation of Apache Kafka
	scenario string
	addr     string // of the broker
}

// run runs one process and returns what it printed and how each of its tests ended.
func (r librdkafkaRunner) run(ctx context.Context, p librdkafkaProcess) (log []byte, results []Result) {
	failed := func(detail string) (results []Result) {
		for _, test := range p.tests {
			results = append(results, Result{Test: test, Status: Failed, Detail: detail})
		}
		return results
	}
	home, err := os.MkdirTemp("", "librdkafka-"+p.number+"-")
	if err != nil {
		return nil, failed(err.Error())
	}
	defer os.RemoveAll(home)
	// A test reads a file of the source by its place beside the working directory.
	work := filepath.Join(home, "tests")
	if err := errors.Join(os.Mkdir(work, 0o755), os.Symlink(filepath.Join(r.built.Dir, "src"), filepath.Join(home, "src"))); err != nil {
		return nil, failed(err.Error())
	}
	config, report := filepath.Join(home, "test.conf"), filepath.Join(home, "report.json")
	text := "metadata.broker.list=" + r.addr + "\ntest.topic.prefix=rdkafkatest" + p.number + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, failed(err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, librdkafkaPatience)
	defer cancel()
	// -p1: no other test beside it in the process; -L: none that needs no broker.
	cmd := command(ctx, filepath.Join(r.built.Dir, "tests", "test-runner"), "-p1", "-L", "-s", r.scenario)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "TESTS="+p.number, "TEST_KAFKA_VERSION=4.4.0.0", "TEST_CONSUMER_GROUP_PROTOCOL=classic",
		"RDKAFKA_TEST_CONF="+config, "TEST_REPORT="+report, "BROKERS="+r.addr, "KAFKA_PATH="+r.kafka,
		"LD_LIBRARY_PATH="+filepath.Join(r.built.Dir, "src")+":"+filepath.Join(r.built.Dir, "src-cpp"))
	if p.subtest != "" {
		cmd.Env = append(cmd.Env, "SUBTESTS="+p.subtest+":")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	log = bytes.ReplaceAll(escapes.ReplaceAll(out.Bytes(), nil), []byte(r.kafka), []byte("$KAFKA_PATH"))
	ended, reportErr := readLibrdkafkaReport(report)
	if reportErr != nil {
		return log, failed(fmt.Sprintf("it ended without a report: %v", err))
	}
	for _, test := range p.tests {
		results = append(results, librdkafkaResult(test, ended, string(log)))
	}
	return log, results
}

// escapes are the colours of a terminal.
var escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// librdkafkaEnd is how a test ended, as the report has it.
type librdkafkaEnd struct {
	State    string  `json:"state"`
	Duration float64 `json:"duration"` // in seconds
}

func readLibrdkafkaReport(path string) (map[string]librdkafkaEnd, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var report struct{ Tests map[string]librdkafkaEnd }
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	return report.Tests, nil
}

// librdkafkaResult makes a result of what the report says, and finds in the log why a test did not pass.
func librdkafkaResult(name string, ended map[string]librdkafkaEnd, log string) Result {
	test, _, _ := strings.Cut(name, "/")
	end := ended[test]
	result := Result{Test: name, Status: Failed, Detail: "it ended without a word", Took: time.Duration(end.Duration * float64(time.Second))}
	switch end.State {
	case "PASSED":
		result.Status, result.Detail = Passed, ""
	case "SKIPPED":
		result.Status = Skipped
		if match := regexp.MustCompile(`(?m)^\[` + test + `\s.*SKIPPING TEST: (.*)$`).FindStringSubmatch(log); match != nil {
			result.Detail = "its own reason: " + match[1]
		}
	default:
		if match := regexp.MustCompile(`(?m)^### Test "` + test + `.*" failed at (.*) at .*\n(.*)$`).FindStringSubmatch(log); match != nil {
			result.Detail = match[1] + "\n" + match[2]
		}
	}
	return result
}
