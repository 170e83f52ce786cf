package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/yardstick"
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

// BenchmarkProduceParse measures the decoder of produce requests beside kmsg's, the library's that decodes all others.
func BenchmarkProduceParse(b *testing.B) {
	for _, c := range []struct {
		name                    string
		partitions, recordBytes int
	}{{"1x1KiB", 1, 1 << 10}, {"1x1MiB", 1, 1 << 20}, {"100x1KiB", 100, 1 << 10}} {
		body := produceBody(9, c.partitions, c.recordBytes)
		b.Run(c.name, func(b *testing.B) {
			var p Produce
			yardstick.Run(b, yardstick.Contest{
				Turn: 10_000 / c.partitions,
				Ours: func(n int) error {
					for range n {
						if err := p.Parse(9, body); err != nil {
							return err
						}
					}
					return nil
				},
				Raw: decodes(kmsg.Produce.Int16(), 9, body),
			})
		})
	}
}

// decodes returns a function that decodes a body n times with kmsg.
func decodes(key, version int16, body []byte) func(n int) error {
	return func(n int) error {
		for range n {
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			if err := req.ReadFrom(body); err != nil {
				return err
			}
		}
		return nil
	}
}

// BenchmarkDecode measures the requests that a client sends all the time, checked against their schema before they are
// decoded, beside the decoding alone.
func BenchmarkDecode(b *testing.B) {
	fetch := kmsg.NewPtrFetchRequest()
	fetch.SetVersion(16)
	fetch.Topics = append(fetch.Topics, kmsg.NewFetchRequestTopic())
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.SetVersion(12)
	for i := range int32(100) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = i
		fetch.Topics[0].Partitions = append(fetch.Topics[0].Partitions, p)
		topic, name := kmsg.NewMetadataRequestTopic(), fmt.Sprintf("topic-%d", i)
		topic.Topic = &name
		metadata.Topics = append(metadata.Topics, topic)
	}
	for name, req := range map[string]kmsg.Request{"Fetch/100": fetch, "Metadata/100": metadata} {
		body := req.AppendTo(nil)
		api, version := Lookup(req.Key()), req.GetVersion()
		b.Run(name, func(b *testing.B) {
			decode := decodes(req.Key(), version, body)
			yardstick.Run(b, yardstick.Contest{
				Turn: 500,
				Ours: func(n int) error {
					for range n {
						if err := api.Check(version, body); err != nil {
							return err
						}
						if err := decode(1); err != nil {
							return err
						}
					}
					return nil
				},
				Raw: decode,
			})
		})
	}
}
