package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeGroups tells the state and the members of groups (key 15).
func (s *Server) describeGroups(ctx context.Context, _ *client, req *kmsg.DescribeGroupsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range req.Groups {
		group := s.config.Groups.Describe(ctx, name, req.Version)
		if group.ErrorCode == 0 {
			group.AuthorizedOperations = operations(req.IncludeAuthorizedOperations, groupOperations)
		}
		resp.Groups = append(resp.Groups, *group)
	}
	return resp, nil
}
