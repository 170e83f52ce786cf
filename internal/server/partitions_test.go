package server

import (
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica/replicatest"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// onReplicas is a broker's replicas in memory, and a configuration that serves them.
func onReplicas(t *testing.T) (*replicatest.Broker, Config) {
	t.Helper()
	b := replicatest.New(t, vfs.NewMemory(1), "data")
	return b, Config{Broker: replicatest.ID, Table: b.Table, Image: b.Image}
}

// ask sends one request and decodes its answer.
func ask[R kmsg.Response](t *testing.T, socket net.Conn, req kmsg.Request) R {
	t.Helper()
	go func() { _, _ = socket.Write(frameOf(77, req)) }()
	return answered[R](t, socket, req)
}

// answered decodes the answer to a request that was sent with correlation id 77.
func answered[R kmsg.Response](t *testing.T, socket net.Conn, req kmsg.Request) R {
	t.Helper()
	body := receive(t, socket, 77)
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != 18 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("decode the answer to %T version %d: %v", req, req.GetVersion(), err)
	}
	return resp.(R)
}

// batchOf builds a batch as a producer does; options may add a producer or a codec.
func batchOf(t testing.TB, options record.BuilderOptions, values ...string) []byte {
	t.Helper()
	return batchAt(t, time.Now().UnixMilli(), options, values...)
}

// batchAt is batchOf at a time in milliseconds.
func batchAt(t testing.TB, timestamp int64, options record.BuilderOptions, values ...string) []byte {
	t.Helper()
	options.LeaderEpoch = -1
	b := record.NewBuilder(options)
	for _, v := range values {
		b.Append(timestamp, []byte("key"), []byte(v))
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), batch...)
}

// produceTo is a request for one partition of a topic that is named t and has the id of the first topic created.
func produceTo(version int16, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = -1, 5000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = "t", [16]byte{1, 1}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// produced sends a produce request for one partition and returns what it says of it.
func produced(t *testing.T, socket net.Conn, req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	return ask[*kmsg.ProduceResponse](t, socket, req).Topics[0].Partitions[0]
}

// fetchFrom is a request for one partition of topic t.
func fetchFrom(version int16, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(version)
	req.ReplicaID, req.MinBytes, req.MaxBytes, req.MaxWaitMillis = -1, 1, 50<<20, 0
	req.SessionEpoch = -1
	addFetch(req, partition, offset)
	return req
}

func addFetch(req *kmsg.FetchRequest, partition int32, offset int64) {
	if len(req.Topics) == 0 {
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = "t", [16]byte{1, 1}
		req.Topics = append(req.Topics, topic)
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	p.CurrentLeaderEpoch, p.LastFetchedEpoch = -1, -1
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
}

// values reads the record values of batches.
func values(t *testing.T, batches []byte) []string {
	t.Helper()
	var out []string
	d := record.NewDecompressor(record.DefaultLimits)
	for len(batches) > 0 {
		batch, rest, err := record.Next(batches)
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		it := batch.Records(d)
		for it.Next() {
			out = append(out, string(it.Record().Value))
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		batches = rest
	}
	return out
}
