package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of endpoint that DescribeCluster may ask about (KIP-919).
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// tagDown is the tagged field by which a DescribeCluster request asks for marks, with an empty value, and which marks each
// broker of the answer that is down: the protocol itself tells it from one that is merely fenced no more than Kafka does. See
// [TagAccount].
const tagDown uint32 = 10_101

// AskForDown makes a request ask for fenced brokers, and for marks on those of them that are down.
func AskForDown(req *kmsg.DescribeClusterRequest) {
	req.IncludeFencedBrokers = true
	req.UnknownTags.Set(tagDown, nil)
}

// IsDown tells whether a broker, in the answer to a request that has asked, is not registered: its address and rack are
// those that it had last (D6).
func IsDown(b *kmsg.DescribeClusterResponseBroker) bool { return hasTag(&b.UnknownTags, tagDown) }

func hasTag(tags *kmsg.Tags, wanted uint32) bool {
	found := false
	tags.Each(func(tag uint32, _ []byte) { found = found || tag == wanted })
	return found
}

// describeCluster answers the cluster's id, controller and brokers (key 60), fenced ones and those that are down only if asked.
func (s *Server) describeCluster(_ context.Context, c *client, req *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType = endpointBrokers
	resp.Brokers = []kmsg.DescribeClusterResponseBroker{}
	resp.ClusterAuthorizedOperations = operations(req.IncludeClusterAuthorizedOperations, clusterOperations)
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		resp.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Unsupported endpoint type %d", req.EndpointType))
		if req.EndpointType == endpointControllers {
			resp.ErrorCode = kerr.MismatchedEndpointType.Code
			resp.ErrorMessage = kmsg.StringPtr(
				"The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		}
		return resp, nil
	}
	image := s.config.Image()
	resp.ClusterID, resp.ControllerID = image.ClusterID(), s.controllerID(image)
	known := image.Brokers()
	if req.IncludeFencedBrokers {
		known = slices.Concat(known, image.Down())
	}
	for _, b := range known {
		at, reachable := s.brokerAddress(c, &b)
		if !reachable || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		broker := kmsg.NewDescribeClusterResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(b.ID), at.host, at.port, rack(&b)
		broker.IsFenced = b.Fenced
		if b.Down() && hasTag(&req.UnknownTags, tagDown) {
			broker.UnknownTags.Set(tagDown, nil)
		}
		resp.Brokers = append(resp.Brokers, broker)
	}
	return resp, nil
}
