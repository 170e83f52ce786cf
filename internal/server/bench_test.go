package server

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica/replicatest"
	"github.com/tidemark-io/tidemark/internal/vfs"
	"github.com/tidemark-io/tidemark/internal/yardstick"
)

// exchange sends a frame and reads its answer to the end, into a buffer that it keeps.
type exchange struct {
	socket net.Conn
	buffer []byte
}

func (e *exchange) send(frame []byte) error {
	_, err := e.socket.Write(frame)
	return err
}

func (e *exchange) receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(e.socket, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(e.buffer) < n {
		e.buffer = make([]byte, n)
	}
	_, err := io.ReadFull(e.socket, e.buffer[:n])
	return e.buffer[:n], err
}

// ask sends a frame and reads the answer, which is valid until the next one.
func (e *exchange) ask(b *testing.B, frame []byte) []byte {
	b.Helper()
	err := e.send(frame)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := e.receive()
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

// rounds sends n frames and reads their answers, so many in flight at a time.
func (e *exchange) rounds(frame []byte, inFlight int) func(n int) error {
	return func(n int) error {
		open := 0
		for sent := 0; sent < n || open > 0; {
			if sent < n && open < inFlight {
				if err := e.send(frame); err != nil {
					return err
				}
				sent++
				open++
				continue
			}
			if _, err := e.receive(); err != nil {
				return err
			}
			open--
		}
		return nil
	}
}

// barePeer is a server that does nothing but what no broker can leave out: it reads frames whole, does work with each, and
// writes an answer of a fixed length; then, if there is a file, so many bytes from its start by sendfile.
func barePeer(b *testing.B, work func(frame []byte) error, answerBytes int, file *os.File, fileBytes int64) *exchange {
	b.Helper()
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	client, err := new(net.Dialer).DialContext(b.Context(), "tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	socket, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	sender := newSender(socket)
	e := &exchange{socket: socket}
	answer := binary.BigEndian.AppendUint32(nil, uint32(int64(answerBytes)+fileBytes))
	answer = append(answer, make([]byte, answerBytes)...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			frame, err := e.receive()
			if err == nil {
				err = work(frame)
			}
			if err == nil {
				err = sender.write(answer, fileBytes > 0)
			}
			if err == nil && fileBytes > 0 {
				_, err = sender.sendfile(int(file.Fd()), 0, fileBytes)
			}
			if err != nil {
				return // the client has left
			}
		}
	}()
	b.Cleanup(func() { _ = client.Close(); <-done; _ = socket.Close() })
	return &exchange{socket: client}
}

func noWork([]byte) error { return nil }

func tempFile(b *testing.B) *os.File {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	return file
}

func benchServer(b *testing.B) *exchange {
	b.Helper()
	broker := replicatest.New(b, vfs.NewDisk(vfs.Options{}), filepath.Join(b.TempDir(), "data"))
	broker.Create("t", 1, map[string]string{"max.message.bytes": "20000000"})
	s := start(b, Config{Broker: replicatest.ID, Table: broker.Table, Image: broker.Image})
	return &exchange{socket: s.dial()}
}

// BenchmarkProduce is one request and its answer over loopback, acks=1, at a time or five in flight, beside a server that
// does no more than read the frame, check its CRC, write it to a file and answer.
func BenchmarkProduce(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 1 << 20, 6 << 20} {
		for _, inFlight := range []int{1, 5} {
			b.Run(fmt.Sprintf("%dKiB/inflight=%d", bytes>>10, inFlight), func(b *testing.B) {
				req := produceTo(9, 0, batchOf(b, record.BuilderOptions{}, strings.Repeat("x", bytes)))
				req.Acks = 1
				frame := frameOf(77, req)
				e := benchServer(b)
				file, position := tempFile(b), int64(0)
				bare := barePeer(b, func(frame []byte) error {
					crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli))
					_, err := file.WriteAt(frame, position)
					position += int64(len(frame))
					return err
				}, len(e.ask(b, frame)), nil, 0)
				yardstick.Run(b, yardstick.Contest{
					Ours: e.rounds(frame, inFlight), Raw: bare.rounds(frame, inFlight),
					Turn: max(5, 200>>min(bytes>>16, 8)), Bytes: int64(len(frame)),
				})
			})
		}
	}
}

// BenchmarkFetch reads the same stretch of a segment again and again, in answers of the given size, beside a server that
// answers every frame with a header and a sendfile.
func BenchmarkFetch(b *testing.B) {
	for _, bytes := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", bytes>>10), func(b *testing.B) {
			e := benchServer(b)
			for range 2 {
				e.ask(b, frameOf(77, produceTo(9, 0, batchOf(b, record.BuilderOptions{}, strings.Repeat("x", bytes-100)))))
			}
			req := fetchFrom(16, 0, 0)
			req.Topics[0].TopicID = [16]byte{1, 1}
			req.Topics[0].Partitions[0].PartitionMaxBytes = int32(bytes)
			frame := frameOf(77, req)
			resp := kmsg.NewPtrFetchResponse()
			resp.SetVersion(16)
			answer := e.ask(b, frame)
			if err := resp.ReadFrom(answer[5:]); err != nil || len(resp.Topics[0].Partitions[0].RecordBatches) < bytes/2 {
				b.Fatalf("%v: %+v", err, resp)
			}
			records := len(resp.Topics[0].Partitions[0].RecordBatches)
			file := tempFile(b)
			if _, err := file.Write(answer); err != nil {
				b.Fatal(err)
			}
			bare := barePeer(b, noWork, len(answer)-records, file, int64(records))
			yardstick.Run(b, yardstick.Contest{
				Ours: e.rounds(frame, 1), Raw: bare.rounds(frame, 1), Turn: max(5, 200>>(bytes>>16)), Bytes: int64(bytes),
			})
		})
	}
}

// BenchmarkRequest is the smallest request, for what a round trip costs by itself, beside an echo of as many bytes.
func BenchmarkRequest(b *testing.B) {
	e := benchServer(b)
	frame := frameOf(77, listRequest(11, 0, -1, -1))
	bare := barePeer(b, noWork, len(e.ask(b, frame)), nil, 0)
	yardstick.Run(b, yardstick.Contest{Ours: e.rounds(frame, 1), Raw: bare.rounds(frame, 1), Turn: 200})
}
