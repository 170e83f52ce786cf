package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat keeps a member in its group, and tells it to join again when the group rebalances (key 12).
func (s *Server) heartbeat(ctx context.Context, _ *client, req *kmsg.HeartbeatRequest) (kmsg.Response, error) {
	return s.config.Groups.Heartbeat(ctx, req), nil
}
