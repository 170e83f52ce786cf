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

// runTimeout bounds one suite on one broker.
const runTimeout = 20 * time.Minute

// secondRun is the detail of a test that failed once and passed when it was run again on the same broker.
const secondRun = "on the second run"

// Execute starts a broker of this kind, runs the suite on it, runs what failed once more on the same broker, and returns
// the results in the order of their names. With only, just those tests run; exceptions may keep tests from running on
// tidemark. What the suite and the broker print goes to log.
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
	ctx, cancel := context.WithTimeout(ctx, runTimeout+time.Minute)
	defer cancel()
	if results, err = s.Run(ctx, stage); err != nil {
		return nil, err
	}
	if err := again(ctx, s, stage, results); err != nil {
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

// again runs the tests that failed once more, and takes over what passes then.
func again(ctx context.Context, s Suite, stage *Stage, results []Result) error {
	second := *stage
	second.Only = nil
	for _, r := range results {
		if r.Status == Failed {
			second.Only = append(second.Only, r.Test)
		}
	}
	if second.Only == nil {
		return nil
	}
	fmt.Fprintf(stage.Log, "\n--- once more: %s\n", strings.Join(second.Only, " "))
	rerun, err := s.Run(ctx, &second)
	if err != nil {
		return fmt.Errorf("run failed tests once more: %w", err)
	}
	for i := range results {
		passed := func(r Result) bool { return r.Test == results[i].Test && r.Status == Passed }
		if results[i].Status == Failed && slices.ContainsFunc(rerun, passed) {
			results[i].Status, results[i].Detail = Passed, secondRun
		}
	}
	return nil
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
