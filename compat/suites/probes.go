package suites

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// probeListen is where the broker is for suites of probes: each has a network namespace of its own.
const probeListen = "127.0.0.1:9092"

// probeSettings are what the probes assume of a broker.
func probeSettings(more ...string) []string {
	return append([]string{"auto.create.topics.enable=true", "num.partitions=4", "group.min.session.timeout.ms=1000",
		"group.initial.rebalance.delay.ms=0"}, more...)
}

// probeFile is the path of a file below compat/probes.
func probeFile(elems ...string) (string, error) {
	root, err := compat.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{root, "compat", "probes"}, elems...)...), nil
}

// runProbes runs a probe program: it takes --broker and the tests to run, and prints a line of JSON for each test.
func runProbes(ctx context.Context, s *Stage, env []string, program ...string) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	args := append(slices.Clone(program[1:]), "--broker", s.Addr)
	cmd := command(ctx, program[0], append(args, s.Only...)...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, s.Log
	runErr := cmd.Run()
	if _, err := s.Log.Write(out.Bytes()); err != nil {
		return nil, err
	}
	results, err := parseProbes(out.Bytes())
	if err != nil {
		return nil, err
	}
	if runErr != nil {
		return nil, fmt.Errorf("%s, after %d tests: %w", filepath.Base(program[len(program)-1]), len(results), runErr)
	}
	if len(results) == 0 {
		return nil, errors.New("the probes ran no test")
	}
	return results, nil
}

// parseProbes reads what a probe program prints. Lines that do not begin with a brace are a client's chatter.
func parseProbes(out []byte) ([]Result, error) {
	var results []Result
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue
		}
		var line struct {
			Test   string `json:"test"`
			Status Status `json:"status"`
			Detail string `json:"detail"`
			TookMS int64  `json:"took_ms"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("read a probe's line %q: %w", lines.Text(), err)
		}
		if line.Test == "" || !slices.Contains([]Status{Passed, Failed, Skipped}, line.Status) {
			return nil, fmt.Errorf("a probe's line has no test or no known status: %q", lines.Text())
		}
		results = append(results, Result{Test: line.Test, Status: line.Status, Detail: withoutPaths(line.Detail), Took: time.Duration(line.TookMS) * time.Millisecond})
	}
	return results, lines.Err()
}

// absolutePath is the path of a file.
var absolutePath = regexp.MustCompile(`(?m)(^|[\s"'(=])(?:/[\w.@+-]+)+/([\w.@+-]+)`)

// withoutPaths leaves of each path in a stack trace the file's name: results are the same wherever they were got.
func withoutPaths(detail string) string { return absolutePath.ReplaceAllString(detail, "$1$2") }

// prepared reports whether dir was prepared with this file of pinned versions, and mark notes that it was.
func prepared(dir, pins string) (done bool, mark func() error, err error) {
	want, err := os.ReadFile(pins)
	if err != nil {
		return false, nil, err
	}
	stamp := filepath.Join(dir, "prepared")
	got, err := os.ReadFile(stamp)
	if err == nil && bytes.Equal(got, want) {
		return true, nil, nil
	}
	return false, func() error { return os.WriteFile(stamp, want, 0o600) }, nil
}

// fetch runs a program that fetches or builds, and returns what it printed as part of an error.
func fetch(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-30):], "\n"))
}
