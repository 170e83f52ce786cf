package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterConfigs replaces the whole of what is set for topics and brokers (key 33): what is not mentioned is removed.
// Clients should prefer IncrementalAlterConfigs.
func (s *Server) alterConfigs(
	ctx context.Context, _ *client, req *kmsg.AlterConfigsRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	alteration := alteration{server: s, validateOnly: req.ValidateOnly, replace: true}
	for _, asked := range req.Resources {
		ops := make([]configOp, len(asked.Configs))
		for i, c := range asked.Configs {
			ops[i] = configOp{op: kmsg.IncrementalAlterConfigOpSet, name: c.Name, null: c.Value == nil}
			if c.Value != nil {
				ops[i].value = *c.Value
			}
		}
		alteration.add(asked.ResourceType, asked.ResourceName, ops)
	}
	for _, r := range alteration.run(ctx) {
		answer := kmsg.NewAlterConfigsResponseResource()
		answer.ResourceType, answer.ResourceName = r.kind, r.name
		answer.ErrorCode, answer.ErrorMessage = r.refused.code, r.refused.text()
		resp.Resources = append(resp.Resources, answer)
	}
	return resp, nil
}
