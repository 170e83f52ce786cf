// Package controller decides who leads. One broker of the cluster, the one that holds the seat in the registry, runs
// [Controller]: it watches the registry, lets the pure [Plan] decide, commits the decisions by conditional writes, and
// states to every broker what the registry holds (meta.Apply). A lone broker is its own controller: there is one path
// from the registry to the replicas.
//
//	registry ──watch──▶ Plan ──conditional writes──▶ registry ──watch──▶ outboxes ──one Apply each──▶ brokers
//
// The invariant it keeps: a decision is durable before anybody hears of it, and every write of a controller stands
// under its seat, so that a deposed one changes nothing.
//
// [Admin] is the other half: what clients ask for (topics, partitions, configurations) becomes a registry write, on
// whatever broker they ask. It needs no seat.
//
// broker starts Controller.Run and supplies the [Channel]; server calls Admin. The package never touches a log, and
// knows no protocol: its refusals carry Kafka's words, and server gives them Kafka's numbers.
package controller
