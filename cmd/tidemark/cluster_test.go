package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestClusterStatusAndPartitions(t *testing.T) {
	c := newCLI(t)
	c.must("", "topic", "create", "two-parts", "--partitions", "2")
	text := c.must("", "cluster", "status")
	if !strings.Contains(text, "healthy") || !strings.Contains(text, "live, controller") || !strings.Contains(text, "1 topic, 2 partitions") {
		t.Error(text)
	}
	var status clusterStatus
	if err := json.Unmarshal([]byte(c.must("", "cluster", "status", "--format", "json")), &status); err != nil {
		t.Fatal(err)
	}
	if r := status.Registry; r == nil || r.Leader != 1 || r.Voters != 1 || r.Wanted != 1 {
		t.Errorf("registry: %+v", r)
	}
	if !status.Healthy || status.Controller != 1 || len(status.Brokers) != 1 || status.Brokers[0].Leads != 2 || status.Brokers[0].InSync != 2 {
		t.Errorf("%+v", status)
	}
	if text := c.must("", "partition", "list", "two-parts"); !strings.Contains(text, "two-parts-1  1       0      1         1") {
		t.Error(text)
	}
	if text := c.must("", "partition", "list", "--unhealthy"); text != "" {
		t.Error(text)
	}
	if text := c.must("", "partition", "elect", "two-parts-0"); text != "two-parts-0\n" {
		t.Error(text)
	}
	if text := c.must("", "partition", "elect", "--all"); text != "" {
		t.Error(text)
	}
	if text := c.must("", "partition", "reassign", "two-parts-0", "two-parts-1", "--to", "1"); text != "two-parts-0\ntwo-parts-1\n" {
		t.Error(text)
	}
	c.refused(exitFailure, "broker 9, but no such broker is registered", "", "partition", "reassign", "two-parts-0", "--to", "1,9")
	c.refused(exitFailure, "NO_REASSIGNMENT_IN_PROGRESS", "", "partition", "reassign", "two-parts-0", "--cancel")
	c.refused(exitFailure, "there is no such partition", "", "partition", "elect", "two-parts-7")
	c.refused(exitUsage, `partition "two": want TOPIC-PARTITION`, "", "partition", "elect", "two")
	c.refused(exitUsage, "give either partitions or --all", "", "partition", "elect")
	c.refused(exitUsage, "give either --to with the brokers, or --cancel", "", "partition", "reassign", "two-parts-0")
}

// What is wrong is counted, and named. A replica that is still being added is nothing wrong.
func TestClusterFaults(t *testing.T) {
	s := clusterStatus{
		Brokers:    []brokerStatus{{ID: 1, State: "live"}, {ID: 2, State: "missing"}, {ID: 3, State: "silent"}},
		Registry:   &registryStatus{Leader: -1, Voters: 1, Wanted: 3},
		Leaderless: []string{"a-0"}, UnderMinISR: []string{"a-0", "b-0"}, UnderReplicated: []string{"a-0", "b-0", "c-0"}, Moving: []string{"c-0"},
	}
	const want = "the registry has no leader, so nothing can be decided, 1 of 3 members of the registry vote, 1 broker is away, 1 broker does not answer, 1 partition has no leader, 2 partitions take no acks=all, 2 partitions lack replicas in sync"
	if got := s.faults(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s = clusterStatus{Brokers: []brokerStatus{{ID: 1, State: "live"}}, UnderReplicated: []string{"c-0"}, Moving: []string{"c-0"}}
	if got := s.faults(); got != "" {
		t.Errorf("got %q of a cluster without faults", got)
	}
}

// D6: a broker that is down is shown with where it was last and its rack, and counts as away.
func TestClusterStatusShowsWhereABrokerWas(t *testing.T) {
	var out strings.Builder
	s := clusterStatus{Brokers: []brokerStatus{{ID: 2, State: "down", Address: "two:9093", Rack: "r2", listed: true}}}
	if err := s.print(streams{out: &out}); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "2 down last at two:9093 r2 0 0 0") {
		t.Error(text)
	}
	if got := s.faults(); got != "1 broker is away" {
		t.Error(got)
	}
	s.Brokers[0].listed = false
	if got := s.faults(); got != "" {
		t.Errorf("%q, of a broker that was taken out of the list and has no replicas", got)
	}
}

// When a broker or the controller does not answer, the status says so, and another broker tells the rest.
func TestClusterStatusDoesWithoutSilentBrokers(t *testing.T) {
	c := newCLI(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.broker.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	brokers := map[int32]*brokerStatus{1: {ID: 1, State: "live"}, 2: {ID: 2, State: "live"}, 3: {ID: 3, State: "fenced"}}
	hearBrokers(t.Context(), cl, brokers)
	if brokers[1].State != "live" || brokers[2].State != "silent" || brokers[3].State != "fenced" {
		t.Errorf("of one broker that runs, one that does not and one that is fenced: %q, %q, %q", brokers[1].State, brokers[2].State, brokers[3].State)
	}
	for _, b := range brokers {
		b.State = "live"
	}
	var asked []int32
	s := clusterStatus{Controller: 2}
	err = s.ask(t.Context(), cl, brokers, func(_ context.Context, id int32, _ *kgo.Broker) error {
		asked = append(asked, id)
		if id == 3 {
			return nil
		}
		return errors.New("gone")
	})
	if err != nil || !slices.Equal(asked, []int32{2, 1, 3}) {
		t.Errorf("asked %v, want the controller, then the others until one answers: %v", asked, err)
	}
	brokers[1].State, brokers[3].State = "silent", "silent"
	registry, err := registryOf(t.Context(), cl.Broker(1), 1, brokers)
	if err != nil || registry.String() != "led by broker 1, 1 of 1 members vote, away: 1" {
		t.Errorf("registry %v: %v", registry, err)
	}
}
