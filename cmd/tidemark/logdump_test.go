package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kafkaDir is a log directory that Apache Kafka 4.4.0 wrote: six transactions of ten records, every other one aborted.
const kafkaDir = "testdata/kafka-4.4"

func TestLogDumpOfKafkasFiles(t *testing.T) {
	out, stderr, code := command(t, "", "log", "dump", kafkaDir)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for _, want := range []string{
		"meta.properties (data directory)\n", "  cluster.id MkU3OEVBNTcwNTJENDM2Qk\n",
		"recovery-point-offset-checkpoint (offset checkpoint)\n", "  txt-0 offset 66\n",
		"00000000000000000000.log (segment)\n  batch 0-9 count 10 position 0 bytes 250 codec none epoch 0 max-timestamp 1796062139235 " +
			"producer 0/0 sequence 0 transactional crc 339246ca\n",
		"(time index)\n  timestamp 1796062140815 offset 65\n",
		"(transaction index)\n  aborted producer 0 offsets 11-21 last-stable 22\n",
		"(producer snapshot)\n  producer 0 epoch 6 last-sequence -1 ",
		"(leader epochs)\n  epoch 0 start 0\n",
		"(partition metadata)\n  topic id gamg8jk9SXyW9Se0PiTpIg\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the dump lacks %q:\n%s", want, out)
		}
	}
	out, _, _ = command(t, "", "log", "dump", "--records", filepath.Join(kafkaDir, "txt-0/00000000000000000000.log"))
	for _, want := range []string{`offset 11 timestamp 1796062140`, `key "k9" value "commit0-9"`, "marker COMMIT\n", "marker ABORT\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the records lack %q:\n%s", want, out)
		}
	}
	if out, stderr, code := command(t, "", "log", "dump", "--verify", kafkaDir); code != exitOK || out != "" || stderr != "" {
		t.Errorf("verify: exit code %d, %s%s", code, out, stderr)
	}
}

func TestLogDumpOfBadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	garbage := strings.Repeat("garbage\n", 100) + "."
	for _, c := range []struct {
		name, content string
		code          int
		want          string
	}{
		{"00000000000000000000.log", garbage, exitFailure, "00000000000000000000.log: batch at position 0: "},
		{"00000000000000000000.index", garbage, exitFailure, "no whole number of entries of 8 bytes"},
		{"00000000000000000000.timeindex", garbage, exitFailure, "no whole number of entries of 12 bytes"},
		{"00000000000000000000.txnindex", garbage, exitFailure, "no whole number of entries of 34 bytes"},
		{"00000000000000000000.snapshot", garbage, exitFailure, "malformed producer snapshot"},
		{"leader-epoch-checkpoint", garbage, exitFailure, "malformed checkpoint file: line 1"},
		{"replication-offset-checkpoint", garbage, exitFailure, "malformed checkpoint file: line 1"},
		{"partition.metadata", garbage, exitFailure, "malformed partition.metadata"},
		{"photo.jpg", garbage, exitFailure, "not a file of a log directory"},
		{"00000000000000000001.log", "", exitOK, ""},
		{"00000000000000000001.index", "", exitOK, ""},
	} {
		name := write(c.name, c.content)
		if _, stderr, code := command(t, "", "log", "dump", name); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %s", c.name, code, stderr)
		}
	}
	// One bad file does not keep the others from being shown.
	good := write("meta.properties", "version=1\n")
	out, stderr, code := command(t, "", "log", "dump", filepath.Join(dir, "partition.metadata"), good)
	if code != exitFailure || !strings.Contains(out, "version 1\n") || !strings.HasSuffix(stderr, "tidemark: 1 of 2 files are bad\n") {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
	for _, args := range [][]string{{filepath.Join(dir, "nowhere")}, {t.TempDir()}, {}} {
		if out, stderr, code := command(t, "", append([]string{"log", "dump"}, args...)...); code != exitUsage || out != "" || stderr == "" {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
}

// A flipped bit in a record is a fault with its position, whatever else is fine.
func TestLogDumpVerify(t *testing.T) {
	dir := t.TempDir()
	content, err := os.ReadFile(filepath.Join(kafkaDir, "txt-0/00000000000000000000.log"))
	if err != nil {
		t.Fatal(err)
	}
	content[400] ^= 1
	name := filepath.Join(dir, "00000000000000000000.log")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := command(t, "", "log", "dump", "--verify", name)
	if code != exitFailure || strings.Count(stderr, "batch at position 328") != 1 || !strings.HasSuffix(stderr, "tidemark: 1 of 1 files are bad\n") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if out, _, code := command(t, "", "log", "dump", name); code != exitOK || strings.Count(out, "FAULT") != 1 {
		t.Errorf("dump: exit code %d, %s", code, out)
	}
}
