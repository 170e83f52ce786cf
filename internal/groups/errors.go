package groups

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/internal/coordinator"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// errNotHere is for a group whose partition this broker does not lead (NOT_COORDINATOR).
var errNotHere = errors.New("another broker coordinates this group")

// errNoTopic is for a group before __consumer_offsets could be created (COORDINATOR_NOT_AVAILABLE).
var errNoTopic = errors.New("the topic of the groups' offsets does not exist yet")

// codes is the map from errors to what a member is told: either to find its coordinator again, or to wait. The first
// entry that an error is decides.
var codes = []struct {
	err  error
	code *kerr.Error
}{
	{errNotHere, kerr.NotCoordinator},
	{errNoTopic, kerr.CoordinatorNotAvailable},
	{coordinator.ErrLoading, kerr.CoordinatorLoadInProgress},
	{coordinator.ErrStopped, kerr.NotCoordinator},
	{coordinator.ErrBusy, kerr.CoordinatorNotAvailable},
	{replica.ErrNotLeader, kerr.NotCoordinator},
	{replica.ErrGone, kerr.NotCoordinator},
	{replica.ErrStorage, kerr.NotCoordinator},
	{replica.ErrNotEnoughReplicas, kerr.CoordinatorNotAvailable},
	{replica.ErrNotEnoughAfterAppend, kerr.CoordinatorNotAvailable},
	{replica.ErrTimedOut, kerr.CoordinatorNotAvailable},
	{record.ErrTooLarge, kerr.UnknownServerError},
	{replica.ErrSegmentSize, kerr.UnknownServerError},
	{context.Canceled, kerr.CoordinatorNotAvailable},
	{context.DeadlineExceeded, kerr.CoordinatorNotAvailable},
}

// codeOf is the code that a member is given for an error; 0 for nil.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			return codes[i].code.Code
		}
	}
	return kerr.UnknownServerError.Code
}
