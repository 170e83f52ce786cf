package replica

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// Appended says where appended records are.
type Appended = commitlog.Appended

// Origin says on whose behalf records are appended.
type Origin = commitlog.Origin

// Where records come from. Clients may not write control batches.
const (
	FromClient      = commitlog.FromClient
	FromCoordinator = commitlog.FromCoordinator
)

// AppendRequest is one partition of a produce request.
type AppendRequest struct {
	// Batches are whole v2 record batches. Offsets, epoch and, where the topic wants it, timestamps are stamped in
	// place. The caller may reuse the memory after Append returns.
	Batches []byte
	// CurrentEpoch is the leader epoch that the client believes in, meta.NoEpoch if it does not say. Produce requests
	// carry none.
	CurrentEpoch meta.Epoch
	// Acks is AcksAll, AcksNone or AcksLeader.
	Acks   int16
	Origin Origin
}

// Append validates the batches by the topic's rules, fences them by epoch, and writes them to the leader's log. It
// returns once they are written; the Pending completes when the request's acks are satisfied. Errors, besides those of
// this package, are those of the log that it re-exports; nothing was appended then.
func (r *Replica) Append(ctx context.Context, request AppendRequest) (*Pending, error) {
	pending, err := r.append(ctx, &request)
	r.traffic.produced(request, pending, err)
	return pending, err
}

func (r *Replica) append(ctx context.Context, request *AppendRequest) (*Pending, error) {
	if request.Acks < AcksAll || request.Acks > AcksLeader {
		return nil, fmt.Errorf("acks %d: %w", request.Acks, ErrBadAcks)
	}
	if err := r.table.refusal(); err != nil {
		return nil, err
	}
	epoch, err := r.enter(ctx, request.CurrentEpoch, request.Acks, int64(len(request.Batches)))
	if err != nil {
		return nil, err
	}
	defer r.leave()
	appended, err := r.log.Append(ctx, commitlog.Append{Batches: request.Batches, Epoch: epoch, Origin: request.Origin})
	if err != nil {
		return nil, err
	}
	p := &Pending{appended: appended, replica: r, need: appended.Last + 1}
	r.await(p, request.Acks)
	return p, nil
}
