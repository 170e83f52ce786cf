// Command benchtable reads the output of `go test -bench` on stdin and prints one table: each figure, the raw limit that
// was measured beside it, the ratio, the aim, and for what falls short the reason. It is the end of scripts/bench-quick.sh.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

func main() {
	results, err := parse(os.Stdin)
	if err == nil {
		err = write(os.Stdout, results)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

// result is one line of `go test -bench`.
type result struct {
	name    string // with the package and without "Benchmark" and the number of CPUs
	metrics map[string]float64
}

var (
	linePattern = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	packagePath = regexp.MustCompile(`^pkg: .*?([^/]+)$`)
)

// parse takes the results out of everything else that go test prints.
func parse(in io.Reader) ([]result, error) {
	var results []result
	pkg := ""
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if match := packagePath.FindStringSubmatch(lines.Text()); match != nil {
			pkg = match[1]
		}
		match := linePattern.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		r := result{pkg + "/" + match[1], map[string]float64{}}
		fields := strings.Fields(match[2])
		for i := 0; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			r.metrics[fields[i+1]] = value
		}
		results = append(results, r)
	}
	return results, lines.Err()
}

// write prints the table and, below it, what limits the rows that fall short.
func write(out io.Writer, results []result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "benchmark\tmeasured\traw limit\tratio\taim\t\tallocs/op\t")
	var short []string
	for _, r := range results {
		for _, row := range rowsOf(r) {
			fmt.Fprintln(table, strings.Join(row.columns[:], "\t")+"\t")
			if row.limit != "" {
				short = append(short, fmt.Sprintf("limit: %s: %s", row.columns[0], row.limit))
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(short) > 0 {
		fmt.Fprintln(out)
	}
	for _, line := range short {
		fmt.Fprintln(out, line)
	}
	return nil
}

// row is one line of the table; limit is set if it falls short.
type row struct {
	columns [7]string
	limit   string
}

// rowsOf makes a row of the ratio to the raw limit, and one of each other figure that has an aim.
func rowsOf(r result) []row {
	var rows []row
	if ratio, found := r.metrics["x-raw"]; found {
		measured := duration(r.metrics["ns/op"])
		if speed, found := r.metrics["MB/s"]; found {
			measured += fmt.Sprintf(" (%.0f MB/s)", speed)
		}
		one := row{columns: [7]string{r.name, measured, duration(r.metrics["raw-ns/op"]), fmt.Sprintf("%.2fx", ratio)}}
		one.columns[6] = strconv.FormatFloat(r.metrics["allocs/op"], 'f', -1, 64)
		one.judge(r, "x-raw", "x")
		rows = append(rows, one)
	}
	for _, unit := range []string{"s/open", "KiB/partition", "ms-to-first-ack"} {
		if value, found := r.metrics[unit]; found {
			one := row{columns: [7]string{r.name, fmt.Sprintf("%.3g %s", value, unit)}}
			one.judge(r, unit, "")
			rows = append(rows, one)
		}
	}
	if len(rows) == 0 && r.metrics["ns/op"] > 0 {
		rows = append(rows, row{columns: [7]string{r.name, duration(r.metrics["ns/op"])}})
	}
	return rows
}

// judge fills in the aim and whether it is met.
func (r *row) judge(of result, unit, suffix string) {
	aim := aimOf(of.name, unit)
	if aim == nil {
		return
	}
	r.columns[4] = fmt.Sprintf("%.4g%s", aim.most, suffix)
	r.columns[5] = "ok"
	if of.metrics[unit] > aim.most {
		r.columns[5] = "SHORT"
		r.limit = aim.limit
	}
}

// duration prints nanoseconds in a unit that fits.
func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.1f us", ns/1e3)
	default:
		return fmt.Sprintf("%.1f ms", ns/1e6)
	}
}
