package server

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/replica/replicatest"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// put appends values as one batch, past the server.
func put(t testing.TB, b *replicatest.Broker, topic *meta.Topic, partition int32, values ...string) {
	t.Helper()
	putBatch(t, b, topic, partition, batchOf(t, record.BuilderOptions{}, values...))
}

// putBatch appends a batch, past the server.
func putBatch(t testing.TB, b *replicatest.Broker, topic *meta.Topic, partition int32, batch []byte) {
	t.Helper()
	r, found := b.Table.Get(topic.ID, partition)
	if !found {
		t.Fatal("no replica")
	}
	if _, err := r.Append(t.Context(), replica.AppendRequest{
		Batches: batch, CurrentEpoch: meta.NoEpoch, Acks: 1, Origin: replica.FromClient,
	}); err != nil {
		t.Fatal(err)
	}
}

// fetched sends a fetch and returns what it says of its one partition.
func fetched(t *testing.T, socket net.Conn, req *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
	t.Helper()
	resp := ask[*kmsg.FetchResponse](t, socket, req)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("answer %+v", resp)
	}
	return resp.Topics[0].Partitions[0]
}

// TestFetchWaits proves that an empty fetch waits for exactly its max wait (U-139), or until enough is there, and that
// it is the sum over partitions that counts.
func TestFetchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, config := onReplicas(t)
		topic := b.Create("t", 2, nil)
		s := startInMemory(t, config)
		socket := s.dial()
		one := int32(len(batchOf(t, record.BuilderOptions{}, "v")))
		req := fetchFrom(12, 0, 0)
		addFetch(req, 1, 0)
		req.MaxWaitMillis, req.MinBytes = 500, 2*one
		begin := time.Now()
		if resp := ask[*kmsg.FetchResponse](t, socket, req); time.Since(begin) != 500*time.Millisecond || len(resp.Topics[0].Partitions) != 2 {
			t.Errorf("an empty fetch took %v, want 500ms: %+v", time.Since(begin), resp)
		}
		begin = time.Now()
		go func() { _, _ = socket.Write(frameOf(77, req)) }()
		time.Sleep(100 * time.Millisecond)
		put(t, b, topic, 0, "v")
		time.Sleep(100 * time.Millisecond)
		put(t, b, topic, 1, "v")
		resp := answered[*kmsg.FetchResponse](t, socket, req)
		if time.Since(begin) != 200*time.Millisecond {
			t.Errorf("two batches were waited for %v, want 200ms", time.Since(begin))
		}
		for _, p := range resp.Topics[0].Partitions {
			if got := values(t, p.RecordBatches); !slices.Equal(got, []string{"v"}) {
				t.Errorf("partition %d: %q", p.Partition, got)
			}
		}
		// An error is no reason to wait, and neither is a fetch of nothing.
		req.Topics[0].Partitions[0].FetchOffset = 99
		begin = time.Now()
		if resp := ask[*kmsg.FetchResponse](t, socket, req); resp.Topics[0].Partitions[0].ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Errorf("offset 99: %+v", resp.Topics[0].Partitions[0])
		}
		req.Topics = nil
		if resp := ask[*kmsg.FetchResponse](t, socket, req); len(resp.Topics) != 0 || time.Since(begin) != 0 {
			t.Errorf("a fetch of nothing took %v: %+v", time.Since(begin), resp)
		}
	})
}

// TestFetchParkedEnds answers a parked fetch when its partition is led elsewhere or deleted, and frees it when its
// client leaves.
func TestFetchParkedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, config := onReplicas(t)
		topic := b.Create("t", 1, nil)
		s := startInMemory(t, config)
		socket := s.dial()
		req := fetchFrom(12, 0, 0)
		req.MaxWaitMillis = 3600_000
		go func() { _, _ = socket.Write(frameOf(77, req)) }()
		synctest.Wait()
		b.Set(topic, 0, meta.Partition{Leader: 2, Replicas: []meta.BrokerID{1, 2}, LeaderEpoch: 3})
		p := answered[*kmsg.FetchResponse](t, socket, req).Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 3 {
			t.Errorf("after leadership moved: %+v", p)
		}
		b.Set(topic, 0, meta.Partition{LeaderEpoch: 4})
		go func() { _, _ = socket.Write(frameOf(77, req)) }()
		synctest.Wait()
		b.Delete(topic)
		p = answered[*kmsg.FetchResponse](t, socket, req).Topics[0].Partitions[0]
		if p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("after the topic was deleted: code %d", p.ErrorCode)
		}
		b.Create("u", 1, nil)
		req.Topics[0].Topic = "u"
		go func() { _, _ = socket.Write(frameOf(77, req)) }()
		synctest.Wait()
		_ = socket.Close()
		synctest.Wait()
		if n := s.metrics.connections.Load(); n != 0 {
			t.Errorf("%d connections are open after the client left", n)
		}
	})
}

// TestFetchBounds reads the middle of a batch (U-101), the end, and beyond: records between high watermark and log end
// are not shown.
func TestFetchBounds(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	two := []meta.BrokerID{1, 2}
	put(t, b, topic, 0, "a", "b", "c")
	b.Set(topic, 0, meta.Partition{Replicas: two, ISR: two})
	put(t, b, topic, 0, "d")
	socket := start(t, config).dial()
	cases := []struct {
		offset int64
		want   string
		code   *kerr.Error
	}{
		{0, "a b c", nil}, {1, "a b c", nil}, {2, "a b c", nil}, {3, "", nil}, {4, "", nil},
		{5, "", kerr.OffsetOutOfRange}, {-1, "", kerr.OffsetOutOfRange},
	}
	for _, c := range cases {
		p := fetched(t, socket, fetchFrom(12, 0, c.offset))
		want := int16(0)
		if c.code != nil {
			want = c.code.Code
		}
		if got := strings.Join(values(t, p.RecordBatches), " "); got != c.want || p.ErrorCode != want {
			t.Errorf("offset %d gave %q with code %d, want %q with %d", c.offset, got, p.ErrorCode, c.want, want)
		}
		if c.code == nil && (p.HighWatermark != 3 || p.LastStableOffset != 3 || p.LogStartOffset != 0) {
			t.Errorf("offset %d: high watermark %d, last stable %d, start %d", c.offset, p.HighWatermark, p.LastStableOffset, p.LogStartOffset)
		}
	}
}

// TestFetchLimits holds the limits of request and partition, but gives one batch at least.
func TestFetchLimits(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 2, nil)
	for range 3 {
		put(t, b, topic, 0, "v")
		put(t, b, topic, 1, "v")
	}
	one := int32(len(batchOf(t, record.BuilderOptions{}, "v")))
	socket := start(t, config).dial()
	cases := []struct{ request, partition, want0, want1 int32 }{
		{100 * one, 100 * one, 3, 3},
		{100 * one, 2 * one, 2, 2},
		{100 * one, 1, 1, 0},
		{4 * one, 100 * one, 3, 1},
		{2 * one, 100 * one, 2, 0},
		{1, 1, 1, 0},
		{0, 0, 1, 0},
	}
	for _, c := range cases {
		req := fetchFrom(12, 0, 0)
		addFetch(req, 1, 0)
		req.MaxBytes = c.request
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = c.partition
		}
		parts := ask[*kmsg.FetchResponse](t, socket, req).Topics[0].Partitions
		got0, got1 := len(parts[0].RecordBatches)/int(one), len(parts[1].RecordBatches)/int(one)
		if got0 != int(c.want0) || got1 != int(c.want1) {
			t.Errorf("limits %d, %d gave %d and %d batches, want %d and %d", c.request, c.partition, got0, got1, c.want0, c.want1)
		}
	}
}

// TestFetchEpochs fences a client by its leader epoch (E-34) and tells one whose log differs from where it does (E-43).
func TestFetchEpochs(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	put(t, b, topic, 0, "a", "b")
	b.Set(topic, 0, meta.Partition{LeaderEpoch: 5})
	put(t, b, topic, 0, "c")
	socket := start(t, config).dial()
	for epoch, want := range map[int32]int16{4: kerr.FencedLeaderEpoch.Code, 5: 0, 6: kerr.UnknownLeaderEpoch.Code, -1: 0} {
		req := fetchFrom(12, 0, 0)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		if p := fetched(t, socket, req); p.ErrorCode != want {
			t.Errorf("epoch %d: code %d, want %d", epoch, p.ErrorCode, want)
		}
	}
	req := fetchFrom(12, 0, 3)
	req.Topics[0].Partitions[0].LastFetchedEpoch = 4
	req.MaxWaitMillis = 3600_000
	p := fetched(t, socket, req)
	if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 2 {
		t.Errorf("a diverging reader was told %+v", p)
	}
}

// TestFetchUnknown gives the code that the version has a word for, and does not let an unknown partition hide others.
func TestFetchUnknown(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, nil)
	socket := start(t, config).dial()
	byName := fetchFrom(12, 7, 0)
	if p := fetched(t, socket, byName); p.ErrorCode != kerr.UnknownTopicOrPartition.Code || p.HighWatermark != -1 {
		t.Errorf("unknown partition: %+v", p)
	}
	byID := fetchFrom(13, 0, 0)
	byID.Topics[0].TopicID[3] = 9
	if p := fetched(t, socket, byID); p.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("unknown topic id: %+v", p)
	}
}

// TestFetchAsReplica is refused on a client's listener at every version (CVE-2018-1288).
func TestFetchAsReplica(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	put(t, b, topic, 0, "secret")
	socket := start(t, config).dial()
	for version := int16(4); version <= 18; version++ {
		req := fetchFrom(version, 0, 0)
		req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = 2, 2, 7
		if p := fetched(t, socket, req); p.ErrorCode != kerr.TopicAuthorizationFailed.Code || len(p.RecordBatches) != 0 {
			t.Errorf("v%d: %+v", version, p)
		}
	}
}

// TestFollowerHearsNewsWithRecords proves that a newer high watermark waits a moment for records to come with it (KIP-1166),
// and comes by itself when there are none.
func TestFollowerHearsNewsWithRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, config := onReplicas(t)
		topic := b.Create("t", 1, nil)
		b.Set(topic, 0, meta.Partition{Replicas: []meta.BrokerID{1, 2}, ISR: []meta.BrokerID{1, 2}})
		b.Live(2, 9)
		config.Apply = func(context.Context, *meta.Apply) (meta.ApplyAnswer, error) { return meta.ApplyAnswer{}, nil }
		socket := startInMemory(t, config).dial()
		follow := func(offset, knownHigh int64) (kmsg.FetchResponseTopicPartition, time.Duration) {
			req := fetchFrom(18, 0, offset)
			req.ReplicaState.ID, req.ReplicaState.Epoch, req.MaxWaitMillis = 2, 9, 500
			p := &req.Topics[0].Partitions[0]
			p.CurrentLeaderEpoch, p.LogStartOffset, p.HighWatermark = 0, 0, knownHigh
			begin := time.Now()
			return fetched(t, socket, req), time.Since(begin)
		}
		put(t, b, topic, 0, "a")
		if p, took := follow(0, 0); len(values(t, p.RecordBatches)) != 1 || p.HighWatermark != 0 || took != 0 {
			t.Errorf("records: %+v after %v", p, took)
		}
		if p, took := follow(1, 0); len(p.RecordBatches) != 0 || p.HighWatermark != 1 || took != newsWait {
			t.Errorf("news alone: high watermark %d, %d bytes after %v; want 1, none, after %v", p.HighWatermark, len(p.RecordBatches), took, newsWait)
		}
		put(t, b, topic, 0, "b")
		follow(1, 1)
		time.AfterFunc(newsWait/2, func() { put(t, b, topic, 0, "c") })
		if p, took := follow(2, 1); len(values(t, p.RecordBatches)) != 1 || p.HighWatermark != 2 || took != newsWait/2 {
			t.Errorf("news with records: high watermark %d, %d bytes after %v; want 2 with the records, after %v",
				p.HighWatermark, len(p.RecordBatches), took, newsWait/2)
		}
		if p, took := follow(3, 3); len(p.RecordBatches) != 0 || took != 500*time.Millisecond {
			t.Errorf("no news: %d bytes after %v, want none after the request's wait", len(p.RecordBatches), took)
		}
	})
}

// TestFetchIsolation sends null for the aborted transactions to who did not ask, as Kafka does, and a list to who did.
func TestFetchIsolation(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	put(t, b, topic, 0, "v")
	socket := start(t, config).dial()
	for level, want := range map[int8]bool{0: true, 1: false} {
		req := fetchFrom(12, 0, 0)
		req.IsolationLevel = level
		if p := fetched(t, socket, req); (p.AbortedTransactions == nil) != want || len(p.RecordBatches) == 0 {
			t.Errorf("isolation %d: aborted %v with %d bytes", level, p.AbortedTransactions, len(p.RecordBatches))
		}
	}
	req := fetchFrom(12, 0, 0)
	req.IsolationLevel = 2
	if resp := ask[*kmsg.FetchResponse](t, socket, req); resp.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("isolation 2: code %d", resp.ErrorCode)
	}
}

// TestFetchSendsFiles reads large and small batches from a real disk, by sendfile where there is one, and compares with
// what the copying path sends through a pipe.
func TestFetchSendsFiles(t *testing.T) {
	b := replicatest.New(t, vfs.NewDisk(vfs.Options{}), filepath.Join(t.TempDir(), "data"))
	config := Config{Broker: replicatest.ID, Table: b.Table, Image: b.Image}
	topic := b.Create("t", 3, nil)
	for i := range 40 {
		put(t, b, topic, 0, strings.Repeat(string(rune('a'+i%26)), 40_000))
		put(t, b, topic, 1, "small")
	}
	put(t, b, topic, 2, strings.Repeat("z", 300_000))
	req := fetchFrom(16, 0, 0)
	addFetch(req, 1, 3)
	addFetch(req, 2, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 10 << 20
	sent := ask[*kmsg.FetchResponse](t, start(t, config).dial(), req)
	copied := ask[*kmsg.FetchResponse](t, startInMemory(t, config).dial(), req)
	for i := range 3 {
		p, q := sent.Topics[0].Partitions[i], copied.Topics[0].Partitions[i]
		if p.ErrorCode != 0 || len(values(t, p.RecordBatches)) != []int{40, 37, 1}[i] {
			t.Errorf("partition %d: code %d, %d bytes", i, p.ErrorCode, len(p.RecordBatches))
		}
		if !bytes.Equal(p.RecordBatches, q.RecordBatches) {
			t.Errorf("partition %d: the two ways of sending differ", i)
		}
	}
}
