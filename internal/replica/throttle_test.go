package replica

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// KIP-73: a replica that is not in sync catches up no faster than its leader may send, or it may receive, and then enters the ISR;
// others are not held up, and a bound that is lifted counts at once.
func TestThrottle(t *testing.T) {
	for _, side := range []string{"leader", "follower"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				tp := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 1})
				c.members[3].severed.Store(true)
				settle(time.Minute)
				for range 200 { // some MiB, of which one fetch brings one
					c.produce(tp, 1, AcksLeader, 1000)
				}
				size := c.replica(tp, 1).Size()
				settle(time.Second)
				bound, name := &c.leaderRate, "leader.replication.throttled.replicas"
				throttled := meta.BrokerID(1)
				if side == "follower" {
					bound, name, throttled = &c.followerRate, "follower.replication.throttled.replicas", 3
				}
				c.leaderRate.Store(1 << 62)
				c.followerRate.Store(1 << 62)
				bound.Store(size / 20)
				for id := range c.members {
					c.replica(tp, id).SetThrottled(ParseThrottled(map[string]string{name: "0:" + throttled.String()}, id))
				}
				c.members[3].severed.Store(false)
				c.broadcast()
				settle(time.Second)
				// One fetch brings more than a second's worth; after it the rate must fall.
				first := c.replica(tp, 3).EndOffset()
				if end := c.replica(tp, 1).EndOffset(); first == 0 || first >= end {
					t.Fatalf("it has %d of %d at once", first, end)
				}
				switch leader, follower := c.members[1].table.Account(tp), c.members[3].table.Account(tp); {
				case side == "leader" && !strings.Contains(leader.Others[1].Why, "throttled to"),
					side == "follower" && follower.Following.ThrottledTo != bound.Load():
					t.Errorf("nobody says that it is throttled: %+v %+v", leader.Others, follower.Following)
				}
				p := c.produce(tp, 1, AcksAll, 1)
				settle(time.Second)
				if !p.Completed() || p.Err() != nil {
					t.Errorf("a replica in sync was held up: %v", p.Err())
				}
				if got := c.replica(tp, 3).EndOffset(); got != first {
					t.Errorf("it has %d after %d although the bound is exceeded", got, first)
				}
				bound.Store(1 << 62)
				settle(2 * time.Second)
				c.equal(tp, 200_001, three...)
				if got := c.isr(tp); len(got) != 3 {
					t.Errorf("ISR %v", got)
				}
			})
		})
	}
}

// A lane whose last partition goes while another is held back sends nothing then, and what it would have said must not be lost: its
// leader would answer for ever for a partition that the follower does not follow any more, and be asked again at once.
func TestForgottenWhileOthersAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		going := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:2], MinISR: 1})
		held := c.create(meta.Partition{Replicas: three[:2], Leader: 1, ISR: three[:1], MinISR: 1})
		c.leaderRate.Store(1 << 62)
		c.followerRate.Store(1)
		r := c.replica(held, 2)
		r.SetThrottled(ParseThrottled(map[string]string{"follower.replication.throttled.replicas": "*"}, 2))
		c.set(held, func(p *meta.Partition) { p.ISR = three[:1] })
		c.produce(held, 1, AcksLeader, 1)
		r.table.received.add(1<<20, time.Now())
		settle(time.Second)
		c.set(going, func(p *meta.Partition) { p.Replicas, p.ISR = three[:1], three[:1]; p.LeaderEpoch++ })
		settle(time.Second)
		c.followerRate.Store(1 << 62)
		settle(2 * time.Second)
		before := c.fetches.Load()
		settle(10 * time.Second)
		if n := c.fetches.Load() - before; n > 50 {
			t.Errorf("%d fetches in ten seconds without news", n)
		}
	})
}

// The rate is over eleven samples of a second, or as many as there were.
func TestQuota(t *testing.T) {
	at := time.Unix(1000, 0)
	q := newQuota(ThrottleConfig{}, func() int64 { return 100 })
	if q.rate(at) != 0 || q.exceeded(at) {
		t.Error("a rate of nothing")
	}
	q.add(100, at)
	if got := q.rate(at); got != 100 || q.exceeded(at) {
		t.Errorf("at the bound: %v", got)
	}
	q.add(50, at.Add(500*time.Millisecond))
	if got := q.rate(at.Add(500 * time.Millisecond)); got != 150 || !q.exceeded(at.Add(500*time.Millisecond)) {
		t.Errorf("above it: %v", got)
	}
	if got := q.rate(at.Add(3 * time.Second)); got != 50 {
		t.Errorf("three seconds later: %v", got)
	}
	for i := range 100 {
		q.add(10, at.Add(time.Duration(i)*time.Second))
	}
	if got := q.rate(at.Add(100 * time.Second)); got < 9 || got > 11 {
		t.Errorf("ten bytes a second: %v", got)
	}
	if got := q.rate(at.Add(111 * time.Second)); got != 0 {
		t.Errorf("long after: %v", got)
	}
	if newQuota(ThrottleConfig{}, nil).exceeded(at) {
		t.Error("no bound is exceeded")
	}
}

// Which replicas are throttled on a broker: those of the list with its id, or all.
func TestParseThrottled(t *testing.T) {
	const leader, follower = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
	got := ParseThrottled(map[string]string{leader: "0:1, 2:1,3:2", follower: "*"}, 1)
	for partition, want := range map[int32]bool{0: true, 1: false, 2: true, 3: false} {
		if got.Leader.Has(partition) != want || !got.Follower.Has(partition) {
			t.Errorf("partition %d: %v, %v", partition, got.Leader.Has(partition), got.Follower.Has(partition))
		}
	}
	if got := ParseThrottled(nil, 1); got.Leader.Has(0) || got.Follower.Has(0) {
		t.Error("nothing is set, and something throttled")
	}
}
