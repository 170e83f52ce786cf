#!/usr/bin/env bash
# bench.sh [FLAGS of bench/]: tidemark beside Apache Kafka and NATS, in a network namespace of its own on reno: bbr, a common
# default, paces loopback and hides what a broker costs. Wants root, a JDK and Maven.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
namespace=tidemark-bench-$$
cleanup() {
	ip netns delete "$namespace" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
# What needs a network is done before there is none.
(cd bench && go build -o "$work/bench" . && go build -o "$work/nats-server" github.com/nats-io/nats-server/v2)
go build -o /dev/null ./cmd/tidemark
rdkafka=$(cd bench && "$work/bench" build-rdkafka) || rdkafka= # its rows are left out then
mvn -q -B -f compat/kafka/pom.xml org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath \
	-Dmdep.outputFile="$work/classpath"
ip netns add "$namespace"
ip -n "$namespace" link set lo up
cd bench
KAFKA_CLASSPATH=$(cat "$work/classpath") ip netns exec "$namespace" sh -c \
	'echo reno > /proc/sys/net/ipv4/tcp_congestion_control && exec "$0" "$@"' "$work/bench" -nats "$work/nats-server" -rdkafka "$rdkafka" "$@"
