package suites

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// runTimeout bounds one suite on one broker, and againTimeout each test of it that is run again.
const (
	runTimeout   = 20 * time.Minute
	againTimeout = 3 * time.Minute
)

// Execute starts a broker of this kind, runs the suite on it, runs each test that failed again alone on the same broker,
// and returns the results in the order of their names. With only, just those tests run; exceptions may keep tests from
// running on tidemark, and none may say of an API that it is not served when it is. What the suite and the broker print
// goes to log.
func Execute(ctx context.Context, s Suite, peer Peer, dir string, only []string, exceptions []Exception, log io.Writer) (results []Result, err error) {
	home, err := os.MkdirTemp("", "compat-"+s.Name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	broker, err := startBroker(s, peer, home)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", peer, err)
	}
	defer func() {
		fmt.Fprintf(log, "\n--- the log of %s\n%s", peer, broker.log())
		if stopErr := broker.stop(); err == nil && stopErr != nil {
			err = fmt.Errorf("stop %s: %w", peer, stopErr)
		}
	}()
	if peer == Tidemark {
		served, err := servedAPIs(ctx, broker.addr)
		if err != nil {
			return nil, err
		}
		if err := stale(s.Name, exceptions, served); err != nil {
			return nil, err
		}
	}
	skip := maps.Clone(s.Skip)
	for _, e := range exceptions {
		if e.Skip && e.Suite == s.Name && peer == Tidemark {
			if skip == nil {
				skip = map[string]string{}
			}
			skip[e.Test] = e.Reason
		}
	}
	stage := &Stage{Dir: dir, Addr: broker.addr, Peer: peer, Only: only, Skip: skip, Log: log, Timeout: runTimeout}
	ctx, cancel := context.WithTimeout(ctx, 2*runTimeout)
	defer cancel()
	if results, err = s.Run(ctx, stage); err != nil {
		return nil, err
	}
	if results, err = again(ctx, s, stage, results); err != nil {
		return nil, err
	}
	if only == nil {
		for test, reason := range skip {
			results = append(results, Result{Test: test, Status: Skipped, Detail: reason})
		}
	}
	paths := strings.NewReplacer(dir+"/", "", home+"/", "") // results are the same wherever they were made
	for i := range results {
		results[i].Detail = paths.Replace(results[i].Detail)
	}
	slices.SortFunc(results, func(a, b Result) int { return cmp.Compare(a.Test, b.Test) })
	return results, nil
}

// again runs each test that failed once more, alone, and returns the results with those that pass then. A test has limits
// of its own, which a busy machine or the tests beside it may make it miss; one that fails twice has failed.
func again(ctx context.Context, s Suite, stage *Stage, results []Result) ([]Result, error) {
	merged := slices.Clone(results)
	for _, first := range results {
		if first.Status != Failed {
			continue
		}
		second := *stage
		second.Only, second.Timeout = []string{first.Test}, againTimeout
		fmt.Fprintf(stage.Log, "\n--- again, alone: %s\n", first.Test)
		rerun, err := s.Run(ctx, &second)
		if err != nil {
			return nil, fmt.Errorf("run %s again: %w", first.Test, err)
		}
		merged = takeOver(merged, first, rerun)
	}
	return merged, nil
}

// takeOver replaces the result of a test that failed by what it was when it was run again, if all of it passed then. A test
// that failed as a whole may have parts that did not run before.
func takeOver(results []Result, first Result, rerun []Result) []Result {
	failed := func(r Result) bool { return r.Status == Failed }
	passed := func(r Result) bool { return r.Status == Passed }
	if slices.ContainsFunc(rerun, failed) || !slices.ContainsFunc(rerun, passed) {
		return results
	}
	results = slices.DeleteFunc(results, func(r Result) bool { return r.Test == first.Test })
	for _, r := range rerun {
		if r.Status == Passed {
			r.PassedAgain, r.Detail = true, first.Detail
		}
		if i := slices.IndexFunc(results, func(known Result) bool { return known.Test == r.Test }); i < 0 {
			results = append(results, r)
		} else if results[i].Status == Passed {
			results[i].PassedAgain, results[i].Detail = true, first.Detail
		}
	}
	return results
}

// skipped reports whether a Skip list covers the test.
func skipped(skip map[string]string, test string) bool {
	for name := range skip {
		if covers(name, test) {
			return true
		}
	}
	return false
}

// covers reports whether a name, or the beginning of a name when it ends in *, stands for the test.
func covers(name, test string) bool {
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		return strings.HasPrefix(test, prefix)
	}
	return name == test
}

// process is a running broker of either kind.
type process struct {
	addr string
	log  func() string
	stop func() error
}

func startBroker(s Suite, peer Peer, home string) (process, error) {
	switch peer {
	case Tidemark:
		settings := s.Settings
		if s.Listen != "" {
			settings = append([]string{"listeners=PLAINTEXT://" + s.Listen, "advertised.listeners=PLAINTEXT://" + s.Listen}, settings...)
		}
		b, err := compat.StartBroker(filepath.Join(home, "data"), settings...)
		if err != nil {
			return process{}, err
		}
		return process{addr: cmp.Or(s.Listen, b.Addr), log: b.Log, stop: b.Stop}, nil
	case Kafka:
		kafka, err := compat.OpenKafka()
		if err != nil {
			return process{}, err
		}
		b, err := kafka.StartBrokerAt(s.Listen, home, s.Settings...)
		if err != nil {
			return process{}, err
		}
		return process{addr: b.Addr, log: b.Log, stop: b.Stop}, nil
	default:
		return process{}, fmt.Errorf("no broker is called %q; there are %s and %s", peer, Tidemark, Kafka)
	}
}
