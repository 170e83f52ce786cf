package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/console"
	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// leaseMin is the shortest lease of a broker whose registry has several members: an election among them, and the client's
// second try after it, must fit into a lease (D3).
const leaseMin = 6 * time.Second

// takeoverPause is the time between two attempts to register under an id that is taken.
const takeoverPause = 500 * time.Millisecond

// handOffPatience bounds the wait for others to lead in this broker's place.
const handOffPatience = 3 * time.Second

// leavePatience bounds the wait for the registry when a broker stops: a stop takes less than 10 s in all.
const leavePatience = 2 * time.Second

// membership keeps this broker registered, and lets it stand for controller while it is. A registration whose lease is
// gone, because the process stood still for longer than that, is made again; meanwhile the replicas go on serving.
type membership struct {
	broker       *Broker
	registration atomic.Int64 // the present one; 0 before the first
	registered   atomic.Pointer[registry.Registered]
	controller   atomic.Pointer[controller.Controller] // of the present registration; nil before the first
	settled      bool                                  // the cluster knows what the disk is worth; owned by run and, in a term, by whoever waits for its end
	intact       bool                                  // the power was lost, but nothing that had been synced; owned by run
}

func newMembership(b *Broker) *membership { return &membership{broker: b} }

// live tells whether an Image shows this broker's present registration unfenced.
func (m *membership) live(image *meta.Image) bool {
	self, found := image.Broker(m.broker.config.BrokerID)
	return found && !self.Fenced && self.Registration == m.registration.Load()
}

// run registers and stays registered until ctx ends; then the registration is ended too.
func (m *membership) run(ctx context.Context) error {
	b := m.broker
	clean, err := m.judge(ctx)
	if err != nil {
		return err
	}
	if clean {
		if err := m.settle(); err != nil {
			return err
		}
	}
	for {
		me, err := m.register(ctx, clean)
		if err != nil {
			return err
		}
		err = m.term(ctx, me)
		if ctx.Err() != nil {
			return m.leave(ctx, me)
		}
		if !errors.Is(err, registry.ErrLeaseGone) {
			return err
		}
		b.logger.Warn("registration is over: registering again", slog.Int64("registration", me.Epoch))
		clean = b.logs.Healthy() && (clean || m.settled) // what was lost is said until somebody has swept it
		m.intact = m.intact && b.logs.Healthy()
	}
}

// judge decides whether the disk still has everything that this broker ever acknowledged (D9): the last stop left a mark
// that names the last broker epoch, or the machine has not gone down since; and no I/O error is on record.
func (m *membership) judge(ctx context.Context) (bool, error) {
	b := m.broker
	last, err := b.cluster.BrokerEpoch(ctx, b.config.BrokerID)
	if err != nil {
		return false, err
	}
	state := b.logs.StartState()
	failed, err := b.cluster.Unclean(ctx, b.config.BrokerID)
	if err != nil {
		return false, err
	}
	m.intact = !failed && state.OtherBoot && !b.logs.Summary().Lost
	clean := !failed && (last == 0 || state.Marked && state.BrokerEpoch == last || state.SameBoot)
	if !clean {
		b.logger.Warn("the last stop may have lost what was not synced", slog.Int64("broker_epoch", last), slog.Bool("io_error", failed))
	}
	return clean, nil
}

func (m *membership) register(ctx context.Context, clean bool) (registry.Registered, error) {
	b := m.broker
	phase := b.phases.Begin("registration", "a broker with the same id may run elsewhere")
	me, err := m.claim(ctx, phase, registry.Registration{
		Directories: []meta.DirectoryID{b.logs.DirectoryID()}, Endpoints: b.endpoints(), Rack: b.config.Rack, Clean: clean,
		Intact: m.intact, Host: b.config.Host,
	})
	if err != nil {
		return me, err
	}
	phase.End()
	b.table.Registered(me.Epoch)
	m.registration.Store(me.Epoch)
	m.registered.Store(&me)
	return me, nil
}

// claim registers. A broker whose data directory is new may be the one whose disk was emptied or replaced: the lease of its
// former life, which had another directory, is waited for. Everybody else whose id is taken is refused at once (U-65), as
// is a new one once a lease's time has shown that the holder lives.
func (m *membership) claim(ctx context.Context, phase console.Phase, r registry.Registration) (registry.Registered, error) {
	b := m.broker
	lease := b.leaseLength()
	deadline := time.NewTimer(lease + 2*takeoverPause)
	defer deadline.Stop()
	retry := time.NewTicker(takeoverPause)
	defer retry.Stop()
	for waiting := false; ; {
		me, err := b.cluster.Register(ctx, b.config.BrokerID, r, lease)
		var taken *registry.TakenError
		switch {
		case errors.Is(err, registry.ErrUnavailable): // what may have been registered nevertheless is taken over
			deadline.Reset(lease + 2*takeoverPause)
		case !errors.As(err, &taken) || !b.logs.StartState().New:
			return me, err
		case !waiting:
			b.logger.Info("the id of this broker is registered with another data directory: waiting for that registration to end",
				slog.Any("broker", b.config.BrokerID), slog.String("host", taken.Holder.Host))
			phase.Detail("waiting for the registration of an earlier data directory to end")
			waiting = true
		}
		select {
		case <-retry.C:
		case <-deadline.C:
			return me, err
		case <-ctx.Done():
			return me, context.Cause(ctx)
		}
	}
}

// leaseLength is how long a broker that has fallen silent counts as alive (D6).
func (b *Broker) leaseLength() time.Duration {
	length := max(b.duration("broker.session.timeout.ms"), time.Second)
	if len(b.config.Cluster) > 0 {
		length = max(length, leaseMin)
	}
	return length
}

// term keeps the lease and runs the controller until one of them ends.
func (m *membership) term(ctx context.Context, me registry.Registered) error {
	b := m.broker
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.cluster.KeepAlive(ctx, me.Lease, b.leaseLength()) })
	c := controller.New(controller.Config{
		Cluster: b.cluster, Broker: b.config.BrokerID, Channel: controller.ChannelFunc(b.deliver), Keys: b.configs.Keys(),
		Settings: b.configs.Lookup(emptyImage), Logger: b.logger, BalanceEvery: b.balanceEvery(),
	})
	m.controller.Store(c)
	group.Go(func() error { return c.Run(ctx, me) })
	group.Go(func() error {
		if err := b.state.until(ctx, m.live); err != nil {
			return nil // the term is over
		}
		return m.settle()
	})
	if _, several := b.config.self(); several {
		group.Go(func() error { return newSentry(b, me).run(ctx) })
	}
	return group.Wait()
}

// settle notes that the cluster knows what this broker's disk is worth: nothing was lost, or it was swept before it was
// unfenced. A kill from here on is a clean stop.
func (m *membership) settle() error {
	if m.settled {
		return nil
	}
	if err := m.broker.logs.Settle(); err != nil {
		return err
	}
	m.settled = true
	return nil
}

// governs tells what this broker knows of a partition as controller; false while it is not.
func (m *membership) governs(tp meta.TopicIDPartition) (controller.Account, bool) {
	if c := m.controller.Load(); c != nil {
		return c.Account(tp)
	}
	return controller.Account{}, false
}

// deliver is the controller's channel: statements to this broker take no detour.
func (b *Broker) deliver(ctx context.Context, to meta.Broker, a *meta.Apply) (controller.Answer, error) {
	answer, err := meta.ApplyAnswer{}, error(nil)
	if to.ID == b.config.BrokerID {
		answer, err = b.apply(ctx, a)
	} else {
		answer, err = b.peers.apply(ctx, &to, a)
	}
	return controller.Answer{Holding: answer.Holding, Ends: answer.Ends}, err
}

// apply acts on a statement of the controller.
func (b *Broker) apply(ctx context.Context, a *meta.Apply) (meta.ApplyAnswer, error) {
	applied, err := b.state.apply(ctx, a)
	if err != nil {
		return meta.ApplyAnswer{}, err
	}
	answer := meta.ApplyAnswer{Ends: applied.Ends}
	for _, topic := range a.Topics {
		for partition := range applied.Failed {
			if topic.Deleted && partition.Topic == topic.ID {
				answer.Holding = append(answer.Holding, topic.ID)
				break
			}
		}
	}
	return answer, nil
}

// balanceEvery is the time between looks at preferred leaders; 0 for none.
func (b *Broker) balanceEvery() time.Duration {
	if !b.configs.Bool(emptyImage, "auto.leader.rebalance.enable") {
		return 0
	}
	return time.Duration(b.setting("leader.imbalance.check.interval.seconds")) * time.Second
}

// handOff lets others lead what this broker leads, while it still serves. It gives up after a while: what has no
// other replica in sync has nobody to go to anyway.
func (m *membership) handOff(ctx context.Context) {
	b, me := m.broker, m.registered.Load()
	if me == nil || len(b.config.Cluster) < 2 || !b.configs.Bool(emptyImage, "controlled.shutdown.enable") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOffPatience)
	defer cancel()
	ctx, release := b.whileMajority(ctx)
	defer release()
	err := b.cluster.Leave(ctx, b.config.BrokerID, *me)
	if err == nil {
		err = b.state.until(ctx, func(image *meta.Image) bool { return ledWithSuccessor(image, b.config.BrokerID) == 0 })
	}
	if err != nil {
		b.logger.Warn("this broker stops before others lead in its place", slog.Any("err", err),
			slog.Int("partitions", ledWithSuccessor(b.state.load(), b.config.BrokerID)))
	}
}

// ledWithSuccessor counts the partitions that a broker leads and another one could.
func ledWithSuccessor(image *meta.Image, self meta.BrokerID) int {
	led := 0
	for _, topic := range image.Topics() {
		for i := range topic.Partitions {
			p := &topic.Partitions[i]
			if p.Leader == self && slices.ContainsFunc(p.ISR, func(id meta.BrokerID) bool {
				other, found := image.Broker(id)
				return id != self && found && !other.Fenced
			}) {
				led++
			}
		}
	}
	return led
}

// leave ends the registration, so that nobody waits for its lease.
func (m *membership) leave(ctx context.Context, me registry.Registered) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer cancel()
	ctx, release := m.broker.whileMajority(ctx)
	defer release()
	if m.broker.embedded != nil {
		m.broker.embedded.HandOver(ctx) // first, so that the others find a registry when they elect a controller
	}
	if err := m.broker.cluster.Unregister(ctx, me); err != nil {
		m.broker.logger.Warn("registration was not ended: its lease will", slog.Any("err", err))
	}
	return nil
}

// errMinority is why a stop waits for nothing that the registry would have to decide.
var errMinority = errors.New("the other brokers of the registry have stopped")

// whileMajority returns a context that also ends when so many members of the registry have stopped that it decides nothing
// any more: the last brokers of a cluster that stops have nobody to wait for. The caller calls release.
func (b *Broker) whileMajority(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	if b.embedded != nil {
		looking.Go(func() {
			if b.embedded.AwaitMinority(ctx) {
				cancel(errMinority)
			}
		})
	}
	return ctx, func() {
		cancel(nil)
		looking.Wait()
	}
}

// recordErrors writes into the registry that this broker's disk has failed (D9), until ctx ends. The boot id file is gone
// by then, so that a process that is killed now is no clean one; but the disk that failed may not have let go of it.
func (b *Broker) recordErrors(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.ioError:
		}
		for {
			err := b.cluster.MarkUnclean(ctx, b.config.BrokerID)
			if err == nil || ctx.Err() != nil {
				break
			}
			if errors.Is(err, registry.ErrFailed) {
				return err
			}
			b.logger.Warn("I/O error was not recorded in the registry, trying again", slog.Any("err", err))
			timer := time.NewTimer(watchPause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// watchRegistry ends with an error when the embedded registry has failed: it comes back only in a new process (D3). The
// broker goes on: what is known is served, and /livez tells whoever watches the process.
func (b *Broker) watchRegistry(ctx context.Context) error {
	if b.embedded == nil {
		<-ctx.Done()
		return nil
	}
	err := b.embedded.Run(ctx)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if b.door != nil {
		b.logger.Error("this broker's member of the registry has failed: the broker goes on with the other members until it is restarted", slog.Any("err", err))
	} else {
		b.logger.Error("the embedded registry has failed: produce and fetch go on, administration needs a restart", slog.Any("err", err))
	}
	<-ctx.Done()
	return nil
}
