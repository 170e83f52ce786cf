// Package commitlog keeps one partition's log on local disk, in Apache Kafka's own format: every file that it writes is
// read by Kafka's tools (docs/format).
//
// # What it keeps
//
// A [Log] is a directory of segments. Its offsets never repeat; its batches lie in offset order and never overlap; their
// leader epochs never fall. Three offsets bound it: the log start, below which nothing is served; the log end, which the
// next batch gets; and the recovery point, up to which everything, indexes included, has been synced. A batch that
// Append has returned is in the file; it survives a power cut once SyncedOffset has passed it. After a crash a log is a
// prefix of what was appended, cut at the first batch whose checksum, offsets or epoch do not hold.
//
// A [Manager] owns a data directory and the logs in it: its lock, its identity, its checkpoints, its clean-shutdown mark,
// and the background work. One bad partition never stops it, and nothing is ever deleted because it is unknown: it is set
// aside under a name that says so.
//
// # How it is used
//
// Only package replica appends, reads and truncates; package broker opens the Manager and runs it. The log does not know
// high watermarks, in-sync replicas or clients; callers give the bound up to which they may read.
//
// # Locks
//
// Each log has a lock, held for assignments of a few words and the producer checks, and a slot, held across I/O by the
// one goroutine that writes, rolls, truncates or swaps segments. The lock is never held across I/O; the slot is taken
// first. A reader takes neither for longer than it takes to note the segments and their ends.
package commitlog
