package compat

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// BinaryVariable is the environment variable that names a tidemark program already built; without it each process builds
// one of its own.
const BinaryVariable = "COMPAT_TIDEMARK"

// binary builds the broker once per process.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "tidemark-compat-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tidemark")
	root, err := Root()
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", path, "./cmd/tidemark")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tidemark: %w\n%s", err, out)
	}
	return path, nil
})

// Binary is the path of the tidemark program built from this checkout.
func Binary() (string, error) { return binary() }

// Broker is a tidemark process.
type Broker struct {
	Addr string // host:port to bootstrap from
	Dir  string // its data directory

	cmd    *exec.Cmd
	stderr *os.File
}

var readyLine = regexp.MustCompile(`^ready tidemark=\S+ address=(\S+) data=(.*) ms=\d+$`)

// StartBroker starts a broker on a free port over dir, with these `key=value` settings, and waits for its ready line.
// One that is not ready within two minutes is killed.
func StartBroker(dir string, settings ...string) (*Broker, error) {
	path, err := Binary()
	if err != nil {
		return nil, err
	}
	args := []string{"start", "--set", "log.dirs=" + dir, "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "admin.listener=127.0.0.1:0"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	stderr, err := os.CreateTemp("", "tidemark-stderr-")
	if err != nil {
		return nil, err
	}
	b := &Broker{Dir: dir, cmd: exec.Command(path, args...), stderr: stderr}
	b.cmd.Stderr = stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(startPatience, func() { _ = b.cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if match := readyLine.FindStringSubmatch(lines.Text()); match != nil {
			b.Addr = match[1]
			return b, nil
		}
	}
	err = b.cmd.Wait()
	return nil, fmt.Errorf("the broker ended before it was ready: %w\n%s", err, b.Log())
}

// PID is the broker's process id.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Log is what the broker wrote to stderr so far.
func (b *Broker) Log() string {
	text, err := os.ReadFile(b.stderr.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop sends SIGTERM and waits; a broker that needs more than ten seconds is killed and that is an error. A broker that
// has ended already is left alone.
func (b *Broker) Stop() error {
	if b.cmd.ProcessState != nil {
		return nil
	}
	defer os.Remove(b.stderr.Name())
	defer b.stderr.Close()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	killed := time.AfterFunc(10*time.Second, func() { _ = b.cmd.Process.Kill() })
	err := b.cmd.Wait()
	if !killed.Stop() {
		return fmt.Errorf("the broker did not stop within 10 s:\n%s", b.Log())
	}
	if err != nil {
		return fmt.Errorf("the broker stopped with: %w\n%s", err, b.Log())
	}
	return nil
}

// Kill is SIGKILL: nothing is flushed, and no mark of a clean shutdown is left.
func (b *Broker) Kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.stderr.Close()
	os.Remove(b.stderr.Name())
}

// Tidemark runs a client command against the broker.
func (b *Broker) Tidemark(input string, args ...string) (Output, error) {
	path, err := Binary()
	if err != nil {
		return Output{}, err
	}
	return Run(exec.Command(path, append(args, "--bootstrap-server", b.Addr)...), input)
}

// files lists the files below the broker's data directory with one of the endings.
func files(dir string, endings ...string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		for _, ending := range endings {
			if strings.HasSuffix(path, ending) {
				out = append(out, path)
			}
		}
		return nil
	})
	if len(out) == 0 && err == nil {
		err = errors.New("no file ends in " + strings.Join(endings, ", "))
	}
	return out, err
}
