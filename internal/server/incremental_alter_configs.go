package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
)

// incrementalAlterConfigs changes single keys of topics, brokers and loggers (key 44), each resource for itself.
func (s *Server) incrementalAlterConfigs(
	ctx context.Context, _ *client, req *kmsg.IncrementalAlterConfigsRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	resources := make([]alteredResource, len(req.Resources))
	for i, asked := range req.Resources {
		resources[i] = alteredResource{kind: asked.ResourceType, name: asked.ResourceName}
		for _, c := range asked.Configs {
			resources[i].changes = append(resources[i].changes, controller.Alteration{
				Name: c.Name, Operation: controller.Operation(c.Op), Value: c.Value,
			})
		}
	}
	s.alter(ctx, resources, func(altered []*alteredResource) ([]error, int64, error) {
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
		answer := kmsg.NewIncrementalAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = r.kind, r.name
		answer.ErrorCode, answer.ErrorMessage = r.refused.code, r.refused.text()
		resp.Resources = append(resp.Resources, answer)
	}
	return resp, nil
}
