package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

var halfOpen = flag.Int("hostile.connections", 300, "how many half-open connections the hostile test holds")

const residentGrowthMax = 64 << 20

// TestHostileFrames sends what no client sends. Each gets one clear answer or a closed connection; the broker's memory
// stays within 64 MiB of idle, and a well-behaved client beside it notices nothing. (U-87, U-138, CVE-2022-34917)
func TestHostileFrames(t *testing.T) {
	broker := mustChild(t)
	broker.createTopic(t, "bystander", "--partitions", "1")
	cl := broker.client(t, kgo.RequestRetries(0), kgo.RecordRetries(0))
	bystander := func() {
		t.Helper()
		record := &kgo.Record{Topic: "bystander", Value: []byte("still here")}
		if err := cl.ProduceSync(withTimeout(t, 30*time.Second), record).FirstErr(); err != nil {
			t.Fatalf("the bystander's produce: %v\n%s", err, broker.log())
		}
	}
	bystander()
	idle := resident(t, broker.pid)

	frame := func(length int32, body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(length)), body...)
	}
	request := func(key, version int16, body ...byte) []byte {
		header := binary.BigEndian.AppendUint16(nil, uint16(key))
		header = binary.BigEndian.AppendUint16(header, uint16(version))
		header = binary.BigEndian.AppendUint32(header, 7) // correlation id
		header = binary.BigEndian.AppendUint16(header, 0) // empty client id
		all := append(header, body...)
		return frame(int32(len(all)), all...)
	}
	huge := []byte{0x7f, 0xff, 0xff, 0xff}
	for _, test := range []struct {
		name string
		send []byte
	}{
		{"a length of 2^31-1", frame(1<<31-1, 0, 3, 0, 12)},
		{"a negative length", frame(-1, 0, 3, 0, 12)},
		{"the most negative length", frame(-1<<31, 0)},
		{"a length of zero", frame(0)},
		{"a length shorter than a header", frame(3, 0, 3, 0)},
		{"garbage", bytes.Repeat([]byte{0xde, 0xad, 0xbe, 0xef}, 1000)},
		{"an unknown key", request(9999, 0)},
		{"a negative key", request(-1, 0)},
		{"an unknown version", request(3, 99)},
		{"a Metadata request with 2^31-1 topics", request(3, 1, huge...)},
		{"a Produce request with 2^31-1 topics", request(0, 3, append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, huge...)...)},
		{"a Fetch request with 2^31-1 topics", request(1, 4, append(make([]byte, 17), huge...)...)},
		{"a CreateTopics request with 2^31-1 topics", request(19, 2, huge...)},
		{"a TLS hello", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 500))},
		{"an HTTP request", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
	} {
		t.Run(test.name, func(t *testing.T) {
			answer, closed := exchange(t, broker.addr, test.send)
			if !closed && len(answer) == 0 {
				t.Errorf("neither an answer nor a closed connection")
			}
			if len(answer) > 4<<10 {
				t.Errorf("an answer of %d bytes", len(answer))
			}
			bystander()
		})
	}

	t.Run("decompression bombs", func(t *testing.T) {
		byName := broker.client(t, kgo.MaxVersions(kversion.V3_7_0())) // before topic ids in Produce
		for codec, bomb := range bombs(t) {
			if len(bomb) > 1_000_000 {
				t.Fatalf("the %s bomb has %d bytes: the size limit would refuse it, not the bomb's own", codec, len(bomb))
			}
			request := kmsg.NewPtrProduceRequest()
			request.Acks, request.TimeoutMillis = 1, 10_000
			topic := kmsg.NewProduceRequestTopic()
			topic.Topic = "bystander"
			partition := kmsg.NewProduceRequestTopicPartition()
			partition.Records = bomb
			topic.Partitions = append(topic.Partitions, partition)
			request.Topics = append(request.Topics, topic)
			answer, err := byName.Broker(1).Request(withTimeout(t, time.Minute), request)
			if err != nil {
				t.Errorf("%s bomb of %d bytes: the connection is gone: %v", codec, len(bomb), err)
				continue
			}
			code := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
			t.Logf("%s bomb of %d bytes: %v", codec, len(bomb), kerr.ErrorForCode(code))
			if code == 0 {
				t.Errorf("%s bomb of %d bytes was taken", codec, len(bomb))
			}
			bystander()
		}
		checkResident(t, broker.pid, idle)
	})

	t.Run("half-open connections", func(t *testing.T) {
		var conns []net.Conn
		defer func() {
			for _, conn := range conns {
				conn.Close()
			}
		}()
		for i := range *halfOpen {
			conn, err := net.Dial("tcp", broker.addr)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			conns = append(conns, conn)
			// Two bytes of a length, or a promise of 1 MiB and one byte of it.
			some := []byte{0, 0}
			if i%2 == 0 {
				some = frame(1<<20, 0)
			}
			if _, err := conn.Write(some); err != nil && !isClosed(err) {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
		bystander()
		checkResident(t, broker.pid, idle)
	})
	bystander()
	checkResident(t, broker.pid, idle)
	if strings.Contains(broker.log(), "panic") {
		t.Errorf("the broker panicked:\n%s", broker.log())
	}
}

// bombs are batches whose one record claims, and whose payload inflates to, half a gibibyte of zeros.
func bombs(t *testing.T) map[string][]byte {
	t.Helper()
	const inflated = 512 << 20
	zeros := make([]byte, 1<<20)
	fill := func(w io.WriteCloser) {
		t.Helper()
		// A record's length, attributes, timestamp and offset delta, a null key, and the length of its value.
		head := binary.AppendVarint(nil, inflated+16)
		head = append(head, 0, 0, 0, 1)
		head = binary.AppendVarint(head, inflated)
		if _, err := w.Write(head); err != nil {
			t.Fatal(err)
		}
		for range inflated / len(zeros) {
			if _, err := w.Write(zeros); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string][]byte{}
	add := func(codec record.Codec, payload []byte) {
		header := record.NewBuilder(record.BuilderOptions{LeaderEpoch: -1})
		header.Append(time.Now().UnixMilli(), nil, nil)
		batch, err := header.Batch()
		if err != nil {
			t.Fatal(err)
		}
		bomb := append(bytes.Clone(batch[:record.HeaderBytes]), payload...)
		binary.BigEndian.PutUint32(bomb[8:], uint32(len(bomb)-12))
		binary.BigEndian.PutUint16(bomb[21:], uint16(codec))
		binary.BigEndian.PutUint32(bomb[17:], crc32.Checksum(bomb[21:], crc32.MakeTable(crc32.Castagnoli)))
		out[codec.String()] = bomb
	}
	var squeezed bytes.Buffer
	gzipWriter, err := gzip.NewWriterLevel(&squeezed, gzip.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	fill(gzipWriter)
	add(record.Gzip, bytes.Clone(squeezed.Bytes()))
	squeezed.Reset()
	zstdWriter, err := zstd.NewWriter(&squeezed, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	fill(zstdWriter)
	add(record.Zstd, bytes.Clone(squeezed.Bytes()))
	return out
}

// exchange sends bytes on a connection of their own and reads until the broker closes it or a second passes.
func exchange(t *testing.T, addr string, send []byte) (answer []byte, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(send); err != nil && !isClosed(err) {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil && !isClosed(err) {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err = io.ReadAll(io.LimitReader(conn, 1<<20))
	return answer, err == nil || isClosed(err)
}

func isClosed(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ENOTCONN) || errors.Is(err, net.ErrClosed)
}

// resident is the memory of a process that is in RAM, in bytes; 0 where the system does not tell.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmRSS in the process's status")
	return 0
}

func checkResident(t *testing.T, pid int, idle int64) {
	t.Helper()
	now := resident(t, pid)
	t.Logf("resident memory: idle %d MiB, now %d MiB", idle>>20, now>>20)
	if now-idle > residentGrowthMax {
		t.Errorf("memory grew by %d MiB, want at most %d", (now-idle)>>20, residentGrowthMax>>20)
	}
}

// endOffset is the end of a partition's log as a consumer sees it.
func endOffset(t *testing.T, broker *child, topic string, partition int32) int64 {
	t.Helper()
	ends, err := kadm.NewClient(broker.client(t)).ListEndOffsets(withTimeout(t, time.Minute), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, found := ends.Lookup(topic, partition)
	if !found || end.Err != nil {
		t.Fatalf("end of %s-%d: %v", topic, partition, end.Err)
	}
	return end.Offset
}
