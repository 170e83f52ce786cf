#!/usr/bin/env bash
# cluster.sh [FOLDER]: run three brokers on this machine until Ctrl-C, with their data in FOLDER (./tidemark-cluster). They
# serve clients on localhost:9092, 9093 and 9094, and each other on 9192, 9292 and 9392.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-tidemark-cluster}
mkdir -p "$dir"
go build -o "$dir/tidemark" ./cmd/tidemark

brokers=1@localhost:9192,2@localhost:9292,3@localhost:9392
pids=()
stop() {
	trap - EXIT INT TERM
	kill "${pids[@]}" 2>/dev/null || true
	wait
}
trap stop EXIT INT TERM
for id in 1 2 3; do
	"$dir/tidemark" start --cluster "$brokers" --set node.id=$id --set log.dirs="$dir/$id" \
		--set listeners=PLAINTEXT://localhost:$((9091 + id)) --set admin.listener=localhost:$((9643 + id)) \
		2>"$dir/$id.log" &
	pids+=($!)
done
echo "three brokers; logs are in $dir/1.log, 2.log and 3.log. Another terminal:"
echo "  $dir/tidemark cluster status"
echo "  $dir/tidemark topic create orders --partitions 6 --replication-factor 3 --set min.insync.replicas=2"
echo "  kill -9 ${pids[0]}    # and look at the status again"
wait
