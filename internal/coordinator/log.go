package coordinator

import "context"

// Log is the partition that a machine is a fold of, as its leader sees it. All methods may block on the disk.
type Log interface {
	// Bounds are the first offset and the end of what is to be loaded. Everything below end is committed when Read returns
	// it.
	Bounds() (start, end int64)
	// Read returns whole record batches, the first of which contains offset or follows it. It waits until the batch at
	// offset is committed. The memory is valid until the next call.
	Read(ctx context.Context, offset int64) ([]byte, error)
	// Append writes one batch as the leader, to be committed on all in-sync replicas. An error means that nothing was
	// written. The memory may be reused when it returns.
	Append(ctx context.Context, batch []byte) (Pending, error)
}

// Pending is an append on its way to being committed.
type Pending interface {
	// Done calls notify exactly once, when the outcome is known; possibly at once. notify does not block.
	Done(notify func())
	// Err is the outcome, once it is known. An error means that it is not known whether the records are in the log.
	Err() error
	// Expire gives up waiting: the outcome becomes an error, unless there is one.
	Expire() bool
}
