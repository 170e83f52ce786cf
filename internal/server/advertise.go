package server

import (
	"net"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// address is where a client reaches a broker.
type address struct {
	host string
	port int32
}

// brokerAddress is what a client is told about a broker: the address of the listener that it itself used. This broker,
// unless its listener advertises an address, is where the client already is (U-132). The second result is false if the
// broker has no such listener.
func (s *Server) brokerAddress(c *client, b *meta.Broker) (address, bool) {
	if b.ID == s.config.Broker {
		if c.listener.Host != "" {
			return address{c.listener.Host, c.listener.Port}, true
		}
		return dialled(c.local), true
	}
	endpoint, found := b.Endpoint(c.listener.Name)
	return address{endpoint.Host, endpoint.Port}, found
}

// dialled is the address of a connection's local end, 127.0.0.1 and ::1 written localhost. Other loopback addresses are not:
// a host whose name is on 127.0.1.1, as Debian's are, may listen there and nowhere else.
func dialled(local net.Addr) address {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return address{"localhost", 0}
	}
	if tcp.IP.Equal(net.IPv4(127, 0, 0, 1)) || tcp.IP.Equal(net.IPv6loopback) {
		return address{"localhost", int32(tcp.Port)}
	}
	return address{tcp.IP.String(), int32(tcp.Port)}
}

// controllerID is the broker that clients are told to take for the controller: the one that commands this broker, or
// this broker itself before any did. Every broker serves admin requests.
func (s *Server) controllerID(image *meta.Image) int32 {
	if id := image.Controller(); id != meta.NoBroker {
		if b, found := image.Broker(id); found && !b.Fenced {
			return int32(id)
		}
	}
	return int32(s.config.Broker)
}

// view answers what one client may be told of partitions and brokers, from one image.
type view struct {
	server *Server
	image  *meta.Image
	client *client
}

func (s *Server) viewFor(c *client) view { return view{server: s, image: s.config.Image(), client: c} }

// alive finds a broker that is registered and not fenced.
func (v *view) alive(id meta.BrokerID) (meta.Broker, bool) {
	b, found := v.image.Broker(id)
	return b, found && !b.Fenced
}

// leader is the leader that clients are told of, and the error of the partition: none if its leader can be reached. A
// fenced leader is none (D6).
func (v *view) leader(p *meta.Partition) (meta.BrokerID, leaderFault) {
	b, alive := v.alive(p.Leader)
	if !alive {
		return meta.NoBroker, noLeader
	}
	if _, reachable := v.server.brokerAddress(v.client, &b); !reachable {
		return meta.NoBroker, noListener
	}
	return p.Leader, leaderKnown
}

// leaderFault is why a partition has no leader for a client.
type leaderFault int8

const (
	leaderKnown leaderFault = iota
	noLeader
	noListener
)

// offline lists the replicas on brokers that are not alive.
func (v *view) offline(p *meta.Partition) []int32 {
	out := []int32{}
	for _, id := range p.Replicas {
		if _, alive := v.alive(id); !alive {
			out = append(out, int32(id))
		}
	}
	return out
}

// ids converts broker ids for the wire; the result is never nil, which would be a null array.
func ids(brokers []meta.BrokerID) []int32 {
	out := make([]int32, len(brokers))
	for i, id := range brokers {
		out[i] = int32(id)
	}
	return out
}

// Bit sets of authorised operations (KIP-430), as every client has them while nothing is forbidden.
const (
	operationsNotAsked int32 = -1 << 31
	topicOperations    int32 = 3576 // read, write, create, delete, alter, describe, describe configs, alter configs
	groupOperations    int32 = 3400 // read, delete, describe, configs
	clusterOperations  int32 = 8096 // create, alter, describe, cluster action, configs, idempotent write, tokens
)

// operations is the bit set if it was asked for.
func operations(asked bool, set int32) int32 {
	if asked {
		return set
	}
	return operationsNotAsked
}
