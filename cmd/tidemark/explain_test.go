package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/server"
)

func TestExplainISR(t *testing.T) {
	c := newCLI(t)
	c.must("", "topic", "create", "with-dash", "--partitions", "2")
	if text := c.must("", "explain", "isr", "with-dash-1"); !strings.HasPrefix(text, "with-dash-1: leader 1, epoch 0, replicas 1, in sync 1, min.insync.replicas 1\n") {
		t.Error(text)
	}
	var e isrExplanation
	if err := json.Unmarshal([]byte(c.must("", "explain", "isr", "with-dash-1", "--format", "json")), &e); err != nil {
		t.Fatal(err)
	}
	if !e.InSync || e.Leader != 1 || e.Controller != 1 || len(e.Accounts) != 1 || e.Accounts[0].Replica.Role != "leader" || e.Accounts[0].Controller == nil {
		t.Errorf("%+v", e)
	}
	c.refused(exitFailure, "explain none-0: there is no such topic (UNKNOWN_TOPIC_OR_PARTITION)", "", "explain", "isr", "none-0")
	c.refused(exitFailure, "explain with-dash-2: there is no such partition", "", "explain", "isr", "with-dash-2")
	c.refused(exitUsage, `partition "two": want TOPIC-PARTITION`, "", "explain", "isr", "two")
	c.refused(exitUsage, "", "", "explain", "isr")
}

// What the brokers know is put together: the newest value, who is out and why, each event once, in order. (R-100, D6)
func TestExplanation(t *testing.T) {
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	value := meta.Partition{Replicas: []meta.BrokerID{1, 2, 3}, Leader: 1, LeaderEpoch: 4, ISR: []meta.BrokerID{1, 2}, MinISR: 2}
	lagged := "broker 3 left the ISR: it had not caught up for 30.4 s (bound 30.0 s); its last fetch, 30.4 s before, asked for offset 5 of 10"
	e := isrExplanation{Partition: "a-0", Silent: []silentBroker{{3, "connection refused"}}, Accounts: []server.Account{
		{
			Broker: 2, At: at, Version: 8, Value: value,
			Replica:    replica.Account{Role: "follower", Events: []meta.Event{{At: at, Kind: meta.EventShrink, Broker: 3, Why: "broker 3 left the ISR"}}},
			Controller: &controller.Account{Brokers: []controller.BrokerAccount{{Broker: 3, State: "fenced", Events: []meta.Event{{At: at.Add(time.Second), Kind: meta.EventBroker, Broker: 3, Why: "broker 3 is fenced"}}}}},
		},
		{
			Broker: 1, At: at, Version: 9, Value: value,
			Replica: replica.Account{
				Role: "leader", LogEnd: 10, Others: []replica.Standing{{Broker: 3, End: 5, Fetched: at.Add(-40 * time.Second), Why: "it is not live in broker epoch 7, in which it fetched"}},
				Events: []meta.Event{{At: at.Add(-time.Second), Kind: meta.EventShrink, Broker: 3, Why: lagged}},
			},
		},
	}}
	e.conclude()
	if e.InSync || e.Accounts[0].Broker != 1 || e.Controller != 2 || len(e.Out) != 1 || len(e.Events) != 2 || e.Events[0].Why != lagged {
		t.Errorf("%+v", e)
	}
	want := []string{
		"controller 2: it is fenced since " + clock(at.Add(time.Second)),
		"leader 1: it is not live in broker epoch 7, in which it fetched; its last fetch that counted, at " + clock(at.Add(-40*time.Second)) + " (40s ago), asked for offset 5 of 10",
		"broker 3 itself does not answer: connection refused",
	}
	if !slices.Equal(e.Out[0].Known, want) {
		t.Errorf("known: %q", e.Out[0].Known)
	}
	if got := e.fault(); got != "2 of 3 replicas are, broker 3 not" {
		t.Error(got)
	}
	e.Leaderless = "waiting for broker 3"
	if got := e.fault(); got != "it has no leader: waiting for broker 3" {
		t.Error(got)
	}
	var out strings.Builder
	if err := e.print(streams{out: &out}); err != nil || !strings.Contains(out.String(), "shrink          "+lagged+" [broker 1]\n") {
		t.Error(errors.Join(err, errors.New(out.String())))
	}
}
