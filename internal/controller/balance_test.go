package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// A broker that is about to stop loses what others can lead and leaves the ISRs; it stays live. When it is back and in sync,
// leadership returns to it by itself.
func TestLeavingAndBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		stop := h.run(1, h.register(1, true))
		second := h.register(2, true)
		synctest.Wait()
		h.create(1, NewTopic{Name: "both", Partitions: -1, Replication: -1, Assignments: []Assignment{{0, []meta.BrokerID{2, 1}}}},
			NewTopic{Name: "alone", Partitions: -1, Replication: -1, Assignments: []Assignment{{0, []meta.BrokerID{2}}}})
		if p := partition(h.image(1), "both", 0); p.Leader != 2 || len(p.ISR) != 2 {
			t.Fatalf("at first: %+v", p)
		}
		if err := h.cluster.Leave(t.Context(), 2, second); err != nil {
			t.Fatal(err)
		}
		if p := partition(h.image(1), "both", 0); p.Leader != 1 || p.LeaderEpoch != 1 || len(p.ISR) != 1 {
			t.Errorf("with a successor: %+v", p)
		}
		if p := partition(h.image(1), "alone", 0); p.Leader != 2 || p.LeaderEpoch != 0 || len(p.ISR) != 1 {
			t.Errorf("without one: %+v", p)
		}
		if b, _ := h.image(1).Broker(2); b.Fenced {
			t.Error("the leaving broker is fenced")
		}

		if err := h.cluster.Unregister(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		h.register(2, true)
		if p := partition(h.image(1), "both", 0); p.Leader != 1 {
			t.Errorf("back, and not yet in sync: %+v", p)
		}
		time.Sleep(balanceInterval + balanceFirst)
		if p := partition(h.image(1), "both", 0); p.Leader != 1 {
			t.Errorf("a leader that is not in sync: %+v", p)
		}
		h.joins("both", 2)
		time.Sleep(balanceInterval)
		if p := partition(h.image(1), "both", 0); p.Leader != 2 || p.LeaderEpoch != 2 || len(p.ISR) != 2 {
			t.Errorf("in sync again: %+v", p)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
