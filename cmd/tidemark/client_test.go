package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// cli runs client commands against one broker.
type cli struct {
	t      *testing.T
	broker *child
}

func newCLI(t *testing.T) cli { return cli{t, mustChild(t)} }

func (c cli) run(stdin string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	return command(c.t, stdin, append(args, "--bootstrap-server", c.broker.addr)...)
}

// must runs a command that has to succeed and returns its stdout.
func (c cli) must(stdin string, args ...string) string {
	c.t.Helper()
	stdout, stderr, code := c.run(stdin, args...)
	if code != exitOK {
		c.t.Fatalf("%v: exit code %d\n%s", args, code, stderr)
	}
	return stdout
}

// refused runs a command that has to fail: with the code, nothing on stdout, and a line on stderr that holds want.
func (c cli) refused(code int, want, stdin string, args ...string) {
	c.t.Helper()
	stdout, stderr, got := c.run(stdin, args...)
	if got != code || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
		c.t.Errorf("%v: exit code %d, want %d, with %q\nstdout: %s\nstderr: %s", args, got, code, want, stdout, stderr)
	}
}

func TestConsumeFlags(t *testing.T) {
	c := newCLI(t)
	c.must("", "topic", "create", "two", "--partitions", "2")
	c.must("k1:a\nk2\n:c\n", "produce", "two", "--key", ":", "--partition", "0", "--header", "h=1")
	c.must("x\n\ny", "produce", "two", "--partition", "1")
	c.must("\xff\xfe\n", "produce", "binary")
	all := []string{"consume", "two", "--from-beginning", "--exit-at-end"}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{append(all, "--partition", "0"), "a\nk2\nc\n"},
		{append(all, "--partition", "1"), "x\n\ny\n"}, // an empty line is a record, and the last one needs no newline
		{append(all, "--partition", "0", "--key"), "k1\ta\n\tk2\n\tc\n"},
		{append(all, "--partition", "0", "-n", "2"), "a\nk2\n"},
		{[]string{"consume", "two", "--from-beginning", "--partition", "0", "-n", "3"}, "a\nk2\nc\n"},
		{[]string{"consume", "two", "--offset", "2", "--partition", "0,1", "--exit-at-end"}, "c\ny\n"},
		{[]string{"consume", "two", "--exit-at-end"}, ""},
		{
			append(all, "--partition", "0", "-n", "1", "--format", "json"),
			`{"topic":"two","partition":0,"offset":0,"timestamp":T,"key":"k1","value":"a","headers":[{"key":"h","value":"1"}]}` + "\n",
		},
		{
			[]string{"consume", "binary", "--from-beginning", "--exit-at-end", "--format", "json"},
			`{"topic":"binary","partition":0,"offset":0,"timestamp":T,"key":null,"value":{"base64":"//4="}}` + "\n",
		},
	} {
		got := c.must("", tc.args...)
		if strings.Contains(tc.want, "timestamp") {
			var record struct{ Timestamp json.Number }
			if err := json.Unmarshal([]byte(got), &record); err != nil {
				t.Errorf("%v: %v", tc.args, err)
			}
			got = strings.Replace(got, record.Timestamp.String(), "T", 1)
		}
		if got != tc.want && !(len(tc.want) == 4 && got == "y\nc\n") { // partitions come in either order
			t.Errorf("%v: %q, want %q", tc.args, got, tc.want)
		}
	}
	c.refused(exitUsage, "there is no partition 5; it has 2", "", append(all, "--partition", "5")...)
	c.refused(exitUsage, "partition 0 has offsets 0 to 3, not 9", "", "consume", "two", "--offset", "9", "--exit-at-end")
	c.refused(exitUsage, "--offset -2: want 0 or more", "", "consume", "two", "--offset", "-2")
	c.refused(exitUsage, "exclude each other", "", append(all, "--offset", "1")...)
	c.refused(exitUsage, "-n 0: want a positive number", "", append(all, "-n", "0")...)
	c.refused(exitFailure, "consume nope: there is no such topic (UNKNOWN_TOPIC_OR_PARTITION)", "", "consume", "nope", "--exit-at-end")
}

func TestProduceFlags(t *testing.T) {
	c := newCLI(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		for _, acks := range []string{"1", "all"} {
			topic := codec + "-" + acks
			c.must("one\ntwo\n", "produce", topic, "--compression", codec, "--acks", acks)
			if got := c.must("", "consume", topic, "--from-beginning", "--exit-at-end"); got != "one\ntwo\n" {
				t.Errorf("%s: %q", topic, got)
			}
		}
	}
	if _, stderr, code := c.run("one\n", "produce", "gzip-1"); code != exitOK || !strings.HasPrefix(stderr, "produced 1 record, 4 B in ") {
		t.Errorf("report on stderr: %q", stderr)
	}
	c.must("", "produce", "nothing")

	// A line that the topic does not take is named, with the remedy; the remedy works.
	long := "small\n" + strings.Repeat("x", 2_000_000) + "\n"
	c.must("", "topic", "create", "long")
	c.refused(exitFailure, "produce to long: line 2 of 2000000 bytes is more than max.message.bytes=1048588 of the topic allows (MESSAGE_TOO_LARGE); "+
		"raise it with `tidemark topic alter long --set max.message.bytes=BYTES`; 1 record was produced", long, "produce", "long")
	c.must("", "topic", "alter", "long", "--set", "max.message.bytes=3000000")
	c.must(long, "produce", "long")
	if got := c.must("", "consume", "long", "--offset", "1", "--exit-at-end"); got != long {
		t.Errorf("%d bytes came back, want %d", len(got), len(long))
	}

	c.refused(exitUsage, `--acks "5": want 0, 1 or all`, "", "produce", "x", "--acks", "5")
	c.refused(exitUsage, "want none, gzip, snappy, lz4 or zstd", "", "produce", "x", "--compression", "brotli")
	c.refused(exitUsage, `--header "h": want name=value`, "", "produce", "x", "--header", "h")
	c.refused(exitUsage, "--partition -3: want 0 or more", "", "produce", "x", "--partition", "-3")
	c.refused(exitUsage, "there is no partition 4; it has 1", "", "produce", "long", "--partition", "4")
	c.refused(exitUsage, "no such file", "", "produce", "x", "nowhere/at/all")
	c.refused(exitFailure, "produce to a b: line 1:", "x\n", "produce", "a b")
}

func TestTopicCommands(t *testing.T) {
	c := newCLI(t)
	if got := c.must("", "topic", "create", "b", "a", "--partitions", "2", "--set", "retention.ms=1000"); got != "b\na\n" {
		t.Errorf("created %q", got)
	}
	if got := c.must("", "topic", "list"); got != "a\nb\n" {
		t.Errorf("list %q", got)
	}
	c.must("", "topic", "create", "a", "--if-not-exists")
	c.must("", "topic", "create", "never", "--dry-run")
	c.must("", "topic", "alter", "a", "--partitions", "3", "--set", "cleanup.policy=compact", "--unset", "retention.ms")
	got := c.must("", "topic", "describe", "a")
	if !strings.Contains(got, "partitions 3  cleanup.policy=compact\n") {
		t.Errorf("describe %s", got)
	}
	c.refused(exitFailure, "Topic 'a' already exists. (TOPIC_ALREADY_EXISTS)", "", "topic", "create", "a")
	c.refused(exitFailure, "(INVALID_TOPIC_EXCEPTION)", "", "topic", "create", "bad name")
	c.refused(exitFailure, "(INVALID_PARTITIONS)", "", "topic", "create", "x", "--partitions", "0")
	c.refused(exitFailure, "(INVALID_REPLICATION_FACTOR)", "", "topic", "create", "x", "--replication-factor", "3")
	c.refused(exitUsage, "--replication-factor 65537", "", "topic", "create", "x", "--replication-factor", "65537")
	c.refused(exitFailure, "(INVALID_CONFIG)", "", "topic", "create", "x", "--set", "retention.ms=abc")
	c.refused(exitFailure, `(INVALID_CONFIG); did you mean "retention.ms"?`, "", "topic", "create", "x", "--set", "retention.m=5")
	c.refused(exitFailure, "2 would not be an increase. (INVALID_PARTITIONS)", "", "topic", "alter", "a", "--partitions", "2")
	c.refused(exitUsage, "--partitions 0", "", "topic", "alter", "a", "--partitions", "0")
	c.refused(exitUsage, "nothing to alter", "", "topic", "alter", "a")
	// A broker ignores the removal of a key that it does not know.
	c.refused(exitUsage, `unknown key "retention.mss"; did you mean "retention.ms"?`, "", "topic", "alter", "a", "--unset", "retention.mss", "--partitions", "9")
	if got := c.must("", "topic", "describe", "a"); !strings.Contains(got, "partitions 3") {
		t.Errorf("a refused change was half done: %s", got)
	}
	c.refused(exitFailure, "describe topic nope: there is no such topic (UNKNOWN_TOPIC_OR_PARTITION)", "", "topic", "describe", "nope")
	c.refused(exitFailure, "(UNKNOWN_TOPIC_OR_PARTITION)", "", "topic", "delete", "nope")
	c.must("", "topic", "delete", "nope", "--if-exists")
	c.refused(exitUsage, "want `tidemark topic delete TOPIC... [flags]`", "", "topic", "delete")
	c.refused(exitUsage, `unknown command "creat"; did you mean "create"?`, "", "topic", "creat")
	c.refused(exitUsage, `unknown command "topics"; did you mean "topic"?`, "", "topics")
	if got := c.must("", "topic", "delete", "a"); got != "a\n" {
		t.Errorf("deleted %q", got)
	}
}

func TestConfigCommands(t *testing.T) {
	c := newCLI(t)
	c.must("", "topic", "create", "a")
	describe := func(want string, resource ...string) {
		t.Helper()
		got := c.must("", append([]string{"config", "describe"}, resource...)...)
		if joined := strings.Join(strings.Fields(got), " "); !strings.Contains(joined, want) {
			t.Errorf("%v: %q, want %q", resource, joined, want)
		}
	}
	c.must("", "config", "alter", "topic", "a", "--set", "retention.ms=5", "--set", "cleanup.policy=")
	describe("KEY VALUE SOURCE cleanup.policy topic retention.ms 5 topic", "topic", "a")
	c.must("", "config", "alter", "topic", "a", "--unset", "retention.ms")
	c.must("", "config", "alter", "broker", "default", "--set", "log.retention.ms=7000")
	c.must("", "config", "alter", "broker", "1", "--set", "log.retention.ms=8000")
	describe("log.retention.ms 7000 cluster", "broker", "default")
	describe("log.retention.ms 8000 broker", "broker", "1")
	describe("admin.listener 127.0.0.1:0 static", "broker", "1")
	describe("retention.ms 8000 broker", "topic", "a", "--all")
	c.must("", "config", "alter", "broker", "1", "--unset", "log.retention.ms")
	describe("retention.ms 7000 cluster", "topic", "a", "--all")
	c.refused(exitUsage, `unknown key "log.retention.mss"; did you mean "log.retention.ms"?`, "", "config", "alter", "broker", "default", "--set", "log.retention.mss=1")
	c.refused(exitUsage, `unknown key "nosuch"`, "", "config", "alter", "topic", "a", "--unset", "nosuch")
	c.refused(exitFailure, "Cannot update these configs dynamically", "", "config", "alter", "broker", "1", "--set", "log.dirs=elsewhere")
	c.refused(exitFailure, "(INVALID_CONFIG)", "", "config", "alter", "topic", "a", "--set", "retention.ms=")
	c.refused(exitFailure, "(UNKNOWN_TOPIC_OR_PARTITION)", "", "config", "describe", "topic", "nope")
	c.refused(exitUsage, "there is no broker 7", "", "config", "describe", "broker", "7")
	c.refused(exitUsage, "want topic or broker", "", "config", "describe", "group", "g")
	c.refused(exitUsage, "nothing to alter", "", "config", "alter", "topic", "a")
}

// Every command that prints data prints JSON on request, also of what failed.
func TestJSON(t *testing.T) {
	c := newCLI(t)
	c.must("x\n", "produce", "a")
	for _, args := range [][]string{
		{"topic", "create", "b"}, {"topic", "create", "a", "--if-not-exists"}, {"topic", "list"}, {"topic", "describe", "a", "b"},
		{"topic", "alter", "a", "--partitions", "2"}, {"topic", "delete", "b"}, {"config", "alter", "topic", "a", "--set", "retention.ms=5"},
		{"config", "describe", "topic", "a", "--all"}, {"config", "describe", "broker", "1"}, {"produce", "a"},
		{"consume", "a", "--from-beginning", "--exit-at-end"}, {"version"}, {"log", "dump", c.broker.dir},
	} {
		out := c.must("y\n", append(args, "--format", "json")...)
		documents := json.NewDecoder(strings.NewReader(out))
		count := 0
		for ; documents.More(); count++ {
			var v any
			if err := documents.Decode(&v); err != nil {
				t.Errorf("%v: %v in %s", args, err, out)
				break
			}
		}
		if count == 0 {
			t.Errorf("%v printed nothing", args)
		}
	}
	stdout, stderr, code := c.run("", "topic", "create", "a", "--format", "json")
	want := "[\n  {\n    \"topic\": \"a\",\n    \"error\": \"create topic a: Topic 'a' already exists. (TOPIC_ALREADY_EXISTS)\"\n  }\n]\n"
	if code != exitFailure || stdout != want || stderr == "" {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	c.refused(exitUsage, `--format "yaml": want text or json`, "", "topic", "list", "--format", "yaml")
}

// Whoever reads no further ends the command, silently.
func TestClosedPipe(t *testing.T) {
	c := newCLI(t)
	var lines strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	c.must(lines.String(), "produce", "many")
	for _, args := range [][]string{
		{"consume", "many", "--from-beginning"},
		{"consume", "many", "--from-beginning", "--format", "json"},
		{"log", "dump", "--records", c.broker.dir},
	} {
		cmd := childCommand(append(args, "--bootstrap-server", c.broker.addr)...)
		first, stderr, err := firstLine(cmd)
		if err != nil || first == "" || stderr != "" {
			t.Errorf("%v: %q, %q, %v", args, first, stderr, err)
		}
	}
}

// firstLine reads one line of a command's stdout, closes the pipe, and waits for the end.
func firstLine(cmd *exec.Cmd) (line, complaints string, err error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", "", err
	}
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	line, err = bufio.NewReader(io.LimitReader(stdout, 1<<16)).ReadString('\n')
	_ = stdout.Close()
	_ = cmd.Wait() // SIGPIPE is how a command ends whose reader has gone
	return line, stderr.String(), err
}

func TestCompletion(t *testing.T) {
	c := newCLI(t)
	c.must("", "topic", "create", "orders", "other", "lines")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"topic", "describe", "o"}, "orders\nother\n:4\n"},
		{[]string{"topic", "delete", "orders", "o"}, "other\n:4\n"},
		{[]string{"consume", "li"}, "lines\n:4\n"},
		{[]string{"consume", "lines", ""}, ":4\n"},
		{[]string{"produce", "lines", ""}, ":0\n"}, // files
		{[]string{"config", "describe", ""}, "topic\nbroker\n:4\n"},
		{[]string{"config", "describe", "topic", "li"}, "lines\n:4\n"},
		{[]string{"topic", "list", "--format", ""}, "text\njson\n:4\n"},
		{[]string{"produce", "lines", "--acks", ""}, "0\n1\nall\n:4\n"},
	} {
		stdout, _, _ := command(t, "", append([]string{"__complete", "--bootstrap-server", c.broker.addr}, tc.args...)...)
		if stdout != tc.want {
			t.Errorf("%v: %q, want %q", tc.args, stdout, tc.want)
		}
	}
	stdout, _, _ := command(t, "", "__complete", "start", "--set", "")
	if !strings.Contains(stdout, "\nlog.dirs=\t") || strings.Contains(stdout, "\nretention.ms=") {
		t.Errorf("keys of a broker: %.300s", stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, _, code := command(t, "", "completion", shell); code != exitOK || !strings.Contains(out, "tidemark") {
			t.Errorf("%s: exit code %d", shell, code)
		}
	}
}
