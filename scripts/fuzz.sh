#!/usr/bin/env bash
# fuzz.sh TIME [REGEX]: run each fuzz target of the tree in turn for TIME, or those whose name matches REGEX. The targets
# are found in the sources, so a new one is never forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: fuzz.sh TIME [REGEX]}
only=${2:-.}
count=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

fuzz() { # fuzz TARGET FOLDER
	# Two workers and a small heap: a decoder that allocates by what a length claims dies here.
	GOMEMLIMIT=1GiB go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" -parallel 2 "./$2" >"$output" 2>&1
}

# expired tells whether nothing failed but the engine: on a busy machine its workers may not stop in time when TIME is over,
# which it reports as a failure without an input. Whatever a target finds comes with an input.
expired() { grep -q 'context deadline exceeded' "$output" && ! grep -q 'Failing input written' "$output"; }

while IFS=: read -r file target; do
	[[ $target =~ $only ]] || continue
	count=$((count + 1))
	folder=$(dirname "$file")
	echo "== $target in $folder"
	if ! fuzz "$target" "$folder"; then
		expired || { cat "$output"; exit 1; }
		echo "the fuzzing engine did not stop in time; once more"
		fuzz "$target" "$folder" || { cat "$output"; exit 1; }
	fi
	grep -vE '^(fuzz: elapsed: [0-9]+s, (gathering|execs: 0))' "$output" | tail -4
done < <(grep -rnoE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' internal cmd | sed -E 's/:[0-9]+:func /:/' | sort)
[ "$count" -gt 0 ] || { echo "no fuzz target matches $only"; exit 1; }
echo "$count fuzz targets ran $time each"
