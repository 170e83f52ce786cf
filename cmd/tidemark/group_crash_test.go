package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestGroupCrash kills a broker with SIGKILL under a group that reads and commits: the same members go on with the restarted
// broker, what was acknowledged is there, no committed offset goes back, and a deleted group stays away (U-116).
func TestGroupCrash(t *testing.T) {
	dir := t.TempDir()
	broker, err := startChild(t, dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := broker.addr
	broker.createTopic(t, "lines", "--partitions", "2")
	ctx := withTimeout(t, 2*time.Minute)
	producer := broker.client(t, kgo.DefaultProduceTopic("lines"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	members := make([]*kgo.Client, 2)
	for i := range members {
		members[i] = broker.client(t, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("lines"), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))
	}
	admin := kadm.NewClient(producer)
	gone := kadm.Offsets{}
	gone.AddOffset("lines", 0, 1, -1)
	if err := admin.CommitAllOffsets(ctx, "gone", gone); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteGroup(ctx, "gone"); err != nil {
		t.Fatal(err)
	}

	read, committed := make(map[string]bool), make(map[int32]int64)
	for cycle := range 3 {
		for i := range 100 {
			producer.Produce(ctx, kgo.StringRecord(fmt.Sprint(cycle, "-", i)), nil)
		}
		if err := producer.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		for turn := 0; len(read) < 100*(cycle+1); turn++ {
			if ctx.Err() != nil {
				t.Fatalf("cycle %d: %d lines were read", cycle, len(read))
			}
			pollAndCommit(ctx, members[turn%2], read, committed)
		}
		broker.kill()
		if broker, err = startChild(t, dir, addr); err != nil {
			t.Fatalf("cycle %d: %v", cycle, err)
		}
		admin = kadm.NewClient(broker.client(t)) // connections of the old process end with EOF, once
		offsets, err := admin.FetchOffsets(ctx, "readers")
		if err != nil {
			t.Fatal(err)
		}
		for partition, at := range committed {
			if got, found := offsets.Lookup("lines", partition); !found || got.At < at {
				t.Fatalf("cycle %d: partition %d was committed at %d, and is at %+v", cycle, partition, at, got)
			}
		}
	}
	groups, err := admin.ListGroups(ctx)
	if err != nil || fmt.Sprint(groups.Groups()) != "[readers]" {
		t.Errorf("groups: %v, %v", groups, err)
	}
}

// pollAndCommit takes what a member has, and notes what is acknowledged to be committed.
func pollAndCommit(ctx context.Context, member *kgo.Client, read map[string]bool, committed map[int32]int64) {
	poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	fetches := member.PollFetches(poll)
	defer member.AllowRebalance()
	if fetches.NumRecords() == 0 {
		return
	}
	next := make(map[int32]int64)
	fetches.EachRecord(func(r *kgo.Record) {
		read[string(r.Value)] = true
		next[r.Partition] = r.Offset + 1
	})
	if member.CommitRecords(ctx, fetches.Records()...) != nil {
		return // a rebalance is in the way: somebody reads them again
	}
	for partition, at := range next {
		committed[partition] = max(committed[partition], at)
	}
}
