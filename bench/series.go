package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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

	trio   *trio              // the cluster that runs already, for rows of three brokers; else nil
	values map[string]float64 // what rows have measured on it so far, by their ids
}

// withBroker does something with the stage's cluster, or with a broker that it starts and stops.
func (s *stage) withBroker(ctx context.Context, do func(broker) error) error {
	if s.trio != nil {
		return do(s.trio)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := s.peer.start(ctx, s.home, s.row.durable)
	if err != nil {
		return err
	}
	return errors.Join(do(b), b.Stop())
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

// besides says whether a row runs against a peer.
func (r *row) besides(peer string) bool { return slices.Contains(r.names(), peer) }

// trio says whether a row wants three brokers.
func (r *row) trio() bool { return r.replicas > 1 }

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

// overheads are about what each peer's start and stop take, and trioOverheads the same of three brokers.
var (
	overheads = map[string]time.Duration{
		ours: tidemark{}.overhead(), kafkaName: apacheKafka{}.overhead(), natsName: natsServer{}.overhead(), nullName: nullPeer{}.overhead(),
	}
	trioOverheads = map[string]time.Duration{
		ours: tidemark{}.trioOverhead(), kafkaName: apacheKafka{}.trioOverhead(), natsName: natsServer{}.trioOverhead(),
	}
)

// takes is about how long one run of a row takes against a peer that runs.
func (r *row) takes(peer string, o *options) time.Duration {
	run := time.Duration(r.windows)*r.window(o.warmUp+o.during) + r.beside
	if peer == kafkaName {
		run += r.besideKafka
	}
	return run
}

// planned is about how long a row takes.
func (r *row) planned(o *options) (sum time.Duration) {
	for _, peer := range order(r.names(), o) {
		sum += r.takes(peer, o)
		if !r.trio() {
			sum += overheads[peer]
		}
	}
	return sum + time.Duration(r.nulls(o))*(overheads[nullName]+r.takes(nullName, o))
}

// bounded is a context for one run of a row: a peer that dies or hangs costs the series no more than that.
func (r *row) bounded(ctx context.Context, o *options) (context.Context, context.CancelFunc) {
	most := (20*time.Second + 2*r.takes(kafkaName, o)).Round(time.Second)
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("not done within %s", most))
}

// limitsTake is about how long the raw limits take; they are measured before and after all rows.
const limitsTake = 8 * time.Second

// planned is about how long rows take together.
func planned(rows []row, o *options) time.Duration {
	sum := 2 * limitsTake
	var trios []row
	for i := range rows {
		sum += rows[i].planned(o)
		if rows[i].trio() {
			trios = append(trios, rows[i])
		}
	}
	if len(trios) > 0 {
		for _, peer := range order(peersOf(trios), o) {
			sum += trioOverheads[peer] + touchTakes
		}
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
	if s.options.full {
		if err := touch(math.MaxInt64); err != nil {
			return err
		}
	}
	if err := s.limits(ctx, home); err != nil {
		return err
	}
	lone, trios := split(rows)
	for i := range lone {
		began := time.Now()
		result := s.measureRow(ctx, &lone[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result.Took = time.Since(began).Seconds()
		s.tell("%-12s took %.0f s of %.0f s planned: %s", result.ID, result.Took, lone[i].planned(s.options).Seconds(), result.line(&lone[i]))
		s.report.Rows = append(s.report.Rows, result)
	}
	if len(trios) > 0 {
		s.report.Rows = append(s.report.Rows, s.measureTrios(ctx, trios)...)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := 0
	for i := range s.report.Rows {
		if s.report.Rows[i].failed() {
			failed++
		}
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

// touch touches so much memory, or as much as can be had, less a margin, if that is less.
func touch(most int64) error {
	available, err := availableMemory()
	if err != nil {
		return err
	}
	return touchMemory(min(most, available*7/10))
}

func (s *series) limits(ctx context.Context, home string) error {
	if !s.options.raw {
		return nil
	}
	l, err := measureLimits(ctx, home)
	if err != nil {
		return err
	}
	s.report.Limits = append(s.report.Limits, *l)
	return nil
}

// tell prints a line while the series runs.
func (s *series) tell(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// split parts rows into those of one broker and those of three.
func split(rows []row) (lone, trios []row) {
	for _, r := range rows {
		if r.trio() {
			trios = append(trios, r)
		} else {
			lone = append(lone, r)
		}
	}
	return lone, trios
}

// measureRow runs a row against the null broker and its peers, each in a process of its own. A peer that fails is left
// alone for the rest of the row; the others are not.
func (s *series) measureRow(ctx context.Context, r *row) rowResult {
	result := newRowResult(r)
	runs := order(r.names(), s.options)
	if n := r.nulls(s.options); n > 0 {
		runs = append([]string{nullName}, runs...)
		if n > 1 {
			runs = append(runs, nullName)
		}
	}
	for _, name := range runs {
		if result.Failed[name] == "" {
			m, err := s.measure(ctx, r, s.peers[name])
			result.add(name, m, err)
		}
	}
	return result
}

// measureNulls runs a row against the null broker only.
func (s *series) measureNulls(ctx context.Context, r *row, result *rowResult) {
	for range r.nulls(s.options) {
		m, err := s.measure(ctx, r, s.peers[nullName])
		result.add(nullName, m, err)
	}
}

func (s *series) measure(ctx context.Context, r *row, p peer) (m measurement, err error) {
	home, err := os.MkdirTemp("", "bench-"+p.name()+"-")
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	ctx, cancel := r.bounded(ctx, s.options)
	defer cancel()
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
