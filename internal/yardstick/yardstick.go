// Package yardstick runs a benchmark beside the raw limit of the machine it runs on: the bare system calls, the checksum
// or the copy without which the work cannot be done. Both take turns of a few milliseconds, so whatever else the machine
// does hits both, and the median of the turns' ratios is what is reported: a figure that can be compared between machines
// and between days, where nanoseconds cannot.
//
// Benchmarks of all packages call it; nothing else does. It asserts nothing: the aims stand in scripts/benchtable.
package yardstick

import (
	"slices"
	"testing"
	"time"
)

// Contest is what Run compares.
type Contest struct {
	// Ours does n operations, and Raw the least that any program would have to do for as many.
	Ours, Raw func(n int) error
	// Turn is the number of operations in one turn, about a few milliseconds' worth; 0 means 1.
	Turn int
	// Bytes is what one operation moves, for MB/s; 0 for none.
	Bytes int64
	// Rest, if set, tidies up between two turns; it is not timed.
	Rest func() error
}

// Run does b.N operations of ours, each turn followed by one of raw, and reports for one operation the median of ours
// (ns/op) and of raw (raw-ns/op), and the median of ours divided by raw in the same pair of turns (x-raw). Allocations
// are those of ours. Errors end the benchmark.
func Run(b *testing.B, c Contest) {
	b.Helper()
	turn := max(c.Turn, 1)
	var ours, raw, ratios []float64
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		n := min(turn, b.N-done)
		started := time.Now()
		err := c.Ours(n)
		took := time.Since(started)
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		started = time.Now()
		if err := c.Raw(n); err != nil {
			b.Fatal(err)
		}
		rawTook := max(time.Since(started), 1)
		if c.Rest != nil {
			if err := c.Rest(); err != nil {
				b.Fatal(err)
			}
		}
		if done += n; n == turn || ratios == nil { // a short last turn is not like the others
			ours = append(ours, float64(took)/float64(n))
			raw = append(raw, float64(rawTook)/float64(n))
			ratios = append(ratios, float64(took)/float64(rawTook))
		}
		b.StartTimer()
	}
	b.StopTimer()
	each := Median(ours)
	b.ReportMetric(each, "ns/op")
	b.ReportMetric(Median(raw), "raw-ns/op")
	b.ReportMetric(Median(ratios), "x-raw")
	if c.Bytes > 0 {
		b.ReportMetric(float64(c.Bytes)/each*1e3, "MB/s")
	}
}

// Median sorts values and returns the middle one, or 0 if there is none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
