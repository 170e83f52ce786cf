package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listGroups lists the groups that this broker coordinates, those in the states and of the types that are asked for
// (key 16).
func (s *Server) listGroups(ctx context.Context, _ *client, req *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.Groups, resp.ErrorCode = s.config.Groups.List(ctx, req.StatesFilter, req.TypesFilter)
	return resp, nil
}
