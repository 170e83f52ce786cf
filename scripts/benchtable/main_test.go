package main

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	const in = `goos: linux
pkg: example.org/internal/commitlog
BenchmarkAppend/cache/record=100/writers=1-2   16813  12000 ns/op  1503.61 MB/s  6000 raw-ns/op  2.000 x-raw  42 B/op  0 allocs/op
BenchmarkAppend/cache/record=1024/writers=1-2  16813  9000 ns/op  1503.61 MB/s  8000 raw-ns/op  1.125 x-raw  42 B/op  0 allocs/op
BenchmarkOpen10kPartitions-2  1  983480067 ns/op  3.084 KiB/partition  0.9835 s/open
PASS
pkg: example.org/internal/wire
BenchmarkFetchHeader/1-2  2141356  97.10 ns/op  0 B/op  0 allocs/op
pkg: example.org/cmd/tidemark
BenchmarkStartEmpty-2  10  41.00 cpu-ms  130.9 ms-to-first-ack
`
	results, err := parse(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := write(&out, results); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"benchmark measured raw limit ratio aim allocs/op",
		"commitlog/Append/cache/record=100/writers=1 12.0 us (1504 MB/s) 6.0 us 2.00x 1.5x SHORT 0",
		"commitlog/Append/cache/record=1024/writers=1 9.0 us (1504 MB/s) 8.0 us 1.12x 1.5x ok 0",
		"commitlog/Open10kPartitions 0.984 s/open 3 ok",
		"commitlog/Open10kPartitions 3.08 KiB/partition 20 ok",
		"wire/FetchHeader/1 97 ns",
		"tidemark/StartEmpty 131 ms-to-first-ack 300 ok",
		"",
	}
	for i, line := range want {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d of\n%s\nwant %q", i+1, out.String(), line)
		}
	}
	if len(got) != len(want)+1 || !strings.HasPrefix(got[len(want)], "limit: commitlog/Append/cache/record=100/writers=1: every record") {
		t.Errorf("the limit is not told once:\n%s", out.String())
	}
}
