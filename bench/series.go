package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// stage is one run of a row against one peer.
type stage struct {
	row     *row
	peer    peer
	client  client
	tools   tools
	home    string // empty, and removed afterwards
	options *options
}

func (s *stage) warmUp() time.Duration { return s.row.window(s.options.warmUp) }
func (s *stage) during() time.Duration { return s.row.window(s.options.during) }

// window halves a time for rows that have but half of it.
func (r *row) window(d time.Duration) time.Duration {
	if r.half {
		return d / 2
	}
	return d
}

// order is the order in which peers run: A B A, or A B B A and on until each has had its repeats.
func order(peers []string, o *options) []string {
	if !o.full {
		return append(slices.Clone(peers), peers[0])
	}
	var out []string
	for i := range o.repeats {
		round := slices.Clone(peers)
		if i%2 == 1 {
			slices.Reverse(round)
		}
		out = append(out, round...)
	}
	return out
}

// names are the peers of a row, tidemark first.
func (r *row) names() []string { return append([]string{ours}, r.peers...) }

// nulls is how often a row is run against the null broker: once, or before and after its runs.
func (r *row) nulls(o *options) int {
	switch {
	case !r.null:
		return 0
	case o.full:
		return 2
	default:
		return 1
	}
}

// overheads are about what each peer's start and stop take.
var overheads = map[string]time.Duration{
	ours: tidemark{}.overhead(), kafkaName: apacheKafka{}.overhead(), natsName: natsServer{}.overhead(), nullName: nullPeer{}.overhead(),
}

// planned is about how long a row takes.
func (r *row) planned(o *options) time.Duration {
	run := time.Duration(r.windows)*r.window(o.warmUp+o.during) + r.beside
	var sum time.Duration
	for _, peer := range order(r.names(), o) {
		sum += overheads[peer] + run
	}
	return sum + time.Duration(r.nulls(o))*(overheads[nullName]+run)
}

// limitsTake is about how long the raw limits take; they are measured before and after all rows.
const limitsTake = 8 * time.Second

// planned is about how long rows take together.
func planned(rows []row, o *options) time.Duration {
	sum := 2 * limitsTake
	for i := range rows {
		sum += rows[i].planned(o)
	}
	return sum
}

// series is one call of the program.
type series struct {
	options *options
	peers   map[string]peer
	tools   tools
	report  *report
	out     io.Writer
}

// run measures rows and prints and keeps what comes out, also if some could not be measured.
func (s *series) run(ctx context.Context, rows []row) error {
	started := time.Now()
	home, err := os.MkdirTemp("", "bench-limits-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if _, err := compat.Binary(); err != nil { // it is built here, and not in the first row's time
		return err
	}
	if err := s.touch(); err != nil {
		return err
	}
	if err := s.limits(ctx, home); err != nil {
		return err
	}
	failed := 0
	for i := range rows {
		began := time.Now()
		result := s.measureRow(ctx, &rows[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		took := time.Since(began)
		result.Took = took.Seconds()
		if result.Error != "" {
			failed++
			fmt.Fprintf(s.out, "%-12s FAILED: %s\n", result.ID, result.Error)
		} else {
			fmt.Fprintf(s.out, "%-12s took %.0f s of %.0f s planned: %s\n", result.ID, took.Seconds(), rows[i].planned(s.options).Seconds(), result.line(&rows[i]))
		}
		s.report.Rows = append(s.report.Rows, result)
	}
	if err := s.limits(ctx, home); err != nil {
		return err
	}
	s.report.Took = time.Since(started).Seconds()
	if s.options.add {
		older, err := readReport(s.report.path(s.options.results))
		switch {
		case err == nil:
			s.report = s.report.joined(older)
		case !errors.Is(err, os.ErrNotExist):
			return err
		}
	}
	fmt.Fprintln(s.out)
	s.report.print(s.out)
	if err := s.report.unsteady(); err != nil {
		return err
	}
	if s.options.results != "" {
		path, err := s.report.write(s.options.results)
		if err != nil {
			return err
		}
		fmt.Fprintln(s.out, "written to", path)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d rows could not be measured", failed, len(rows))
	}
	return nil
}

// touch touches memory before a full series: as much as can be had, less a margin.
func (s *series) touch() error {
	if !s.options.full {
		return nil
	}
	available, err := availableMemory()
	if err != nil {
		return err
	}
	return touchMemory(available * 7 / 10)
}

func (s *series) limits(ctx context.Context, home string) error {
	l, err := measureLimits(ctx, home)
	if err != nil {
		return err
	}
	s.report.Limits = append(s.report.Limits, *l)
	return nil
}

// measureRow runs a row against the null broker and its peers.
func (s *series) measureRow(ctx context.Context, r *row) rowResult {
	result := rowResult{ID: r.id, Unit: r.unit, Runs: map[string][]measurement{}}
	runs := order(r.names(), s.options)
	if n := r.nulls(s.options); n > 0 {
		runs = append([]string{nullName}, runs...)
		if n > 1 {
			runs = append(runs, nullName)
		}
	}
	for _, name := range runs {
		m, err := s.measure(ctx, r, s.peers[name])
		if err != nil {
			result.Error = fmt.Sprintf("%s: %v", name, err)
			return result
		}
		result.Runs[name] = append(result.Runs[name], m)
	}
	return result
}

func (s *series) measure(ctx context.Context, r *row, p peer) (m measurement, err error) {
	home, err := os.MkdirTemp("", "bench-"+p.name()+"-")
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	return r.run(ctx, &stage{row: r, peer: p, client: s.clientOf(r, p), tools: s.tools, home: home, options: s.options})
}

// clientOf is what drives a peer in a row.
func (s *series) clientOf(r *row, p peer) client {
	switch {
	case p.name() == natsName:
		return natsClient{}
	case r.client == javaName:
		return javaClient{kafka: s.tools.kafka}
	case r.client == rdkafkaName:
		return rdkafkaClient{path: s.tools.rdkafka}
	default:
		return franzClient{}
	}
}
