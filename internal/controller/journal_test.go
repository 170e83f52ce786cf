package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Why nobody leads: who is waited for. (D6, D9)
func TestLeaderless(t *testing.T) {
	live := func(ids ...meta.BrokerID) func(meta.BrokerID) bool {
		return func(id meta.BrokerID) bool { return slices.Contains(ids, id) }
	}
	ends := func(id meta.BrokerID) (meta.LogEnd, bool) { return meta.LogEnd{Epoch: 4, End: 100}, id == 1 }
	tests := []struct {
		name  string
		value meta.Partition
		live  []meta.BrokerID
		want  string
	}{
		{"it leads", meta.Partition{Leader: 1, ISR: []meta.BrokerID{1}}, []meta.BrokerID{1}, ""},
		{"the last member is away", meta.Partition{Leader: 1, ISR: []meta.BrokerID{1}}, []meta.BrokerID{2}, "nobody who has every committed record is live: waiting for broker 1"},
		{
			"so is whoever is eligible", meta.Partition{Leader: meta.NoBroker, ISR: []meta.BrokerID{1}, ELR: []meta.BrokerID{2}},
			[]meta.BrokerID{3}, "nobody who has every committed record is live: waiting for broker 1 or 2",
		},
		{"a moment later", meta.Partition{Leader: 1, ISR: []meta.BrokerID{1, 2}}, []meta.BrokerID{2}, "broker 2 is about to be elected"},
		{
			"all restarted uncleanly", meta.Partition{Leader: meta.NoBroker, LastKnownISR: []meta.BrokerID{1, 2}},
			[]meta.BrokerID{1, 2},
			"all who may have every committed record restarted uncleanly; the longest copy will lead once all have told where theirs ends: " +
				"waiting for broker 2 (broker 1 has up to 100, of epoch 4)",
		},
		{
			"nobody is left", meta.Partition{Leader: meta.NoBroker},
			[]meta.BrokerID{1}, "no replica is known to have every committed record; `partition elect --unclean` would accept the loss of some",
		},
	}
	for _, test := range tests {
		if got := leaderless(&test.value, live(test.live...), ends); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A controller tells what it has decided about a partition and why, and what has become of its brokers; whoever is none
// tells nothing. (D6)
func TestAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		first := h.register(1, true)
		c := New(Config{Cluster: h.cluster, Broker: 1, Channel: h, Keys: h.keys})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- c.Run(ctx, first) }()
		synctest.Wait()
		second := h.register(2, true)
		stopSecond := h.run(2, second)
		h.create(1, NewTopic{Name: "a", Partitions: 1, Replication: 2})
		tp := meta.TopicIDPartition{Topic: h.state().Names["a"]}
		if a, ok := c.Account(tp); !ok || a.Leaderless != "" || len(a.Brokers) != 2 || a.Brokers[0].State != "live" || len(a.Events) != 0 {
			t.Errorf("at first: %+v", a)
		}
		if _, ok := c.Account(meta.TopicIDPartition{Topic: tp.Topic, Partition: 7}); ok {
			t.Error("it tells of a partition that is not there")
		}
		if err := h.cluster.Unregister(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a, ok := c.Account(tp)
		if !ok || len(a.Events) != 1 || !strings.Contains(a.Events[0].Why, "ISR [") {
			t.Errorf("after broker 2 has gone: %+v", a)
		}
		for _, b := range a.Brokers {
			if b.Broker != 2 {
				continue
			}
			if n := len(b.Events); b.State != "gone" || n < 2 || !strings.HasPrefix(b.Events[n-1].Why, "broker 2 is gone") {
				t.Errorf("broker 2: %+v", b)
			}
		}
		_ = stopSecond()
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if _, ok := c.Account(tp); ok {
			t.Error("it tells something although it is not controller any more")
		}
	})
}
