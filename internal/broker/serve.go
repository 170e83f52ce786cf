package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/server"
)

// serve runs everything that goes on while the broker is up, until ctx ends or a part fails. It ends in reverse order:
// clients first, then the membership, then the background work.
func (b *Broker) serve(ctx context.Context, ports *ports) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, background := errgroup.WithContext(background)
	for _, run := range []func(context.Context) error{
		b.logs.Run, b.table.Run, b.groups.Run, b.disk.run, b.state.watchConfigs, b.followFeatures, b.watchRegistry, b.recordErrors,
	} {
		group.Go(func() error { return b.work(background, run) })
	}
	if ports.brokers != nil {
		internal, err := server.New(b.internalConfig(ports.brokers))
		if err != nil {
			return fmt.Errorf("server for brokers: %w", err)
		}
		group.Go(func() error { return b.work(background, internal.Run) })
	}
	b.member = newMembership(b)
	membership, leave := context.WithCancel(background)
	left := make(chan struct{})
	group.Go(func() error {
		defer close(left)
		return b.work(membership, b.member.run)
	})
	err := b.admit(ctx, background, ports)
	leave()
	<-left
	stop()
	return errors.Join(group.Wait(), err)
}

// work runs a part until ctx ends. That the embedded registry has failed stops nobody: what is known is served, and
// /livez tells whoever watches the process.
func (b *Broker) work(ctx context.Context, run func(context.Context) error) error {
	err := run(ctx)
	if errors.Is(err, registry.ErrFailed) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// admit waits until this broker is live and knows the cluster, then serves clients until ctx ends or background does,
// because a part of it has failed.
func (b *Broker) admit(ctx, background context.Context, ports *ports) error {
	stopping := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(background, cancel)()
	defer context.AfterFunc(stopping, func() {
		b.member.handOff(ctx)
		cancel()
	})()
	phase := b.phases.Begin("leadership", "the registry is slow, or another broker holds the controller's seat")
	if err := b.state.until(ctx, b.member.live); err != nil {
		return nil //nolint:nilerr // a stop that was asked for, or the failure that background reports
	}
	phase.End()
	if len(b.config.Cluster) > 1 {
		b.advertise(ports)
	}
	s, err := server.New(b.serverConfig(ports))
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	b.phases.Finish(nil)
	b.logger.Info("serving clients", slog.Float64("start_ms", b.phases.Status().Milliseconds))
	close(b.ready)
	return s.Run(ctx)
}

// internalConfig is what the server of the listener for brokers needs.
func (b *Broker) internalConfig(l net.Listener) server.Config {
	return server.Config{
		Broker: b.config.BrokerID, Listeners: []server.Listener{{Net: l, Name: brokersListener, TLS: b.serverTLS(brokersListener)}}, Image: b.state.load, WaitImage: b.state.wait,
		Table: b.table, Apply: b.apply, Configs: b.configs, Logger: b.logger, Now: b.config.Now,
	}
}

// serverConfig gathers what the server needs. Limits are those of the properties file.
func (b *Broker) serverConfig(ports *ports) server.Config {
	ids := newProducerIDs(b.cluster, b.config.BrokerID)
	return server.Config{
		Broker: b.config.BrokerID, Listeners: ports.clients, Image: b.state.load, WaitImage: b.state.wait, Table: b.table,
		ProducerIDs: ids.take, Configs: b.configs, Admin: b.admin, Features: &b.features, Quorum: b.quorum(), Governs: b.member.governs, RackAware: b.config.RackAware, Groups: b.groups, LogDir: b.config.DataDir, FreeBytes: b.config.FreeBytes,
		LogLevel: b.config.LogLevel, Logger: b.logger, Registerer: b.gatherer, Now: b.config.Now,
		Limits: server.Limits{
			RequestBytesMax:     int32(b.setting("socket.request.max.bytes")),
			InFlightBytesMax:    max(b.setting("queued.max.request.bytes"), 0),
			ConnectionsMax:      int(b.setting("max.connections")),
			ConnectionsPerIPMax: int(b.setting("max.connections.per.ip")),
			IdleTimeout:         b.duration("connections.max.idle.ms"),
			FetchBytesMax:       int32(b.setting("fetch.max.bytes")),
			FetchSessionsMax:    int(b.setting("max.incremental.fetch.session.cache.slots")),
		},
	}
}
