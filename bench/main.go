// Command bench holds tidemark against Apache Kafka and NATS JetStream on one machine with the same loads. It starts each
// in turn (A B A), in a process of its own, drives it, and prints a table of ratios with the limits of the same run
// beside: what the client reaches against a broker that throws everything away (the null run), and what the disk and the
// loopback reach without any broker. A figure alone says nothing on a shared machine; the ratios of one run do.
//
// It wants Linux: processor time and memory come from /proc, and the cold rows drop the page cache.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the command line sets.
type options struct {
	rows, only     string
	warmUp, during time.Duration
	repeats        int
	full           bool
	results        string
	nats           string
	rdkafka        string
	list           bool
	raw            bool
	add            bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] { // the other side of a null run and of the loopback limits, in a process of its own
		case nullBrokerCommand:
			return serveNull(ctx, out)
		case drainCommand:
			return serveDrain(ctx, out)
		case "build-rdkafka":
			return buildRdkafka(ctx, out)
		case "render":
			return render(args[1:], out)
		}
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	rows, err := chooseRows(o)
	if err != nil {
		return err
	}
	if rows, err = choosePeers(rows, o.only); err != nil {
		return err
	}
	if o.rdkafka == "" {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.client == rdkafkaName })
		fmt.Fprintln(out, "without -rdkafka, the rows by rdkafka_performance are left out")
	}
	fmt.Fprintf(out, "%d rows, planned: %s\n", len(rows), planned(rows, o).Round(time.Second))
	if o.list {
		for _, r := range rows {
			fmt.Fprintf(out, "  %-20s %-48s %s\n", r.id, r.what, r.planned(o).Round(time.Second))
		}
		return nil
	}
	if o.nats == "" {
		return fmt.Errorf("-nats is empty: build github.com/nats-io/nats-server/v2 and name the program, as scripts/bench.sh does")
	}
	kafka, err := compat.OpenKafka()
	if err != nil {
		return err
	}
	s := &series{
		options: o,
		peers:   map[string]peer{ours: tidemark{}, kafkaName: apacheKafka{kafka}, natsName: natsServer{o.nats}, nullName: nullPeer{}},
		tools:   tools{kafka: kafka, rdkafka: o.rdkafka},
		report:  newReport(ctx, o),
		out:     out,
	}
	fmt.Fprintf(out, "%d processors, congestion control %s, %s warm-up, %s measured, order %s\n\n",
		runtime.NumCPU(), s.report.Congestion, o.warmUp, o.during, strings.Join(order([]string{"A", "B"}, o), " "))
	return s.run(ctx, rows)
}

// buildRdkafka builds librdkafka's performance tool, or finds it built, where compat/ keeps it, and prints its path.
func buildRdkafka(ctx context.Context, out io.Writer) error {
	caches, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	path, err := compat.RdkafkaPerformance(ctx, filepath.Join(caches, "tidemark-compat", "rdkafka"))
	if err == nil {
		fmt.Fprintln(out, path)
	}
	return err
}

func parseOptions(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.StringVar(&o.rows, "rows", "", "rows to run, separated by commas; a name takes its variants too (B-P8 is B-P8/lz4 and so on); default: all")
	flags.StringVar(&o.only, "peers", "", "peers to run beside tidemark, separated by commas, or none; default: those of each row")
	flags.BoolVar(&o.full, "full", false, "the whole protocol: A B B A, more repeats, longer runs, memory touched before")
	flags.DurationVar(&o.warmUp, "warm-up", 0, "load before a measurement (default 1.5s; 20s with -full)")
	flags.DurationVar(&o.during, "measure", 0, "length of a measurement (default 4s; 60s with -full)")
	flags.IntVar(&o.repeats, "repeats", 0, "runs of each peer with -full (default 5)")
	flags.StringVar(&o.results, "results", "results", "folder for the results as JSON; empty for none")
	flags.BoolVar(&o.add, "add", false, "a series in parts: add these rows to those kept of the same commit, in place of their older runs")
	flags.StringVar(&o.nats, "nats", "", "path of a nats-server program")
	flags.StringVar(&o.rdkafka, "rdkafka", "", "path of librdkafka's rdkafka_performance; without it its rows are left out")
	flags.BoolVar(&o.raw, "raw", true, "measure the raw limits before and after the rows; -raw=false to try one out")
	flags.BoolVar(&o.list, "list", false, "print the rows and how long each is planned to take, and run nothing")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	o.fill()
	return o, nil
}

// fill sets what the command line left open.
func (o *options) fill() {
	warmUp, during, repeats := 1500*time.Millisecond, 4*time.Second, 1
	if o.full {
		warmUp, during, repeats = 20*time.Second, 60*time.Second, 5
	}
	if o.warmUp <= 0 {
		o.warmUp = warmUp
	}
	if o.during <= 0 {
		o.during = during
	}
	if o.repeats <= 0 {
		o.repeats = repeats
	}
}

// chooseRows takes the rows that the command line names with their variants, all of them if it names none. What belongs to
// the full protocol only is left out of a short one, unless it is named itself.
func chooseRows(o *options) ([]row, error) {
	if o.rows == "" {
		return matching(o, func(*row) bool { return true }), nil
	}
	var chosen []row
	for _, id := range strings.Split(o.rows, ",") {
		found := matching(o, func(r *row) bool { return r.id == id || strings.HasPrefix(r.id, id+"/") })
		if exact := findRow(id); exact != nil && exact.onlyFull && len(found) == 0 {
			found = []row{*exact}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no row is called %q; -list prints them", id)
		}
		for _, r := range found {
			if !slices.ContainsFunc(chosen, func(c row) bool { return c.id == r.id }) { // named twice
				chosen = append(chosen, r)
			}
		}
	}
	return chosen, nil
}

// matching are the rows of the matrix that belong to the series and that something holds of.
func matching(o *options, holds func(*row) bool) (rows []row) {
	for i := range matrix {
		if r := &matrix[i]; (o.full || !r.onlyFull) && holds(r) {
			rows = append(rows, *r)
		}
	}
	return rows
}

// choosePeers leaves rows those of their peers that a list names, all of them if it is empty.
func choosePeers(rows []row, list string) ([]row, error) {
	if list == "" {
		return rows, nil
	}
	named := strings.Split(list, ",")
	for _, name := range named {
		if name != kafkaName && name != natsName && name != "none" {
			return nil, fmt.Errorf("no peer is called %q: there are %s and %s, and none for neither", name, kafkaName, natsName)
		}
	}
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].peers = slices.DeleteFunc(slices.Clone(rows[i].peers), func(p string) bool { return !slices.Contains(named, p) })
	}
	return rows, nil
}
