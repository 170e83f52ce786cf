#!/usr/bin/env bash
# bench-quick.sh [BENCHTIME]: the benchmarks of the packages, each beside its raw limit measured in the same run, and one
# table of both at the end. docs/performance.md says how to read it.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-300ms}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

bench() { # PACKAGE PATTERN BENCHTIME
	go test -run '^$' -bench "$2" -benchtime "$3" -timeout 20m "./$1" | tee -a "$out" | { grep '^Benchmark' || true; }
}

echo "raw output:"
bench internal/commitlog '^Benchmark(Append|Read|Recover|IndexLookup)' "$time"
bench internal/commitlog '^BenchmarkOpen10kPartitions' 1x
bench internal/record '^BenchmarkValidate$/^none' "$time"
bench internal/wire . "$time"
bench internal/vfs . "$time"
bench internal/server . "$time"
bench cmd/tidemark '^BenchmarkStart' 10x

echo
go run ./scripts/benchtable <"$out"
