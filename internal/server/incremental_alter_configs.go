package server

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
)

// incrementalAlterConfigs changes single keys of topics, brokers and loggers (key 44), each resource for itself.
func (s *Server) incrementalAlterConfigs(
	ctx context.Context, c *client, req *kmsg.IncrementalAlterConfigsRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	resources := make([]alteredResource, len(req.Resources))
	for i, asked := range req.Resources {
		resources[i] = alteredResource{kind: asked.ResourceType, name: asked.ResourceName}
		for _, config := range asked.Configs {
			resources[i].changes = append(resources[i].changes, controller.Alteration{
				Name: config.Name, Operation: controller.Operation(config.Op), Value: config.Value,
			})
		}
	}
	s.alter(ctx, resources, func(ctx context.Context, altered []*alteredResource) ([]error, int64, error) {
		alterations := make([]controller.AlterConfig, len(altered))
		for i, r := range altered {
			alterations[i] = controller.AlterConfig{Resource: r.resource, Changes: r.changes}
		}
		return s.config.Admin.AlterConfigs(ctx, alterations, req.ValidateOnly)
	})
	for i := range resources {
		r := &resources[i]
		if r.refused.code == 0 && r.kind == kmsg.ConfigResourceTypeBrokerLogger {
			r.refused = s.alterLogger(r.name, r.changes, req.ValidateOnly)
		}
		if r.refused.code == 0 && !req.ValidateOnly {
			s.log.Info("configuration changed", slog.Any("resource", r.kind.String()+" "+r.name), slog.Any("changes", s.shownChanges(r.changes)),
				slog.Any("peer", c.remote.String()), slog.Any("client", c.id))
		}
		answer := kmsg.NewIncrementalAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = r.kind, r.name
		answer.ErrorCode, answer.ErrorMessage = r.refused.code, r.refused.text()
		resp.Resources = append(resp.Resources, answer)
	}
	return resp, nil
}

// shownChanges renders changes for the log, secrets left out.
func (s *Server) shownChanges(changes []controller.Alteration) []string {
	shown := make([]string, len(changes))
	for i, c := range changes {
		shown[i] = c.Operation.String() + " " + c.Name
		if c.Value != nil && c.Operation != controller.Unset {
			shown[i] += "=" + s.shownValue(c.Name, *c.Value)
		}
	}
	return shown
}

// shownValue is a value unless it is, or may be, a secret.
func (s *Server) shownValue(name, value string) string {
	if s.config.Configs.keys.Topic(name) == nil && name != rootLogger && s.config.Configs.keyOrUnknown(name).Sensitive {
		return "(hidden)"
	}
	return value
}
