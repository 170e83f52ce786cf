package server

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// served lists the requests that this server answers, one line each; ApiVersions advertises exactly these. A handler
// is
//
//	func (s *Server) name(ctx context.Context, c *client, req *kmsg.NameRequest) (kmsg.Response, error)
//
// It may block: it runs on the connection's goroutine, alone on its connection (D13), and ctx ends with the
// connection's life or the server's. Every refusal is a response; an error closes the connection and is for what
// the protocol has no word for. The handler need not set the response's version. req and its byte fields are its own
// to keep.
func (s *Server) served() []handler {
	if s.config.Apply != nil {
		return []handler{overlapping(wire.KeyFetch, s.fetch), answer(s.apiVersions), private(wire.KeyApply, s.apply)}
	}
	handlers := []handler{
		overlapping(wire.KeyProduce, s.produce),
		overlapping(wire.KeyFetch, s.fetch),
		answer(s.listOffsets),
		answer(s.metadata),
		answer(s.findCoordinator),
		answer(s.apiVersions),
		answer(s.createTopics),
		answer(s.deleteTopics),
		answer(s.deleteRecords),
		answer(s.initProducerID),
		answer(s.offsetForLeaderEpoch),
		answer(s.describeConfigs),
		answer(s.alterConfigs),
		answer(s.describeLogDirs),
		answer(s.createPartitions),
		answer(s.electLeaders),
		answer(s.incrementalAlterConfigs),
		answer(s.alterPartitionReassignments),
		answer(s.listPartitionReassignments),
		answer(s.describeQuorum),
		answer(s.describeCluster),
		answer(s.describeProducers),
		answer(s.unregisterBroker),
		answer(s.updateFeatures),
		answer(s.listConfigResources),
		answer(s.describeTopicPartitions),
	}
	if s.config.Groups == nil {
		return handlers
	}
	return append(handlers,
		answer(s.offsetCommit),
		answer(s.offsetFetch),
		answer(s.joinGroup),
		answer(s.heartbeat),
		answer(s.leaveGroup),
		answer(s.syncGroup),
		answer(s.describeGroups),
		answer(s.listGroups),
		answer(s.deleteGroups),
		answer(s.offsetDelete),
	)
}

// client is what a handler may know of the connection that asks.
type client struct {
	listener   *Listener
	remote     net.Addr
	local      net.Addr // the address that the client dialled, as this host sees it
	id         string   // client id of the request being answered
	software   string   // name and version from ApiVersions, empty before
	softwareIs string
}

// handler is one entry of the dispatch table: decode and serve for a request that is answered alone on its connection,
// private for one between brokers that is, or start for one that overlaps with others.
type handler struct {
	key    int16
	decode func() kmsg.Request
	serve  func(ctx context.Context, c *client, req kmsg.Request) (kmsg.Response, error)
	// private decodes the body itself and returns that of the answer. An error closes the connection.
	private func(ctx context.Context, body []byte) ([]byte, error)
	// start begins a request and returns its answer, or nil if it has arranged for a.resolve to be called. The frame's
	// buffer is valid until start returns, unless start retains it. An error closes the connection, after the answers
	// before it.
	start func(ctx context.Context, a *await, f *frame, body []byte) (reply, error)
}

// overlapping makes an entry of a handler whose requests may run beside others of their connection.
func overlapping(key int16, start func(context.Context, *await, *frame, []byte) (reply, error)) handler {
	return handler{key: key, start: start}
}

// handlerTable is indexed by slotOf an API key.
type handlerTable [privateSlot + 1]handler

// privateSlot is where the private requests begin: Kafka's own keys are below it.
const privateSlot = 128

// slotOf is the place of a key in a table of all keys, -1 for one that has none.
func slotOf(key int16) int {
	switch {
	case key >= 0 && key < privateSlot:
		return int(key)
	case key == wire.KeyApply:
		return privateSlot
	default:
		return -1
	}
}

// private makes an entry of a handler of a request between brokers.
func private(key int16, serve func(ctx context.Context, body []byte) ([]byte, error)) handler {
	return handler{key: key, private: serve}
}

// answer makes an entry of a handler method; the request's type says which key it is for.
func answer[T any, R interface {
	*T
	kmsg.Request
}](serve func(ctx context.Context, c *client, req R) (kmsg.Response, error)) handler {
	return handler{
		key:    R(new(T)).Key(),
		decode: func() kmsg.Request { return R(new(T)) },
		serve: func(ctx context.Context, c *client, req kmsg.Request) (kmsg.Response, error) {
			return serve(ctx, c, req.(R))
		},
	}
}

// handlerFor finds the entry of a key; ok is false if the key is not served.
func (s *Server) handlerFor(key int16) (h *handler, ok bool) {
	slot := slotOf(key)
	if slot < 0 {
		return nil, false
	}
	h = &s.handlers[slot]
	return h, h.decode != nil || h.start != nil || h.private != nil
}

// versions lists key and version range of everything served, in key order.
func (s *Server) versions() []*wire.API {
	var apis []*wire.API
	for i := range s.handlers {
		if h := &s.handlers[i]; h.decode != nil || h.start != nil || h.private != nil {
			apis = append(apis, wire.Lookup(h.key))
		}
	}
	return apis
}
