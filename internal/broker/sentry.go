package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

const (
	// sentryPause is the longest time between two attempts to connect to a broker, and how long one may take; the first
	// attempt after a connection broke comes after sentryPauseFirst.
	sentryPause      = time.Second
	sentryPauseFirst = 5 * time.Millisecond

	// reportPause is the time between two attempts to report to a registry that has no leader.
	reportPause = 50 * time.Millisecond
)

// sentry notices at once when the process of another broker is gone (D6). It holds an idle connection to each registered
// one. When it breaks, the sentry connects again: a port that refuses is a process that is gone, and is reported; whatever
// else may be the matter, slowness or silence, is left to the broker's lease.
type sentry struct {
	broker *Broker
	me     registry.Registered
	posts  map[meta.BrokerID]post
}

// post is the watch over one registration of a broker.
type post struct {
	registration int64
	leave        context.CancelFunc
}

func newSentry(b *Broker, me registry.Registered) *sentry {
	return &sentry{broker: b, me: me, posts: make(map[meta.BrokerID]post)}
}

// run follows the Image: whoever is registered is watched. It ends with ctx.
func (s *sentry) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for seen := (*meta.Image)(nil); ; {
		if s.broker.state.until(ctx, func(image *meta.Image) bool { return image != seen }) != nil {
			return group.Wait()
		}
		seen = s.broker.state.load()
		present := make(map[meta.BrokerID]bool)
		for _, b := range seen.Brokers() {
			present[b.ID] = true
			s.man(ctx, group, &b)
		}
		for id, p := range s.posts {
			if !present[id] {
				p.leave()
				delete(s.posts, id)
			}
		}
	}
}

// man begins the watch over a registration that is new.
func (s *sentry) man(ctx context.Context, group *errgroup.Group, b *meta.Broker) {
	endpoint, found := b.Endpoint(brokersListener)
	former, manned := s.posts[b.ID]
	if b.ID == s.broker.config.BrokerID || !found || manned && former.registration == b.Registration {
		return
	}
	if manned {
		former.leave()
	}
	term := ctx // a report is finished although it may be what ends this watch
	ctx, leave := context.WithCancel(ctx)
	s.posts[b.ID] = post{b.Registration, leave}
	id, registration := b.ID, b.Registration
	address := net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port)))
	group.Go(func() error {
		pause := sentryPauseFirst
		for ctx.Err() == nil {
			began := time.Now()
			if s.connect(ctx, address) {
				for !s.report(term, id, registration) {
					sleep(ctx, reportPause)
				}
			}
			// What held for a while is checked at once, and soon again: the port of a process that ends stays open for a moment.
			if pause = min(2*pause, sentryPause); time.Since(began) > sentryPause {
				pause = sentryPauseFirst
			}
			sleep(ctx, pause)
		}
		return nil
	})
}

// connect holds a connection until it breaks. It tells whether there was none to be had because the port refuses.
func (s *sentry) connect(ctx context.Context, address string) (refused bool) {
	dial, cancel := context.WithTimeout(ctx, sentryPause)
	conn, err := s.broker.dialBroker(dial, "tcp", address)
	cancel()
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = conn.Read(make([]byte, 1)) // nobody sends anything
	_ = conn.Close()
	return false
}

// report says in the registry that a broker is gone. It is to be said again if the registry has just lost its leader,
// which may have been that very broker.
func (s *sentry) report(ctx context.Context, id meta.BrokerID, registration int64) (done bool) {
	ended, err := s.broker.cluster.ReportRefusal(ctx, s.broker.config.BrokerID, s.me, id, registration)
	switch {
	case ended:
		s.broker.logger.Warn("broker is gone: its port refuses connections, so its registration is ended", slog.Any("broker", id), slog.Int64("registration", registration))
	case ctx.Err() != nil:
	case errors.Is(err, registry.ErrUnavailable):
		return false
	case err != nil:
		s.broker.logger.Warn("broker refuses connections, which was not reported", slog.Any("broker", id), slog.Any("err", err))
	}
	return true
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
