package registry

import (
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// D6: two brokers that were refused end a registration, with everything that stands under its lease; one does not, unless
// there is no other, and nobody ends another registration than the one that refused.
func TestReportRefusal(t *testing.T) {
	overClusters(t, func(t *testing.T, c *Cluster) {
		gone, second, third := register(t, c, 1, 1), register(t, c, 2, 2), register(t, c, 3, 3)
		seat, won, err := c.Elect(t.Context(), 1, gone)
		if err != nil || !won {
			t.Fatalf("%t, %v", won, err)
		}
		if _, err := c.Unfence(t.Context(), seat, *snapshot(t, c).Brokers[1]); err != nil {
			t.Fatal(err)
		}
		report := func(by meta.BrokerID, me Registered, of meta.BrokerID, registration int64) bool {
			t.Helper()
			ended, err := c.ReportRefusal(t.Context(), by, me, of, registration)
			if err != nil {
				t.Fatal(err)
			}
			return ended
		}
		for range 2 {
			if report(2, second, 1, gone.Epoch) {
				t.Fatal("one broker of three was enough")
			}
		}
		if report(3, third, 1, gone.Epoch-1) {
			t.Fatal("a report of an earlier registration ended this one")
		}
		if !report(3, third, 1, gone.Epoch) {
			t.Fatal("two of three were not enough")
		}
		s := snapshot(t, c)
		if b := s.Brokers[1]; b.Registration != 0 || b.Live != 0 || s.Seat.Broker != meta.NoBroker {
			t.Errorf("after the end: %+v, seat %+v", b, s.Seat)
		}
		if report(2, second, 1, gone.Epoch) {
			t.Error("ended twice")
		}

		again := register(t, c, 1, 1)
		if report(2, second, 1, again.Epoch) {
			t.Error("reports of the former registration count against this one")
		}
		if err := c.Unregister(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if !report(2, second, 3, third.Epoch) {
			t.Error("the only other broker was not enough")
		}
		if report(3, third, 2, second.Epoch) {
			t.Error("a broker that is not registered was heard")
		}
	})
}
