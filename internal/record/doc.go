// Package record reads, checks and builds version 2 record batches, the one unit that Kafka clients send, that logs
// store and that followers copy. A [Batch] is a view over bytes: bytes on the wire equal bytes on disk, and nothing is
// decoded that nobody asked for.
//
// The invariant it keeps: a batch that [Validate] accepts can be read by every Kafka client. Its checksum holds, the
// records in it are as many as its header says, their offsets are contiguous, and decompressing it stays within [Limits].
//
// Callers: commitlog (append, recovery, compaction, time look-up), replica (followers check what they fetch), server and
// cmd (building and showing batches), and the coordinators, which keep their state in records.
//
// It never does I/O, starts a goroutine, reads a clock or logs, and it never trusts a length: every length and count is
// compared with the bytes that remain before anything is allocated (U-86). No function allocates per record.
//
// The byte layout and the rules are in docs/format/batch.md.
package record
