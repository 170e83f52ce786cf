package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveGroup takes members out of their group: the client itself, or those that an administrator names (key 13).
func (s *Server) leaveGroup(ctx context.Context, _ *client, req *kmsg.LeaveGroupRequest) (kmsg.Response, error) {
	return s.config.Groups.Leave(ctx, req), nil
}
