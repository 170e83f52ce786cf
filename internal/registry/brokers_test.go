package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// D6, U-65: the same directory takes over; another one is refused, naming the first.
func TestRegister(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		first := register(t, c, 1, 1)
		seat := elect(t, c, 1, first)
		if _, err := c.Unfence(t.Context(), seat, *snapshot(t, c).Brokers[1]); err != nil {
			t.Fatal(err)
		}
		_, err := c.Register(t.Context(), 1, Registration{Directories: []meta.DirectoryID{directory(2)}}, time.Minute)
		var taken *TakenError
		want := "broker id 1 is taken by the broker at h:9092 on host box with data directory id CAAAAAAAAAAAAAAAAAAAAQ: give this one another node.id"
		if !errors.As(err, &taken) || err.Error() != want {
			t.Fatalf("a second incarnation: %v", err)
		}
		second := register(t, c, 1, 1)
		s := snapshot(t, c)
		if b := s.Brokers[1]; b.Registration != second.Epoch || b.Live != 0 || b.Epoch == 0 || s.Seat.Broker != meta.NoBroker {
			t.Errorf("after the takeover: %+v, seat %+v", b, s.Seat)
		}
		if _, _, err := c.Elect(t.Context(), 1, first); !errors.Is(err, ErrLeaseGone) {
			t.Errorf("the predecessor stands for election: %v", err)
		}
		if err := c.Unregister(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if got := snapshot(t, c).Registered(); len(got) != 0 {
			t.Errorf("registered: %+v", got)
		}
		if epoch, err := c.BrokerEpoch(t.Context(), 1); err != nil || epoch != s.Brokers[1].Epoch {
			t.Errorf("the epoch is kept: %d, %v", epoch, err)
		}
	})
}

// D9: the record of an I/O error stays until a registration that came after it, and counts as unclean, is unfenced.
func TestUncleanRecord(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		ctx := t.Context()
		enter := func(clean bool) {
			t.Helper()
			r, err := c.Register(ctx, 1, Registration{Directories: []meta.DirectoryID{directory(1)}, Clean: clean}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			seat := elect(t, c, 1, r)
			if _, err := c.Unfence(ctx, seat, *snapshot(t, c).Brokers[1]); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string, want bool) {
			t.Helper()
			if got, err := c.Unclean(ctx, 1); err != nil || got != want {
				t.Errorf("%s: unclean is %t, %v; want %t", when, got, err, want)
			}
		}
		check("at first", false)
		enter(false)
		check("after an unfencing without a record", false)
		for range 2 {
			if err := c.MarkUnclean(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		check("after an error", true)
		enter(true)
		check("after an unfencing that swept nothing", true)
		enter(false)
		check("after a sweep", false)
		late, err := c.Register(ctx, 1, Registration{Directories: []meta.DirectoryID{directory(1)}}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.MarkUnclean(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Unfence(ctx, elect(t, c, 1, late), *snapshot(t, c).Brokers[1]); err != nil {
			t.Fatal(err)
		}
		check("after an error that is later than the registration", true)
	})
}

func TestElection(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		one, two := register(t, c, 1, 1), register(t, c, 2, 2)
		first := elect(t, c, 1, one)
		holder, won, err := c.Elect(t.Context(), 2, two)
		if err != nil || won || holder != first || first.Epoch != 1 {
			t.Fatalf("got %+v, %t, %v", holder, won, err)
		}
		vacant := make(chan error)
		go func() { vacant <- c.AwaitVacancy(t.Context(), holder) }()
		if err := c.Unregister(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := <-vacant; err != nil {
			t.Fatal(err)
		}
		second := elect(t, c, 2, two)
		if second.Epoch != 2 {
			t.Errorf("epoch %d", second.Epoch)
		}
		broker := *snapshot(t, c).Brokers[2]
		if _, err := c.Unfence(t.Context(), first, broker); !errors.Is(err, ErrDeposed) {
			t.Errorf("the deposed controller unfences: %v", err)
		}
		if _, err := c.Unfence(t.Context(), second, broker); err != nil {
			t.Error(err)
		}
		if _, err := c.Unfence(t.Context(), second, broker); !errors.Is(err, ErrConflict) {
			t.Errorf("twice: %v", err)
		}
		broker = *snapshot(t, c).Brokers[2]
		if err := c.Fence(t.Context(), second, broker); err != nil {
			t.Error(err)
		}
		if b := snapshot(t, c).Brokers[2]; b.Live != 0 || b.Epoch != broker.Live || b.Registration == 0 {
			t.Errorf("fenced: %+v", b)
		}
	})
}

// A lease is renewed until ctx ends, and its loss is noticed.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		c := NewCluster(m, "1.0", nil)
		r := register(t, c, 1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.KeepAlive(ctx, r.Lease, time.Minute); err != nil {
			t.Fatalf("within an hour: %v", err)
		}
		if len(snapshot(t, c).Registered()) != 1 {
			t.Fatal("the lease ended while it was renewed")
		}
		time.Sleep(2 * time.Minute)
		if len(snapshot(t, c).Registered()) != 0 {
			t.Fatal("the lease did not end")
		}
		if err := c.KeepAlive(t.Context(), r.Lease, time.Minute); !errors.Is(err, ErrLeaseGone) {
			t.Fatalf("a lost lease: %v", err)
		}
	})
}

// D11: a broker that does not come back is forgotten: deletions wait for it no longer, and if it does come back it counts as
// unclean. One that runs, or that nobody knows, is refused.
func TestForget(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		first, second := register(t, c, 1, 1), register(t, c, 2, 2)
		seat := elect(t, c, 1, first)
		if _, err := c.Unfence(t.Context(), seat, *snapshot(t, c).Brokers[2]); err != nil {
			t.Fatal(err)
		}
		topic := newTopic(1, "a", 2)
		for i := range topic.Partitions {
			p := &topic.Partitions[i]
			p.Replicas, p.ISR, p.Dirs = []meta.BrokerID{1, 2}, []meta.BrokerID{1, 2}, []meta.DirectoryID{directory(1), directory(2)}
		}
		create(t, c, topic, newTopic(2, "b", 1))
		if _, err := c.DeleteTopics(t.Context(), []meta.TopicID{topicID(1)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Forget(t.Context(), 2); !errors.Is(err, ErrConflict) {
			t.Errorf("a running broker: %v", err)
		}
		if err := c.Forget(t.Context(), 3); !errors.Is(err, ErrUnknownBroker) {
			t.Errorf("a broker that never was: %v", err)
		}
		if err := c.Unregister(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if err := c.Forget(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if got := snapshot(t, c).Deleted[topicID(1)].Unconfirmed; len(got) != 1 || got[0] != 1 {
			t.Errorf("the deletion waits for %v", got)
		}
		if err := c.Forget(t.Context(), 2); !errors.Is(err, ErrUnknownBroker) {
			t.Errorf("forgotten twice: %v", err)
		}
		if unclean, err := c.Unclean(t.Context(), 2); err != nil || !unclean {
			t.Errorf("when it comes back it is clean: %v", err)
		}
		register(t, c, 2, 2)
		if _, err := c.Unfence(t.Context(), seat, *snapshot(t, c).Brokers[2]); err != nil {
			t.Fatal(err)
		}
		if err := c.Forget(t.Context(), 2); !errors.Is(err, ErrConflict) {
			t.Errorf("back and running: %v", err)
		}
	})
}

// D6: the record of where a broker is, and its rack, outlives its lease. It is written only when it changes, keeps the mark of
// an I/O error, goes when the broker is forgotten, and one of an older build is completed.
func TestBrokerRecord(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		ctx, key := t.Context(), brokerRecordKey(1)
		put(t, c.store, key, `{"unclean":true}`)
		if _, _, known := snapshot(t, c).Brokers[1].Last(); known {
			t.Error("a record of an older build tells an address")
		}
		enter := func(host, rack string, clean bool) (Registered, Entry) {
			t.Helper()
			r, err := c.Register(ctx, 1, Registration{
				Directories: []meta.DirectoryID{directory(1)}, Clean: clean, Rack: rack,
				Endpoints: []meta.Endpoint{{Listener: "PLAINTEXT", Host: host, Port: 9092, Protocol: "PLAINTEXT"}},
			}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Unfence(ctx, elect(t, c, 1, r), *snapshot(t, c).Brokers[1]); err != nil {
				t.Fatal(err)
			}
			entry, err := c.get(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			return r, entry
		}
		check := func(when, host, rack string, unclean bool) {
			t.Helper()
			endpoints, gotRack, known := snapshot(t, c).Brokers[1].Last()
			if known != (host != "") || known && (len(endpoints) != 1 || endpoints[0].Host != host || gotRack != rack) {
				t.Errorf("%s: last at %v, rack %q, known %t; want %q, %q", when, endpoints, gotRack, known, host, rack)
			}
			if got, err := c.Unclean(ctx, 1); err != nil || got != unclean {
				t.Errorf("%s: unclean is %t, %v; want %t", when, got, err, unclean)
			}
		}
		first, before := enter("one", "r1", true)
		check("registered over a mark", "one", "r1", true)
		if before.Mod != first.Epoch {
			t.Errorf("the record was written in revision %d, the registration in %d", before.Mod, first.Epoch)
		}
		if _, after := enter("one", "r1", true); after.Mod != before.Mod {
			t.Error("a restart that changed nothing wrote the record")
		}
		enter("two", "r2", false)
		check("moved, after a sweep", "two", "r2", false)
		if err := c.MarkUnclean(ctx, 1); err != nil {
			t.Fatal(err)
		}
		last, _ := enter("two", "r3", true)
		check("after an I/O error", "two", "r3", true)
		if err := c.Unregister(ctx, last); err != nil {
			t.Fatal(err)
		}
		check("down", "two", "r3", true)
		if err := c.Forget(ctx, 1); err != nil {
			t.Fatal(err)
		}
		check("forgotten", "", "", true)
		if entry, err := c.get(ctx, key); err != nil || string(entry.Value) != `{"unclean":true,"unregistered":true}` {
			t.Errorf("what is left of a forgotten broker: %s, %v", entry.Value, err)
		}
		enter("two", "r3", false)
		check("back", "two", "r3", false)
	})
}
