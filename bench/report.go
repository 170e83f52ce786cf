package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is a whole series, as it is kept.
type report struct {
	Commit     string      `json:"commit"`
	Time       string      `json:"time"`
	Processors int         `json:"processors"`
	Congestion string      `json:"congestion_control"`
	Full       bool        `json:"full_protocol"`
	WarmUp     float64     `json:"warm_up_s"`
	During     float64     `json:"measured_s"`
	Took       float64     `json:"took_s"`
	Limits     []limits    `json:"raw_limits"` // before and after the rows, of each part
	Rows       []rowResult `json:"rows"`
}

// rowResult is a row's runs in the order in which they were made, by peer.
type rowResult struct {
	ID   string                   `json:"id"`
	Unit string                   `json:"unit"`
	Runs map[string][]measurement `json:"runs"`
	Took float64                  `json:"took_s"`
	// Failed are the peers that could not be measured, with the cause.
	Failed map[string]string `json:"failed,omitempty"`
}

func newRowResult(r *row) rowResult {
	return rowResult{ID: r.id, Unit: r.unit, Runs: map[string][]measurement{}, Failed: map[string]string{}}
}

// add takes a run, or why there is none.
func (r *rowResult) add(peer string, m measurement, err error) {
	if err != nil {
		r.Failed[peer] = err.Error()
		return
	}
	r.Runs[peer] = append(r.Runs[peer], m)
}

// failed says whether any peer could not be measured.
func (r *rowResult) failed() bool { return len(r.Failed) > 0 }

func newReport(ctx context.Context, o *options) *report {
	return &report{
		Commit: commit(ctx), Time: time.Now().UTC().Format(time.RFC3339), Processors: runtime.NumCPU(), Congestion: congestionControl(),
		Full: o.full, WarmUp: o.warmUp.Seconds(), During: o.during.Seconds(),
	}
}

// row is the result of a row, nil where it was not run.
func (r *report) row(id string) *rowResult {
	for i := range r.Rows {
		if r.Rows[i].ID == id {
			return &r.Rows[i]
		}
	}
	return nil
}

// median is the middle of a figure over a peer's runs; 0 where there is none.
func (r *rowResult) median(peer string, figure func(*measurement) float64) float64 {
	return median(each(r.Runs[peer], figure))
}

func (r *rowResult) value(peer string) float64 { return r.median(peer, valueOf) }

// cpuPerGiB is a peer's processor time for a GiB of values, 0 for rows that are not about throughput: at a fixed rate it
// says how often a broker woke up.
func (r *rowResult) cpuPerGiB(peer string) float64 {
	if !strings.HasPrefix(r.ID, "B-P") && !strings.HasPrefix(r.ID, "B-C") {
		return 0
	}
	return r.median(peer, (*measurement).cpuPerGiB)
}

func (r *rowResult) extra(peer, name string) float64 {
	return r.median(peer, func(m *measurement) float64 { return m.Extra[name] })
}

// ofRaw is the median share of its raw limit that a peer reached, each run against the limit measured around it.
func (r *rowResult) ofRaw(peer string) (float64, bool) {
	all := each(r.Runs[peer], func(m *measurement) float64 { return ratio(m.Value, m.Raw) })
	return median(all), median(all) > 0
}

// limit is the median of a raw limit over the series.
func (r *report) limit(figure func(*limits) float64) float64 {
	var all []float64
	for i := range r.Limits {
		all = append(all, figure(&r.Limits[i]))
	}
	return median(all)
}

// line is a row in short, while the series runs.
func (r *rowResult) line(of *row) string {
	parts := []string{}
	for _, peer := range append(of.names(), nullName) {
		if cause := r.Failed[peer]; cause != "" {
			parts = append(parts, peer+" failed: "+cause)
		} else if len(r.Runs[peer]) > 0 {
			parts = append(parts, peer+" "+span(each(r.Runs[peer], valueOf)))
		}
	}
	return strings.Join(parts, ", ") + " " + r.Unit
}

// span prints a median, and the least and most around it if there are several values.
func span(values []float64) string {
	switch len(values) {
	case 0:
		return "-"
	case 1:
		return figure(values[0])
	}
	return fmt.Sprintf("%s [%s–%s]", figure(median(values)), figure(slices.Min(values)), figure(slices.Max(values)))
}

// figure prints three to four digits.
func figure(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v < 0.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.5:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		whole := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + "," + whole[i:]
		}
		return whole
	}
}

// print writes the tables, in a form that is Markdown too.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "Commit %s, %d processors, %s, %s s warm-up, %s s measured, %.0f s in all. A peer's figure is the median of its runs [least–most].\n\n",
		r.Commit, r.Processors, r.Congestion, figure(r.WarmUp), figure(r.During), r.Took)
	r.printRows(w)
	r.printMissed(w)
	r.printLatencies(w)
	r.printExtras(w)
	r.printProcessors(w)
	r.printLimits(w)
}

func (r *report) printRows(w io.Writer) {
	t := table{{"row", "", "unit", "tidemark", "kafka", "nats", "of kafka", "of nats", "of null", "of raw", "CPU s/GiB", "kafka's", "nats'", "peak MiB", "kafka's", "nats'", "aims", "verdict"}}
	for i := range r.Rows {
		one := &r.Rows[i]
		of := findRow(one.ID)
		if of == nil {
			continue
		}
		verdict, _ := one.judge(of, r)
		if verdict == verdictLost || verdict == verdictFailed {
			verdict = "**" + verdict + "**"
		}
		raw, _ := one.ofRaw(ours)
		line := []string{one.ID, of.what, one.Unit}
		for _, peer := range []string{ours, kafkaName, natsName} {
			line = append(line, one.cell(peer))
		}
		for _, peer := range []string{kafkaName, natsName, nullName} {
			line = append(line, figure(ratio(one.value(ours), one.value(peer))))
		}
		line = append(line, figure(raw))
		for _, peer := range []string{ours, kafkaName, natsName} {
			line = append(line, figure(one.cpuPerGiB(peer)))
		}
		for _, peer := range []string{ours, kafkaName, natsName} {
			line = append(line, figure(one.median(peer, func(m *measurement) float64 { return m.PeakMiB })))
		}
		var aims []string
		for _, a := range of.aims {
			aims = append(aims, a.text)
		}
		t = append(t, append(line, strings.Join(aims, "; "), verdict))
	}
	t.print(w)
}

// cell is what a peer reached: of one that failed at last what it reached before.
func (r *rowResult) cell(peer string) string {
	if len(r.Runs[peer]) == 0 && r.Failed[peer] != "" {
		return verdictFailed
	}
	return span(each(r.Runs[peer], valueOf))
}

// printMissed lists, below the table, what is short or lost, and why.
func (r *report) printMissed(w io.Writer) {
	for i := range r.Rows {
		one := &r.Rows[i]
		of := findRow(one.ID)
		if of == nil {
			continue
		}
		for _, peer := range append(of.names(), nullName) {
			if cause := one.Failed[peer]; cause != "" {
				fmt.Fprintf(w, "- %s, %s failed: %s\n", one.ID, peer, strings.Join(strings.Fields(cause), " "))
			}
		}
		verdict, missed := one.judge(of, r)
		if verdict == verdictOK || len(one.Runs[ours]) == 0 {
			continue
		}
		why := one.cause(of, r.Processors)
		if of.limit != "" {
			why = strings.TrimPrefix(why+". "+of.limit, ". ")
		}
		fmt.Fprintf(w, "- %s is %s: %s. Cause: %s\n", one.ID, verdict, strings.Join(missed, "; "), cmp.Or(why, "not known"))
	}
	fmt.Fprintln(w)
}

func (r *report) printLatencies(w io.Writer) {
	t := table{{"latency, ms", "tidemark p50", "p99", "p99.9", "kafka p50", "p99", "p99.9", "nats p50", "p99", "p99.9", "raw round p99"}}
	for i := range r.Rows {
		one := &r.Rows[i]
		if one.median(ours, func(m *measurement) float64 { return m.P50 }) == 0 {
			continue
		}
		line := []string{one.ID}
		for _, peer := range []string{ours, kafkaName, natsName} {
			for _, of := range []func(*measurement) float64{
				func(m *measurement) float64 { return m.P50 }, func(m *measurement) float64 { return m.P99 }, func(m *measurement) float64 { return m.P999 },
			} {
				line = append(line, figure(one.median(peer, of)))
			}
		}
		t = append(t, append(line, figure(one.extra(ours, rawRoundP99))))
	}
	t.print(w)
}

func (r *report) printExtras(w io.Writer) {
	t := table{{"beside", "", "tidemark", "kafka", "nats"}}
	for i := range r.Rows {
		one := &r.Rows[i]
		names := map[string]bool{}
		for _, m := range one.Runs[ours] {
			for name := range m.Extra {
				names[name] = name != rawRoundP99 // which stands in the table of latencies
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if names[name] {
				t = append(t, []string{one.ID, name, figure(one.extra(ours, name)), figure(one.extra(kafkaName, name)), figure(one.extra(natsName, name))})
			}
		}
	}
	t.print(w)
}

// printProcessors is row B-M2: what moving a GiB costs, the broker and the client, and how much of the machine others had.
func (r *report) printProcessors(w io.Writer) {
	t := table{{"B-M2, CPU s/GiB", "tidemark", "kafka", "nats", "of kafka", "client, beside tidemark", "beside kafka", "cores of others, tidemark", "kafka"}}
	for i := range r.Rows {
		one := &r.Rows[i]
		if one.cpuPerGiB(ours) == 0 {
			continue
		}
		client := func(m *measurement) float64 { return ratio(m.ClientCPU, float64(m.Bytes)/(1<<30)) }
		others := func(m *measurement) float64 { return ratio(m.OthersCPU, m.Seconds) }
		t = append(t, []string{
			one.ID, figure(one.cpuPerGiB(ours)), figure(one.cpuPerGiB(kafkaName)), figure(one.cpuPerGiB(natsName)),
			figure(ratio(one.cpuPerGiB(ours), one.cpuPerGiB(kafkaName))), figure(one.median(ours, client)), figure(one.median(kafkaName, client)),
			figure(one.median(ours, others)), figure(one.median(kafkaName, others)),
		})
	}
	t.print(w)
}

func (r *report) printLimits(w io.Writer) {
	t := table{{"raw limit of this run", "at first", "at last"}}
	n := len(r.Limits)
	if n == 0 {
		return
	}
	add := func(name string, of func(*limits) float64) {
		t = append(t, []string{name, figure(of(&r.Limits[0])), figure(of(&r.Limits[n-1]))})
	}
	add("page-cache write, MiB/s", func(l *limits) float64 { return l.PageCacheWrite })
	add("page-cache write, CPU s/GiB", func(l *limits) float64 { return l.PageCacheWriteCPU })
	add("O_DIRECT read of 1 MiB, MiB/s", func(l *limits) float64 { return l.DirectRead })
	add("loopback bulk, MiB/s", func(l *limits) float64 { return l.Loopback })
	add("loopback bulk, sender's CPU s/GiB", func(l *limits) float64 { return l.LoopbackCPU })
	add("loopback ping-pong 64 B, p50 us", func(l *limits) float64 { return l.PingPongP50 })
	add("loopback ping-pong 64 B, p99 us", func(l *limits) float64 { return l.PingPongP99 })
	add("loopback ping-pong 64 B, p99.9 us", func(l *limits) float64 { return l.PingPongP999 })
	for i, s := range r.Limits[0].Sync {
		size := fmt.Sprintf("append and fdatasync of %d KiB, ", s.KiB)
		add(size+"MiB/s", func(l *limits) float64 { return l.Sync[i].Rate })
		add(size+"p50 ms", func(l *limits) float64 { return l.Sync[i].P50 })
		add(size+"p99 ms", func(l *limits) float64 { return l.Sync[i].P99 })
	}
	t.print(w)
}

// table is lines of cells; the first line is the head.
type table [][]string

// print writes a table whose columns are aligned, and nothing if it has a head only.
func (t table) print(w io.Writer) {
	if len(t) < 2 {
		return
	}
	widths := make([]int, len(t[0]))
	for _, line := range t {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for n, line := range t {
		for i, cell := range line {
			fmt.Fprintf(w, "| %-*s ", widths[i], cell)
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			for _, width := range widths {
				fmt.Fprintf(w, "|%s", strings.Repeat("-", width+2))
			}
			fmt.Fprintln(w, "|")
		}
	}
	fmt.Fprintln(w)
}

// errUnsteady is returned where a full series is not worth publishing.
var errUnsteady = errors.New("not published: the machine was not steady")

// steadiness is by how much the null run may move between the halves of a full series.
const steadiness = 0.1

// unsteady is an error if the series was to follow the full protocol and a null run moved too much.
func (r *report) unsteady() error {
	if !r.Full {
		return nil
	}
	for i := range r.Rows {
		if by := moved(each(r.Rows[i].Runs[nullName], valueOf)); by > steadiness {
			return fmt.Errorf("%w: the null run of %s moved by %.0f %% between its halves, more than %.0f %%", errUnsteady, r.Rows[i].ID,
				by*100, steadiness*100)
		}
	}
	return nil
}

// path is where a series is kept.
func (r *report) path(dir string) string { return filepath.Join(dir, r.Commit+".json") }

// write keeps a series under its commit's name and returns the file's.
func (r *report) write(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	encoded, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return "", err
	}
	path := r.path(dir)
	return path, os.WriteFile(path, append(encoded, '\n'), 0o644)
}

// joined is a series of several parts: this one's rows in place of the older one's, in the order of the matrix.
func (r *report) joined(older *report) *report {
	both := *r
	both.Took += older.Took
	both.Limits = append(slices.Clone(older.Limits), r.Limits...)
	both.Rows = nil
	for _, of := range matrix {
		for _, part := range []*report{r, older} {
			if i := slices.IndexFunc(part.Rows, func(one rowResult) bool { return one.ID == of.id }); i >= 0 {
				both.Rows = append(both.Rows, part.Rows[i])
				break
			}
		}
	}
	return &both
}

// readReport reads what write wrote.
func readReport(path string) (*report, error) {
	encoded, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if err := json.Unmarshal(encoded, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// render prints a kept series again.
func render(args []string, w io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: bench render FILE")
	}
	r, err := readReport(args[0])
	if err != nil {
		return err
	}
	r.print(w)
	return nil
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
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
