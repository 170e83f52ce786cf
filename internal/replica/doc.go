// Package replica keeps one partition's copies in step: who leads, what is committed, who may read what, and who is
// answered when. A [Table] holds the replicas of this broker; a [Replica] is a log and the [Machine] that decides over it.
//
// # What it keeps
//
// The high watermark never passes what every in-sync replica holds (synced, in a flush partition), so what a consumer has
// seen and what acks=all has acknowledged survives as many failures as the topic asks for. No batch is stamped with a
// leader epoch that the replica has left: a change of role waits for the appends in flight. A copy is deleted only on the
// controller's positive word about its topic id; what nobody mentions is renamed and kept. One partition whose log fails
// stops no other.
//
// A follower's log is the leader's, byte for byte, up to the follower's end: it fetches in the leader's epoch, and where
// the lineages part it cuts its log before it takes anything. What was committed it cuts only after an unclean election
// that has given it up (D9).
//
// # Who calls it
//
// broker feeds it statements of the controller ([Table.Apply], the one way from the registry to the replicas) and
// configuration changes; server appends, reads and waits, for clients and for other brokers. It never sees a request of
// the protocol, a connection or the registry: whom it needs above it are the interfaces [ISRWriter], [Leaders] and
// [RoleListener] in its Config.
//
// # Goroutines and locks
//
// [Table.Run] is three goroutines, and one more for each lane on which followers fetch: a connection to one leader. One
// watches logs and the clock (followers that lag, logs that failed or could not be opened); one writes and reads
// partition values for leaders, whatever has gathered at a time; one starts lanes. Apply uses at most 16 helpers while it
// runs. No request and no replica has a goroutine or a timer; group commits are the logs' Syncer's.
//
// Locks, in order: the table's applying slot (held across the disk by Apply), then the fetchers' lock, then a lane's, the
// table's or a replica's (moments), then the log's own, the metrics', the journal's, or a Pending's (moments; never two of these). Nobody
// is called back, woken or answered under a lock, but for a lane that is told to look again. The log calls its hooks
// without its lock.
package replica
