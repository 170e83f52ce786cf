package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// childVariable makes the test binary act as the program, so that tests can kill a real broker without building one.
const childVariable = "TEST_RUN_AS_TIDEMARK"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// childCommand prepares a run of the program in a process of its own.
func childCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	return cmd
}

// child is a broker in a process of its own.
type child struct {
	addr   string
	dir    string
	pid    int
	cmd    *exec.Cmd
	stderr string // a file
}

var readyPattern = regexp.MustCompile(`^ready tidemark=\S+ address=(\S+) data=.* ms=\d+$`)

// startChild starts a broker over dir and waits for its ready line. listen is host:port; port 0 draws a free one.
func startChild(tb testing.TB, dir, listen string, settings ...string) (*child, error) {
	tb.Helper()
	args := []string{"start", "--set", "log.dirs=" + dir, "--set", "listeners=PLAINTEXT://" + listen, "--set", "admin.listener=127.0.0.1:0"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	return startChildWith(tb, dir, args[1:]...)
}

// startChildWith is startChild with the arguments of `start`; dir is the data directory that they name.
func startChildWith(tb testing.TB, dir string, args ...string) (*child, error) {
	tb.Helper()
	return startCommand(tb, dir, childCommand(append([]string{"start"}, args...)...))
}

// startCommand runs a command that is a broker, or becomes one, and waits for its ready line.
func startCommand(tb testing.TB, dir string, cmd *exec.Cmd) (*child, error) {
	tb.Helper()
	c := &child{dir: dir, cmd: cmd, stderr: filepath.Join(tb.TempDir(), "stderr")}
	stderr, err := os.Create(c.stderr)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	c.cmd.Stderr = stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = c.cmd.Process.Pid
	tb.Cleanup(func() {
		if c.cmd.ProcessState == nil { // the test failed before it stopped the broker
			c.kill()
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if match := readyPattern.FindStringSubmatch(lines.Text()); match != nil {
			c.addr = strings.Replace(match[1], "localhost", "127.0.0.1", 1)
			go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process
			return c, nil
		}
	}
	_ = c.cmd.Wait()
	return nil, errors.New("the broker ended before it was ready:\n" + c.log())
}

func mustChild(tb testing.TB, settings ...string) *child {
	tb.Helper()
	c, err := startChild(tb, tb.TempDir(), "127.0.0.1:0", settings...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.stop(); err != nil {
			tb.Errorf("stop: %v\n%s", err, c.log())
		}
	})
	return c
}

func (c *child) log() string {
	content, err := os.ReadFile(c.stderr)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// kill is SIGKILL: what the kernel holds survives, what the process held does not.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// stop is SIGTERM and a wait.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	return c.cmd.Wait()
}

// client is a franz-go client of the broker.
func (c *child) client(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.addr), kgo.AllowAutoTopicCreation(), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

// command runs a client command of the program in this process and returns what it printed.
func command(tb testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	var out, err strings.Builder
	code = run(args, strings.NewReader(stdin), &out, &err)
	return out.String(), err.String(), code
}

// createTopic makes a topic and fails the test if it cannot.
func (c *child) createTopic(tb testing.TB, args ...string) {
	tb.Helper()
	if _, stderr, code := command(tb, "", append([]string{"topic", "create", "--bootstrap-server", c.addr}, args...)...); code != 0 {
		tb.Fatalf("create topic: %s\n%s", stderr, c.log())
	}
}

func withTimeout(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}
