// Compat runs other people's test suites against tidemark and against Apache Kafka, and makes docs/compatibility.md of what
// they say. Each suite on each broker runs in a network namespace of its own, which wants root or user namespaces.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/compat"
	"github.com/tidemark-io/tidemark/compat/suites"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	suites   string // names with commas between; "" is all
	peer     string // a suites.Peer or "both"
	only     string // names of tests with commas between
	ci       bool
	prepare  bool
	document bool
	inside   string // the file that the results go to: this process is in the namespace already
	cache    string
	logs     string
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("compat", flag.ContinueOnError)
	flags.StringVar(&o.suites, "suite", "", "run these suites, with commas between; all of them if not given")
	flags.StringVar(&o.peer, "peer", "both", "the broker: tidemark, kafka or both")
	flags.StringVar(&o.only, "only", "", "run these tests, with commas between, and keep no results")
	flags.BoolVar(&o.ci, "ci", false, "run the tests that each suite names for CI, and keep no results")
	flags.BoolVar(&o.prepare, "prepare", false, "fetch and build the suites, and run nothing")
	flags.BoolVar(&o.document, "document", false, "run nothing: make docs/compatibility.md from the results that are there")
	flags.StringVar(&o.cache, "cache", defaultCache(), "where suites that were fetched and built are kept")
	flags.StringVar(&o.logs, "logs", filepath.Join(os.TempDir(), "compat-logs"), "where the output of suites and brokers goes")
	flags.StringVar(&o.inside, "inside", "", "for the program itself: run in this namespace, results to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(o.suites)
	if err != nil {
		return err
	}
	switch {
	case o.inside != "":
		return runInside(ctx, chosen[0], suites.Peer(o.peer), o)
	case o.document:
		return document()
	}
	return runAll(ctx, chosen, o)
}

func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "tidemark-compat")
}

// choose finds suites by their names.
func choose(names string) ([]suites.Suite, error) {
	all := suites.All()
	if names == "" {
		return all, nil
	}
	var chosen, known = []suites.Suite{}, []string{}
	for _, s := range all {
		known = append(known, s.Name)
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("no suite is called %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// runAll runs the suites one after the other and says in the end whether tests ended as they should.
func runAll(ctx context.Context, chosen []suites.Suite, o options) error {
	peers := []suites.Peer{suites.Peer(o.peer)}
	if o.peer == "both" {
		peers = []suites.Peer{suites.Tidemark, suites.Kafka}
	}
	env, cleanup, err := environment(peers)
	if err != nil {
		return err
	}
	defer cleanup()
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return err
	}
	var problems []error
	for _, s := range chosen {
		only := o.only
		if o.ci {
			if only = strings.Join(s.CI, ","); only == "" {
				continue
			}
		}
		dir := filepath.Join(o.cache, s.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := s.Prepare(ctx, dir); err != nil {
			problems = append(problems, fmt.Errorf("prepare %s: %w", s.Name, err))
			continue
		}
		if o.prepare {
			continue
		}
		for _, peer := range peers {
			if err := runOne(ctx, s, peer, only, o, env); err != nil {
				problems = append(problems, fmt.Errorf("%s on %s: %w", s.Name, peer, err))
			}
			if ctx.Err() != nil {
				return errors.Join(append(problems, ctx.Err())...)
			}
		}
	}
	if o.only == "" && !o.ci && !o.prepare {
		problems = append(problems, document())
	}
	return errors.Join(problems...)
}

// environment builds and fetches what the brokers need, and returns the variables by which they are found in a namespace
// that has no network.
func environment(peers []suites.Peer) (env []string, cleanup func(), err error) {
	env, cleanup = os.Environ(), func() {}
	if slices.Contains(peers, suites.Kafka) {
		kafka, err := compat.OpenKafka()
		if err != nil {
			return nil, nil, err
		}
		env = append(env, kafka.Environ())
	}
	if slices.Contains(peers, suites.Tidemark) {
		binary, err := compat.Binary()
		if err != nil {
			return nil, nil, err
		}
		if os.Getenv(compat.BinaryVariable) == "" {
			cleanup = func() { os.RemoveAll(filepath.Dir(binary)) }
		}
		env = append(env, compat.BinaryVariable+"="+binary)
	}
	return env, cleanup, nil
}

// runOne runs one suite on one broker in a namespace, prints a line, and keeps the results of a whole run.
func runOne(ctx context.Context, s suites.Suite, peer suites.Peer, only string, o options, env []string) error {
	file, err := os.CreateTemp("", "compat-results-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	started := time.Now()
	cmd := exec.CommandContext(ctx, self, "-inside", file.Name(), "-suite", s.Name, "-peer", string(peer), "-only", only, "-cache", o.cache, "-logs", o.logs)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := isolate(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in a network namespace, which takes root or user namespaces: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w; the log is %s", err, logPath(o, s, peer))
	}
	result := &suites.Run{Suite: s.Name, Source: s.Source, Peer: peer, Settings: s.Settings}
	if err := json.NewDecoder(file).Decode(&result.Results); err != nil {
		return err
	}
	fmt.Printf("%-26s %-9s %4d passed (%d again) %4d failed %4d skipped  %4d s\n", s.Name, peer, result.Count(suites.Passed),
		len(result.Again()), result.Count(suites.Failed), result.Count(suites.Skipped), int(time.Since(started).Seconds()))
	if only == "" {
		root, err := compat.Root()
		if err != nil {
			return err
		}
		if err := result.Save(filepath.Join(root, "compat", "results")); err != nil {
			return err
		}
	}
	if peer == suites.Tidemark {
		return judge(s, result)
	}
	return nil
}

// judge is an error if a test failed that Kafka's results do not show as failed too, and that no exception explains.
func judge(s suites.Suite, ours *suites.Run) error {
	root, err := compat.Root()
	if err != nil {
		return err
	}
	kafka, err := suites.Load(suites.Path(filepath.Join(root, "compat", "results"), s.Name, suites.Kafka))
	if err != nil {
		return err
	}
	exceptions, err := loadExceptions()
	if err != nil {
		return err
	}
	var failed []suites.Difference
	for _, r := range ours.Results {
		if r.Status == suites.Failed && (kafka == nil || kafka.Status(r.Test) != suites.Failed) {
			failed = append(failed, suites.Difference{Test: r.Test, Tidemark: r.Status})
		}
	}
	var problems []error
	for _, d := range suites.Unexplained(s.Name, failed, exceptions) {
		i := slices.IndexFunc(ours.Results, func(r suites.Result) bool { return r.Test == d.Test })
		problems = append(problems, fmt.Errorf("%s failed\n%s", d.Test, ours.Results[i].Detail))
	}
	return errors.Join(problems...)
}

func logPath(o options, s suites.Suite, peer suites.Peer) string {
	return filepath.Join(o.logs, s.Name+"."+string(peer)+".log")
}

// runInside runs a suite where there is nothing but loopback.
func runInside(ctx context.Context, s suites.Suite, peer suites.Peer, o options) error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	log, err := os.Create(logPath(o, s, peer))
	if err != nil {
		return err
	}
	defer log.Close()
	var only []string
	if o.only != "" {
		only = strings.Split(o.only, ",")
	}
	exceptions, err := loadExceptions()
	if err != nil {
		return err
	}
	results, err := suites.Execute(ctx, s, peer, filepath.Join(o.cache, s.Name), only, exceptions, log)
	if err != nil {
		return err
	}
	text, err := json.Marshal(results)
	if err != nil {
		return err
	}
	return os.WriteFile(o.inside, text, 0o600)
}

func loadExceptions() ([]suites.Exception, error) {
	root, err := compat.Root()
	if err != nil {
		return nil, err
	}
	return suites.LoadExceptions(filepath.Join(root, "compat", "suites", "exceptions.json"))
}

// document makes docs/compatibility.md, and is an error if the results and exceptions.json do not go together.
func document() error {
	root, err := compat.Root()
	if err != nil {
		return err
	}
	exceptions, err := loadExceptions()
	if err != nil {
		return err
	}
	results := filepath.Join(root, "compat", "results")
	text, err := suites.Document(results, exceptions)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "compatibility.md"), []byte(text), 0o644); err != nil {
		return err
	}
	return suites.Problems(results, exceptions)
}
