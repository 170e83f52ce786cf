package server

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
)

// Upgrade types of UpdateFeatures.
const (
	upgradeOnly     = 1
	downgradeUnsafe = 3
)

// updateFeatures finalises feature levels (key 57): all that are asked for, or none.
func (s *Server) updateFeatures(ctx context.Context, c *client, req *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	ctx, cancel := adminTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	var updates []controller.FeatureUpdate
	refused := refusedItem{}
	for _, asked := range req.FeatureUpdates {
		down := asked.AllowDowngrade
		if req.Version >= 1 {
			down = asked.UpgradeType > upgradeOnly
			if asked.UpgradeType < upgradeOnly || asked.UpgradeType > downgradeUnsafe {
				refused = invalidRequest(fmt.Sprintf("Upgrade type %d of feature %s is unknown.", asked.UpgradeType, asked.Feature))
			}
		}
		updates = append(updates, controller.FeatureUpdate{Feature: asked.Feature, Level: asked.MaxVersionLevel, Down: down})
	}
	if _, times := firstMentions(updates, func(u *controller.FeatureUpdate) string { return u.Feature }); len(times) < len(updates) {
		refused = invalidRequest("Each feature must appear at most once.")
	}
	if refused.code == 0 {
		levels, err := s.config.Admin.UpdateFeatures(ctx, updates, req.ValidateOnly)
		refused = s.refusedBy(err)
		if err == nil && !req.ValidateOnly {
			s.config.Features.Advance(levels)
			s.log.Info("feature levels are finalised", slog.String("features", describeUpdates(updates)),
				slog.String("peer", c.remote.String()), slog.String("client", c.id))
		}
	}
	resp.ErrorCode, resp.ErrorMessage = refused.code, refused.text()
	for _, u := range updates { // v0 and v1: each shares the fate of all
		result := kmsg.NewUpdateFeaturesResponseResult()
		result.Feature, result.ErrorCode, result.ErrorMessage = u.Feature, refused.code, refused.text()
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

func describeUpdates(updates []controller.FeatureUpdate) string {
	texts := make([]string, len(updates))
	for i, u := range updates {
		texts[i] = fmt.Sprintf("%s=%d", u.Feature, u.Level)
	}
	return strings.Join(texts, ",")
}
