package groups

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/coordinator"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// partitionLog is a replica as a coordinator's log, for as long as it leads in one epoch. It has one user at a time.
type partitionLog struct {
	replica  *replica.Replica
	epoch    meta.Epoch
	readSize int32
	buffer   []byte
}

// Bounds implements coordinator.Log. The end is the log's: what a leader finds in its log becomes committed.
func (l *partitionLog) Bounds() (start, end int64) {
	return l.replica.StartOffset(), l.replica.EndOffset()
}

// Read implements coordinator.Log.
func (l *partitionLog) Read(ctx context.Context, offset int64) ([]byte, error) {
	for {
		result, err := l.replica.Read(replica.ReadRequest{
			Offset: offset, BytesMax: l.readSize, CurrentEpoch: l.epoch, LastFetchedEpoch: meta.NoEpoch, MinOne: true,
		})
		if err != nil {
			return nil, err
		}
		if size := result.Records.Bytes(); size > 0 {
			if int64(cap(l.buffer)) < size {
				l.buffer = make([]byte, size)
			}
			data := l.buffer[:size]
			err := result.Records.CopyTo(data)
			result.Records.Release()
			return data, err
		}
		if result.HighWatermark >= l.replica.EndOffset() {
			return nil, nil
		}
		if err := l.await(ctx, result); err != nil {
			return nil, err
		}
	}
}

// await waits until more is committed than a read has seen.
func (l *partitionLog) await(ctx context.Context, seen replica.ReadResult) error {
	fired := make(chan struct{})
	w := replica.NewWaiter(1, func() { close(fired) })
	if !l.replica.Watch(w, seen) {
		return nil
	}
	defer l.replica.Unwatch(w)
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Append implements coordinator.Log.
func (l *partitionLog) Append(ctx context.Context, batch []byte) (coordinator.Pending, error) {
	pending, err := l.replica.Append(ctx, replica.AppendRequest{
		Batches: batch, CurrentEpoch: l.epoch, Acks: replica.AcksAll, Origin: replica.FromCoordinator,
	})
	if err != nil {
		return nil, fmt.Errorf("append to partition %d of %s: %w", l.replica.Partition(), l.replica.Topic(), err)
	}
	return pending, nil
}
