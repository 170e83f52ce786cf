package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// startSendersLocked gives every registration a sender, and ends those of registrations that are over.
func (t *term) startSendersLocked(ctx context.Context) {
	for id, o := range t.mu.outboxes {
		if b := t.mu.state.Brokers[id]; b == nil || b.Registration != o.registration {
			t.mu.stops[id]()
			delete(t.mu.outboxes, id)
			delete(t.mu.stops, id)
		}
	}
	for _, b := range t.mu.state.Registered() {
		if t.mu.outboxes[b.ID] != nil {
			continue
		}
		o := newOutbox(b)
		sender, stop := context.WithCancel(ctx)
		t.mu.outboxes[b.ID], t.mu.stops[b.ID] = o, stop
		t.group.Go(func() error {
			defer stop()
			return t.send(sender, ctx, o)
		})
	}
}

// restMax bounds the rest of a sender after a statement: nothing that changed waits longer to be said.
const restMax = 20 * time.Millisecond

// send brings one registration of a broker into the cluster and then tells it everything that changes, until its context
// or the term's ends. Only an error of the term is returned.
func (t *term) send(ctx, term context.Context, o *outbox) error {
	pause := retryFirst
	held := time.NewTimer(retryMax)
	defer held.Stop()
	for {
		select {
		case <-ctx.Done():
			return term.Err()
		case <-o.wake:
		case <-held.C:
			t.askAgain(o)
		}
		began := time.Now()
		err := t.serve(ctx, o)
		held.Reset(retryMax)
		switch {
		case err == nil:
			pause = retryFirst
			// While many values change, what has gathered meanwhile goes in one statement: each costs the broker a copy of what
			// it touches in its Image.
			sleep(ctx, min(time.Since(began), restMax))
		case ctx.Err() != nil:
			return term.Err()
		case errors.Is(err, registry.ErrDeposed) || errors.Is(err, registry.ErrFailed) || errors.Is(err, registry.ErrClosed):
			return err
		default:
			// The first failure is common: a broker that has just registered does not know of it yet.
			if pause == 2*retryFirst && !errors.Is(err, errAgain) {
				t.logger.Warn("broker was not reached, trying again", slog.Any("broker", o.broker), slog.Any("err", err))
			}
			sleep(ctx, pause)
			pause = min(2*pause, retryMax)
			o.signal()
		}
	}
}

// askAgain marks the deleted topics of which the broker still holds something.
func (t *term) askAgain(o *outbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range o.holding {
		o.topics[id] = true
	}
}

// serve does what there is to do for a broker now.
func (t *term) serve(ctx context.Context, o *outbox) error {
	if err := t.sweep(ctx, o); err != nil {
		return err
	}
	if err := t.deliver(ctx, o); err != nil {
		return err
	}
	return t.unfence(ctx, o)
}

// sweep writes what the start of a broker means for its partitions, before it may be unfenced (D6). It is done when
// every partition of the broker was decided upon a value that was still there when the decision was written.
func (t *term) sweep(ctx context.Context, o *outbox) error {
	t.mu.Lock()
	b := t.mu.state.Brokers[o.broker]
	current := b != nil && b.Registration == o.registration
	if current && !o.swept && (b.Info.Clean || b.Unfenced == o.registration) {
		o.swept = true // nothing is lost
	}
	if !current || o.swept {
		t.mu.Unlock()
		return nil
	}
	p := t.newPlannerLocked(o.broker)
	if o.todo == nil {
		for id, topic := range t.mu.state.Topics {
			for n := range topic.Count {
				o.todo = append(o.todo, meta.TopicIDPartition{Topic: id, Partition: n})
			}
		}
	}
	for _, tp := range o.todo {
		if value := t.mu.state.Partition(tp); value != nil && value.HasReplica(o.broker) {
			p.decide(tp)
		}
	}
	t.mu.Unlock()
	conflicts, revision, err := t.commit(ctx, p.writes)
	if err != nil {
		return err
	}
	if len(p.writes) > 0 {
		t.logger.Info("broker restarted uncleanly", slog.Any("broker", o.broker), slog.Any("partitions", len(p.writes)), slog.Any("conflicts", len(conflicts)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o.after = max(o.after, revision)
	if len(conflicts) > 0 {
		o.todo = conflicts
		return errAgain
	}
	o.swept, o.todo = true, nil
	return nil
}

// errAgain asks for another round soon: a value has changed that the state does not show yet.
var errAgain = errors.New("values have changed")

// deliver sends one statement of everything that the broker has not been told.
func (t *term) deliver(ctx context.Context, o *outbox) error {
	t.mu.Lock()
	to := t.mu.state.Brokers[o.broker]
	if t.mu.outboxes[o.broker] != o || to == nil || t.mu.state.Revision < o.after || t.mu.state.Revision == o.told && o.empty() {
		t.mu.Unlock()
		return nil
	}
	broker := brokerOf(to)
	m := o.take()
	a := statement(t.mu.state, t.seat, o.registration, m)
	tombstones := t.unconfirmedLocked(a, o.broker)
	t.mu.Unlock()

	answer, err := t.channel.Send(ctx, broker, a)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		o.putBack(m)
		return err
	}
	for _, id := range answer.Holding {
		delete(tombstones, id)
	}
	if len(tombstones) > 0 {
		if err := t.cluster.ConfirmDeleted(ctx, t.seat, tombstones, o.broker); err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			o.putBack(m)
			return err
		}
	}
	if err := t.noteEnds(ctx, o, a, answer.Ends); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		o.putBack(m)
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o.told = a.Revision
	if len(answer.Holding) > len(o.holding) {
		t.logger.Warn("broker could not remove all replicas of deleted topics, trying again", slog.Any("broker", o.broker), slog.Any("topics", len(answer.Holding)))
	}
	if m.full || len(m.topics) > 0 {
		o.holding = answer.Holding
	}
	return nil
}

// unconfirmedLocked lists the deletions in a statement that the broker has not confirmed before.
func (t *term) unconfirmedLocked(a *meta.Apply, broker meta.BrokerID) map[meta.TopicID]registry.Tombstone {
	tombstones := make(map[meta.TopicID]registry.Tombstone)
	for i := range a.Topics {
		tombstone, found := t.mu.state.Deleted[a.Topics[i].ID]
		if found && a.Topics[i].Deleted && slices.Contains(tombstone.Unconfirmed, broker) {
			tombstones[a.Topics[i].ID] = tombstone
		}
	}
	return tombstones
}

// unfence makes a swept broker live once it has heard everything.
func (t *term) unfence(ctx context.Context, o *outbox) error {
	t.mu.Lock()
	b := t.mu.state.Brokers[o.broker]
	ready := b != nil && b.Registration == o.registration && b.Live == 0 && o.swept && o.told >= max(1, o.after) && !o.full
	var broker registry.BrokerState
	if ready {
		broker = *b
	}
	t.mu.Unlock()
	if !ready {
		return nil
	}
	epoch, err := t.cluster.Unfence(ctx, t.seat, broker)
	if errors.Is(err, registry.ErrConflict) {
		return nil // it is live already, or another registration: the watch will tell
	}
	if err != nil {
		return err
	}
	t.logger.Info("broker is live", slog.Any("broker", o.broker), slog.Any("epoch", epoch))
	return nil
}
