package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// gate lets a controller have a number of effects: each of its transactions, and each statement that it sends. Then it is
// dead, or it stands still until it is let go.
type gate struct {
	registry.Store
	channel Channel

	mu     sync.Mutex
	left   int
	closed bool          // it was asked for more than it lets through
	resume chan struct{} // nil: what is asked for then fails
}

func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	g.left--
	stop := g.left < 0
	g.closed = g.closed || stop
	g.mu.Unlock()
	switch {
	case !stop:
		return nil
	case g.resume == nil:
		return fmt.Errorf("%w: %w", registry.ErrFailed, errCrash)
	}
	select {
	case <-g.resume:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Txn implements registry.Store.
func (g *gate) Txn(ctx context.Context, t registry.Txn) (registry.TxnResult, error) {
	if err := g.pass(ctx); err != nil {
		return registry.TxnResult{}, err
	}
	return g.Store.Txn(ctx, t)
}

// Send implements Channel.
func (g *gate) Send(ctx context.Context, to meta.Broker, a *meta.Apply) (Answer, error) {
	if err := g.pass(ctx); err != nil {
		return Answer{}, err
	}
	return g.channel.Send(ctx, to, a)
}

// seats are the brokers whose controllers govern one after the other; they have no replicas.
const firstSeat, secondSeat meta.BrokerID = 7, 8

// arrows plays what an administrator asks for with a controller that has so many effects, then with another one. It returns
// what the registry and the brokers know at the end, and whether the first one was stopped.
func arrows(t *testing.T, ask func(h *harness), effects int, pause bool) (end string, stopped bool) {
	h := newHarness(t)
	first := h.register(firstSeat, true)
	stop := h.run(firstSeat, first)
	for id := meta.BrokerID(1); id <= 6; id++ {
		h.register(id, true)
	}
	synctest.Wait()
	h.create(1, NewTopic{Name: "a", Partitions: -1, Replication: -1, Assignments: []Assignment{{0, []meta.BrokerID{1, 2, 3}}, {1, []meta.BrokerID{2, 3, 1}}}})
	h.settled(6)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	g := &gate{Store: h.store, channel: h, left: effects}
	if pause {
		g.resume = make(chan struct{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	old := New(Config{Cluster: registry.NewCluster(g, "1.0", nil), Broker: firstSeat, Channel: g, Keys: h.keys, Logger: slog.New(slog.DiscardHandler)})
	go func() { done <- old.Run(ctx, first) }()
	synctest.Wait()
	ask(h)
	synctest.Wait()
	g.mu.Lock()
	stopped = g.closed
	g.mu.Unlock()
	if !pause {
		cancel()
		<-done
	}
	if err := h.cluster.Unregister(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	stopSecond := h.run(secondSeat, h.register(secondSeat, true))
	time.Sleep(2 * retryMax)
	for id := meta.BrokerID(1); id <= 6; id++ {
		h.settled(id)
	}
	end = h.dump()
	if pause { // the old one goes on: it changes nothing
		close(g.resume)
		time.Sleep(2 * retryMax)
		if after := h.dump(); after != end {
			t.Errorf("after %d effects the old controller went on and changed\n%s\nto\n%s", effects, end, after)
		}
		cancel()
		<-done
	}
	if err := stopSecond(); err != nil {
		t.Error(err)
	}
	return end, stopped
}

// dump is everything that the registry holds and brokers know about topics, but for versions and revisions.
func (h *harness) dump() string {
	var out strings.Builder
	s := h.state()
	for name, id := range s.Names {
		for n := range s.Topics[id].Count {
			p := s.Partition(meta.TopicIDPartition{Topic: id, Partition: n})
			fmt.Fprintf(&out, "%s-%d replicas=%v adding=%v removing=%v leader=%d epoch=%d isr=%v elr=%v\n", name, n, p.Replicas, p.Adding, p.Removing, p.Leader, p.LeaderEpoch, p.ISR, p.ELR)
		}
	}
	fmt.Fprintf(&out, "%d deletions\n", len(s.Deleted))
	for id := meta.BrokerID(1); id <= 6; id++ {
		im := h.image(id)
		for _, topic := range im.Topics() {
			for n := range topic.Partitions {
				p := &topic.Partitions[n]
				fmt.Fprintf(&out, "broker %d: %s-%d %v leader=%d epoch=%d isr=%v\n", id, topic.Name, n, p.Replicas, p.Leader, p.LeaderEpoch, p.ISR)
			}
		}
	}
	return out.String()
}

// everyArrow stops a controller after each number of its effects: the end is always the same.
func everyArrow(t *testing.T, atLeast int, want func(t *testing.T, end string), ask func(h *harness)) {
	for _, pause := range []bool{false, true} {
		name := "killed"
		if pause {
			name = "stopped and continued"
		}
		t.Run(name, func(t *testing.T) {
			undisturbed := ""
			synctest.Test(t, func(t *testing.T) { undisturbed, _ = arrows(t, ask, 1<<30, false) })
			want(t, undisturbed)
			for effects := 0; ; effects++ {
				stopped := false
				synctest.Test(t, func(t *testing.T) {
					end := ""
					if end, stopped = arrows(t, ask, effects, pause); end != undisturbed {
						t.Errorf("after %d effects the end is\n%s\nundisturbed it is\n%s", effects, end, undisturbed)
					}
				})
				if t.Failed() {
					return
				}
				if !stopped {
					if effects < atLeast {
						t.Errorf("only %d effects", effects)
					}
					t.Logf("%d effects", effects)
					return
				}
			}
		})
	}
}

// TestReassignmentAtEveryArrow. A controller is killed, or stands still and goes on when another one governs, after
// each write and each statement of the reassignment of R-89.
func TestReassignmentAtEveryArrow(t *testing.T) {
	target := []meta.BrokerID{4, 5, 6}
	everyArrow(t, 10, func(t *testing.T, end string) {
		if !strings.Contains(end, "a-0 replicas=[4 5 6] adding=[] removing=[] leader=4 epoch=1 isr=[4 5 6]") {
			t.Errorf("the end is\n%s", end)
		}
	}, func(h *harness) {
		h.t.Helper()
		results, _, err := h.admin(1).MovePartitions(h.t.Context(), []PartitionMove{{Topic: "a", Partition: 0, Replicas: target}}, true)
		if err != nil || results[0] != nil {
			h.t.Fatal(results, err)
		}
		synctest.Wait()
		for _, id := range target {
			h.joins("a", id)
			synctest.Wait()
		}
	})
}

// TestDeletionAtEveryArrow: the same for a topic that is deleted (D11).
func TestDeletionAtEveryArrow(t *testing.T) {
	everyArrow(t, 10, func(t *testing.T, end string) {
		if end != "0 deletions\n" {
			t.Errorf("the end is\n%s", end)
		}
	}, func(h *harness) {
		h.t.Helper()
		results, _, err := h.admin(1).DeleteTopics(h.t.Context(), []OldTopic{{Name: "a"}})
		if err != nil || slices.ContainsFunc(results, func(r DeletedTopic) bool { return r.Err != nil }) {
			h.t.Fatal(results, err)
		}
	})
}
