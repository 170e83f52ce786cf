package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// initProducerID gives an idempotent producer its id (key 22). A transactional one is refused for good, as
// findCoordinator does.
func (s *Server) initProducerID(ctx context.Context, _ *client, req *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
	case (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		resp.ErrorCode = kerr.InvalidRequest.Code
	case req.TransactionalID != nil:
		resp.ErrorCode, _ = noCoordinator(transactionCoordinator)
	default:
		id, err := s.config.ProducerIDs(ctx)
		if err != nil {
			// The block of ids comes from the registry, which may be electing; clients retry this.
			s.log.Warn("no producer id could be had", slog.Any("err", err))
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			break
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp, nil
}
