package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-io/tidemark/internal/meta"
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

	// Logger receives one line for each noteworthy connection, never one per request.
	Logger *slog.Logger
	// Registerer takes the metrics; nil means that they are kept but not shown.
	Registerer prometheus.Registerer
	// Now is the clock for timestamps in answers; default time.Now.
	Now func() time.Time
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
}

// withDefaults fills in what may be left out.
func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server answers clients on its listeners. Make one with New, run it once.
type Server struct {
	config   Config
	handlers handlerTable
	log      *slog.Logger
}

// New checks the configuration and prepares a Server. It starts nothing.
func New(config Config) (*Server, error) {
	if len(config.Listeners) == 0 {
		return nil, errors.New("server config: Listeners is empty; at least one is needed")
	}
	if config.Image == nil || config.WaitImage == nil {
		return nil, errors.New("server config: Image and WaitImage must be set")
	}
	s := &Server{config: config.withDefaults()}
	s.log = s.config.Logger
	for _, h := range s.served() {
		s.handlers[h.key] = h
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
	for _, l := range s.config.Listeners {
		group.Go(func() {
			if err := s.accept(ctx, l); err != nil && ctx.Err() == nil {
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
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}
