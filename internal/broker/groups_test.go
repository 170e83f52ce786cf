package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// reader is one member of a group, which counts what it reads.
type reader struct {
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
}

// readings are what the members of a group have read: how often each record.
type readings struct {
	mu      sync.Mutex
	records map[string]int
	arrived chan struct{} // one slot
}

func newReadings() *readings {
	return &readings{records: make(map[string]int), arrived: make(chan struct{}, 1)}
}

// join adds a member to a group. It commits what it has read at each poll.
func (r *readings) join(t *testing.T, b *running, group string, opts ...kgo.Opt) *reader {
	t.Helper()
	client := b.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics("lines"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.HeartbeatInterval(50 * time.Millisecond), kgo.FetchMaxWait(50 * time.Millisecond),
	}, opts...)...)
	ctx, stop := context.WithCancel(t.Context())
	m := &reader{client: client, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			r.mu.Lock()
			fetches.EachRecord(func(rec *kgo.Record) { r.records[string(rec.Value)]++ })
			r.mu.Unlock()
			if fetches.NumRecords() > 0 {
				_ = client.CommitUncommittedOffsets(ctx) // a rebalance may be in the way: the records are read again
			}
			select {
			case r.arrived <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(m.close)
	return m
}

// close leaves the group.
func (m *reader) close() {
	m.stop()
	<-m.done
	m.client.Close()
}

// await waits until every one of n lines has been read.
func (r *readings) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		got := len(r.records)
		r.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-r.arrived:
		case <-deadline:
			t.Fatalf("%d of %d lines were read", got, n)
		}
	}
}

// lines produces lines from..to-1 into the topic, over all its partitions.
func lines(t *testing.T, b *running, from, to int) {
	t.Helper()
	client := b.client(kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for i := from; i < to; i++ {
		records = append(records, &kgo.Record{Topic: "lines", Value: fmt.Append(nil, i)})
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// withLines is a broker with a topic of four partitions.
func withLines(t *testing.T, dir string) (*running, *kadm.Client) {
	t.Helper()
	b := start(t, dir, map[string]string{"offsets.topic.num.partitions": "5", "group.min.session.timeout.ms": "100"})
	admin := kadm.NewClient(b.client())
	t.Cleanup(admin.Close)
	if _, err := admin.CreateTopic(t.Context(), 4, 1, nil, "lines"); err != nil {
		t.Fatal(err)
	}
	return b, admin
}

// awaitMembers waits until a group is stable with so many members, and each has partitions.
func awaitMembers(t *testing.T, admin *kadm.Client, group string, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		described, err := admin.DescribeGroups(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		g := described[group]
		idle := slices.ContainsFunc(g.Members, func(m kadm.DescribedGroupMember) bool {
			assigned, is := m.Assigned.AsConsumer()
			return !is || len(assigned.Topics) == 0
		})
		if g.State == "Stable" && len(g.Members) == n && !idle {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has %d members, not %d: %+v", group, len(g.Members), n, g)
		}
	}
}

// TestGroupRebalances lets two members share a topic, by each of the client's balancers; a third joins, one leaves, one dies,
// and every record is read.
func TestGroupRebalances(t *testing.T) {
	b, admin := withLines(t, t.TempDir())
	lines(t, b, 0, 200)
	for name, balancer := range map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(), "cooperative": kgo.CooperativeStickyBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := newReadings()
			opts := []kgo.Opt{kgo.Balancers(balancer), kgo.SessionTimeout(2 * time.Second)}
			leaver := read.join(t, b, name, opts...)
			read.await(t, 200)
			dying := read.join(t, b, name, append(opts, kgo.InstanceID("dying"))...) // a static member does not leave
			awaitMembers(t, admin, name, 2)
			read.join(t, b, name, opts...)
			awaitMembers(t, admin, name, 3)
			leaver.close()
			awaitMembers(t, admin, name, 2)
			dying.close()
			awaitMembers(t, admin, name, 1)
			lines(t, b, 200, 300)
			read.await(t, 300)
		})
	}
}

// TestGroupSurvivesRestart restarts the broker under a group: members go on, and committed offsets are where they were
// (U-69, U-116).
func TestGroupSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	b, admin := withLines(t, dir)
	lines(t, b, 0, 100)
	read := newReadings()
	read.join(t, b, "readers").closeWhenRead(t, read, 100)
	before, err := admin.FetchOffsets(t.Context(), "readers")
	if err != nil || len(before["lines"]) != 4 {
		t.Fatalf("%v, %v", before, err)
	}
	gone := kadm.Offsets{}
	gone.AddOffset("lines", 0, 7, 3)
	if err := admin.CommitAllOffsets(t.Context(), "gone", gone); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteGroup(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	b.close()
	b = start(t, dir, nil)
	admin = kadm.NewClient(b.client())
	defer admin.Close()
	after, err := admin.FetchOffsets(t.Context(), "readers")
	if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after the restart %v, %v; before it %v", after, err, before)
	}
	groups, err := admin.ListGroups(t.Context())
	if err != nil || fmt.Sprint(groups.Groups()) != "[readers]" {
		t.Errorf("groups: %v, %v", groups, err)
	}
	if _, err := admin.DeleteGroup(t.Context(), "gone"); !errors.Is(err, kerr.GroupIDNotFound) {
		t.Errorf("the deleted group: %v", err)
	}
	lines(t, b, 100, 120)
	again := newReadings()
	again.join(t, b, "readers").closeWhenRead(t, again, 20)
	if slices.Contains(slices.Collect(maps.Keys(again.records)), "5") {
		t.Error("a committed record was read again")
	}
}

func (m *reader) closeWhenRead(t *testing.T, r *readings, n int) {
	t.Helper()
	r.await(t, n)
	m.close()
}

// TestGroupOffsetsTopic creates the topic at the first look, as Kafka's, and lets no client delete it (U-113). The offsets of
// deleted topics go.
func TestGroupOffsetsTopic(t *testing.T) {
	b, admin := withLines(t, t.TempDir())
	if _, found := b.state.load().Topic(meta.OffsetsTopic); found {
		t.Fatal("the topic exists before its first use")
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "lines", Partition: 2, At: 7, LeaderEpoch: 3, Metadata: "note"})
	if err := admin.CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	configs, err := admin.DescribeTopicConfigs(t.Context(), meta.OffsetsTopic)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		switch c.Key {
		case "cleanup.policy", "segment.bytes":
			if want := map[string]string{"cleanup.policy": "compact", "segment.bytes": "104857600"}[c.Key]; c.MaybeValue() != want {
				t.Errorf("%s is %s", c.Key, c.MaybeValue())
			}
		}
	}
	if got, err := admin.DeleteTopic(t.Context(), meta.OffsetsTopic); err == nil {
		t.Errorf("deleted: %+v", got)
	}
	fetched, err := admin.FetchOffsets(t.Context(), "g")
	if o, found := fetched.Lookup("lines", 2); err != nil || !found || o.At != 7 || o.LeaderEpoch != 3 || o.Metadata != "note" {
		t.Errorf("%+v, %v", fetched, err)
	}
	if _, err := admin.DeleteTopic(t.Context(), "lines"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; { // the tombstones follow the answer
		fetched, err := admin.FetchOffsets(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		if _, found := fetched.Lookup("lines", 2); !found {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the offsets of the deleted topic stay")
		}
	}
}

// TestOffsetFetchFailuresAreErrors asks a broker for groups of partitions that it does not have: no version's answer looks
// like a group without offsets (U-115).
func TestOffsetFetchFailuresAreErrors(t *testing.T) {
	b, admin := withLines(t, t.TempDir())
	topic, err := admin.ListTopics(t.Context(), "lines")
	if err != nil {
		t.Fatal(err)
	}
	client := b.client()
	defer client.Close()
	for version := int16(1); version <= 10; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "g"
		old := kmsg.NewOffsetFetchRequestTopic()
		old.Topic, old.Partitions = "lines", []int32{0}
		req.Topics = append(req.Topics, old)
		group := kmsg.NewOffsetFetchRequestGroup()
		group.Group = "g"
		entry := kmsg.NewOffsetFetchRequestGroupTopic()
		entry.Topic, entry.TopicID, entry.Partitions = "lines", topic["lines"].ID, []int32{0}
		group.Topics = append(group.Topics, entry)
		req.Groups = append(req.Groups, group)
		resp := askAt(t, client, req, version).(*kmsg.OffsetFetchResponse)
		code := resp.ErrorCode
		switch {
		case version < 2:
			code = resp.Topics[0].Partitions[0].ErrorCode
		case version >= 8:
			code = resp.Groups[0].ErrorCode
		}
		if code != kerr.NotCoordinator.Code {
			t.Errorf("v%d: code %d", version, code)
		}
	}
}

// askAt sends a request in one version, past the client's routing to coordinators.
func askAt(t *testing.T, client *kgo.Client, req kmsg.Request, version int16) kmsg.Response {
	t.Helper()
	resp, err := client.Broker(1).Request(t.Context(), pinned{req, version})
	if err != nil {
		t.Fatalf("v%d: %v", version, err)
	}
	return resp
}

// pinned is a request whose version the client cannot choose.
type pinned struct {
	kmsg.Request
	version int16
}

func (p pinned) MaxVersion() int16  { return p.version }
func (p pinned) SetVersion(v int16) { p.Request.SetVersion(v) }

// TestGroupOffsetsOfEarlierTopic creates a topic again: what was committed for the one before it is not told, in any version,
// even if its end could not be written (U-60, U-116).
func TestGroupOffsetsOfEarlierTopic(t *testing.T) {
	b, admin := withLines(t, t.TempDir())
	if _, code := b.groups.Locate(t.Context(), "g"); code != 0 {
		t.Fatal(code)
	}
	if err := b.state.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.state.topicsDeleted = nil // nobody hears of the deletion, as after a crash
	b.state.release()
	offsets := kadm.Offsets{}
	offsets.AddOffset("lines", 0, 7, -1)
	if err := admin.CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteTopic(t.Context(), "lines"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateTopic(t.Context(), 4, 1, nil, "lines"); err != nil {
		t.Fatal(err)
	}
	for version := int16(1); version <= 9; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "g"
		old := kmsg.NewOffsetFetchRequestTopic()
		old.Topic, old.Partitions = "lines", []int32{0}
		req.Topics = append(req.Topics, old)
		group := kmsg.NewOffsetFetchRequestGroup()
		group.Group = "g"
		entry := kmsg.NewOffsetFetchRequestGroupTopic()
		entry.Topic, entry.Partitions = "lines", []int32{0}
		group.Topics = append(group.Topics, entry)
		req.Groups = append(req.Groups, group)
		resp := askAt(t, b.client(), req, version).(*kmsg.OffsetFetchResponse)
		got := int64(0)
		if version >= 8 {
			got = resp.Groups[0].Topics[0].Partitions[0].Offset
		} else {
			got = resp.Topics[0].Partitions[0].Offset
		}
		if got != -1 {
			t.Errorf("v%d: %d", version, got)
		}
	}
}
