package server

import (
	"context"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

const (
	// quorumTopic is the log of Kafka's controllers: the one thing that DescribeQuorum may ask about.
	quorumTopic = "__cluster_metadata"

	// quorumListener is the name of the members' listeners in DescribeQuorum.
	quorumListener = "REGISTRY"
)

// describeQuorum answers the members of the registry as Kafka's metadata quorum (key 55): voters and, as observers, the
// members that learn; offsets are etcd's indexes. A registry that is not embedded has no members to speak of.
func (s *Server) describeQuorum(ctx context.Context, _ *client, req *kmsg.DescribeQuorumRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if s.config.Quorum == nil {
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ErrorMessage = kmsg.StringPtr("The registry is external: ask its own tools, such as `etcdctl endpoint status`")
		return resp, nil
	}
	quorum := s.config.Quorum(ctx)
	for i := range req.Topics {
		topic := kmsg.NewDescribeQuorumResponseTopic()
		topic.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			answer := kmsg.NewDescribeQuorumResponseTopicPartition()
			answer.Partition, answer.LeaderID = p.Partition, int32(meta.NoBroker)
			if topic.Topic != quorumTopic || p.Partition != 0 {
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else {
				s.fillQuorum(&answer, &quorum)
			}
			topic.Partitions = append(topic.Partitions, answer)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	for _, m := range quorum.Members {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = int32(s.quorumID(&m))
		if host, text, err := net.SplitHostPort(m.Address); err == nil {
			port, _ := strconv.ParseUint(text, 10, 16) // of an address that somebody listens on
			node.Listeners = append(node.Listeners, kmsg.DescribeQuorumResponseNodeListener{Name: quorumListener, Host: host, Port: uint16(port)})
		}
		resp.Nodes = append(resp.Nodes, node)
	}
	return resp, nil
}

func (s *Server) fillQuorum(answer *kmsg.DescribeQuorumResponseTopicPartition, quorum *registry.Quorum) {
	answer.LeaderEpoch, answer.HighWatermark = int32(quorum.Term), quorum.Index
	image, now := s.config.Image(), s.config.Now().UnixMilli()
	for _, m := range quorum.Members {
		state := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		state.ReplicaID, state.LogEndOffset = int32(s.quorumID(&m)), m.Index
		if b, found := image.Broker(s.quorumID(&m)); found && len(b.Directories) > 0 {
			state.ReplicaDirectoryID = b.Directories[0]
		}
		if m.Index >= 0 {
			state.LastFetchTimestamp, state.LastCaughtUpTimestamp = now, now
		}
		if m.Leads {
			answer.LeaderID = state.ReplicaID
		}
		if m.Voter {
			answer.CurrentVoters = append(answer.CurrentVoters, state)
		} else {
			answer.Observers = append(answer.Observers, state)
		}
	}
}

// quorumID is the broker of a member; the only member of a single broker is this one's.
func (s *Server) quorumID(m *registry.Member) meta.BrokerID {
	if m.Broker == meta.NoBroker {
		return s.config.Broker
	}
	return m.Broker
}
