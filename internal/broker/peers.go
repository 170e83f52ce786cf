package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// brokersListener is the name under which a broker registers where it takes the others' requests (D16). Clients never hear
// of it: they are told of the listener that they use themselves.
const brokersListener = "BROKERS"

// fetchPoolBytes is how much memory is kept for the records of fetches to come.
const fetchPoolBytes = 64 << 20

// errRefused is the answer of a broker that did not apply a statement.
var errRefused = errors.New("the broker refused the statement")

// peers holds the connections on which this broker commands others.
type peers struct {
	self meta.BrokerID
	dial DialFunc

	pool *wire.Pool // of fetched records

	mu struct {
		sync.Mutex
		closed bool
		known  map[connection]*knownPeer
	}
}

// connection names one of the connections to another broker: the one for commands, or a lane of fetches.
type connection struct {
	broker meta.BrokerID
	lane   int
}

// commands is the connection that is no lane.
const commands = math.MinInt

// knownPeer is a connection to one registration of a broker: the next one may be elsewhere.
type knownPeer struct {
	registration int64
	peer         *wire.Peer
	fetched      *wire.ReplicaFetched // whose records the lane still uses; owned by the lane
}

func newPeers(self meta.BrokerID, dial DialFunc) *peers {
	p := &peers{self: self, dial: dial, pool: wire.NewPool(fetchPoolBytes)}
	p.mu.known = make(map[connection]*knownPeer)
	return p
}

// apply states the registry to another broker.
func (p *peers) apply(ctx context.Context, to *meta.Broker, a *meta.Apply) (meta.ApplyAnswer, error) {
	known, err := p.to(to, commands)
	if err != nil {
		return meta.ApplyAnswer{}, err
	}
	reply, err := known.peer.Call(ctx, wire.Lookup(wire.KeyApply), 0, func(dst []byte) []byte { return meta.AppendApply(dst, a) })
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

// to is a connection to a broker, which is dialled when it is first used.
func (p *peers) to(b *meta.Broker, lane int) (*knownPeer, error) {
	endpoint, found := b.Endpoint(brokersListener)
	if !found {
		return nil, fmt.Errorf("broker %s has no listener for brokers; it was started without %s", b.ID, ClusterKey)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return nil, net.ErrClosed
	}
	key := connection{b.ID, lane}
	known, found := p.mu.known[key]
	if found && known.registration == b.Registration {
		return known, nil
	}
	if found {
		known.peer.Close()
	}
	address := net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port)))
	peer := wire.NewPeer(wire.PeerConfig{
		Dial: func(ctx context.Context) (net.Conn, error) { return p.dial(ctx, "tcp", address) },
		Name: "broker-" + p.self.String(), Pool: p.pool, OneAtATime: lane != commands,
	})
	known = &knownPeer{registration: b.Registration, peer: peer}
	p.mu.known[key] = known
	return known, nil
}

// giveUp closes a connection; the next use of it dials again.
func (p *peers) giveUp(key connection, known *knownPeer) {
	known.peer.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.known[key] == known {
		delete(p.mu.known, key)
	}
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
