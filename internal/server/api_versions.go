package server

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/registry"
)

// softwareName is what KIP-511 lets a client call itself.
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// apiVersions tells a client which requests are served (key 18), and the levels of features, with the registry's revision
// as their epoch. No transaction.version or group.version is finalised before transactions and the consumer protocol exist.
func (s *Server) apiVersions(_ context.Context, c *client, req *kmsg.ApiVersionsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if req.Version >= 3 {
		if !softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion) {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, nil
		}
		c.software, c.softwareIs = req.ClientSoftwareName, req.ClientSoftwareVersion
	}
	if code := s.wrongPeer(req); code != 0 {
		resp.ErrorCode = code
		return resp, nil
	}
	resp.ApiKeys = s.apiKeys()
	levels := s.config.Features.Load()
	for _, f := range registry.Supported {
		supported := kmsg.NewApiVersionsResponseSupportedFeature()
		supported.Name, supported.MinVersion, supported.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	}
	for _, name := range slices.Sorted(maps.Keys(levels.Finalized)) {
		finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
		finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = name, levels.Finalized[name], levels.Finalized[name]
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, finalized)
	}
	resp.FinalizedFeaturesEpoch = levels.Revision
	return resp, nil
}

// wrongPeer checks the cluster and broker that a client means to talk to (KIP-1242, v5): both or neither are given.
func (s *Server) wrongPeer(req *kmsg.ApiVersionsRequest) int16 {
	switch {
	case req.ClusterID == nil && req.NodeID < 0:
		return 0
	case req.ClusterID == nil || req.NodeID < 0:
		return kerr.InvalidRequest.Code
	case *req.ClusterID != s.config.Image().ClusterID() || req.NodeID != int32(s.config.Broker):
		return kerr.RebootstrapRequired.Code
	}
	return 0
}

func (s *Server) apiKeys() []kmsg.ApiVersionsResponseApiKey {
	apis := s.versions()
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for _, api := range apis {
		if api.Private() {
			continue
		}
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = api.Key, api.AdvertisedMin, api.Max
		keys = append(keys, key)
	}
	return keys
}
