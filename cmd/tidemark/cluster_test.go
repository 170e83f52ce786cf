package main

import (
	"encoding/json"
	"strings"
	"testing"
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
		Brokers:    []brokerStatus{{ID: 1, State: "live"}, {ID: 2, State: "missing"}},
		Registry:   &registryStatus{Leader: -1, Voters: 1, Wanted: 3},
		Leaderless: []string{"a-0"}, UnderMinISR: []string{"a-0", "b-0"}, UnderReplicated: []string{"a-0", "b-0", "c-0"}, Moving: []string{"c-0"},
	}
	const want = "the registry has no leader, 1 of 3 members of the registry vote, 1 broker is away, 1 partition has no leader, 2 partitions take no acks=all, 2 partitions lack replicas in sync"
	if got := s.faults(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s = clusterStatus{Brokers: []brokerStatus{{ID: 1, State: "live"}}, UnderReplicated: []string{"c-0"}, Moving: []string{"c-0"}}
	if got := s.faults(); got != "" {
		t.Errorf("got %q of a cluster without faults", got)
	}
}
