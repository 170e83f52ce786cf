package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const dumpTool = "org.apache.kafka.tools.DumpLogSegments"

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// complaint is how Kafka's dump tool says that a file is not as it should be; it says some of it on stderr only.
var complaint = regexp.MustCompile(`(?i)mismatch|corrupt|non-monotonic|non-consecutive|out of order|exception|error|invalid|failed|not valid`)

// TestKafkaReadsOurFiles has Apache Kafka's kafka-dump-log read everything that a broker leaves behind, and Kafka's own
// class the epoch checkpoints.
func TestKafkaReadsOurFiles(t *testing.T) {
	kafka := mustKafka(t)
	dir := t.TempDir()
	broker, err := StartBroker(dir, "log.cleaner.backoff.ms=200")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Stop() }) // after a failure
	lines := manyLines(40_000)
	small := []string{"--set", "segment.bytes=1048576", "--set", "index.interval.bytes=1024"}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		tidemark(t, broker, "", append([]string{"topic", "create", "dump-" + codec, "--partitions", "2"}, small...)...)
		tidemark(t, broker, lines, "produce", "dump-"+codec, "--compression", codec)
		// Kill the broker: the next start scans, cuts what is torn, and rebuilds indexes and snapshots.
		broker.Kill()
		if broker, err = StartBroker(dir, "log.cleaner.backoff.ms=200"); err != nil {
			t.Fatal(err)
		}
	}
	tidemark(t, broker, "", append([]string{"topic", "create", "dump-stamped", "--set", "message.timestamp.type=LogAppendTime"}, small...)...)
	tidemark(t, broker, lines, "produce", "dump-stamped", "--compression", "zstd")
	tidemark(t, broker, "", append([]string{"topic", "create", "dump-compact", "--set", "cleanup.policy=compact",
		"--set", "min.cleanable.dirty.ratio=0.01"}, small...)...)
	tidemark(t, broker, strings.Repeat(manyLines(2_000), 40), "produce", "dump-compact", "--key", " ")
	if err := broker.Stop(); err != nil {
		t.Fatal(err)
	}
	dumpAll(t, kafka, dir)
}

// dumpAll runs Kafka's readers over every file of a data directory and fails on the slightest complaint.
func dumpAll(t *testing.T, kafka *Kafka, dir string) {
	t.Helper()
	names, err := files(dir, ".log", ".index", ".timeindex", ".snapshot", ".txnindex")
	if err != nil {
		t.Fatal(err)
	}
	byEnding := map[string][]string{}
	for _, name := range names {
		if strings.Contains(name, string(filepath.Separator)+"registry"+string(filepath.Separator)) {
			continue
		}
		byEnding[filepath.Ext(name)] = append(byEnding[filepath.Ext(name)], name)
	}
	for _, ending := range []string{".log", ".index", ".timeindex", ".snapshot"} {
		if len(byEnding[ending]) == 0 {
			t.Errorf("the broker left no %s file", ending)
		}
	}
	for ending, names := range byEnding {
		for start := 0; start < len(names); start += 40 {
			some := names[start:min(start+40, len(names))]
			args := []string{"--files", strings.Join(some, ",")}
			if ending == ".log" {
				args = append(args, "--deep-iteration")
			}
			out, err := Run(kafka.Command(t.Context(), dumpTool, args...), "")
			if err != nil {
				t.Fatal(err)
			}
			if rest := withoutFirstOffsets(out.Stderr); rest != "" {
				t.Errorf("kafka-dump-log of %s files says on stderr:\n%s", ending, head(rest))
			}
			for line := range strings.Lines(out.Stdout) {
				// The batch and record lines carry words of their own ("isvalid: true").
				if complaint.MatchString(strings.ReplaceAll(line, "isvalid: true", "")) && !strings.HasPrefix(line, "Dumping ") {
					t.Errorf("kafka-dump-log of %s files says: %s", ending, line)
				}
			}
		}
		t.Logf("kafka-dump-log read %d %s files", len(names), ending)
	}
	checkEpochs(t, kafka, dir)
}

var (
	gapHeading = regexp.MustCompile(`^Non-consecutive offsets in (.*)$`)
	gapLine    = regexp.MustCompile(`^  (-?\d+) is followed by (\d+)$`)
)

// withoutFirstOffsets leaves out what Kafka 4.4's tool says of every sound log too: it takes the start of any segment but
// a log's first one for a gap after offset −1, and the gaps that compaction leaves for faults.
func withoutFirstOffsets(stderr string) string {
	var rest strings.Builder
	file := ""
	for line := range strings.Lines(stderr) {
		trimmed := strings.TrimRight(line, "\n")
		if match := gapHeading.FindStringSubmatch(trimmed); match != nil {
			file = match[1]
			continue
		}
		if match := gapLine.FindStringSubmatch(trimmed); match != nil {
			before, _ := strconv.ParseInt(match[1], 10, 64)
			next, _ := strconv.ParseInt(match[2], 10, 64)
			base, _ := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".log"), 10, 64)
			compacted := strings.Contains(file, "-compact-")
			if before == -1 && next == base || compacted && before < next {
				continue
			}
			rest.WriteString(file + ": ")
		}
		if trimmed != "" {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// checkEpochs reads the epoch checkpoints with Kafka's class and compares with the text.
func checkEpochs(t *testing.T, kafka *Kafka, dir string) {
	t.Helper()
	names, err := files(dir, "leader-epoch-checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	var want strings.Builder
	for _, name := range names {
		args = append(args, name)
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
			if i >= 2 {
				want.WriteString(line + "\n")
			}
		}
	}
	out, err := Run(kafka.Command(t.Context(), filepath.Join("kafka", "EpochCheckpoint.java"), args...), "")
	if err != nil {
		t.Fatal(err)
	}
	if out.Stdout != want.String() || want.Len() == 0 {
		t.Errorf("Kafka reads the epochs\n%s\nthe files say\n%s", out.Stdout, want.String())
	}
	t.Logf("Kafka's LeaderEpochCheckpointFile read %d files", len(names))
}

func tidemark(t *testing.T, broker *Broker, input string, args ...string) string {
	t.Helper()
	out, err := broker.Tidemark(input, args...)
	if err != nil {
		t.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, broker.Log())
	}
	return out.Stdout
}

func manyLines(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "k%d the quick brown fox jumps over the lazy dog number %d of %d; %x\n", i%977, i, n, i*7919)
	}
	return out.String()
}

func head(s string) string { return s[:min(len(s), 2000)] }
