package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// produces keeps parsed requests for the next ones: their slices are reused, what they aliased is forgotten.
var produces = sync.Pool{New: func() any { return new(wire.Produce) }}

// errProduceFailed closes the connection of a producer with acks=0, which has no other way to learn of an error.
var errProduceFailed = errors.New("produce with acks=0 failed")

// produce appends record batches (key 0). The records lie in the frame until they are written; the answer waits for
// the acks without a goroutine.
func (s *Server) produce(ctx context.Context, a *await, f *frame, body []byte) (reply, error) {
	p := produces.Get().(*wire.Produce)
	defer func() {
		p.Reset()
		produces.Put(p)
	}()
	if err := p.Parse(f.header.Version, body); err != nil {
		return nil, err
	}
	call := &produceCall{server: s, await: a, acks: p.Acks}
	call.append(context.WithoutCancel(ctx), p)
	if p.Acks == replica.AcksNone {
		if code := call.failure(); code != 0 {
			return nil, fmt.Errorf("%w: %w", errProduceFailed, kerr.ErrorForCode(code))
		}
		return noReply{}, nil
	}
	return call.wait(time.Duration(p.TimeoutMillis) * time.Millisecond), nil
}

// produceCall is one Produce request after its records were appended.
type produceCall struct {
	server *Server
	await  *await
	acks   int16
	resp   *kmsg.ProduceResponse

	pending []pendingPartition
	waiting atomic.Int32
	timer   *time.Timer
}

// pendingPartition is an append whose outcome may come later, and where it goes in the response.
type pendingPartition struct {
	topic, partition int
	append           *replica.Pending
}

// append appends every partition of the request, one after the other, and begins the response.
func (call *produceCall) append(ctx context.Context, p *wire.Produce) {
	call.resp = kmsg.NewPtrProduceResponse()
	call.resp.Topics = make([]kmsg.ProduceResponseTopic, len(p.Topics))
	answers := make([]kmsg.ProduceResponseTopicPartition, p.PartitionCount())
	image := call.server.config.Image()
	for i := range p.Topics {
		t := &p.Topics[i]
		parts := p.Partitions(t)
		answer := &call.resp.Topics[i]
		answer.Partitions, answers = answers[:len(parts):len(parts)], answers[len(parts):]
		topic, err := call.topic(image, t, answer)
		for j := range parts {
			at := &answer.Partitions[j]
			at.Default()
			at.Partition, at.BaseOffset, at.LogAppendTime, at.LogStartOffset = parts[j].Index, -1, -1, -1
			if err != nil {
				call.refuse(at, topic, err)
				continue
			}
			pending, start, err := call.appendPartition(ctx, topic, &parts[j])
			if err != nil {
				at.LogStartOffset = start
				call.refuse(at, topic, err)
				continue
			}
			appended := pending.Appended()
			at.BaseOffset, at.LogAppendTime, at.LogStartOffset = appended.Base, appended.LogAppendTime, appended.LogStart
			call.pending = append(call.pending, pendingPartition{i, j, pending})
		}
	}
}

// topic finds the topic that a part of the request is for, by name or, since version 13, by id.
func (call *produceCall) topic(image *meta.Image, t *wire.ProduceTopic, answer *kmsg.ProduceResponseTopic) (*meta.Topic, error) {
	var topic *meta.Topic
	var err error
	if call.await.version >= 13 {
		answer.TopicID = t.ID
		topic, err = topicByID(image, t.ID)
	} else {
		topic, err = topicByName(image, string(t.Name))
		if err == nil {
			answer.Topic = topic.Name
		} else {
			answer.Topic = string(t.Name)
		}
	}
	if err == nil && topic.Internal() && call.await.conn.client.id != adminClientID {
		err = errInternalTopic
	}
	return topic, err
}

// adminClientID is the client id by which Kafka's own tools may write to internal topics.
const adminClientID = "__admin_client"

// appendPartition appends one partition's records. With an error that the log itself found in the records it returns
// the log's start, with any other -1, as Kafka does.
func (call *produceCall) appendPartition(ctx context.Context, topic *meta.Topic, part *wire.ProducePartition) (*replica.Pending, int64, error) {
	r, err := call.server.replicaOf(topic, part.Index)
	if err != nil {
		return nil, -1, err
	}
	if err := checkBatches(call.await.version, part.Records); err != nil {
		return nil, -1, err
	}
	pending, err := r.Append(ctx, replica.AppendRequest{
		Batches: part.Records, CurrentEpoch: meta.NoEpoch, Acks: call.acks, Origin: replica.FromClient,
	})
	if err == nil || !knowsStart(err) {
		return pending, -1, err
	}
	return nil, r.StartOffset(), err
}

// knowsStart tells the errors with which a refusal names the log's start.
func knowsStart(err error) bool {
	switch codeOf(err) {
	case kerr.InvalidRecord.Code, kerr.InvalidTimestamp.Code, kerr.OutOfOrderSequenceNumber.Code, kerr.InvalidProducerEpoch.Code:
		return true
	}
	return false
}

// checkBatches demands what the protocol does of a produce request, before the topic's own rules: exactly one batch,
// and no zstd before version 7 (KIP-110), as Kafka's ProduceRequest does.
func checkBatches(version int16, records []byte) error {
	batch, rest, err := record.Next(records)
	if len(records) == 0 || errors.Is(err, io.ErrUnexpectedEOF) {
		return &record.InvalidError{Index: -1, Reason: "a produce request must have exactly one record batch per partition, it has none"}
	}
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return &record.InvalidError{Index: -1, Reason: "a produce request must have exactly one record batch per partition, it has more"}
	}
	if version < 7 && batch.Codec() == record.Zstd {
		return fmt.Errorf("produce requests before version 7 may not use zstd: %w", record.ErrCodec)
	}
	return nil
}

// refuse fills in what a client is told of a partition that took no records.
func (call *produceCall) refuse(at *kmsg.ProduceResponseTopicPartition, topic *meta.Topic, err error) {
	at.ErrorCode = codeOf(err)
	switch {
	case at.ErrorCode == kerr.NotLeaderForPartition.Code:
		at.CurrentLeader.LeaderID, at.CurrentLeader.LeaderEpoch = leaderOf(topic, at.Partition)
		call.addEndpoint(at.CurrentLeader.LeaderID)
		return
	case at.ErrorCode == kerr.UnknownTopicOrPartition.Code, at.ErrorCode == kerr.UnknownTopicID.Code:
		return // the code says it all
	case unexpected(at.ErrorCode):
		call.server.log.Error("produce failed", slog.String("topic", topicName(topic)),
			slog.Int("partition", int(at.Partition)), slog.Any("err", err))
		return
	}
	var invalid *record.InvalidError
	var timestamp *record.TimestampError
	var records []record.Fault
	switch {
	case errors.As(err, &invalid):
		records = invalid.Records
	case errors.As(err, &timestamp):
		records = timestamp.Records
	}
	message := err.Error()
	at.ErrorMessage = &message
	for _, r := range records {
		e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		e.RelativeOffset, e.ErrorMessage = r.Index, &r.Message
		at.ErrorRecords = append(at.ErrorRecords, e)
	}
}

// addEndpoint tells the client where a leader is (v10), once.
func (call *produceCall) addEndpoint(id int32) {
	for i := range call.resp.Brokers {
		if call.resp.Brokers[i].NodeID == id {
			return
		}
	}
	s := call.server
	if at, rack, found := s.endpointOf(s.config.Image(), &call.await.conn.client, meta.BrokerID(id)); found {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port = id, at.host, at.port
		if rack != "" {
			b.Rack = &rack
		}
		call.resp.Brokers = append(call.resp.Brokers, b)
	}
}

func topicName(topic *meta.Topic) string {
	if topic == nil {
		return ""
	}
	return topic.Name
}

// failure is the code of the first partition that was refused; 0 if none was.
func (call *produceCall) failure() int16 {
	for i := range call.resp.Topics {
		for j := range call.resp.Topics[i].Partitions {
			if code := call.resp.Topics[i].Partitions[j].ErrorCode; code != 0 {
				return code
			}
		}
	}
	return 0
}

// wait returns the reply if every append has completed, and otherwise arranges for it. The last append to complete, on
// whichever goroutine, resolves the request.
func (call *produceCall) wait(timeout time.Duration) reply {
	open := 0
	for i := range call.pending {
		if !call.pending[i].append.Completed() {
			open++
		}
	}
	if open == 0 {
		return call.reply()
	}
	call.await.park(call.expire, true)
	// One more than there are, so that the request cannot be resolved before everything here is set up.
	call.waiting.Store(int32(len(call.pending)) + 1)
	call.timer = time.AfterFunc(max(timeout, 0), call.expire)
	for i := range call.pending {
		call.pending[i].append.Done(call.completed)
	}
	call.completed()
	return nil
}

// completed counts an append that has its outcome.
func (call *produceCall) completed() {
	if call.waiting.Add(-1) > 0 {
		return
	}
	defer call.await.conn.recovered()
	call.timer.Stop()
	call.await.resolve(call.reply())
}

// expire gives up on the appends that are still open: the request's timeout is over.
func (call *produceCall) expire() {
	defer call.await.conn.recovered()
	for i := range call.pending {
		call.pending[i].append.Expire()
	}
}

// reply fills in the outcomes and encodes the response.
func (call *produceCall) reply() reply {
	for _, p := range call.pending {
		err := p.append.Err()
		if err == nil {
			continue
		}
		at := &call.resp.Topics[p.topic].Partitions[p.partition]
		at.ErrorCode = codeOf(err)
		if unexpected(at.ErrorCode) {
			call.server.log.Error("produce failed after its append",
				slog.Int("partition", int(at.Partition)), slog.Any("err", err))
		}
	}
	return frameReply(encode(call.await.api, call.await.version, call.await.id, call.resp))
}
