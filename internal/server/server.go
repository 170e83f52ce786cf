package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/groups"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// Config is what a Server needs to know and whom it may ask. Zero values of limits mean the default.
type Config struct {
	// Broker is this broker's id, as Metadata names it.
	Broker meta.BrokerID
	// Listeners are the open listeners for clients. The Server closes them when Run ends.
	Listeners []Listener
	// Image returns what the cluster looks like, as this broker has last applied it. It is never nil and not waited for.
	Image func() *meta.Image
	// WaitImage blocks until Image has reached the registry revision, or ctx ends: admin requests answer only after it
	// (D13).
	WaitImage func(ctx context.Context, revision int64) error
	// Table is the replicas that this broker hosts.
	Table *replica.Table
	// ProducerIDs hands out a producer id that no other call anywhere has returned, for idempotent producers.
	ProducerIDs func(ctx context.Context) (int64, error)

	// Apply makes this the server of a listener for brokers: it acts on a statement of the controller and answers. Such a
	// server takes what only brokers may ask, and nothing of clients (D16). Nil for clients.
	Apply func(ctx context.Context, a *meta.Apply) (meta.ApplyAnswer, error)

	// Configs is the table of configuration keys, with what the properties file set. Default: this package's keys, with
	// nothing set.
	Configs *ConfigTable
	// Admin changes the cluster.
	Admin *controller.Admin
	// Features is what this broker knows of the finalised feature levels. Default: the first ones.
	Features *registry.FeatureView
	// Quorum tells of the members of the registry; nil when it is not embedded in the brokers.
	Quorum func(ctx context.Context) registry.Quorum
	// Groups coordinates consumer groups; nil if none are served.
	Groups *groups.Coordinator
	// LogDir is the data directory, as DescribeLogDirs names it, and FreeBytes tells the space of its disk.
	LogDir    string
	FreeBytes func(dir string) (free, total uint64, err error)
	// LogLevel is the level of Logger, which clients may change (BROKER_LOGGER). Default: one that nobody reads.
	LogLevel *slog.LevelVar

	// Logger receives one line for each noteworthy connection, never one per request.
	Logger *slog.Logger
	// Registerer takes the metrics; nil means that they are kept but not shown.
	Registerer prometheus.Registerer
	// RackAware sends consumers that tell their rack to an in-sync replica in it (replica.selector.class, KIP-392).
	RackAware bool
	// Governs tells what this broker knows of a partition as controller; false while it is not. Nil: never.
	Governs func(meta.TopicIDPartition) (controller.Account, bool)

	// Now is the clock for timestamps in answers; default time.Now.
	Now func() time.Time

	Limits
}

// Limits bound what clients can make the server hold. A zero field takes its default.
type Limits struct {
	// RequestBytesMax is the longest Produce frame in bytes: socket.request.max.bytes, default 100 MiB. Other requests
	// have limits of their own (wire.API).
	RequestBytesMax int32
	// InFlightBytesMax is the memory in bytes that requests may take together while they are read and handled:
	// queued.max.request.bytes. At least four times RequestBytesMax; the default is 512 MiB, or that if it is more.
	InFlightBytesMax int64
	// PoolBytesMax is the memory in bytes kept for buffers to come. Default 64 MiB.
	PoolBytesMax int64
	// ConnectionsMax is the number of connections at which new ones are closed at once: max.connections. Default none.
	ConnectionsMax int
	// ConnectionsPerIPMax is the same for the connections from one address: max.connections.per.ip. Default none.
	ConnectionsPerIPMax int
	// UnansweredMax is the number of unanswered requests at which a connection is read no further (D13). Default 64.
	UnansweredMax int
	// IdleTimeout closes a connection that sends nothing while nothing is owed to it: connections.max.idle.ms, default
	// 10 minutes. It also bounds how long a peer may take to accept an answer.
	IdleTimeout time.Duration
	// FirstFrameTimeout is the time for the first request of a connection to arrive once it has begun; default 10 s.
	// FrameTimeout is that of later ones, default 30 s. Large frames get more time in proportion.
	FirstFrameTimeout, FrameTimeout time.Duration
	// StopGrace is the time given to requests in flight when the server stops. Default 1 s.
	StopGrace time.Duration
	// FetchBytesMax bounds the records of one Fetch answer in bytes: fetch.max.bytes, default 55 MiB. The first batch is
	// always whole.
	FetchBytesMax int32
	// FetchSessionsMax is max.incremental.fetch.session.cache.slots, default 1,000.
	FetchSessionsMax int
}

// Listener is one open port with what clients behind it are told.
type Listener struct {
	// Net is the open listener.
	Net net.Listener
	// Name is the listener's name in the configuration, such as "PLAINTEXT".
	Name string
	// Host and Port are the advertised address. An empty Host means that each client is told the address it dialled
	// (U-132).
	Host string
	Port int32
	// TLS is what connections are secured with; nil for plain text.
	TLS *tls.Config
}

// withDefaults fills in what may be left out.
func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Features == nil {
		c.Features = new(registry.FeatureView)
	}
	if c.LogLevel == nil {
		c.LogLevel = new(slog.LevelVar)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

func (l Limits) withDefaults() Limits {
	l.RequestBytesMax = orDefault(l.RequestBytesMax, wire.ProduceBytesMax)
	l.InFlightBytesMax = orDefault(l.InFlightBytesMax, max(512<<20, 4*int64(l.RequestBytesMax)))
	l.PoolBytesMax = orDefault(l.PoolBytesMax, 64<<20)
	l.UnansweredMax = orDefault(l.UnansweredMax, 64)
	l.IdleTimeout = orDefault(l.IdleTimeout, 10*time.Minute)
	l.FirstFrameTimeout = orDefault(l.FirstFrameTimeout, 10*time.Second)
	l.FrameTimeout = orDefault(l.FrameTimeout, 30*time.Second)
	l.StopGrace = orDefault(l.StopGrace, time.Second)
	l.FetchBytesMax = orDefault(l.FetchBytesMax, 55<<20)
	l.FetchSessionsMax = orDefault(l.FetchSessionsMax, 1000)
	return l
}

func (l Limits) validate() error {
	if l.InFlightBytesMax < 4*int64(l.RequestBytesMax) {
		return fmt.Errorf("queued.max.request.bytes is %d; it must be at least 4 times socket.request.max.bytes: %d",
			l.InFlightBytesMax, 4*int64(l.RequestBytesMax))
	}
	return nil
}

func orDefault[T int | int32 | int64 | time.Duration](value, byDefault T) T {
	if value == 0 {
		return byDefault
	}
	return value
}

// Server answers clients on its listeners. Make one with New, run it once.
type Server struct {
	config   Config
	handlers handlerTable
	log      *slog.Logger
	budget   *budget
	pool     *wire.Pool
	refusals refusals
	sessions *fetchSessions
	metrics  metrics

	running sync.WaitGroup // connections
	open    struct {
		sync.Mutex
		conns map[*conn]struct{}
		from  map[netip.Addr]int // open connections by the peer's address
	}
}

// New checks the configuration and prepares a Server. It starts nothing.
func New(config Config) (*Server, error) {
	if len(config.Listeners) == 0 {
		return nil, errors.New("server config: Listeners is empty; at least one is needed")
	}
	if config.Image == nil || config.WaitImage == nil {
		return nil, errors.New("server config: Image and WaitImage must be set")
	}
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Configs == nil {
		keys, err := meta.NewConfigKeys(Keys)
		if err != nil {
			return nil, err
		}
		if config.Configs, err = NewConfigTable(keys, config.Broker, nil); err != nil {
			return nil, err
		}
	}
	s := &Server{config: config, log: config.Logger, pool: wire.NewPool(config.PoolBytesMax)}
	s.budget = &budget{bytesMax: config.InFlightBytesMax, growWait: config.FirstFrameTimeout}
	s.open.conns, s.open.from = make(map[*conn]struct{}), make(map[netip.Addr]int)
	s.sessions = newFetchSessions(config.FetchSessionsMax, config.Now)
	for _, h := range s.served() {
		s.handlers[slotOf(h.key)] = h
	}
	if config.Registerer != nil {
		if err := config.Registerer.Register(&collector{server: s}); err != nil {
			return nil, fmt.Errorf("register metrics of the server: %w", err)
		}
	}
	return s, nil
}

// Run accepts and serves until ctx ends or a listener fails, then closes the listeners and connections and waits for
// their goroutines. A stop that was asked for returns nil.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	failures := make(chan error, len(s.config.Listeners))
	for i := range s.config.Listeners {
		l := &s.config.Listeners[i]
		group.Go(func() {
			if err := s.accept(ctx, l); ctx.Err() == nil {
				failures <- fmt.Errorf("accept on listener %s: %w", l.Name, err)
				cancel()
			}
		})
	}
	<-ctx.Done()
	for _, l := range s.config.Listeners {
		_ = l.Net.Close() // nothing can be done about it, and accept reports its own failures
	}
	group.Wait()
	s.stopAll()
	s.running.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

// accept starts every connection of one listener until the listener closes; it returns why it did.
func (s *Server) accept(ctx context.Context, l *Listener) error {
	var pause time.Duration
	for {
		socket, err := l.Net.Accept()
		switch {
		case err == nil:
			pause = 0
		case errors.Is(err, net.ErrClosed) || ctx.Err() != nil:
			return err
		default:
			// Out of descriptors, or a peer that left before it was accepted: both pass.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if log, unsaid := s.refusals.take(refusedAccept, s.config.Now()); log {
				s.log.Warn("a connection could not be accepted; trying again", slog.String("listener", l.Name),
					slog.Any("err", err), slog.Int("unlogged", unsaid))
			}
			sleep(ctx, pause)
			continue
		}
		if refused := s.crowded(socket.RemoteAddr()); refused != nil {
			s.refused(socket.RemoteAddr(), refused)
			_ = socket.Close()
			continue
		}
		if l.TLS != nil {
			socket = tls.Server(socket, l.TLS)
		}
		go s.opened(socket, l).run(ctx)
	}
}

// crowded says why one connection more from peer is too many; nil if it is not.
func (s *Server) crowded(peer net.Addr) *refusal {
	if most := s.config.ConnectionsMax; most > 0 && s.metrics.connections.Load() >= int64(most) {
		return &refusal{
			refusedConnections, fmt.Sprintf("%d connections are open", most), "raise max.connections, or find who opens so many",
		}
	}
	from, most := addressOf(peer), s.config.ConnectionsPerIPMax
	if most <= 0 || !from.IsValid() {
		return nil
	}
	s.open.Lock()
	defer s.open.Unlock()
	if s.open.from[from] < most {
		return nil
	}
	return &refusal{
		refusedConnectionsIP, fmt.Sprintf("%d connections from this address are open", most),
		"raise max.connections.per.ip, or find what opens so many there",
	}
}

// addressOf is the address of a peer without its port; invalid on networks that have none.
func addressOf(peer net.Addr) netip.Addr {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// opened counts a connection in. Its run must follow.
func (s *Server) opened(socket net.Conn, l *Listener) *conn {
	c := newConn(s, socket, l)
	s.metrics.connections.Add(1)
	s.metrics.accepted.Add(1)
	s.running.Add(1)
	s.open.Lock()
	defer s.open.Unlock()
	s.open.conns[c] = struct{}{}
	s.open.from[addressOf(socket.RemoteAddr())]++
	return c
}

// forget counts a connection out.
func (s *Server) forget(c *conn) {
	s.open.Lock()
	delete(s.open.conns, c)
	from := addressOf(c.socket.RemoteAddr())
	if s.open.from[from]--; s.open.from[from] == 0 {
		delete(s.open.from, from)
	}
	s.open.Unlock()
	s.metrics.connections.Add(-1)
	s.running.Done()
}

// stopAll ends reading on every connection.
func (s *Server) stopAll() {
	s.open.Lock()
	all := slices.Collect(maps.Keys(s.open.conns))
	s.open.Unlock()
	for _, c := range all {
		c.stop()
	}
}
