#!/usr/bin/env bash
# fuzz.sh TIME [REGEX]: run each fuzz target of the tree in turn for TIME, or those whose name matches REGEX. The targets
# are found in the sources, so a new one is never forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: fuzz.sh TIME [REGEX]}
only=${2:-.}
count=0
while IFS=: read -r file target; do
	[[ $target =~ $only ]] || continue
	count=$((count + 1))
	echo "== $target in $(dirname "$file")"
	# Two workers and a small heap: a decoder that allocates by what a length claims dies here.
	GOMEMLIMIT=1GiB go test -run '^$' -fuzz "^${target}\$" -fuzztime "$time" -parallel 2 "./$(dirname "$file")" |
		grep -vE '^(fuzz: elapsed: [0-9]+s, (gathering|execs: 0))' | tail -4
done < <(grep -rnoE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' internal cmd | sed -E 's/:[0-9]+:func /:/' | sort)
[ "$count" -gt 0 ] || { echo "no fuzz target matches $only"; exit 1; }
echo "$count fuzz targets ran $time each"
