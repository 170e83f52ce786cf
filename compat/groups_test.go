package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	mixedTopic      = "mixed"
	mixedGroup      = "mixed-readers"
	mixedPartitions = 12
	// mixedPatience bounds how long a rebalance and what follows it may take.
	mixedPatience = 2 * time.Minute
)

// TestGroupsOfThreeClients has members of three kinds of client (the Java client, librdkafka, franz-go) in one group
// under load, has one join, kills one with SIGKILL and has another take its place: every record is delivered at least
// once, and no committed offset ever goes back (U-117, U-118).
func TestGroupsOfThreeClients(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Fatal("kcat is missing: install the package kcat")
	}
	kafka, broker := mustKafka(t), mustBroker(t)
	tidemark(t, broker, "", "topic", "create", mixedTopic, "--partitions", strconv.Itoa(mixedPartitions))
	got := &tally{seen: make(map[position]bool), by: make(map[string]int), changed: make(chan struct{})}
	java := func(name string) *exec.Cmd {
		return reader(t, got, name, javaPosition, kafka.Command(t.Context(), verifyConsumer, "--bootstrap-server", broker.Addr,
			"--topic", mixedTopic, "--group-id", mixedGroup, "--reset-policy", "earliest", "--session-timeout", "6000", "--verbose"))
	}
	load := startLoad(t, broker.Addr)

	first := java("java")
	kcat := reader(t, got, "librdkafka", kcatPosition, exec.CommandContext(t.Context(), "kcat", "-b", broker.Addr, "-u", "-q",
		"-f", "%p %o\n", "-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=100", "-G", mixedGroup, mixedTopic))
	got.awaitMore(t, "java", "librdkafka")
	leave := startFranz(t, got, broker.Addr)
	got.awaitMore(t, "java", "librdkafka", "franz-go")
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err == nil {
		t.Fatal("the Java consumer ended by itself")
	}
	got.awaitMore(t, "librdkafka", "franz-go")
	second := java("java again")
	got.awaitMore(t, "librdkafka", "franz-go", "java again")

	acked := load()
	got.await(t, "every record", func() bool {
		for p := range acked {
			if !got.seen[p] {
				return false
			}
		}
		return true
	})
	ends := make(map[int32]int64)
	for p := range acked {
		ends[p.partition] = max(ends[p.partition], p.offset+1)
	}
	// Each client commits what it has read before it goes.
	leave()
	for _, cmd := range []*exec.Cmd{kcat, second} {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	commits := checkCommits(t, broker.Addr, ends)
	t.Logf("%d records, %d commits; delivered by %v", len(acked), commits, got.by)
}

// position is where a record is in the topic.
type position struct {
	partition int32
	offset    int64
}

// tally is what the members of the group have been given.
type tally struct {
	mu      sync.Mutex
	seen    map[position]bool
	by      map[string]int // deliveries by member
	changed chan struct{}  // closed at the next delivery
}

func (g *tally) add(member string, p position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[p] = true
	g.by[member]++
	close(g.changed)
	g.changed = make(chan struct{})
}

// await returns once done, which is called with the lock held, says so.
func (g *tally) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	patience := time.After(mixedPatience)
	for {
		g.mu.Lock()
		ok, changed, by := done(), g.changed, maps.Clone(g.by)
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-patience:
			t.Fatalf("%s was not delivered within %s; so far %v", what, mixedPatience, by)
		}
	}
}

// awaitMore waits until each of the members has been given records from now on.
func (g *tally) awaitMore(t *testing.T, members ...string) {
	t.Helper()
	g.mu.Lock()
	before := maps.Clone(g.by)
	g.mu.Unlock()
	g.await(t, fmt.Sprintf("more to each of %v", members), func() bool {
		return !slices.ContainsFunc(members, func(m string) bool { return g.by[m] <= before[m]+100 })
	})
}

// reader starts a consumer in a process of its own, and adds each record of which it prints a line.
func reader(t *testing.T, got *tally, member string, parse func(line []byte) (position, bool), cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	stdout, out := io.Pipe()
	cmd.Stdout = out
	var said sync.WaitGroup
	said.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if p, ok := parse(lines.Bytes()); ok {
				got.add(member, p)
			}
		}
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		out.Close()
		said.Wait()
	})
	return cmd
}

func javaPosition(line []byte) (position, bool) {
	var event struct {
		Name      string `json:"name"`
		Partition int32  `json:"partition"`
		Offset    int64  `json:"offset"`
	}
	if err := json.Unmarshal(line, &event); err != nil || event.Name != "record_data" {
		return position{}, false
	}
	return position{event.Partition, event.Offset}, true
}

func kcatPosition(line []byte) (p position, ok bool) {
	n, _ := fmt.Sscanf(string(line), "%d %d", &p.partition, &p.offset)
	return p, n == 2
}

// startFranz starts a franz-go member, which the function that it returns has leave.
func startFranz(t *testing.T, got *tally, addr string) (leave func()) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(mixedGroup), kgo.ConsumeTopics(mixedTopic),
		kgo.Balancers(kgo.RangeBalancer()), kgo.AutoCommitInterval(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var polling sync.WaitGroup
	polling.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got.add("franz-go", position{r.Partition, r.Offset}) })
		}
	})
	leave = sync.OnceFunc(func() {
		cancel()
		polling.Wait()
		if err := client.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("last commit of franz-go: %v", err)
		}
		client.Close()
	})
	t.Cleanup(leave)
	return leave
}

// startLoad produces to all partitions until the function that it returns is called, which returns what was acknowledged.
func startLoad(t *testing.T, addr string) (stop func() map[position]bool) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(mixedTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	acked := make(map[position]bool)
	done := make(chan struct{})
	var producing sync.WaitGroup
	producing.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond) // what the consumers, which print every record, can follow
		defer pace.Stop()
		for {
			var records []*kgo.Record
			for i := range mixedPartitions * 2 {
				records = append(records, &kgo.Record{Partition: int32(i % mixedPartitions), Value: []byte("load")})
			}
			for _, r := range client.ProduceSync(context.WithoutCancel(t.Context()), records...) {
				if r.Err != nil {
					t.Errorf("produce: %v", r.Err)
					return
				}
				acked[position{r.Record.Partition, r.Record.Offset}] = true
			}
			select {
			case <-done:
				return
			case <-pace.C:
			}
		}
	})
	stop = sync.OnceValue(func() map[position]bool {
		close(done)
		producing.Wait()
		client.Close()
		return acked
	})
	t.Cleanup(func() { stop() })
	return stop
}

// checkCommits reads every commit of the group out of __consumer_offsets: none is below an earlier one of its partition,
// and the last ones are the ends. It returns how many there were.
func checkCommits(t *testing.T, addr string, ends map[int32]int64) (commits int) {
	t.Helper()
	const (
		topic              = "__consumer_offsets"
		offsetCommitKeyMax = 1 // version 2 is a group's own record
	)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	left, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	unread := make(map[int32]int64)
	left.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			unread[o.Partition] = o.Offset
		}
	})
	last := make(map[int32]int64)
	for len(unread) > 0 {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, some := unread[r.Partition]; some && r.Offset+1 >= end {
				delete(unread, r.Partition)
			}
			var key kmsg.OffsetCommitKey
			var value kmsg.OffsetCommitValue
			if key.ReadFrom(r.Key) != nil || key.Version > offsetCommitKeyMax || key.Group != mixedGroup || key.Topic != mixedTopic {
				return
			}
			if err := value.ReadFrom(r.Value); err != nil {
				t.Fatalf("commit at %s-%d offset %d: %v", topic, r.Partition, r.Offset, err)
			}
			commits++
			if before, some := last[key.Partition]; some && value.Offset < before {
				t.Errorf("the committed offset of partition %d went from %d back to %d", key.Partition, before, value.Offset)
			}
			last[key.Partition] = value.Offset
		})
	}
	if !maps.Equal(last, ends) {
		t.Errorf("the last commits are %v, the partitions end at %v", last, ends)
	}
	return commits
}
