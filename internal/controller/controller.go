package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

const (
	// retryFirst and retryMax bound the pause before a statement or a term is tried again.
	retryFirst = 50 * time.Millisecond
	retryMax   = 2 * time.Second

	// orphanAge is how long an id without a name may be under construction before it is collected.
	orphanAge = 10 * time.Minute
)

// Config configures a Controller.
type Config struct {
	Cluster *registry.Cluster
	Broker  meta.BrokerID // this broker
	Channel Channel

	// BalanceEvery is the time between looks for leaders that are not the preferred replica; 0 for none.
	BalanceEvery time.Duration

	// Keys are all configuration keys; Settings is what the properties file sets for broker keys.
	Keys     *meta.ConfigKeys
	Settings meta.ConfigLookup

	Logger *slog.Logger
}

// Controller takes part in the election, and governs while it holds the seat.
type Controller struct {
	config  Config
	logger  *slog.Logger
	journal journal
}

// New makes a controller; Run runs it.
func New(c Config) *Controller {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Settings == nil {
		c.Settings = func(string) (string, bool) { return "", false }
	}
	return &Controller{config: c, logger: c.Logger}
}

// Run stands for election with a registration, governs when it wins, and waits for the next vacancy when it does not.
// It returns nil when ctx ends, and registry.ErrLeaseGone when the registration is over: the broker then registers
// again and calls Run anew. A registry that has failed or is closed ends it too. Everything else is logged and tried
// again.
func (c *Controller) Run(ctx context.Context, me registry.Registered) error {
	pause := retryFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := c.round(ctx, me)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, registry.ErrLeaseGone), errors.Is(err, registry.ErrFailed), errors.Is(err, registry.ErrClosed):
			return err
		case err == nil || errors.Is(err, registry.ErrDeposed):
			pause = retryFirst
			continue
		}
		c.logger.Warn("controller starts again", slog.Any("err", err))
		if time.Since(began) > retryMax {
			pause = retryFirst
		}
		sleep(ctx, pause)
		pause = min(2*pause, retryMax)
	}
	return nil
}

// round is one election, and what follows from it.
func (c *Controller) round(ctx context.Context, me registry.Registered) error {
	seat, won, err := c.config.Cluster.Elect(ctx, c.config.Broker, me)
	if err != nil {
		return err
	}
	// A seat that this broker took under the same registration outlives an error of the term.
	if !won && seat.Broker != c.config.Broker {
		c.logger.Info("another broker is controller", slog.Any("controller", seat.Broker), slog.Int64("epoch", seat.Epoch))
		return c.config.Cluster.AwaitVacancy(ctx, seat)
	}
	c.logger.Info("this broker is controller", slog.Int64("epoch", seat.Epoch))
	state, err := c.config.Cluster.Snapshot(ctx)
	if err != nil {
		return err
	}
	if state.Seat != seat {
		return fmt.Errorf("govern: %w", registry.ErrDeposed)
	}
	t := newTerm(c, seat, state)
	c.journal.begin(t)
	defer c.journal.end()
	return t.run(ctx)
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
