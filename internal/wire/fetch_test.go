package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFetchHeaderAgreesWithKmsg builds random responses of every version, puts records into the gaps and demands
// kmsg's bytes.
func TestFetchHeaderAgreesWithKmsg(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var h FetchHeader
	for version := int16(4); version <= 18; version++ {
		for range 300 {
			resp := randomFetchResponse(r, version)
			got := assemble(t, &h, resp)
			want := binary.BigEndian.AppendUint32(make([]byte, 4), 99)
			if resp.IsFlexible() {
				want = append(want, 0)
			}
			want = resp.AppendTo(want)
			binary.BigEndian.PutUint32(want, uint32(len(want)-4))
			if !bytes.Equal(got, want) {
				t.Fatalf("v%d:\ngot  %x\nwant %x", version, got, want)
			}
		}
	}
}

// randomFetchResponse fills what the version can carry.
func randomFetchResponse(r *rand.Rand, version int16) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(version)
	if version >= 7 {
		resp.ErrorCode, resp.SessionID = int16(r.IntN(100)), r.Int32()
	}
	for range r.IntN(4) {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = "some-topic"[:1+r.IntN(9)]
		binary.BigEndian.PutUint64(topic.TopicID[:], r.Uint64())
		for range r.IntN(4) {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.HighWatermark = r.Int32(), int16(r.IntN(100)), r.Int64()
			p.LastStableOffset, p.LogStartOffset = r.Int64(), r.Int64()
			if n := r.IntN(4); n > 0 {
				p.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, n-1)
				for i := range p.AbortedTransactions {
					p.AbortedTransactions[i].ProducerID, p.AbortedTransactions[i].FirstOffset = r.Int64(), r.Int64()
				}
			}
			p.RecordBatches = make([]byte, r.IntN(3)*r.IntN(400))
			for i := range p.RecordBatches {
				p.RecordBatches[i] = byte(r.Uint32())
			}
			if r.IntN(2) == 0 {
				p.PreferredReadReplica = r.Int32()
			}
			if r.IntN(3) == 0 {
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = r.Int32(), r.Int64()
			}
			if r.IntN(3) == 0 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = r.Int32(), r.Int32()
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if version >= 16 {
		for i := range r.IntN(3) {
			broker := kmsg.NewFetchResponseBroker()
			broker.NodeID, broker.Host, broker.Port = int32(i), "host", r.Int32()
			if r.IntN(2) == 0 {
				rack := "rack"
				broker.Rack = &rack
			}
			resp.Brokers = append(resp.Brokers, broker)
		}
	}
	return resp
}

// assemble builds the whole frame from header and records.
func assemble(t *testing.T, h *FetchHeader, resp *kmsg.FetchResponse) []byte {
	t.Helper()
	var records [][]byte
	h.Begin(resp.Version, 99, resp.ErrorCode, resp.SessionID, len(resp.Topics))
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		h.Topic(topic.Topic, topic.TopicID, len(topic.Partitions))
		for j := range topic.Partitions {
			from := &topic.Partitions[j]
			p := NewFetchPartition(from.Partition)
			p.ErrorCode, p.HighWatermark = from.ErrorCode, from.HighWatermark
			p.LastStableOffset, p.LogStartOffset = from.LastStableOffset, from.LogStartOffset
			if from.AbortedTransactions != nil {
				p.Aborted = make([]AbortedTxn, len(from.AbortedTransactions))
			}
			for k, a := range from.AbortedTransactions {
				p.Aborted[k] = AbortedTxn{a.ProducerID, a.FirstOffset}
			}
			p.PreferredReadReplica, p.RecordBytes = from.PreferredReadReplica, int64(len(from.RecordBatches))
			p.DivergingEpoch, p.DivergingEnd = from.DivergingEpoch.Epoch, from.DivergingEpoch.EndOffset
			p.LeaderID, p.LeaderEpoch = from.CurrentLeader.LeaderID, from.CurrentLeader.LeaderEpoch
			if len(from.RecordBatches) > 0 {
				records = append(records, from.RecordBatches)
			}
			h.Partition(&p, j == len(topic.Partitions)-1)
		}
	}
	var endpoints []FetchEndpoint
	for _, b := range resp.Brokers {
		e := FetchEndpoint{ID: b.NodeID, Host: b.Host, Port: b.Port}
		if b.Rack != nil {
			e.Rack = *b.Rack
		}
		endpoints = append(endpoints, e)
	}
	size := h.End(endpoints)
	if len(h.Gaps) != len(records) {
		t.Fatalf("%d gaps for %d runs of records", len(h.Gaps), len(records))
	}
	var out []byte
	at := 0
	for i, gap := range h.Gaps {
		out = append(out, h.Bytes[at:gap.At]...)
		out = append(out, records[i]...)
		at = gap.At
	}
	out = append(out, h.Bytes[at:]...)
	if int64(len(out)-4) != size {
		t.Fatalf("End said %d bytes, there are %d", size, len(out)-4)
	}
	return out
}

func BenchmarkFetchHeader(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(map[int]string{1: "1", 100: "100"}[partitions], func(b *testing.B) {
			b.ReportAllocs()
			var h FetchHeader
			p := NewFetchPartition(0)
			p.RecordBytes = 1 << 20
			for b.Loop() {
				h.Begin(16, 1, 0, 1, 1)
				h.Topic("topic", [16]byte{1}, partitions)
				for i := range partitions {
					p.Index = int32(i)
					h.Partition(&p, i == partitions-1)
				}
				h.End(nil)
			}
		})
	}
}
