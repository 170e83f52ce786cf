package replica

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// KIP-392: a follower serves consumers that take followers, up to its own high watermark; it wakes those that wait, and stops
// when its leader has been silent for replica.lag.time.max.ms, or when it hears of another epoch.
func TestFollowerServesConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		tp := c.create(meta.Partition{Replicas: three, Leader: 1, ISR: three, MinISR: 1})
		c.produce(tp, 1, AcksAll, 5)
		settle(time.Second)
		r := c.replica(tp, 2)
		q := ReadRequest{BytesMax: 1 << 20, CurrentEpoch: meta.NoEpoch, LastFetchedEpoch: meta.NoEpoch, MinOne: true, TakesFollowers: true}
		var bytes int64
		read := func(offset int64, wantErr error) ReadResult {
			t.Helper()
			q.Offset = offset
			result, err := r.Read(q)
			if !errors.Is(err, wantErr) {
				t.Fatalf("read at %d: %v, want %v", offset, err, wantErr)
			}
			bytes = result.Records.Bytes()
			result.Records.Release()
			return result
		}
		if result := read(0, nil); bytes == 0 || result.HighWatermark != 5 || result.Preferred != meta.NoBroker {
			t.Errorf("%+v", result)
		}
		read(6, ErrOffsetOutOfRange)
		q.TakesFollowers = false
		read(0, ErrNotLeader)
		q.TakesFollowers, q.CurrentEpoch = true, 9
		read(0, ErrUnknownEpoch)
		q.CurrentEpoch = 0

		// Whoever waits at the end is woken when the follower knows that more is committed.
		result := read(5, nil)
		woken := false
		w := NewWaiter(1, func() { woken = true })
		if !r.Watch(w, result) {
			t.Fatal("not watched")
		}
		c.produce(tp, 1, AcksAll, 1)
		settle(10 * time.Millisecond)
		if !woken {
			t.Error("the consumer was not woken")
		}
		if result := read(5, nil); bytes == 0 {
			t.Errorf("after it was woken: %+v", result)
		}

		// Cut off, it serves for a while.
		c.members[2].severed.Store(true)
		settle(29 * time.Second)
		read(0, nil)
		settle(2 * time.Second)
		read(0, ErrNotLeader)
		c.members[2].severed.Store(false)
		settle(2 * time.Second)
		read(0, nil)

		// Another leader: it serves again once that one has answered.
		c.elect(tp, 3, 1, 2, 3)
		q.CurrentEpoch = meta.NoEpoch
		settle(time.Second)
		read(0, nil)
		q.CurrentEpoch = 0
		read(0, ErrFencedEpoch)
	})
}

// KIP-392: a leader sends a consumer to a live member of the ISR near it that has the offset; of several to the one that has
// most, then to the one that had everything last. It serves itself when it is near.
func TestReader(t *testing.T) {
	at := time.Unix(100, 0)
	members := []meta.BrokerID{1, 2, 3, 4, 5}
	m := NewMachine(1, 30*time.Second)
	m.RoleChanged(meta.Partition{Replicas: append(members, 6), ISR: members, Leader: 1, Version: 1}, LogState{}, 0, at)
	m.Appended(100)
	for _, f := range []struct {
		broker meta.BrokerID
		offset int64
		after  time.Duration
		start  int64
	}{{2, 100, 1, 0}, {3, 100, 2, 0}, {4, 90, 3, 0}, {5, 100, 4, 50}, {6, 100, 5, 0}} {
		m.FollowerFetched(FollowerFetch{Broker: f.broker, BrokerEpoch: 10, Current: true, Offset: f.offset, LogStart: f.start, LeaderEnd: 100}, at.Add(f.after))
	}
	near := func(ids ...meta.BrokerID) func(meta.BrokerID) bool {
		return func(id meta.BrokerID) bool { return slices.Contains(ids, id) }
	}
	for _, test := range []struct {
		name   string
		offset int64
		near   []meta.BrokerID
		want   meta.BrokerID
	}{
		{"nobody is near", 10, nil, meta.NoBroker},
		{"it is near itself", 10, []meta.BrokerID{1, 2}, meta.NoBroker},
		{"one is near", 10, []meta.BrokerID{2}, 2},
		{"the one that had everything last", 10, []meta.BrokerID{2, 3}, 3},
		{"the one that has most", 10, []meta.BrokerID{2, 4}, 2},
		{"who does not have the offset yet", 95, []meta.BrokerID{4}, meta.NoBroker},
		{"who does not have it any more", 10, []meta.BrokerID{5}, meta.NoBroker},
		{"who is not in the ISR", 10, []meta.BrokerID{6}, meta.NoBroker},
	} {
		if got := m.Reader(test.offset, near(test.near...)); got != test.want {
			t.Errorf("%s: broker %d, want %d", test.name, got, test.want)
		}
	}
	m.BrokersChanged(func(id meta.BrokerID) int64 { return map[meta.BrokerID]int64{3: 10}[id] })
	if got := m.Reader(10, near(2, 3)); got != 3 {
		t.Errorf("broker 2 is fenced, and %d is asked", got)
	}
	if got := m.Reader(10, near(2)); got != meta.NoBroker {
		t.Errorf("broker %d is fenced, and asked", got)
	}
}
