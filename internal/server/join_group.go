package server

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/groups"
)

// joinGroup makes a client a member of its group (key 11). It waits for the other members, on the connection's own
// goroutine.
func (s *Server) joinGroup(ctx context.Context, c *client, req *kmsg.JoinGroupRequest) (kmsg.Response, error) {
	return s.config.Groups.Join(ctx, groups.Client{ID: c.id, Host: hostOf(c.remote)}, req), nil
}

// hostOf is an address as Kafka shows the hosts of members.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = addr.String()
	}
	return "/" + host
}
