package server

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// TestProduceAndFetchEveryVersion writes with every version of Produce and reads with every version of Fetch.
func TestProduceAndFetchEveryVersion(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, nil)
	socket := start(t, config).dial()
	want := []string{}
	for version := int16(3); version <= 13; version++ {
		for _, acks := range []int16{1, -1, 0} {
			req := produceTo(version, 0, batchOf(t, record.BuilderOptions{}, "a", "b"))
			req.Acks = acks
			want = append(want, "a", "b")
			if acks == 0 {
				send(t, socket, 1, req) // no answer comes: the next one is the next request's
				continue
			}
			got := produced(t, socket, req)
			if got.ErrorCode != 0 || got.BaseOffset != int64(len(want)-2) || got.LogAppendTime != -1 {
				t.Fatalf("v%d acks %d: %+v", version, acks, got)
			}
			if version >= 5 && got.LogStartOffset != 0 {
				t.Errorf("v%d: log start %d", version, got.LogStartOffset)
			}
		}
	}
	for version := int16(4); version <= 18; version++ {
		resp := ask[*kmsg.FetchResponse](t, socket, fetchFrom(version, 0, 0))
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			t.Fatalf("v%d: %+v", version, resp)
		}
		p := resp.Topics[0].Partitions[0]
		got := values(t, p.RecordBatches)
		if p.ErrorCode != 0 || p.HighWatermark != int64(len(want)) || len(got) != len(want) || p.PreferredReadReplica != -1 {
			t.Errorf("v%d: code %d, high watermark %d, %d records, preferred %d; want %d records",
				version, p.ErrorCode, p.HighWatermark, len(got), p.PreferredReadReplica, len(want))
		}
	}
}

// TestProduceRefusals checks Kafka's code for what a partition does not take; nothing is appended.
func TestProduceRefusals(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 3, map[string]string{"max.message.bytes": "1000"})
	compacted := b.Create("compacted", 1, map[string]string{"cleanup.policy": "compact"})
	b.Create("__consumer_offsets", 1, nil)
	lonely := b.Create("lonely", 1, nil)
	b.Set(lonely, 0, meta.Partition{MinISR: 2, Replicas: []meta.BrokerID{1, 2}})
	away := b.Create("away", 1, nil)
	b.Set(away, 0, meta.Partition{Leader: 2, Replicas: []meta.BrokerID{1, 2}, LeaderEpoch: 4})
	socket := start(t, config).dial()
	good := func() []byte { return batchOf(t, record.BuilderOptions{}, "v") }
	to := func(topic string, records []byte) *kmsg.ProduceRequest {
		req := produceTo(12, 0, records)
		req.Topics[0].Topic = topic
		return req
	}
	with := func(req *kmsg.ProduceRequest, change func(*kmsg.ProduceRequest)) *kmsg.ProduceRequest {
		change(req)
		return req
	}
	broken := good()
	broken[len(broken)-1] ^= 1
	tiny := good()
	tiny[11] = 3
	old := good()
	old[16] = 1
	nullKey := record.NewBuilder(record.BuilderOptions{LeaderEpoch: -1})
	nullKey.Append(time.Now().UnixMilli(), []byte("k"), nil)
	nullKey.Append(time.Now().UnixMilli(), nil, nil)
	nullKeyBatch, err := nullKey.Batch()
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		req  *kmsg.ProduceRequest
		want *kerr.Error
	}{
		{"acks 2", with(produceTo(12, 0, good()), func(r *kmsg.ProduceRequest) { r.Acks = 2 }), kerr.InvalidRequiredAcks},
		{"acks -2", with(produceTo(12, 0, good()), func(r *kmsg.ProduceRequest) { r.Acks = -2 }), kerr.InvalidRequiredAcks},
		{"no such topic", to("nope", good()), kerr.UnknownTopicOrPartition},
		{"no such partition", produceTo(12, 3, good()), kerr.UnknownTopicOrPartition},
		{"negative partition", produceTo(12, -1, good()), kerr.UnknownTopicOrPartition},
		{"no such topic id", with(produceTo(13, 0, good()), func(r *kmsg.ProduceRequest) { r.Topics[0].TopicID[5] = 9 }), kerr.UnknownTopicID}, // U-62
		{"internal topic", to("__consumer_offsets", good()), kerr.InvalidTopicException},
		{"led elsewhere", to("away", good()), kerr.NotLeaderForPartition},
		{"too few replicas", to("lonely", good()), kerr.NotEnoughReplicas},
		{"null", produceTo(12, 0, nil), kerr.InvalidRecord},
		{"no batch", produceTo(12, 0, []byte{}), kerr.InvalidRecord},
		{"two batches", produceTo(12, 0, append(good(), good()...)), kerr.InvalidRecord},
		{"half a batch", produceTo(12, 0, good()[:40]), kerr.InvalidRecord},
		{"length too small", produceTo(12, 0, tiny), kerr.CorruptMessage},
		{"magic 1", produceTo(12, 0, old), kerr.InvalidRecord},
		{"bad checksum", produceTo(12, 0, broken), kerr.CorruptMessage},
		{"too large", produceTo(12, 0, batchOf(t, record.BuilderOptions{}, string(make([]byte, 1000)))), kerr.MessageTooLarge},
		{"zstd before version 7", produceTo(6, 0, batchOf(t, record.BuilderOptions{Codec: record.Zstd}, "v")), kerr.UnsupportedCompressionType},
		{"null key in a compacted topic", to("compacted", nullKeyBatch), kerr.InvalidRecord},
		{"transactional", produceTo(11, 0, batchOf(t, record.BuilderOptions{
			HasProducer: true, ProducerID: 5, Transactional: true}, "v")), kerr.InvalidTxnState},
		{"control", produceTo(12, 0, batchOf(t, record.BuilderOptions{Control: true, HasProducer: true, ProducerID: 5}, "v")), kerr.InvalidRecord},
		{"sequence out of order", produceTo(12, 1, batchOf(t, record.BuilderOptions{
			HasProducer: true, ProducerID: 6, BaseSequence: 9}, "v")), kerr.OutOfOrderSequenceNumber},
	}
	// Producer 6 is known to partition 1, so that a gap in its sequence is one (U-104).
	if got := produced(t, socket, produceTo(12, 1, batchOf(t, record.BuilderOptions{HasProducer: true, ProducerID: 6}, "v"))); got.ErrorCode != 0 {
		t.Fatalf("first batch of producer 6: %d", got.ErrorCode)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := produced(t, socket, c.req)
			if got.ErrorCode != c.want.Code {
				t.Fatalf("%v (%v), want %v", kerr.ErrorForCode(got.ErrorCode), deref(got.ErrorMessage), c.want)
			}
			if got.BaseOffset != -1 || got.LogAppendTime != -1 {
				t.Errorf("base offset %d, append time %d of a refused batch", got.BaseOffset, got.LogAppendTime)
			}
			switch c.name {
			case "led elsewhere":
				if got.CurrentLeader.LeaderID != 2 || got.CurrentLeader.LeaderEpoch != 4 {
					t.Errorf("the client is sent to %+v", got.CurrentLeader)
				}
			case "null key in a compacted topic": // U-96
				if len(got.ErrorRecords) != 1 || got.ErrorRecords[0].RelativeOffset != 1 {
					t.Errorf("record errors %+v", got.ErrorRecords)
				}
			}
		})
	}
	for r := range b.Table.All() {
		if r.EndOffset() > 1 || (r.Topic() != "t" && r.EndOffset() > 0) {
			t.Errorf("%s-%d has records up to %d after refusals only", r.Topic(), r.Partition(), r.EndOffset())
		}
	}
	_ = compacted
}

func deref(s *string) string {
	if s == nil {
		return "no message"
	}
	return *s
}

// TestProduceDuplicate answers a batch that was sent again with the offset that it was given the first time.
func TestProduceDuplicate(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, nil)
	socket := start(t, config).dial()
	for i := range int32(3) {
		batch := batchOf(t, record.BuilderOptions{HasProducer: true, ProducerID: 5, BaseSequence: i}, "v")
		first, _, err := record.Next(batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, appendTime := range []int64{-1, first.MaxTimestamp()} { // of a duplicate Kafka answers the batch's own time
			got := produced(t, socket, produceTo(9, 0, bytes.Clone(batch)))
			if got.ErrorCode != 0 || got.BaseOffset != int64(i) || got.LogAppendTime != appendTime {
				t.Errorf("batch %d: code %d, offset %d, append time %d, want %d", i, got.ErrorCode, got.BaseOffset, got.LogAppendTime, appendTime)
			}
		}
	}
}

// TestProduceLogAppendTime answers the time that the broker gave to the records.
func TestProduceLogAppendTime(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	socket := start(t, config).dial()
	before := time.Now().UnixMilli()
	if got := produced(t, socket, produceTo(9, 0, batchOf(t, record.BuilderOptions{}, "v"))); got.LogAppendTime < before {
		t.Errorf("append time %d, want at least %d", got.LogAppendTime, before)
	}
}

// TestProduceWithoutAcksClosesOnError is the only way to tell such a producer.
func TestProduceWithoutAcksClosesOnError(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, nil)
	socket := start(t, config).dial()
	req := produceTo(9, 7, batchOf(t, record.BuilderOptions{}, "v"))
	req.Acks = 0
	send(t, socket, 1, req)
	closed(t, socket)
}

// TestProduceWaitsForTheISR parks acks=all while a follower lags: it times out with the records kept, or ends
// with leadership; a later request of the connection is answered after it, one on another at once.
func TestProduceWaitsForTheISR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, config := onReplicas(t)
		topic := b.Create("t", 1, nil)
		two := []meta.BrokerID{1, 2}
		b.Set(topic, 0, meta.Partition{Replicas: two, ISR: two})
		s := startInMemory(t, config)
		socket := s.dial()
		begin := time.Now()
		req := produceTo(9, 0, batchOf(t, record.BuilderOptions{}, "a"))
		got := produced(t, socket, req)
		if got.ErrorCode != kerr.RequestTimedOut.Code || time.Since(begin) != 5*time.Second {
			t.Errorf("code %d after %v, want REQUEST_TIMED_OUT after 5s", got.ErrorCode, time.Since(begin))
		}
		r, _ := b.Table.Get(topic.ID, 0)
		if r.EndOffset() != 1 || r.HighWatermark() != 0 {
			t.Errorf("log end %d, high watermark %d: the record is to stay, uncommitted", r.EndOffset(), r.HighWatermark())
		}
		go func() { _, _ = socket.Write(frameOf(77, req)) }()
		synctest.Wait()
		other := produceTo(9, 0, batchOf(t, record.BuilderOptions{}, "b"))
		other.Acks = 1
		if got := produced(t, s.dial(), other); got.ErrorCode != 0 {
			t.Errorf("acks=1 beside a waiting one: code %d", got.ErrorCode)
		}
		b.Set(topic, 0, meta.Partition{Replicas: two, ISR: two, Leader: 2, LeaderEpoch: 1})
		resp := answered[*kmsg.ProduceResponse](t, socket, req)
		if code := resp.Topics[0].Partitions[0].ErrorCode; code != kerr.NotLeaderForPartition.Code {
			t.Errorf("code %d after leadership was lost, want NOT_LEADER_OR_FOLLOWER", code)
		}
	})
}

// TestProduceMalformed closes the connection for a body that is not a request, and gives its memory back.
func TestProduceMalformed(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, nil)
	log := &logLines{}
	config.Logger = newLogger(log)
	s := start(t, config)
	socket := s.dial()
	body := append(header(wire.KeyProduce, 9), 0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f)
	if _, err := socket.Write(raw(uint32(len(body)), body...)); err != nil {
		t.Fatal(err)
	}
	closed(t, socket)
}
