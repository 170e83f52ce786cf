package server

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of endpoint that DescribeCluster may ask about (KIP-919).
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// describeCluster answers the cluster's id, controller and brokers (key 60), fenced ones only if asked.
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
	for _, b := range image.Brokers() {
		at, reachable := s.brokerAddress(c, &b)
		if !reachable || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		broker := kmsg.NewDescribeClusterResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack = int32(b.ID), at.host, at.port, rack(&b)
		broker.IsFenced = b.Fenced
		resp.Brokers = append(resp.Brokers, broker)
	}
	return resp, nil
}
