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

// findCoordinator tells a client which broker coordinates its group or transactions (key 10). None does yet: every key
// gets an error that no client retries, so that it fails at once and says why.
func (s *Server) findCoordinator(_ context.Context, _ *client, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	code, message := noCoordinator(req.CoordinatorType)
	if req.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage = code, &message
		resp.NodeID, resp.Port = -1, -1
		return resp, nil
	}
	for _, key := range req.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		c.ErrorCode, c.ErrorMessage = code, &message
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp, nil
}

func noCoordinator(kind int8) (code int16, message string) {
	switch kind {
	case groupCoordinator:
		return kerr.UnsupportedVersion.Code, "this broker does not serve consumer groups: assign partitions by hand"
	case transactionCoordinator:
		return kerr.UnsupportedVersion.Code, "this broker does not serve transactions: remove transactional.id"
	case shareCoordinator:
		return kerr.UnsupportedVersion.Code, "this broker does not serve share groups"
	}
	return kerr.InvalidRequest.Code, fmt.Sprintf("coordinator type %d does not exist", kind)
}
