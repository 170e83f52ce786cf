package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestGroupCommands lists, describes, resets and deletes groups.
func TestGroupCommands(t *testing.T) {
	c := newCLI(t)
	if got := c.must("", "group", "list"); got != "" {
		t.Errorf("no groups: %q", got)
	}
	c.refused(exitFailure, "describe group nobody: ", "", "group", "describe", "nobody")
	c.must("", "topic", "create", "lines", "--partitions", "2")
	c.must("a\nb\nc\n", "produce", "lines", "--partition", "0")
	c.must("d\n", "produce", "lines", "--partition", "1")

	client, err := kgo.NewClient(kgo.SeedBrokers(c.broker.addr), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("lines"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.ClientID("reader"))
	if err != nil {
		t.Fatal(err)
	}
	for read := 0; read < 4; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		read += fetches.NumRecords()
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := c.must("", "group", "list", "--state", "Stable"); !strings.Contains(got, "readers  Stable  classic  consumer") {
		t.Errorf("list: %q", got)
	}
	c.must("e\n", "produce", "lines", "--partition", "1")
	var described []groupDescription
	if err := json.Unmarshal([]byte(c.must("", "group", "describe", "readers", "--format", "json")), &described); err != nil {
		t.Fatal(err)
	}
	if g := described[0]; g.State != "Stable" || g.Lag != 1 || len(g.Members) != 1 || g.Members[0].ClientID != "reader" || len(g.Offsets) != 2 ||
		*g.Offsets[0].Committed != 3 || *g.Offsets[1].Lag != 1 || g.Offsets[1].Member != g.Members[0].ID {
		t.Errorf("described: %+v", g)
	}
	c.refused(exitFailure, "reset group readers: it has members: stop them first", "", "group", "reset", "readers", "--all-topics", "--to", "earliest")
	c.refused(exitFailure, "delete group readers: it has members: stop them first", "", "group", "delete", "readers")
	client.Close()

	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--all-topics", "--to", "earliest", "--dry-run"}, "lines 0 3 0;lines 1 1 0"},
		{[]string{"--all-topics", "--shift-by", "-1"}, "lines 0 3 2;lines 1 1 0"},
		{[]string{"--topic", "lines:0", "--to", "latest"}, "lines 0 2 3"},
		{[]string{"--topic", "lines:0,1", "--to", "9"}, "lines 0 3 3;lines 1 0 2"},
		{[]string{"--topic", "lines", "--to", "2020-01-31T12:00:00Z"}, "lines 0 3 0;lines 1 2 0"},
		{[]string{"--topic", "lines", "--to", "2120-01-31T12:00:00Z"}, "lines 0 0 3;lines 1 0 2"},
	} {
		got := c.must("", append([]string{"group", "reset", "readers"}, tc.args...)...)
		var rows []string
		for _, line := range strings.Split(strings.TrimSpace(got), "\n")[1:] {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
		if strings.Join(rows, ";") != tc.want {
			t.Errorf("reset %v: %q, want %q", tc.args, rows, tc.want)
		}
	}
	reset := []string{"group", "reset", "readers"}
	c.refused(exitUsage, "give either --to or --shift-by", "", append(reset, "--all-topics")...)
	c.refused(exitUsage, "--topic TOPIC[:PARTITION,...] or --all-topics", "", append(reset, "--to", "latest")...)
	c.refused(exitUsage, `--to "soon": want earliest`, "", append(reset, "--all-topics", "--to", "soon")...)
	c.refused(exitUsage, "topic lines has no partition 7", "", append(reset, "--topic", "lines:7", "--to", "latest")...)
	c.refused(exitFailure, "it has committed no offsets", "", "group", "reset", "nobody", "--all-topics", "--to", "latest")
	if got := c.must("", "group", "describe", "readers"); !strings.Contains(got, "group readers  state Empty  coordinator 1  lag 0") {
		t.Errorf("describe: %q", got)
	}
	if got := c.must("", "group", "delete", "readers"); got != "readers\n" {
		t.Errorf("delete: %q", got)
	}
	c.refused(exitFailure, "delete group readers: there is no such group", "", "group", "delete", "readers")
}
