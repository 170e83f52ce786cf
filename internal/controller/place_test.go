package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// The assignments of Kafka's rules, from start 0: without racks, with as many replicas as racks, with fewer, with more, and
// with racks of different sizes.
func TestPlaceGolden(t *testing.T) {
	for _, test := range []struct {
		name                 string
		racks                string // of brokers 0, 1, …; "-" is none
		partitions, replicas int
		want                 string
	}{
		{"without racks", "- - - - -", 10, 3, "0,1,2 1,2,3 2,3,4 3,4,0 4,0,1 0,2,3 1,3,4 2,4,0 3,0,1 4,1,2"},
		{"a ring in which racks alternate", "r1 r3 r3 r2 r2 r1", 6, 1, "0 3 1 5 4 2"},
		{"three racks of two", "r1 r3 r3 r2 r2 r1", 12, 3, "0,3,1 3,1,5 1,5,4 5,4,2 4,2,0 2,0,3 0,4,2 3,2,0 1,0,3 5,3,1 4,1,5 2,5,4"},
		{"fewer replicas than racks", "r1 r3 r3 r2 r2 r1", 7, 2, "0,3 3,1 1,5 5,4 4,2 2,0 0,4"},
		{"racks of different sizes", "a a a b b c", 6, 3, "0,3,5 3,5,1 5,1,4 1,4,5 4,2,5 2,3,5"},
		{"two racks, three replicas", "a a b", 6, 3, "0,2,1 2,1,0 1,2,0 0,2,1 2,1,0 1,2,0"},
	} {
		var brokers []meta.Broker
		for i, rack := range strings.Fields(test.racks) {
			brokers = append(brokers, meta.Broker{ID: meta.BrokerID(i), Rack: strings.Trim(rack, "-")})
		}
		assignments, refusal := Place(brokers, test.partitions, test.replicas, 0)
		if refusal != nil {
			t.Errorf("%s: %v", test.name, refusal)
			continue
		}
		var got []string
		for _, assignment := range assignments {
			got = append(got, strings.ReplaceAll(strings.Trim(fmt.Sprint(assignment), "[]"), " ", ","))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, text, test.want)
		}
	}
	if _, refusal := Place([]meta.Broker{{ID: 1}}, 1, 2, 0); refusal == nil || !strings.Contains(refusal.Error(), "only 1 broker(s) are registered") {
		t.Errorf("more replicas than brokers: %v", refusal)
	}
}
