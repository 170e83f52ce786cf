package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica/replicatest"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// exchange sends a frame and reads its answer to the end, into a buffer that it keeps.
type exchange struct {
	socket net.Conn
	buffer []byte
}

func (e *exchange) send(b *testing.B, frame []byte) {
	if _, err := e.socket.Write(frame); err != nil {
		b.Fatal(err)
	}
}

func (e *exchange) receive(b *testing.B) []byte {
	var size [4]byte
	if _, err := io.ReadFull(e.socket, size[:]); err != nil {
		b.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(e.buffer) < n {
		e.buffer = make([]byte, n)
	}
	if _, err := io.ReadFull(e.socket, e.buffer[:n]); err != nil {
		b.Fatal(err)
	}
	return e.buffer[:n]
}

func benchServer(b *testing.B) *exchange {
	b.Helper()
	broker := replicatest.New(b, vfs.NewDisk(vfs.Options{}), filepath.Join(b.TempDir(), "data"))
	broker.Create("t", 1, map[string]string{"max.message.bytes": "20000000"})
	s := start(b, Config{Broker: replicatest.ID, Table: broker.Table, Image: broker.Image})
	return &exchange{socket: s.dial()}
}

// BenchmarkProduce is one request and its answer over loopback, acks=1, at a time or five in flight.
func BenchmarkProduce(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 1 << 20} {
		for _, inFlight := range []int{1, 5} {
			b.Run(fmt.Sprintf("%dKiB/inflight=%d", bytes>>10, inFlight), func(b *testing.B) {
				e := benchServer(b)
				req := produceTo(9, 0, batchOf(b, record.BuilderOptions{}, strings.Repeat("x", bytes)))
				req.Acks = 1
				frame := frameOf(77, req)
				b.SetBytes(int64(len(frame)))
				b.ReportAllocs()
				open := 0
				for b.Loop() {
					e.send(b, frame)
					if open++; open == inFlight {
						e.receive(b)
						open--
					}
				}
				for range open {
					e.receive(b)
				}
			})
		}
	}
}

// BenchmarkFetch reads the same stretch of a segment again and again, in answers of the given size.
func BenchmarkFetch(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", bytes>>10), func(b *testing.B) {
			e := benchServer(b)
			for range 2 {
				req := produceTo(9, 0, batchOf(b, record.BuilderOptions{}, strings.Repeat("x", bytes-100)))
				e.send(b, frameOf(77, req))
				e.receive(b)
			}
			req := fetchFrom(16, 0, 0)
			req.Topics[0].TopicID = [16]byte{1, 1}
			req.Topics[0].Partitions[0].PartitionMaxBytes = int32(bytes)
			frame := frameOf(77, req)
			e.send(b, frame)
			resp := kmsg.NewPtrFetchResponse()
			resp.SetVersion(16)
			if err := resp.ReadFrom(e.receive(b)[5:]); err != nil || len(resp.Topics[0].Partitions[0].RecordBatches) < bytes/2 {
				b.Fatalf("%v: %+v", err, resp)
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				e.send(b, frame)
				e.receive(b)
			}
		})
	}
}

// BenchmarkRequest is the smallest request, for what a round trip costs by itself.
func BenchmarkRequest(b *testing.B) {
	e := benchServer(b)
	frame := frameOf(77, listRequest(11, 0, -1, -1))
	b.ReportAllocs()
	for b.Loop() {
		e.send(b, frame)
		e.receive(b)
	}
}
