package registry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// D3: who founds a cluster, who joins one, who waits, who refuses.
func TestDecide(t *testing.T) {
	peers := []Peer{{1, "a:1"}, {2, "b:1"}, {3, "c:1"}, {4, "d:1"}}
	const list = "1@a:1,2@b:1,3@c:1,4@d:1"
	empty := func() *answer { return &answer{Brokers: list} }
	member := func(registry string, leads bool) *answer {
		return &answer{Brokers: list, Member: true, Registry: registry, Leads: leads}
	}
	all := func(a map[meta.BrokerID]*answer) map[meta.BrokerID]*answer { return a }
	for _, test := range []struct {
		name    string
		broker  meta.BrokerID
		cluster string // of this broker's data
		answers map[meta.BrokerID]*answer
		want    placement // join 0 stands for nobody; wait is part of the text
		err     error
	}{
		{"the lowest of all empty ones founds", 1, "", all(map[meta.BrokerID]*answer{2: empty(), 3: empty(), 4: empty()}), placement{found: true}, nil},
		{"another one waits for it", 2, "", all(map[meta.BrokerID]*answer{1: empty(), 3: empty(), 4: empty()}), placement{wait: "broker 1 to found"}, nil},
		{"one that is silent may have a registry", 1, "", all(map[meta.BrokerID]*answer{2: empty(), 3: nil, 4: empty()}), placement{wait: "an answer of 3@c:1"}, nil},
		{"alone in the dark", 1, "", all(map[meta.BrokerID]*answer{}), placement{wait: "an answer of 2@b:1, 3@c:1, 4@d:1"}, nil},
		{"another list is another cluster", 1, "", all(map[meta.BrokerID]*answer{2: {Brokers: "1@a:1,2@b:1"}, 3: empty(), 4: empty()}), placement{wait: "broker 2 to have the same list"}, nil},
		{"a registry is joined, whoever is silent", 1, "", all(map[meta.BrokerID]*answer{2: member("r", true), 3: nil}), placement{join: 2}, nil},
		{"through its leader", 1, "", all(map[meta.BrokerID]*answer{2: member("r", false), 3: member("r", true), 4: empty()}), placement{join: 3}, nil},
		{"which there may not be yet", 1, "", all(map[meta.BrokerID]*answer{2: member("r", false), 3: empty(), 4: empty()}), placement{wait: "to have a leader"}, nil},
		{"a member that starts is no empty broker", 1, "", all(map[meta.BrokerID]*answer{2: member("", false), 3: empty(), 4: empty()}), placement{wait: "to have a leader"}, nil},
		{"two registries", 1, "", all(map[meta.BrokerID]*answer{2: member("r", true), 3: member("s", true)}), placement{}, ErrSplit},
		{"the registry of another cluster", 1, "mine", all(map[meta.BrokerID]*answer{2: {Member: true, Registry: "r", Leads: true, Cluster: "theirs"}}), placement{}, ErrOtherCluster},
		{"the registry of this cluster", 1, "mine", all(map[meta.BrokerID]*answer{2: {Member: true, Registry: "r", Leads: true, Cluster: "mine"}}), placement{join: 2}, nil},
		{"data without a registry, here", 1, "mine", all(map[meta.BrokerID]*answer{2: empty(), 3: empty(), 4: empty()}), placement{}, ErrLost},
		{"data without a registry, while somebody is silent", 1, "", all(map[meta.BrokerID]*answer{2: {Brokers: list, Cluster: "here"}, 3: nil, 4: empty()}), placement{wait: "an answer of 3@c:1"}, nil},
		{"data without a registry, on a client", 1, "", all(map[meta.BrokerID]*answer{2: empty(), 3: empty(), 4: {Brokers: list, Cluster: "lost"}}), placement{}, ErrLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &Door{config: DoorConfig{Broker: test.broker, Peers: peers, Members: 3}}
			d.SetCluster(test.cluster)
			got := d.decide(test.answers)
			if !errors.Is(got.err, test.err) || (got.err == nil) != (test.err == nil) {
				t.Errorf("error %v, want %v", got.err, test.err)
			}
			if test.err != nil {
				return
			}
			if test.want.join == 0 {
				test.want.join = meta.NoBroker
			}
			if got.found != test.want.found || got.join != test.want.join || (got.wait == "") != (test.want.wait == "") || !strings.Contains(got.wait, test.want.wait) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// D3: the number of voters is odd before and after, except on the way between.
func TestPromotable(t *testing.T) {
	for _, test := range []struct{ voters, ready, members, want int }{
		{1, 0, 3, 0}, {1, 1, 3, 0}, {1, 2, 3, 2}, {2, 1, 3, 1}, {2, 2, 3, 1}, {3, 1, 3, 0}, {1, 2, 1, 0},
		{3, 1, 5, 0}, {3, 2, 5, 2}, {4, 1, 5, 1}, {5, 2, 5, 0}, {4, 0, 3, 0},
	} {
		if got := promotable(test.voters, test.ready, test.members); got != test.want {
			t.Errorf("%d voters and %d learners of %d: %d, want %d", test.voters, test.ready, test.members, got, test.want)
		}
	}
}

// U-63: a directory keeps its name, an emptied one gets another, and so does its member.
func TestIncarnation(t *testing.T) {
	dir := t.TempDir()
	first, err := openIncarnation(dir)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := openIncarnation(dir); err != nil || again != first {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
	if err := os.Remove(filepath.Join(dir, incarnationName)); err != nil {
		t.Fatal(err)
	}
	other, err := openIncarnation(dir)
	if err != nil || other == first || memberID(1, other) == memberID(1, first) || memberID(1, first) == memberID(2, first) {
		t.Errorf("%q, then %q, %v", first, other, err)
	}
}

// A list of brokers that cannot be one is refused, naming what is wrong.
func TestOpenDoorRefuses(t *testing.T) {
	two := []Peer{{1, "a:1"}, {2, "b:1"}}
	for want, c := range map[string]DoorConfig{
		"2@a:1 occurs twice":                     {Broker: 1, Peers: []Peer{{1, "a:1"}, {2, "a:1"}}, Members: 1},
		"1@b:1 occurs twice":                     {Broker: 1, Peers: []Peer{{1, "a:1"}, {1, "b:1"}}, Members: 1},
		"this broker, 3, is not among them":      {Broker: 3, Peers: two, Members: 1},
		"2 of 2 brokers; want 1, 3 or 5 of them": {Broker: 1, Peers: two, Members: 2},
		"3 of 2 brokers; want 1, 3 or 5 of them": {Broker: 1, Peers: two, Members: 3},
		"registry certificate: ":                 {Broker: 1, Peers: two, Members: 1, TLS: &TLS{CertFile: "none", KeyFile: "none", CAFile: "none"}},
	} {
		if _, err := OpenDoor(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
