package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsgProduce is what kmsg would have decoded, from what Produce.Parse decoded.
func kmsgProduce(p *Produce, version int16) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	if p.TransactionalID != nil {
		id := string(p.TransactionalID)
		req.TransactionID = &id
	}
	req.Acks, req.TimeoutMillis = p.Acks, p.TimeoutMillis
	for i := range p.Topics {
		t := &p.Topics[i]
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = string(t.Name), t.ID
		for _, part := range p.Partitions(t) {
			partition := kmsg.NewProduceRequestTopicPartition()
			partition.Partition, partition.Records = part.Index, part.Records
			topic.Partitions = append(topic.Partitions, partition)
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// TestProduceAgreesWithKmsg parses random requests of every version and demands the same bytes back.
func TestProduceAgreesWithKmsg(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var p Produce
	for version := int16(3); version <= 13; version++ {
		for range 300 {
			req := kmsg.NewPtrProduceRequest()
			fill(r, reflect.ValueOf(req).Elem(), 0)
			req.SetVersion(version)
			body := req.AppendTo(nil)
			if err := p.Parse(version, body); err != nil {
				t.Fatalf("v%d: %v", version, err)
			}
			if got := kmsgProduce(&p, version).AppendTo(nil); !bytes.Equal(got, body) {
				t.Fatalf("v%d: the request does not survive:\n%x\n%x", version, body, got)
			}
			if cut := body[:r.IntN(len(body))]; len(cut) < len(body) {
				if err := p.Parse(version, cut); !errors.Is(err, ErrMalformed) {
					t.Fatalf("v%d: %d of %d bytes gave %v", version, len(cut), len(body), err)
				}
			}
		}
	}
}

// TestProduceSharesTheFrame proves that records are not copied, and that parsing again into the same value allocates
// nothing.
func TestProduceSharesTheFrame(t *testing.T) {
	body := produceBody(9, 10, 100)
	var p Produce
	if err := p.Parse(9, body); err != nil {
		t.Fatal(err)
	}
	records := p.Partitions(&p.Topics[0])[0].Records
	body[bytes.IndexByte(body, 'r')] = 'R'
	if records[0] != 'R' {
		t.Error("the records are a copy")
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Parse(9, body); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("parsing again takes %v allocations", n)
	}
}

// produceBody encodes a request for one topic.
func produceBody(version int16, partitions, recordBytes int) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = -1, 30_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "topic"
	for i := range partitions {
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Partition, partition.Records = int32(i), bytes.Repeat([]byte{'r'}, recordBytes)
		topic.Partitions = append(topic.Partitions, partition)
	}
	req.Topics = append(req.Topics, topic)
	return req.AppendTo(nil)
}

func BenchmarkProduceParse(b *testing.B) {
	for _, c := range []struct {
		name                    string
		partitions, recordBytes int
	}{{"1x1KiB", 1, 1 << 10}, {"1x1MiB", 1, 1 << 20}, {"100x1KiB", 100, 1 << 10}} {
		body := produceBody(9, c.partitions, c.recordBytes)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var p Produce
			for b.Loop() {
				if err := p.Parse(9, body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/kmsg", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := kmsg.NewPtrProduceRequest()
				req.SetVersion(9)
				if err := req.ReadFrom(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
