// Package coordinator runs a machine whose state is a fold over the records of one partition: groups today,
// transactions, remote metadata and deletion later (D12).
//
// # What it keeps
//
// A machine sees every committed record of its partition before it sees an event, in order. What it decides to write is
// appended in the order in which it decided, and nobody is told of it before it is committed. When it is not known whether
// records have been written, the machine is thrown away and made again from the log, so that its state never differs from
// what the next leader would read.
//
// # Who calls it
//
// The packages of floor 3 (groups) make a [Runner] for each partition that this broker leads, run it while it leads, and
// bring it events with [Runner.Do]. The package knows neither replicas nor requests: a [Log] is what it needs of a
// partition.
//
// # Goroutines and locks
//
// [Runner.Run] is one goroutine for each partition, with one timer; it alone touches the machine. There is none for each
// call, group or transaction. The runner's lock guards its queue and is held for moments, never across the log.
package coordinator
