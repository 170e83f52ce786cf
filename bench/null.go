package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// nullBrokerCommand makes this program a null broker.
const nullBrokerCommand = "null-broker"

// nullBroker speaks as much of the Kafka protocol as a producer and a consumer without a group need, and does no work: of
// what is produced it counts the records and keeps the largest batch of each topic, which it serves again and again as if
// it were the topic's content. What a client reaches against it is the client's own limit.
type nullBroker struct {
	host string
	port int32

	mu     sync.Mutex
	topics map[string]*nullTopic
	grown  chan struct{} // closed and replaced when a partition grows
}

type nullTopic struct {
	ends  []int64 // of each partition
	batch []byte  // the largest batch seen; never written to, as answers may still refer to it
}

// nullVersions are the requests that are answered; the versions end before topics go by id. A fetch has one version, which
// all clients know and whose answer is written by hand.
var nullVersions = []kmsg.ApiVersionsResponseApiKey{
	{ApiKey: int16(kmsg.Produce), MinVersion: 3, MaxVersion: 11},
	{ApiKey: int16(kmsg.Fetch), MinVersion: 11, MaxVersion: 11},
	{ApiKey: int16(kmsg.ListOffsets), MinVersion: 1, MaxVersion: 6},
	{ApiKey: int16(kmsg.Metadata), MinVersion: 0, MaxVersion: 9},
	{ApiKey: int16(kmsg.ApiVersions), MinVersion: 0, MaxVersion: 3},
	{ApiKey: int16(kmsg.CreateTopics), MinVersion: 2, MaxVersion: 4},
}

// serveNull runs a null broker on a free port until the process is told to end, and names the port on w.
func serveNull(ctx context.Context, w io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "listening on %s\n", listener.Addr())
	return newNullBroker(listener.Addr()).serve(ctx, listener)
}

func newNullBroker(addr net.Addr) *nullBroker {
	host, portText, _ := net.SplitHostPort(addr.String())
	port, _ := strconv.ParseInt(portText, 10, 32)
	return &nullBroker{host: host, port: int32(port), topics: map[string]*nullTopic{}, grown: make(chan struct{})}
}

// serve answers connections until the context ends.
func (n *nullBroker) serve(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			_ = n.converse(ctx, conn) // a client that goes away is nobody's error
		}()
	}
}

// converse answers one connection's requests in turn.
func (n *nullBroker) converse(ctx context.Context, conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 64<<10)
	var frame, out []byte
	for {
		var size [4]byte
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return err
		}
		length := int(binary.BigEndian.Uint32(size[:]))
		if cap(frame) < length {
			frame = make([]byte, length)
		}
		frame = frame[:length]
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		request, id, err := parseRequest(frame)
		if err != nil {
			return err
		}
		if fetch, is := request.(*kmsg.FetchRequest); is {
			answer := n.fetch(ctx, fetch, id)
			if _, err := answer.WriteTo(conn); err != nil {
				return err
			}
			continue
		}
		response := n.answer(request)
		if response == nil { // acks=0
			continue
		}
		out = appendResponse(out[:0], response, id)
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

// parseRequest reads a frame without its length. What it returns refers to the frame.
func parseRequest(frame []byte) (kmsg.Request, int32, error) {
	if len(frame) < 10 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	id := int32(binary.BigEndian.Uint32(frame[4:]))
	client := max(int(int16(binary.BigEndian.Uint16(frame[8:]))), 0)
	if len(frame) < 10+client {
		return nil, 0, io.ErrUnexpectedEOF
	}
	body := frame[10+client:]
	request := kmsg.RequestForKey(key)
	if request == nil {
		return nil, 0, fmt.Errorf("unknown request %d", key)
	}
	request.SetVersion(version)
	if request.IsFlexible() {
		if len(body) < 1 || body[0] != 0 {
			return nil, 0, errors.New("a request header with tagged fields")
		}
		body = body[1:]
	}
	return request, id, request.ReadFrom(body)
}

// appendResponse appends a frame.
func appendResponse(out []byte, response kmsg.Response, id int32) []byte {
	out = append(out, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(id))
	if response.IsFlexible() && response.Key() != int16(kmsg.ApiVersions) {
		out = append(out, 0)
	}
	out = response.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// answer is nil where no answer is wanted.
func (n *nullBroker) answer(request kmsg.Request) kmsg.Response {
	switch request := request.(type) {
	case *kmsg.ProduceRequest:
		return n.produce(request)
	case *kmsg.MetadataRequest:
		return n.metadata(request)
	case *kmsg.ListOffsetsRequest:
		return n.listOffsets(request)
	case *kmsg.CreateTopicsRequest:
		response := request.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range request.Topics {
			n.topic(t.Topic, int(t.NumPartitions))
			made := kmsg.NewCreateTopicsResponseTopic()
			made.Topic = t.Topic
			response.Topics = append(response.Topics, made)
		}
		return response
	default:
		response := request.ResponseKind()
		if versions, is := response.(*kmsg.ApiVersionsResponse); is {
			versions.ApiKeys = nullVersions
			if request.GetVersion() > 3 { // newer than what is listed: said in the form that every client reads
				versions.SetVersion(0)
				versions.ErrorCode = 35
			}
		}
		return response
	}
}

// topic finds a topic or makes it.
func (n *nullBroker) topic(name string, partitions int) *nullTopic {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.topics[name]
	if t == nil {
		t = &nullTopic{ends: make([]int64, max(partitions, 1))}
		n.topics[name] = t
	}
	return t
}

func (n *nullBroker) produce(request *kmsg.ProduceRequest) kmsg.Response {
	response := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range request.Topics {
		topic := n.topic(t.Topic, benchPartitions)
		answered := kmsg.NewProduceResponseTopic()
		answered.Topic = t.Topic
		n.mu.Lock()
		for _, p := range t.Partitions {
			one := kmsg.NewProduceResponseTopicPartition()
			one.Partition, one.BaseOffset = p.Partition, topic.ends[p.Partition]
			topic.ends[p.Partition] += int64(recordsOf(p.Records))
			if len(p.Records) > len(topic.batch) {
				topic.batch = slices.Clone(p.Records)
			}
			answered.Partitions = append(answered.Partitions, one)
		}
		n.mu.Unlock()
		response.Topics = append(response.Topics, answered)
	}
	n.mu.Lock()
	close(n.grown)
	n.grown = make(chan struct{})
	n.mu.Unlock()
	if request.Acks == 0 {
		return nil
	}
	return response
}

// recordsOf is the number of records that a batch's header gives.
func recordsOf(batch []byte) int32 {
	if len(batch) < 61 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(batch[57:]))
}

// fetch answers when there is something, or when the client's patience ends. The batches are sent from where they lie:
// copying them once would make this broker slower than one that sends files.
func (n *nullBroker) fetch(ctx context.Context, request *kmsg.FetchRequest, id int32) net.Buffers {
	deadline := time.NewTimer(time.Duration(request.MaxWaitMillis) * time.Millisecond)
	defer deadline.Stop()
	for {
		n.mu.Lock()
		grown := n.grown
		n.mu.Unlock()
		frame, found := n.read(request, id)
		if found {
			return frame
		}
		select {
		case <-grown:
		case <-deadline.C:
			return frame
		case <-ctx.Done():
			return frame
		}
	}
}

// read makes a frame of version 11, and says whether there is any batch in it.
func (n *nullBroker) read(request *kmsg.FetchRequest, id int32) (frame net.Buffers, found bool) {
	left := int(request.MaxBytes)
	part := make([]byte, 4, 256) // the length comes last
	part = binary.BigEndian.AppendUint32(part, uint32(id))
	part = append(part, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // throttle, error, session
	part = appendLength(part, len(request.Topics))
	for _, t := range request.Topics {
		topic := n.topic(t.Topic, benchPartitions)
		part = binary.BigEndian.AppendUint16(part, uint16(len(t.Topic)))
		part = append(part, t.Topic...)
		part = appendLength(part, len(t.Partitions))
		n.mu.Lock()
		for _, p := range t.Partitions {
			batch, end := topic.batch, topic.ends[p.Partition]
			count, batches := int64(recordsOf(batch)), 0
			room := min(int(p.PartitionMaxBytes), left)
			for count > 0 && p.FetchOffset+int64(batches)*count < end && ((batches+1)*len(batch) <= room || !found) {
				batches++
				found = true
			}
			left -= batches * len(batch)
			end = max(end, p.FetchOffset+int64(batches)*count)
			part = appendLength(part, int(p.Partition))
			part = append(part, 0, 0) // error
			part = binary.BigEndian.AppendUint64(part, uint64(end))
			part = binary.BigEndian.AppendUint64(part, uint64(end))
			part = binary.BigEndian.AppendUint64(part, 0) // where the log starts
			part = appendLength(part, -1)                 // aborted transactions
			part = appendLength(part, -1)                 // preferred replica
			part = appendLength(part, batches*len(batch))
			for i := range batches {
				// The offset is outside of what a batch's checksum covers.
				part = binary.BigEndian.AppendUint64(part, uint64(p.FetchOffset+int64(i)*count))
				frame = append(frame, part, batch[8:])
				part = make([]byte, 0, 128)
			}
		}
		n.mu.Unlock()
	}
	frame = append(frame, part)
	size := -4
	for _, b := range frame {
		size += len(b)
	}
	binary.BigEndian.PutUint32(frame[0], uint32(size))
	return frame, found
}

func appendLength(to []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(to, uint32(int32(n)))
}

func (n *nullBroker) metadata(request *kmsg.MetadataRequest) kmsg.Response {
	response := request.ResponseKind().(*kmsg.MetadataResponse)
	response.ControllerID = 1
	response.ClusterID = new("null")
	self := kmsg.NewMetadataResponseBroker()
	self.NodeID, self.Host, self.Port = 1, n.host, n.port
	response.Brokers = []kmsg.MetadataResponseBroker{self}
	for _, wanted := range request.Topics {
		topic := n.topic(*wanted.Topic, benchPartitions)
		told := kmsg.NewMetadataResponseTopic()
		told.Topic = wanted.Topic
		for p := range topic.ends {
			one := kmsg.NewMetadataResponseTopicPartition()
			one.Partition, one.Leader, one.Replicas, one.ISR = int32(p), 1, []int32{1}, []int32{1}
			told.Partitions = append(told.Partitions, one)
		}
		response.Topics = append(response.Topics, told)
	}
	return response
}

func (n *nullBroker) listOffsets(request *kmsg.ListOffsetsRequest) kmsg.Response {
	response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range request.Topics {
		topic := n.topic(t.Topic, benchPartitions)
		answered := kmsg.NewListOffsetsResponseTopic()
		answered.Topic = t.Topic
		n.mu.Lock()
		for _, p := range t.Partitions {
			one := kmsg.NewListOffsetsResponseTopicPartition()
			one.Partition, one.Offset = p.Partition, 0
			if p.Timestamp == -1 { // the end
				one.Offset = topic.ends[p.Partition]
			}
			answered.Partitions = append(answered.Partitions, one)
		}
		n.mu.Unlock()
		response.Topics = append(response.Topics, answered)
	}
	return response
}
