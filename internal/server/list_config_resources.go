package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listConfigResources names everything that has a configuration (key 74). Version 0 asks for client metrics
// subscriptions only, of which there are none.
func (s *Server) listConfigResources(
	_ context.Context, _ *client, req *kmsg.ListConfigResourcesRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	if req.Version == 0 {
		return resp, nil
	}
	kinds := []kmsg.ConfigResourceType{
		kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic,
		kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig,
	}
	for _, kind := range req.ResourceTypes {
		if !slices.Contains(kinds, kmsg.ConfigResourceType(kind)) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return resp, nil
		}
	}
	image := s.config.Image()
	for _, kind := range kinds {
		if len(req.ResourceTypes) > 0 && !slices.Contains(req.ResourceTypes, int8(kind)) {
			continue
		}
		add := func(name string) {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(kind)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
		switch kind {
		case kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeBroker:
			for _, broker := range image.Brokers() {
				add(broker.ID.String())
			}
		case kmsg.ConfigResourceTypeTopic:
			for _, topic := range image.Topics() {
				add(topic.Name)
			}
		default: // kinds of which this cluster holds nothing
		}
	}
	return resp, nil
}
