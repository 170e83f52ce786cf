package server

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Types of coordinators that a client may look for.
const (
	groupCoordinator       int8 = 0
	transactionCoordinator int8 = 1
	shareCoordinator       int8 = 2
)

// findCoordinator tells a client which broker coordinates its group (key 10). Transactions and share groups have none:
// they get an error that no client retries, so that it fails at once and says why.
func (s *Server) findCoordinator(ctx context.Context, c *client, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		only := s.coordinatorOf(ctx, c, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = only.ErrorCode, only.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = only.NodeID, only.Host, only.Port
		if only.ErrorCode == 0 {
			resp.ErrorMessage = kmsg.StringPtr("NONE") // Kafka's word for it
		}
		return resp, nil
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, s.coordinatorOf(ctx, c, req.CoordinatorType, key))
	}
	return resp, nil
}

func (s *Server) coordinatorOf(ctx context.Context, c *client, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	resp := kmsg.NewFindCoordinatorResponseCoordinator()
	resp.Key, resp.NodeID, resp.Port = key, -1, -1
	if kind != groupCoordinator || s.config.Groups == nil {
		code, message := noCoordinator(kind)
		resp.ErrorCode, resp.ErrorMessage = code, &message
		return resp
	}
	broker, code := s.config.Groups.Locate(ctx, key)
	at, _, found := s.endpointOf(s.config.Image(), c, broker)
	switch {
	case code != 0:
		resp.ErrorCode = code
	case !found: // it is not alive, or has no such listener
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
	default:
		resp.NodeID, resp.Host, resp.Port = int32(broker), at.host, at.port
		resp.ErrorMessage = new(string)
	}
	return resp
}

func noCoordinator(kind int8) (code int16, message string) {
	switch kind {
	case groupCoordinator:
		return kerr.UnsupportedVersion.Code, "this server does not serve consumer groups: assign partitions by hand"
	case transactionCoordinator:
		return kerr.UnsupportedVersion.Code, "this broker does not serve transactions: remove transactional.id"
	case shareCoordinator:
		return kerr.UnsupportedVersion.Code, "this broker does not serve share groups"
	}
	return kerr.InvalidRequest.Code, fmt.Sprintf("coordinator type %d does not exist", kind)
}
