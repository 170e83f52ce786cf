// Command bench holds tidemark against Apache Kafka on one machine with the same clients: it starts each in turn (A B A),
// drives it with the same load, and prints a table of ratios with the client's own limit (its null run, against a mock in
// its own process) beside. A figure alone says nothing on a shared machine; the ratios of one run do.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the command line sets.
type options struct {
	rows           string
	warmUp, during time.Duration
	results        string
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.rows, "rows", "", "rows to run, separated by commas (default: all)")
	flag.DurationVar(&o.warmUp, "warm-up", 4*time.Second, "load before the measurement")
	flag.DurationVar(&o.during, "measure", 8*time.Second, "length of a measurement")
	flag.StringVar(&o.results, "results", "results", "folder for the results as JSON; empty for none")
	flag.Parse()

	kafka, err := compat.OpenKafka()
	if err != nil {
		return err
	}
	peers := []peer{tidemark{}, apacheKafka{kafka}}
	fmt.Printf("congestion control %s, %s warm-up, %s measured, order A B A, Kafka's durability for both (page cache)\n\n",
		congestionControl(), o.warmUp, o.during)
	report := report{Commit: commit(), Time: time.Now().UTC().Format(time.RFC3339), Congestion: congestionControl()}
	for _, row := range table {
		if o.rows != "" && !slices.Contains(strings.Split(o.rows, ","), row.id) {
			continue
		}
		result, err := runRow(ctx, row, peers, &o)
		if err != nil {
			return fmt.Errorf("%s: %w", row.id, err)
		}
		report.Rows = append(report.Rows, result)
		result.print(os.Stdout)
	}
	if err := report.print(os.Stdout); err != nil {
		return err
	}
	return report.write(o.results)
}

// runRow measures one row: its null run, then tidemark, Kafka, tidemark.
func runRow(ctx context.Context, row row, peers []peer, o *options) (rowResult, error) {
	result := rowResult{ID: row.id, What: row.what, Unit: row.unit, Better: row.better}
	if row.null != nil {
		null, err := row.null(ctx, row, o)
		if err != nil {
			return result, fmt.Errorf("null run: %w", err)
		}
		result.Null = null
	}
	for _, p := range []peer{peers[0], peers[1], peers[0]} {
		m, err := measure(ctx, row, p, o)
		if err != nil {
			return result, fmt.Errorf("%s: %w", p.name(), err)
		}
		if p == peers[0] {
			result.Ours = append(result.Ours, m)
		} else {
			result.Kafka = append(result.Kafka, m)
		}
	}
	return result, nil
}

func measure(ctx context.Context, row row, p peer, o *options) (measurement, error) {
	home, err := os.MkdirTemp("", "bench-"+p.name()+"-")
	if err != nil {
		return measurement{}, err
	}
	defer os.RemoveAll(home)
	return row.run(ctx, row, &stage{peer: p, home: home, options: o})
}

// measurement is one run of a row against one peer.
type measurement struct {
	Value     float64 `json:"value"`             // in the row's unit
	P50       float64 `json:"p50_ms,omitempty"`  // latency rows
	P99       float64 `json:"p99_ms,omitempty"`  // latency rows
	CPUPerGiB float64 `json:"cpu_s_per_gib"`     // of the server, user and system
	PeakMiB   float64 `json:"peak_resident_mib"` // of the server
	Bytes     int64   `json:"payload_bytes"`     // moved while measured
	Null      bool    `json:"-"`                 //
}

type rowResult struct {
	ID     string        `json:"id"`
	What   string        `json:"what"`
	Unit   string        `json:"unit"`
	Better string        `json:"better"` // "more" or "less"
	Null   float64       `json:"null_run,omitempty"`
	Ours   []measurement `json:"tidemark"`
	Kafka  []measurement `json:"kafka"`
}

type report struct {
	Commit     string      `json:"commit"`
	Time       string      `json:"time"`
	Congestion string      `json:"congestion_control"`
	Rows       []rowResult `json:"rows"`
}

// best is the better of a peer's runs: on a shared machine the worse one says how busy the others were.
func (r *rowResult) best(runs []measurement) measurement {
	return slices.MinFunc(runs, func(a, b measurement) int {
		switch {
		case a.Value == b.Value:
			return 0
		case (a.Value < b.Value) == (r.Better == "less"):
			return -1
		default:
			return 1
		}
	})
}

func (r *rowResult) print(w *os.File) {
	ours, kafka := r.best(r.Ours), r.best(r.Kafka)
	fmt.Fprintf(w, "%s %s: tidemark %.4g %s, kafka %.4g\n", r.ID, r.What, ours.Value, r.Unit, kafka.Value)
}

func (r *report) print(w *os.File) error {
	fmt.Fprintln(w)
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "row\twhat\tunit\ttidemark\tkafka\ttidemark/kafka\tof null run\tCPU s/GiB\tkafka's\tpeak MiB\tkafka's\t")
	for i := range r.Rows {
		row := &r.Rows[i]
		ours, kafka := row.best(row.Ours), row.best(row.Kafka)
		ofNull := "-"
		if row.Null > 0 {
			ofNull = fmt.Sprintf("%.2f", ours.Value/row.Null)
		}
		verdict := ""
		if (ours.Value < kafka.Value) == (row.Better == "more") {
			verdict = "lost"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%.4g\t%.4g\t%.2f\t%s\t%.2f\t%.2f\t%.0f\t%.0f\t%s\n", row.ID, row.What, row.Unit, ours.Value,
			kafka.Value, ours.Value/kafka.Value, ofNull, ours.CPUPerGiB, kafka.CPUPerGiB, ours.PeakMiB, kafka.PeakMiB, verdict)
	}
	return out.Flush()
}

func (r *report) write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Commit+".json"), append(encoded, '\n'), 0o644)
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func congestionControl() string {
	out, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
