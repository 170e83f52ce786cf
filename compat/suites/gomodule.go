package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
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
		wanted := tops(s.Only)
		tests = slices.DeleteFunc(slices.Clone(tests), func(t string) bool { return !slices.Contains(wanted, t) })
		if tests == nil {
			tests = wanted
		}
	}
	args := []string{"-t", g.binary(s.Dir), "-test.v=test2json", "-test.timeout=" + s.Timeout.String()}
	if tests != nil {
		args = append(args, "-test.run=^("+strings.Join(tests, "|")+")$")
	}
	if skip := skipPattern(s.Skip); skip != "" {
		args = append(args, "-test.skip="+skip)
	}
	cmd := command(ctx, filepath.Join(s.Dir, "test2json"), args...)
	cmd.Dir = filepath.Join(g.source(s.Dir), g.pkg)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = s.Log
	var events bytes.Buffer
	cmd.Stdout = &events
	err := cmd.Run()
	results, parseErr := parseEvents(&events, s.Log)
	if parseErr != nil {
		return nil, parseErr
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("%s ran no test: %w", g.module, err)
	}
	if s.Only != nil {
		results = slices.DeleteFunc(results, func(r Result) bool {
			return !slices.ContainsFunc(s.Only, func(o string) bool { return o == r.Test || strings.HasPrefix(r.Test, o+"/") })
		})
	}
	return results, nil
}

// tops are the top-level tests that these tests are part of, each once.
func tops(tests []string) []string {
	var out []string
	for _, t := range tests {
		top, _, _ := strings.Cut(t, "/")
		out = append(out, top)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// skipPattern is the value of -test.skip for these names. Levels of a pattern are matched one by one, so a name with more
// levels skips no more than itself.
func skipPattern(skip map[string]string) string {
	var patterns []string
	for name := range skip {
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
	slices.Sort(patterns)
	return strings.Join(patterns, "|")
}

// parseEvents reads what test2json prints, copies the tests' output to log, and returns a result for each test that has no
// subtests, and for one that failed by itself.
func parseEvents(events *bytes.Buffer, log interface{ Write([]byte) (int, error) }) ([]Result, error) {
	type state struct {
		status Status
		took   time.Duration
		lines  []string
		parent bool
		failed bool // a subtest failed
	}
	tests := map[string]*state{}
	decoder := json.NewDecoder(events)
	for decoder.More() {
		var e struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if err := decoder.Decode(&e); err != nil {
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
		}
	}
	var results []Result
	for name, t := range tests {
		if t.parent && (t.status != Failed || t.failed) {
			continue
		}
		r := Result{Test: name, Status: t.status, Took: t.took}
		if t.status != Passed {
			r.Detail = detail(t.lines)
		}
		results = append(results, r)
	}
	return results, nil
}

// detail is the end of a test's output without the lines of the framework.
func detail(lines []string) string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "--- ") })
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines[max(0, len(lines)-detailLines):], "\n")
}

// command prepares a program that is killed with all of its children when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
