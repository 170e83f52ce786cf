package suites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// detailLines is how much of a failure's output is kept.
const detailLines = 12

// goTests are the tests of one package of a Go module. Modules ship their tests.
type goTests struct {
	module, version string
	pkg             string // the package, as a path below the module: "pkg/kgo"
	tags            string // build tags
	patch           func(src string) error
	flat            bool // subtests have no subtests, and slashes in their names
}

// source is where the module's files are, below the directory of Prepare.
func (g goTests) source(dir string) string { return filepath.Join(dir, g.version) }

// binary is the compiled test program.
func (g goTests) binary(dir string) string {
	return filepath.Join(dir, g.version+"-"+strings.ReplaceAll(g.pkg, "/", "-")+".test")
}

// prepare copies the module out of the module cache, so that it can be built as it is, and compiles the tests.
func (g goTests) prepare(ctx context.Context, dir string) error {
	if _, err := os.Stat(g.binary(dir)); err == nil {
		return nil
	}
	if err := fetchModule(ctx, g.module, g.version, g.source(dir)); err != nil {
		return err
	}
	if g.patch != nil {
		if err := g.patch(g.source(dir)); err != nil {
			return fmt.Errorf("patch %s: %w", g.module, err)
		}
	}
	if err := goCommand(ctx, dir, "build", "-o", filepath.Join(dir, "test2json"), "cmd/test2json"); err != nil {
		return err
	}
	return goCommand(ctx, g.source(dir), "test", "-c", "-mod=mod", "-vet=off", "-tags="+g.tags, "-o", g.binary(dir), "./"+g.pkg)
}

// fetchModule puts a module's files into dest.
func fetchModule(ctx context.Context, module, version, dest string) error {
	empty, err := os.MkdirTemp("", "compat-module-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(empty)
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@"+version)
	download.Dir = empty
	out, err := download.Output()
	var got struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.Error != "" || err != nil {
		return fmt.Errorf("download %s@%s: %s (%w)", module, version, got.Error, err)
	}
	if err := os.RemoveAll(dest); err != nil {
		return err
	}
	if err := os.CopyFS(dest, os.DirFS(got.Dir)); err != nil {
		return err
	}
	return filepath.WalkDir(dest, func(path string, entry fs.DirEntry, err error) error { // the module cache is read-only
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// goCommand runs the go command in dir.
func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, out)
	}
	return nil
}

// run runs the tests with these environment variables beside the ordinary ones. tests are the top-level tests to run; nil
// is all of them.
func (g goTests) run(ctx context.Context, s *Stage, tests []string, env ...string) ([]Result, error) {
	if s.Only != nil {
		tests = s.Only
	}
	args := []string{"-t", g.binary(s.Dir), "-test.v=test2json", "-test.timeout=" + s.Timeout.String()}
	if tests != nil {
		args = append(args, "-test.run="+testPattern(tests))
	}
	if len(s.Skip) > 0 {
		args = append(args, "-test.skip="+testPattern(slices.Sorted(maps.Keys(s.Skip))))
	}
	cmd := command(ctx, filepath.Join(s.Dir, "test2json"), args...)
	cmd.Dir = filepath.Join(g.source(s.Dir), g.pkg)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = s.Log
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := parseEvents(events, s.Log, g.flat)
	// A test program that failed says so in its events.
	if waited := cmd.Wait(); err != nil || len(results) == 0 {
		return nil, fmt.Errorf("%s ran no test: %w", g.module, errors.Join(err, waited))
	}
	return results, nil
}

// testPattern is the value of -test.run and -test.skip for these names. Levels of a pattern are matched one by one, so a
// name with more levels stands for no more than itself.
func testPattern(names []string) string {
	var patterns []string
	for _, name := range names {
		var levels []string
		for level := range strings.SplitSeq(name, "/") {
			prefix, isPrefix := strings.CutSuffix(level, "*")
			pattern := "^" + regexp.QuoteMeta(prefix)
			if !isPrefix {
				pattern += "$"
			}
			levels = append(levels, pattern)
		}
		patterns = append(patterns, strings.Join(levels, "/"))
	}
	return strings.Join(patterns, "|")
}

// parseEvents reads what test2json prints, copies the tests' output to log, and returns a result for each test that has no
// subtests, and for one that failed by itself. With flat only what is before the first slash of a name is a parent.
func parseEvents(events io.Reader, log io.Writer, flat bool) ([]Result, error) {
	type state struct {
		status Status
		took   time.Duration
		lines  []string
		parent bool
		failed bool // a subtest failed
	}
	tests := map[string]*state{}
	decoder := json.NewDecoder(events)
	for {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // in the middle of an event if it was killed
		} else if err != nil {
			return nil, fmt.Errorf("read test2json: %w", err)
		}
		if e.Action == "output" {
			if _, err := log.Write([]byte(e.Output)); err != nil {
				return nil, err
			}
		}
		if e.Test == "" {
			continue
		}
		t := tests[e.Test]
		if t == nil {
			t = &state{status: Failed} // one that never ends has failed: its program did
			tests[e.Test] = t
		}
		switch e.Action {
		case "output":
			if line := strings.TrimRight(e.Output, "\n"); line != "" && !strings.HasPrefix(strings.TrimSpace(line), "=== ") {
				t.lines = append(t.lines, line)
			}
		case "pass", "fail", "skip":
			t.status = map[string]Status{"pass": Passed, "fail": Failed, "skip": Skipped}[e.Action]
			t.took = time.Duration(e.Elapsed * float64(time.Second))
		}
	}
	for name, t := range tests {
		for i, c := range name {
			if parent := tests[name[:i]]; c == '/' && parent != nil {
				parent.parent = true
				parent.failed = parent.failed || t.status == Failed
			}
			if c == '/' && flat {
				break
			}
		}
	}
	var results []Result
	for name, t := range tests {
		// A parent counts for itself only if it failed and none of its subtests did.
		if t.parent && (t.status != Failed || t.failed) {
			continue
		}
		r := Result{Test: name, Status: t.status, Took: t.took}
		switch t.status {
		case Failed:
			r.Detail = detail(t.lines)
		case Skipped:
			r.Detail = skipReason(t.lines)
		}
		results = append(results, r)
	}
	return results, nil
}

// detail is the end of a test's output without the lines of the framework, and without what is logged while it cleans up.
func detail(lines []string) string {
	var kept []string
	for _, line := range lines {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "panic.go:") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-detailLines):], "\n")
}

// logged is how a line that a test logged begins.
var logged = regexp.MustCompile(`^\s*\w+\.go:\d+: `)

// skipReason is the first that a skipped test logged: what comes after it is of its cleaning up.
func skipReason(lines []string) string {
	if i := slices.IndexFunc(lines, logged.MatchString); i >= 0 {
		return strings.TrimSpace(lines[i])
	}
	return ""
}

// command prepares a program that is killed with all of its children when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
