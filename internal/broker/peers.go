package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// brokersListener is the name under which a broker registers where it takes the others' requests (D16). Clients never hear
// of it: they are told of the listener that they use themselves.
const brokersListener = "BROKERS"

// errRefused is the answer of a broker that did not apply a statement.
var errRefused = errors.New("the broker refused the statement")

// peers holds the connections on which this broker commands others.
type peers struct {
	self meta.BrokerID
	dial DialFunc

	mu struct {
		sync.Mutex
		closed bool
		known  map[meta.BrokerID]knownPeer
	}
}

// knownPeer is the connection to one registration of a broker: the next one may be elsewhere.
type knownPeer struct {
	registration int64
	peer         *wire.Peer
}

func newPeers(self meta.BrokerID, dial DialFunc) *peers {
	p := &peers{self: self, dial: dial}
	p.mu.known = make(map[meta.BrokerID]knownPeer)
	return p
}

// apply states the registry to another broker.
func (p *peers) apply(ctx context.Context, to *meta.Broker, a *meta.Apply) (meta.ApplyAnswer, error) {
	peer, err := p.to(to)
	if err != nil {
		return meta.ApplyAnswer{}, err
	}
	reply, err := peer.Call(ctx, wire.Lookup(wire.KeyApply), 0, func(dst []byte) []byte { return meta.AppendApply(dst, a) })
	if err != nil {
		return meta.ApplyAnswer{}, fmt.Errorf("broker %s: %w", to.ID, err)
	}
	defer reply.Release()
	answer, err := meta.ParseApplyAnswer(reply.Body)
	if err == nil && answer.Refusal != "" {
		err = fmt.Errorf("%w: %s", errRefused, answer.Refusal)
	}
	if err != nil {
		return meta.ApplyAnswer{}, fmt.Errorf("broker %s: %w", to.ID, err)
	}
	return answer, nil
}

// to is the connection to a broker, which is dialled when it is first used.
func (p *peers) to(b *meta.Broker) (*wire.Peer, error) {
	endpoint, found := b.Endpoint(brokersListener)
	if !found {
		return nil, fmt.Errorf("broker %s has no listener for brokers; it was started without %s", b.ID, ClusterKey)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, net.ErrClosed
	}
	known, found := p.mu.known[b.ID]
	if found && known.registration == b.Registration {
		return known.peer, nil
	}
	if found {
		known.peer.Close()
	}
	address := net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port)))
	peer := wire.NewPeer(wire.PeerConfig{
		Dial: func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, "tcp", address) },
		Name: "broker-" + p.self.String(),
	})
	p.mu.known[b.ID] = knownPeer{b.Registration, peer}
	return peer, nil
}

// close ends all connections.
func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	for _, known := range p.mu.known {
		known.peer.Close()
	}
}
