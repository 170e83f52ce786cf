package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups deletes groups that have no members, with their offsets (key 42).
func (s *Server) deleteGroups(ctx context.Context, _ *client, req *kmsg.DeleteGroupsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	done := make(map[string]bool, len(req.Groups))
	for _, name := range req.Groups {
		if !done[name] {
			done[name] = true
			resp.Groups = append(resp.Groups, *s.config.Groups.Delete(ctx, name))
		}
	}
	return resp, nil
}
