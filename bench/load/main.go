// Command load compares brokers on one machine: the same client does the same work against each in turns (A B B A), and
// what is printed is what each took: throughput, the CPU seconds of the broker's process per GiB, and latencies measured
// from the time at which a record should have been sent. It needs Linux for the CPU figures.
//
//	go run ./bench/load -peer tidemark=localhost:9092=PID -peer kafka=localhost:9192=PID
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// peer is a broker to measure.
type peer struct {
	name, address string
	pid           int // 0 if its CPU time is not wanted
}

type peers []peer

func (p *peers) String() string { return fmt.Sprint(*p) }

func (p *peers) Set(value string) error {
	fields := strings.Split(value, "=")
	if len(fields) != 2 && len(fields) != 3 {
		return errors.New("want NAME=HOST:PORT or NAME=HOST:PORT=PID")
	}
	one := peer{name: fields[0], address: fields[1]}
	if len(fields) == 3 {
		var err error
		if one.pid, err = strconv.Atoi(fields[2]); err != nil {
			return err
		}
	}
	*p = append(*p, one)
	return nil
}

func main() {
	var w workload
	var all peers
	flag.Var(&all, "peer", "`NAME=HOST:PORT[=PID]` of a broker; repeat it, the first is compared with the others")
	flag.DurationVar(&w.length, "length", 5*time.Second, "how long each measurement produces, at most")
	flag.Int64Var(&w.bytesMax, "bytes", 1<<30, "how many bytes each measurement produces, at most")
	flag.IntVar(&w.partitions, "partitions", 6, "partitions of each topic")
	flag.IntVar(&w.rate, "rate", 1000, "records a second of the latency rows")
	flag.IntVar(&w.rounds, "rounds", 1, "how many times A B B A is done")
	flag.Parse()
	if len(all) == 0 {
		fmt.Fprintln(os.Stderr, "load: no -peer")
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := compare(ctx, all, w); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// compare does every row of the workload against every peer and prints the medians.
func compare(ctx context.Context, all []peer, w workload) error {
	turns := slices.Clone(all)
	for i := len(all) - 1; i >= 0; i-- {
		turns = append(turns, all[i])
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "row\tpeer\tMiB/s\trecords/s\tbroker CPU-s/GiB\tclient CPU-s/GiB\tp50 ms\tp99 ms\tp99.9 ms\t\n")
	for _, row := range w.rows() {
		results := map[string][]measured{}
		for range max(w.rounds, 1) {
			for _, p := range turns {
				fmt.Fprintf(os.Stderr, "%s: %s\n", row.name, p.name)
				m, err := row.run(ctx, p)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", row.name, p.name, err)
				}
				results[p.name] = append(results[p.name], m)
			}
		}
		for _, p := range all {
			fmt.Fprintf(table, "%s\t%s\t%s\t\n", row.name, p.name, strings.Join(columns(results[p.name]), "\t"))
		}
	}
	return table.Flush()
}

// measured is what one turn of one row took.
type measured struct {
	bytes, records       int64
	took                 time.Duration
	brokerCPU, clientCPU time.Duration
	latencies            []time.Duration // sorted; empty where only throughput counts
}

// columns are the medians of some turns, with the span of the throughput.
func columns(turns []measured) []string {
	over := func(of func(m measured) float64) []float64 {
		values := make([]float64, len(turns))
		for i, m := range turns {
			values[i] = of(m)
		}
		slices.Sort(values)
		return values
	}
	const mib, gib = 1 << 20, 1 << 30
	speed := over(func(m measured) float64 { return float64(m.bytes) / mib / m.took.Seconds() })
	rate := over(func(m measured) float64 { return float64(m.records) / m.took.Seconds() })
	broker := over(func(m measured) float64 { return m.brokerCPU.Seconds() / (float64(m.bytes) / gib) })
	client := over(func(m measured) float64 { return m.clientCPU.Seconds() / (float64(m.bytes) / gib) })
	out := []string{
		fmt.Sprintf("%.0f [%.0f-%.0f]", median(speed), speed[0], speed[len(speed)-1]), fmt.Sprintf("%.0f", median(rate)),
		fmt.Sprintf("%.2f", median(broker)), fmt.Sprintf("%.2f", median(client)),
	}
	for _, part := range []float64{0.5, 0.99, 0.999} {
		if len(turns[0].latencies) == 0 {
			out = append(out, "")
			continue
		}
		at := over(func(m measured) float64 {
			return m.latencies[min(int(part*float64(len(m.latencies))), len(m.latencies)-1)].Seconds() * 1000
		})
		out = append(out, fmt.Sprintf("%.2f", median(at)))
	}
	return out
}

// median of sorted values; of an even number the mean of the two in the middle.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
