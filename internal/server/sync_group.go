package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// syncGroup gives a member its assignment (key 14). It waits for the leader's. From v5 on the client says which protocol
// it takes the group to have.
func (s *Server) syncGroup(ctx context.Context, _ *client, req *kmsg.SyncGroupRequest) (kmsg.Response, error) {
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode, resp.MemberAssignment = kerr.InconsistentGroupProtocol.Code, []byte{}
		return resp, nil
	}
	return s.config.Groups.Sync(ctx, req), nil
}
