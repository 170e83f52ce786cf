#!/usr/bin/env bash
# bench-quick.sh: the Go benchmarks of the packages, each with its raw limit beside it in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-300ms}
for package in record vfs commitlog wire registry broker; do
	ls "internal/$package"/*_test.go >/dev/null 2>&1 || continue
	grep -qE '^func Benchmark' "internal/$package"/*_test.go || continue
	go test -run '^$' -bench . -benchtime "$time" -timeout 20m "./internal/$package"
done
# From the exec of the program to its first acknowledged produce: ten starts, the median.
go test -run '^$' -bench 'Start' -benchtime 10x ./cmd/tidemark
