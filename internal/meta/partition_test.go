package meta

import (
	"encoding/json"
	"reflect"
	"testing"
)

// D4: the value under /topics/<id>/p/<n> is read by people with etcdctl, and by every later version.
func TestPartitionJSON(t *testing.T) {
	dir := DirectoryID{1, 2, 3}
	full := Partition{
		Replicas: []BrokerID{1, 2, 3}, Adding: []BrokerID{3}, Removing: []BrokerID{1}, Leader: 2, LeaderEpoch: 7,
		ISR: []BrokerID{2}, ELR: []BrokerID{3}, LastKnownISR: []BrokerID{1}, MinISR: 2, Recovery: 1, UncleanEpoch: 6, Flush: true, Flushed: true,
		Dirs: []DirectoryID{dir}, Version: 9,
	}
	for _, c := range []struct {
		state Partition
		want  string
	}{
		{
			Partition{Replicas: []BrokerID{1}, Leader: 1, ISR: []BrokerID{1}, MinISR: 1},
			`{"replicas":[1],"leader":1,"leader_epoch":0,"isr":[1],"min_isr":1}`,
		},
		{
			full,
			`{"replicas":[1,2,3],"adding":[3],"removing":[1],"leader":2,"leader_epoch":7,"isr":[2],"elr":[3],"last_known_isr":[1],` +
				`"min_isr":2,"recovery":1,"unclean_epoch":6,"flush":true,"flushed":true,"dirs":["AQIDAAAAAAAAAAAAAAAAAA"]}`,
		},
	} {
		got, err := json.Marshal(&c.state)
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
		}
		var back Partition
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		back.Version = c.state.Version
		if !reflect.DeepEqual(back, c.state) {
			t.Errorf("read back %+v, want %+v", back, c.state)
		}
	}
}

// D8: values are ordered by (leader epoch, version).
func TestPartitionNewer(t *testing.T) {
	order := []Partition{{LeaderEpoch: 0, Version: 1}, {LeaderEpoch: 0, Version: 5}, {LeaderEpoch: 1, Version: 2}, {LeaderEpoch: 2, Version: 1}}
	for i := range order {
		for j := range order {
			if got := order[i].Newer(&order[j]); got != (i > j) {
				t.Errorf("Newer(%d, %d) = %t", i, j, got)
			}
		}
	}
}

// D8: acks=all demands min(min_isr, replicas), never less than one.
func TestMinISRBound(t *testing.T) {
	for _, c := range []struct {
		replicas int
		minISR   int32
		want     int
	}{{1, 2, 1}, {3, 2, 2}, {3, 0, 1}, {3, 1, 1}, {0, 0, 1}} {
		p := Partition{Replicas: make([]BrokerID, c.replicas), MinISR: c.minISR}
		if got := p.MinISRBound(); got != c.want {
			t.Errorf("%d replicas, min_isr %d: %d, want %d", c.replicas, c.minISR, got, c.want)
		}
	}
}

func TestPartitionCloneSharesNothing(t *testing.T) {
	p := Partition{Replicas: []BrokerID{1}, ISR: []BrokerID{1}, ELR: []BrokerID{1}, Dirs: make([]DirectoryID, 1)}
	c := p.Clone()
	c.Replicas[0], c.ISR[0], c.ELR[0], c.Dirs[0] = 2, 2, 2, DirectoryID{1}
	if p.Replicas[0] != 1 || p.ISR[0] != 1 || p.ELR[0] != 1 || !p.Dirs[0].IsZero() {
		t.Fatalf("the original changed: %+v", p)
	}
}

// D8, KIP-966: whoever writes the ISR recomputes ELR and last_known_isr in that write.
func TestChangeISR(t *testing.T) {
	p := Partition{Replicas: []BrokerID{1, 2, 3}, Leader: 1, ISR: []BrokerID{1, 2, 3}, MinISR: 2}
	for _, c := range []struct {
		isr, elr, known []BrokerID
	}{
		{isr: []BrokerID{1, 2}},
		{isr: []BrokerID{1}, elr: []BrokerID{2}},
		{isr: []BrokerID{1, 3}},
	} {
		p.ChangeISR(c.isr)
		if !reflect.DeepEqual([][]BrokerID{p.ISR, p.ELR, p.LastKnownISR}, [][]BrokerID{c.isr, c.elr, c.known}) {
			t.Errorf("ISR %v, ELR %v, last known %v; want %v, %v, %v", p.ISR, p.ELR, p.LastKnownISR, c.isr, c.elr, c.known)
		}
	}
	p.ChangeISR([]BrokerID{1})
	p.LastKnownISR = []BrokerID{2}
	if p.ChangeISR([]BrokerID{1, 2}); p.ELR != nil || p.LastKnownISR != nil {
		t.Errorf("ELR %v and last known %v outlive a full ISR", p.ELR, p.LastKnownISR)
	}
}
