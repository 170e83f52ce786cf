package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// replicaFetchVersion is the version of Fetch that followers speak: topic ids, the replica's state in a tagged field
// (KIP-903), and the high watermark that it knows (KIP-1166).
const replicaFetchVersion int16 = 18

// ReplicaFetch is a follower's Fetch request. Within a session (KIP-227) it names only what is new or has changed.
type ReplicaFetch struct {
	Replica     int32 // its broker id
	BrokerEpoch int64
	// MaxWait is how long the leader may wait for BytesMin bytes of records; BytesMax bounds those of the answer.
	MaxWait            time.Duration
	BytesMin, BytesMax int32
	// SessionID and SessionEpoch are 0 and 0 to ask for a session, 0 and -1 to do without.
	SessionID, SessionEpoch int32
	// Partitions of one topic stand together.
	Partitions []ReplicaFetchPartition
	Forgotten  []TopicPartition
}

// Codes of a leader's answer that a follower acts on; Kafka's numbers. Any other one is tried again later.
const (
	CodeOffsetOutOfRange         int16 = 1
	CodeNotLeaderOrFollower      int16 = 6
	CodeFetchSessionIDNotFound   int16 = 70
	CodeInvalidFetchSessionEpoch int16 = 71
	CodeFencedLeaderEpoch        int16 = 74
	CodeUnknownLeaderEpoch       int16 = 75
	CodeFetchSessionTopicIDError int16 = 106
)

// TopicPartition names a partition by its topic's id.
type TopicPartition struct {
	Topic     [16]byte
	Partition int32
}

// ReplicaFetchPartition asks for the records of one partition.
type ReplicaFetchPartition struct {
	TopicPartition
	CurrentEpoch     int32 // that the follower follows in (KIP-320)
	Offset           int64 // the follower's log end: everything below it is acknowledged
	LastFetchedEpoch int32 // of its last record, -1 for an empty log: the leader looks for divergence
	LogStart         int64 // the follower's
	HighWatermark    int64 // that the follower knows: the leader answers at once when there is a newer one
	BytesMax         int32
}

// ReplicaFetched answers ReplicaFetch. The records lie in memory of the pool: Release it when they are copied.
type ReplicaFetched struct {
	Code       int16 // of the whole request: 0, or one about the session
	SessionID  int32
	Partitions []ReplicaFetchedPartition

	buffer *Buffer
}

// Release gives the memory of the records back.
func (f *ReplicaFetched) Release() {
	if f.buffer != nil {
		f.buffer.Release()
		f.buffer = nil
	}
}

// ReplicaFetchedPartition is what the leader says about one partition.
type ReplicaFetchedPartition struct {
	TopicPartition
	Code          int16 // Kafka's error code
	HighWatermark int64
	LogStart      int64
	// DivergingEpoch and DivergingEnd say where the follower's log leaves the leader's (E-43); both -1 for
	// nothing to say.
	DivergingEpoch int32
	DivergingEnd   int64
	// Records are whole batches but for the last one, which may be cut.
	Records []byte
}

// Fetch asks a leader for records. The caller releases the answer.
func (p *Peer) Fetch(ctx context.Context, f *ReplicaFetch) (*ReplicaFetched, error) {
	req := f.request()
	answer, err := p.Call(ctx, Lookup(KeyFetch), replicaFetchVersion, req.AppendTo)
	if err != nil {
		return nil, err
	}
	var resp kmsg.FetchResponse
	resp.SetVersion(replicaFetchVersion)
	if err := resp.ReadFrom(answer.Body); err != nil {
		answer.Release()
		return nil, fmt.Errorf("Fetch: %w: %w", ErrPeer, err)
	}
	fetched := &ReplicaFetched{Code: resp.ErrorCode, SessionID: resp.SessionID, buffer: answer.Buffer}
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		for j := range topic.Partitions {
			part := &topic.Partitions[j]
			fetched.Partitions = append(fetched.Partitions, ReplicaFetchedPartition{
				TopicPartition: TopicPartition{Topic: topic.TopicID, Partition: part.Partition},
				Code:           part.ErrorCode, HighWatermark: part.HighWatermark, LogStart: part.LogStartOffset,
				DivergingEpoch: part.DivergingEpoch.Epoch, DivergingEnd: part.DivergingEpoch.EndOffset,
				Records: part.RecordBatches,
			})
		}
	}
	return fetched, nil
}

func (f *ReplicaFetch) request() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(replicaFetchVersion)
	req.ReplicaState.ID, req.ReplicaState.Epoch = f.Replica, f.BrokerEpoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = millisUp(f.MaxWait), f.BytesMin, f.BytesMax
	req.SessionID, req.SessionEpoch = f.SessionID, f.SessionEpoch
	for i := range f.Partitions {
		p := &f.Partitions[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != p.Topic {
			topic := kmsg.NewFetchRequestTopic()
			topic.TopicID = p.Topic
			req.Topics = append(req.Topics, topic)
		}
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.CurrentLeaderEpoch, part.FetchOffset = p.Partition, p.CurrentEpoch, p.Offset
		part.LastFetchedEpoch, part.LogStartOffset, part.PartitionMaxBytes = p.LastFetchedEpoch, p.LogStart, p.BytesMax
		part.HighWatermark = p.HighWatermark
		topic := &req.Topics[len(req.Topics)-1]
		topic.Partitions = append(topic.Partitions, part)
	}
	for _, tp := range f.Forgotten {
		if n := len(req.ForgottenTopics); n == 0 || req.ForgottenTopics[n-1].TopicID != tp.Topic {
			req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{TopicID: tp.Topic})
		}
		topic := &req.ForgottenTopics[len(req.ForgottenTopics)-1]
		topic.Partitions = append(topic.Partitions, tp.Partition)
	}
	return req
}

// millisUp is a wait in whole milliseconds, rounded up: rounded down, whoever waits for the rest of the last one would ask again
// and again without any wait.
func millisUp(d time.Duration) int32 {
	return int32((d + time.Millisecond - 1) / time.Millisecond)
}
