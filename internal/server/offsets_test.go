package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// said is a code's name, "ok" for none.
func said(code int16) string {
	if code == 0 {
		return "ok"
	}
	return kerr.TypedErrorForCode(code).Message
}

func listRequest(version int16, partition, epoch int32, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(version)
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = partition, epoch, timestamp
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// TestListOffsets asks for every special timestamp at its floor and below, by time, and by epoch. The answers are those
// that Apache Kafka 4.4 gave to the same requests.
func TestListOffsets(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 2, nil)
	put(t, b, topic, 0, "a", "b")
	b.Set(topic, 0, meta.Partition{LeaderEpoch: 3})
	putBatch(t, b, topic, 0, batchAt(t, time.Now().UnixMilli()+1000, record.BuilderOptions{}, "c"))
	socket := start(t, config).dial()
	hour := time.Hour.Milliseconds()
	cases := []struct {
		version          int16
		partition, epoch int32
		timestamp        int64
		want             string // code, offset, epoch
	}{
		{11, 0, -1, -1, "ok 3 3"}, {1, 0, -1, -1, "ok 3 -1"}, {4, 0, 3, -1, "ok 3 3"},
		{11, 0, -1, -2, "ok 0 0"}, {1, 0, -1, -2, "ok 0 -1"},
		{7, 0, -1, -3, "ok 2 3"}, {6, 0, -1, -3, "UNSUPPORTED_VERSION -1 -1"},
		{8, 0, -1, -4, "ok 0 0"}, {7, 0, -1, -4, "UNSUPPORTED_VERSION -1 -1"},
		{9, 0, -1, -5, "ok -1 -1"}, {8, 0, -1, -5, "UNSUPPORTED_VERSION -1 -1"},
		{11, 0, -1, -6, "ok -1 -1"}, {10, 0, -1, -6, "UNSUPPORTED_VERSION -1 -1"},
		{11, 0, -1, -7, "UNSUPPORTED_VERSION -1 -1"},
		{5, 0, -1, 0, "ok 0 0"}, {5, 0, -1, time.Now().UnixMilli() + hour, "ok -1 -1"}, // U-68, U-99
		{5, 1, -1, 0, "ok -1 -1"}, {11, 1, -1, -3, "ok -1 -1"}, {11, 1, -1, -1, "ok 0 0"},
		{5, 0, 2, -1, "FENCED_LEADER_EPOCH -1 -1"}, {5, 0, 4, -1, "UNKNOWN_LEADER_EPOCH -1 -1"},
		{5, 7, -1, -1, "UNKNOWN_TOPIC_OR_PARTITION -1 -1"},
	}
	for _, c := range cases {
		p := ask[*kmsg.ListOffsetsResponse](t, socket, listRequest(c.version, c.partition, c.epoch, c.timestamp)).Topics[0].Partitions[0]
		if got := fmt.Sprint(said(p.ErrorCode), " ", p.Offset, " ", p.LeaderEpoch); got != c.want {
			t.Errorf("v%d partition %d epoch %d timestamp %d: %s, want %s", c.version, c.partition, c.epoch, c.timestamp, got, c.want)
		}
	}
	twice := listRequest(11, 0, -1, -1)
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0], listRequest(11, 1, -1, -1).Topics[0].Partitions[0])
	parts := ask[*kmsg.ListOffsetsResponse](t, socket, twice).Topics[0].Partitions
	if len(parts) != 2 || said(parts[0].ErrorCode) != "INVALID_REQUEST" || parts[1].ErrorCode != 0 {
		t.Errorf("a partition asked for twice: %+v", parts)
	}
}

// TestListOffsetsOfANewLeader refuses to name an end before it is known, in the words of the version.
func TestListOffsetsOfANewLeader(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	two := []meta.BrokerID{1, 2}
	b.Set(topic, 0, meta.Partition{Replicas: two, ISR: two})
	put(t, b, topic, 0, "a")
	b.Set(topic, 0, meta.Partition{Replicas: two, ISR: two, LeaderEpoch: 1})
	socket := start(t, config).dial()
	for version, want := range map[int16]string{4: "LEADER_NOT_AVAILABLE", 5: "OFFSET_NOT_AVAILABLE"} {
		p := ask[*kmsg.ListOffsetsResponse](t, socket, listRequest(version, 0, -1, -1)).Topics[0].Partitions[0]
		if said(p.ErrorCode) != want {
			t.Errorf("v%d: %s, want %s", version, said(p.ErrorCode), want)
		}
	}
}

// TestOffsetForLeaderEpoch finds the end of each epoch (E-24), and fences by the client's own (E-25).
func TestOffsetForLeaderEpoch(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	put(t, b, topic, 0, "a", "b")
	b.Set(topic, 0, meta.Partition{LeaderEpoch: 3})
	put(t, b, topic, 0, "c")
	socket := start(t, config).dial()
	cases := []struct {
		partition, current, epoch int32
		want                      string
	}{
		{0, -1, 0, "ok 0 2"}, {0, -1, 1, "ok 0 2"}, {0, 3, 3, "ok 3 3"}, {0, -1, 4, "ok -1 -1"}, {0, -1, -1, "ok -1 -1"},
		{0, 2, 0, "FENCED_LEADER_EPOCH -1 -1"}, {0, 4, 0, "UNKNOWN_LEADER_EPOCH -1 -1"},
		{5, -1, 0, "UNKNOWN_TOPIC_OR_PARTITION -1 -1"},
	}
	for version := int16(2); version <= 4; version++ {
		for _, c := range cases {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.SetVersion(version)
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = c.partition, c.current, c.epoch
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			p := ask[*kmsg.OffsetForLeaderEpochResponse](t, socket, req).Topics[0].Partitions[0]
			if got := fmt.Sprint(said(p.ErrorCode), " ", p.LeaderEpoch, " ", p.EndOffset); got != c.want {
				t.Errorf("v%d %+v: %s", version, c, got)
			}
		}
	}
}

// TestDeleteRecords moves the log start, and refuses as Apache Kafka 4.4 did.
func TestDeleteRecords(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	b.Create("compacted", 1, map[string]string{"cleanup.policy": "compact"})
	b.Create("__consumer_offsets", 1, nil)
	put(t, b, topic, 0, "a", "b", "c", "d")
	socket := start(t, config).dial()
	for _, c := range []struct {
		topic     string
		partition int32
		offset    int64
		want      string
	}{
		{"t", 0, 1, "ok 1"}, {"t", 0, 0, "ok 1"}, {"t", 0, -1, "ok 4"},
		{"t", 0, 5, "OFFSET_OUT_OF_RANGE -1"}, {"t", 0, -2, "OFFSET_OUT_OF_RANGE -1"},
		{"t", 9, 1, "UNKNOWN_TOPIC_OR_PARTITION -1"}, {"nope", 0, 1, "UNKNOWN_TOPIC_OR_PARTITION -1"},
		{"compacted", 0, 0, "POLICY_VIOLATION -1"}, {"__consumer_offsets", 0, 0, "INVALID_TOPIC_EXCEPTION -1"},
	} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.SetVersion(2)
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = c.topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Partition, rp.Offset = c.partition, c.offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		p := ask[*kmsg.DeleteRecordsResponse](t, socket, req).Topics[0].Partitions[0]
		if got := fmt.Sprint(said(p.ErrorCode), " ", p.LowWatermark); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestDescribeProducers shows who wrote with a producer id.
func TestDescribeProducers(t *testing.T) {
	b, config := onReplicas(t)
	b.Create("t", 1, nil)
	socket := start(t, config).dial()
	produced(t, socket, produceTo(9, 0, batchOf(t, record.BuilderOptions{HasProducer: true, ProducerID: 7, ProducerEpoch: 3}, "a", "b")))
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 9}
	req.Topics = append(req.Topics, rt)
	parts := ask[*kmsg.DescribeProducersResponse](t, socket, req).Topics[0].Partitions
	if len(parts[0].ActiveProducers) != 1 || said(parts[1].ErrorCode) != "UNKNOWN_TOPIC_OR_PARTITION" {
		t.Fatalf("%+v", parts)
	}
	if p := parts[0].ActiveProducers[0]; p.ProducerID != 7 || p.ProducerEpoch != 3 || p.LastSequence != 1 || p.CurrentTxnStartOffset != -1 || p.CoordinatorEpoch != -1 {
		t.Errorf("%+v", p)
	}
}

// TestCoordinatorsAreRefusedForGood gives errors that no client retries, in every version, until coordinators exist.
func TestCoordinatorsAreRefusedForGood(t *testing.T) {
	socket := start(t, Config{}).dial()
	for version := int16(0); version <= 6; version++ {
		for kind, want := range map[int8]string{0: "groups", 1: "transactional.id", 2: "share", 3: "does not exist"} {
			if version == 0 && kind != 0 {
				continue
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.SetVersion(version)
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, "k", []string{"k", "l"}
			resp := ask[*kmsg.FindCoordinatorResponse](t, socket, req)
			code, message := resp.ErrorCode, resp.ErrorMessage
			if version >= 4 {
				if len(resp.Coordinators) != 2 || resp.Coordinators[1].Key != "l" || resp.Coordinators[0].NodeID != -1 {
					t.Fatalf("v%d: %+v", version, resp)
				}
				code, message = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].ErrorMessage
			}
			if code == 0 || kerr.IsRetriable(kerr.ErrorForCode(code)) {
				t.Errorf("v%d type %d: %s", version, kind, said(code))
			}
			if version >= 1 && !strings.Contains(deref(message), want) {
				t.Errorf("v%d type %d: message %q", version, kind, deref(message))
			}
		}
	}
}

// TestInitProducerID hands out ids to idempotent producers, and refuses what Kafka does.
func TestInitProducerID(t *testing.T) {
	next, failure := int64(100), error(nil)
	socket := start(t, Config{ProducerIDs: func(context.Context) (int64, error) {
		next++
		return next, failure
	}}).dial()
	empty, name := "", "x"
	for _, c := range []struct {
		transactional *string
		id            int64
		epoch         int16
		want          string
	}{
		{nil, -1, -1, "ok 101 0"}, {nil, 5, 3, "ok 102 0"},
		{&empty, -1, -1, "INVALID_REQUEST -1 -1"}, {nil, 5, -1, "INVALID_REQUEST -1 -1"}, {nil, -1, 3, "INVALID_REQUEST -1 -1"},
		{&name, -1, -1, "UNSUPPORTED_VERSION -1 -1"},
	} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.SetVersion(5)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.transactional, c.id, c.epoch
		resp := ask[*kmsg.InitProducerIDResponse](t, socket, req)
		if got := fmt.Sprint(said(resp.ErrorCode), " ", resp.ProducerID, " ", resp.ProducerEpoch); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	failure = errors.New("registry is electing")
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	if resp := ask[*kmsg.InitProducerIDResponse](t, socket, req); said(resp.ErrorCode) != "COORDINATOR_LOAD_IN_PROGRESS" {
		t.Errorf("without a block of ids: %s", said(resp.ErrorCode))
	}
}
