package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// unregisterBroker takes a broker out of the cluster that was stopped for good (key 64).
func (s *Server) unregisterBroker(ctx context.Context, c *client, req *kmsg.UnregisterBrokerRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	ctx, cancel := adminTimeout(ctx, 0)
	defer cancel()
	refused := s.refusedBy(s.config.Admin.UnregisterBroker(ctx, meta.BrokerID(req.BrokerID)))
	resp.ErrorCode, resp.ErrorMessage = refused.code, refused.text()
	if refused.code == 0 {
		s.log.Info("broker is unregistered", slog.Int("broker", int(req.BrokerID)), slog.String("peer", c.remote.String()), slog.String("client", c.id))
	}
	return resp, nil
}
