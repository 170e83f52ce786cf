package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// startFailure runs `start` in a process of its own, which must fail, and returns its line on stderr and its exit code.
func startFailure(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := childCommand(append([]string{"start"}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Dir = t.TempDir() // ./tidemark-data of a start that goes further than it should
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	timer := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err == nil {
		t.Fatalf("start %v succeeded", args)
	}
	if stdout.Len() > 0 {
		t.Errorf("start %v: data on stdout: %s", args, &stdout)
	}
	line := strings.TrimSuffix(stderr.String(), "\n")
	if strings.Contains(line, "\n") || !strings.HasPrefix(line, "tidemark: ") {
		t.Errorf("start %v: want one line, got\n%s", args, line)
	}
	return line, cmd.ProcessState.ExitCode()
}

// A start that fails says in one line what is wrong and what to do, and has the exit code of docs/operate/exit-codes.md.
func TestStartFailures(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	// data copies the files of a data directory, and lets change edit meta.properties.
	broker := mustChild(t)
	broker.createTopic(t, "kept")
	data := func(name string, registry bool, change ...string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(at(name), "kept-0"), 0o700); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(broker.dir, "meta.properties"))
		if err != nil {
			t.Fatal(err)
		}
		write(name+"/meta.properties", strings.NewReplacer(change...).Replace(string(text)))
		if registry {
			if err := os.MkdirAll(filepath.Join(at(name), "registry/member/wal"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(name+"/registry/member/wal/0000000000000000-0000000000000000.wal", "")
		}
		return "log.dirs=" + at(name)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())

	listeners, admin := "listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=127.0.0.1:0"
	for _, c := range []struct {
		name string
		set  []string
		env  string
		file string
		code int
		want string
	}{
		{name: "port taken", set: []string{"listeners=PLAINTEXT://127.0.0.1:" + port}, code: exitPortTaken, want: "port " + port + " is taken on 127.0.0.1 (listeners)"},
		{name: "admin port taken", set: []string{"admin.listener=127.0.0.1:" + port}, code: exitPortTaken, want: "choose another port with --set admin.listener="},
		{name: "no such address", set: []string{"listeners=PLAINTEXT://192.0.2.1:0"}, code: exitUsage, want: "name an address of this machine in listeners"},
		{name: "TLS", set: []string{"listeners=SSL://127.0.0.1:0"}, code: exitUsage, want: "TLS of listener SSL: there is no certificate: set ssl.keystore.location"},
		{name: "no listeners", set: []string{"listeners="}, code: exitUsage, want: "listeners is empty"},
		{name: "locked", set: []string{"log.dirs=" + broker.dir}, code: exitLocked, want: fmt.Sprintf("is locked by process %d; stop process", broker.pid)},
		{name: "other broker", set: []string{data("node", false, "node.id=1", "node.id=7")}, code: exitCluster, want: "start with --set node.id=7"},
		{name: "Kafka's data", set: []string{data("kafka", false, "tidemark.format.version=1\n", "")}, code: exitCluster, want: "holds partitions of Apache Kafka"},
		{name: "registry lost", set: []string{data("lost", false)}, code: exitCluster, want: "restore " + at("lost/registry") + " from a backup"},
		{name: "registry damaged", set: []string{data("damaged", true)}, code: exitDirectory, want: "restore " + at("damaged/registry") + " from a backup"},
		{name: "newer format", set: []string{data("newer", false, "format.version=1", "format.version=99")}, code: exitFormat, want: "format version 99, this build understands up to 1"},
		{name: "bad meta.properties", set: []string{data("bad", false, "node.id=1", "node.id=one")}, code: exitDirectory, want: "malformed meta.properties: line"},
		{name: "a file in the path", set: []string{"log.dirs=" + write("file", "") + "/data"}, code: exitDirectory, want: "not a directory"},
		{name: "two directories", set: []string{"log.dirs=a,b"}, code: exitUsage, want: "tidemark uses exactly one"},
		{name: "unknown key", set: []string{"log.retention.hourz=3"}, code: exitUsage, want: `--set: unknown key "log.retention.hourz"; did you mean "log.retention.hours"?`},
		{name: "bad value", set: []string{"log.segment.bytes=3x"}, code: exitUsage, want: "Invalid value 3x for configuration log.segment.bytes"},
		{name: "no value", set: []string{"node.id"}, code: exitUsage, want: `--set "node.id": want key=value`},
		{name: "unknown variable", env: "TIDEMARK_LOG_RETENTION_SM=1", code: exitUsage, want: `did you mean "TIDEMARK_LOG_RETENTION_MS"?`},
		{name: "unknown key in a file", file: "node.id=1\n\nlog.retention.hourz=3\n", code: exitUsage, want: `line 3: unknown key "log.retention.hourz"; did you mean "log.retention.hours"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"--set", "log.dirs=" + filepath.Join(t.TempDir(), "data"), "--set", listeners, "--set", admin}
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			if c.file != "" {
				args = append(args, "--config", write("server.properties", c.file))
			}
			line, code := startFailure(t, []string{c.env}, args...)
			if code != c.code || !strings.Contains(line, c.want) {
				t.Errorf("exit code %d, want %d, with %q:\n%s", code, c.code, c.want, line)
			}
		})
	}
	for _, args := range [][]string{{"extra"}, {"--nope"}, {"--log-level", "loud"}, {"--log-format", "xml"}, {"--config", at("nowhere")}} {
		if line, code := startFailure(t, nil, args...); code != exitUsage {
			t.Errorf("%v: exit code %d: %s", args, code, line)
		}
	}
}

// Apache Kafka's own server.properties starts a broker: what has no effect here is named in one warning, nothing else
// complains, and the stop is clean.
func TestStartWithKafkasProperties(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	text := "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n" +
		"zookeeper.connect=localhost:2181\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n" +
		"controller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n" +
		"num.network.threads=3\nnum.io.threads=8\nnum.partitions=3\noffsets.topic.replication.factor=1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	broker, err := startChildWith(t, dir, "--config", file, "--set", "log.dirs="+dir, "--set", "admin.listener=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broker.createTopic(t, "three")
	if out, _, _ := command(t, "", "topic", "describe", "three", "--bootstrap-server", broker.addr); !strings.Contains(out, "partitions 3") {
		t.Errorf("num.partitions of the file is not used: %s", out)
	}
	if err := broker.stop(); err != nil {
		t.Error(err)
	}
	log := broker.log()
	if strings.Count(log, "level=WARN") != 1 || strings.Contains(log, "level=ERROR") || !strings.Contains(log, "settings without effect") ||
		!strings.Contains(log, "process.roles") || !strings.Contains(log, "zookeeper.connect") || strings.Contains(log, "num.partitions") {
		t.Errorf("want one warning, got\n%s", log)
	}
	if _, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Error(err)
	}
}

// A kill is summed up in one line at the next start. (U-139)
func TestStartAfterKill(t *testing.T) {
	dir := t.TempDir()
	broker, err := startChild(t, dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := command(t, "a\nb\n", "produce", "lines", "--bootstrap-server", broker.addr); code != 0 {
		t.Fatal(stderr)
	}
	broker.kill()
	segment, err := os.OpenFile(filepath.Join(dir, "lines-0", "00000000000000000000.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := segment.WriteString("torn"); err != nil {
		t.Fatal(err)
	}
	if err := segment.Close(); err != nil {
		t.Fatal(err)
	}
	broker, err = startChild(t, dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.stop(); err != nil {
		t.Error(err)
	}
	log := broker.log()
	if strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, `cut_bytes=4 cut="lines-0 (4 bytes at offset 2)"`) {
		t.Errorf("want one summary, got\n%s", log)
	}
}

// A second SIGTERM, and the echo of the first signal, do not cut a stop short; a second Ctrl-C does.
func TestSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		stopped, exited := 0, 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			obey(t.Context(), signals, func() { stopped++ }, func() { exited++ })
		}()
		signals <- syscall.SIGTERM
		signals <- os.Interrupt // at once: the same signal, come twice
		time.Sleep(time.Minute)
		signals <- syscall.SIGTERM
		synctest.Wait()
		if stopped != 1 || exited != 0 {
			t.Errorf("stopped %d, exited %d times", stopped, exited)
		}
		signals <- os.Interrupt
		<-done
		if stopped != 1 || exited != 1 {
			t.Errorf("after the second Ctrl-C: stopped %d, exited %d times", stopped, exited)
		}
	})
}

// A client that waits ends at SIGINT with code 130, and says nothing.
func TestInterruptedClient(t *testing.T) {
	broker := mustChild(t)
	broker.createTopic(t, "lines")
	if _, stderr, code := command(t, "first\n", "produce", "lines", "--bootstrap-server", broker.addr); code != 0 {
		t.Fatal(stderr)
	}
	cmd := childCommand("consume", "lines", "--from-beginning", "--bootstrap-server", broker.addr)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 64)); err != nil { // it has printed what there is and waits for more
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s", code, &stderr)
	}
}

func TestNoBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := errors.Join(l.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"topic", "list"}, {"produce", "x"}, {"consume", "x"}, {"config", "describe", "broker", "1"}} {
		stdout, stderr, code := command(t, "", append(args, "--bootstrap-server", address)...)
		want := "tidemark: no broker at " + address + ": check --bootstrap-server, or run `tidemark start`\n"
		if code != exitNoBroker || stdout != "" || stderr != want {
			t.Errorf("%v: %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if got, want := noBrokerError(defaultBootstrap, nil).Error(), "no broker at localhost:9092: run `tidemark start`"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A start that is asked to stop before it is ready has stopped cleanly: a supervisor must not take it for a failure.
func TestStopBeforeReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr strings.Builder
	flags := startFlags{logLevel: "warn", logFormat: formatText, set: []string{
		"log.dirs=" + t.TempDir(), "listeners=PLAINTEXT://127.0.0.1:0", "admin.listener=127.0.0.1:0",
	}}
	if err := start(ctx, streams{in: strings.NewReader(""), out: &stdout, err: &stderr}, &flags); err != nil || stdout.Len()+stderr.Len() > 0 {
		t.Errorf("%v\n%s%s", err, &stdout, &stderr)
	}
}
