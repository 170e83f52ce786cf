// Package groups coordinates consumer groups: who is in one, who reads what, and how far it has read. It is Apache Kafka's
// classic group protocol, with its states in __consumer_offsets in Kafka's own record format.
//
// # What it keeps
//
// An assignment and a committed offset are acknowledged when their records are committed, so they survive the broker. A
// request that could not be answered from the whole state fails with a code that says so: a group that is being loaded, or
// whose coordinator is elsewhere, never looks like a group without offsets. The rules are in [Machine], which is pure.
//
// # Who calls it
//
// server, with the requests of clients; broker, which makes a [Coordinator], runs it, and tells it of leadership (it is a
// replica.RoleListener) and of deleted topics. It never sees a connection, and does not check that topics exist.
//
// # Goroutines and locks
//
// [Coordinator.Run] has one goroutine of its own and one for each partition of __consumer_offsets that this broker leads
// (a coordinator.Runner). There is no goroutine and no timer for a group or a member. The coordinator's lock guards its
// table of partitions, for moments, and is a leaf.
//
// KIP-848 groups and transactions come into the same machine: their records are kinds of keys that Replay skips today, and
// offsets of open transactions belong beside group.writing.
package groups
