package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/console"
	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/groups"
	"github.com/tidemark-io/tidemark/internal/keystore"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/server"
)

// Broker is one node. Make one with New, run it once.
type Broker struct {
	config   Config
	configs  *server.ConfigTable
	logger   *slog.Logger
	phases   *console.Phases
	gatherer *prometheus.Registry
	ready    chan struct{}
	ioError  chan struct{} // one slot: an I/O error is to be recorded

	listening struct {
		sync.Mutex
		clients, admin []net.Addr
		brokers        net.Addr // nil for a lone broker
	}

	keystores        map[string]*keystore.Store // of the listeners with TLS, by name
	registryListener net.Listener               // the door's, once listen has opened it

	// What the start assembles, in this order; nil before.
	logs     *commitlog.Manager
	opening  console.Phase      // of logs
	door     *registry.Door     // of a cluster whose brokers embed the registry
	embedded *registry.Embedded // nil on a client of the registry
	store    registry.Store
	cluster  *registry.Cluster
	state    *state
	table    *replica.Table
	admin    *controller.Admin
	groups   *groups.Coordinator
	member   *membership
	peers    *peers
	disk     *diskWatcher
	features registry.FeatureView
	running  atomic.Pointer[parts] // for the console, which asks at any time
}

// parts is what the console may ask about once the start is over.
type parts struct {
	embedded *registry.Embedded
	state    *state
	table    *replica.Table
	disk     *diskWatcher
}

// New checks the configuration. It opens nothing and starts nothing.
func New(config Config) (*Broker, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("broker config: %w", err)
	}
	configs, err := server.NewConfigTable(Keys(), config.BrokerID, config.Settings)
	if err != nil {
		return nil, fmt.Errorf("broker config: Settings: %w", err)
	}
	return &Broker{
		config: config, configs: configs, logger: config.Logger,
		phases: console.NewPhases(config.Now), gatherer: prometheus.NewRegistry(), ready: make(chan struct{}), ioError: make(chan struct{}, 1),
	}, nil
}

// Ready is closed once clients are served.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Addrs are the addresses on which clients are served, in the order of Config.Listeners; known once Ready.
func (b *Broker) Addrs() []net.Addr {
	b.listening.Lock()
	defer b.listening.Unlock()
	return b.listening.clients
}

// AdminAddrs are the addresses of the admin HTTP; known once Ready.
func (b *Broker) AdminAddrs() []net.Addr {
	b.listening.Lock()
	defer b.listening.Unlock()
	return b.listening.admin
}

// Run starts the broker, serves until ctx ends, and stops in reverse order: requests, membership, background work, logs,
// which it closes, syncs and marks as clean, registry. It returns nil after a stop that was asked for. A start that fails
// for a reason that can be remedied returns a *StartError.
func (b *Broker) Run(ctx context.Context) error {
	ports, err := b.listen(ctx)
	if err != nil {
		return err
	}
	panel, err := console.New(console.Config{
		Listeners: ports.admin, Profiles: ports.profiles, Phases: b.phases, Gatherer: b.gatherer, Live: b.live, Ready: b.checks, Logger: b.logger,
	})
	if err != nil {
		return errors.Join(err, ports.close())
	}
	// The console outlives everything, so that a stop that takes long can be looked at.
	group, consoleCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	consoleCtx, stopConsole := context.WithCancel(consoleCtx)
	group.Go(func() error { return panel.Run(consoleCtx) })
	group.Go(func() error {
		defer stopConsole()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := context.AfterFunc(consoleCtx, func() { cancel(errors.New("the admin server failed")) })
		defer stop()
		return b.run(ctx, ports)
	})
	return errors.Join(group.Wait(), ports.close())
}

// run is Run beside the console.
func (b *Broker) run(ctx context.Context, ports *ports) error {
	err := b.start(ctx)
	if err == nil {
		err = b.serve(ctx, ports)
	}
	err = explain(err, b.config.DataDir)
	b.phases.Finish(err) // without effect after a start that succeeded
	return errors.Join(err, b.stop())
}
