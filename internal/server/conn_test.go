package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// ping proves that a connection is served.
func ping(t *testing.T, socket net.Conn) {
	t.Helper()
	go func() { _, _ = socket.Write(frameOf(1, apiVersionsRequest())) }()
	receive(t, socket, 1)
}

func apiVersionsRequest() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "go", "1"
	req.SetVersion(3)
	return req
}

// closed waits for the server to close the connection without a byte.
func closed(t *testing.T, socket net.Conn) {
	t.Helper()
	n, err := socket.Read(make([]byte, 1))
	if n != 0 || (!errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset")) {
		t.Errorf("read %d bytes, %v: want the connection closed", n, err)
	}
}

// raw builds a frame with any length field before any bytes.
func raw(length uint32, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, length), body...)
}

// header is the start of a frame's body: key, version, correlation id, client id "c".
func header(key, version int16) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	return append(b, 0, 0, 0, 9, 0, 1, 'c')
}

// TestHostileFrames sends what no client should: each ends its own connection, with at most one log line that says
// what to do, while another client goes on undisturbed (reliability §4, U-87, U-138).
func TestHostileFrames(t *testing.T) {
	framed := func(b []byte) []byte { return raw(uint32(len(b)), b...) }
	cases := []struct {
		name string
		send []byte
		log  string // part of the line; empty for none
	}{
		{"length 2^31-1", raw(1<<31 - 1), "frame_length"},
		{"length -1", raw(1<<32 - 1), "frame_length"},
		{"length -2^31", raw(1 << 31), "frame_length"},
		{"length 0", raw(0), "frame_length"},
		{"length 7", raw(7, 0, 18, 0, 0, 0, 0, 0), "frame_length"},
		{"garbage", []byte("\xfe\xed\xfa\xce garbage"), "frame_length"},
		{"TLS hello", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "security.protocol=PLAINTEXT"},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "admin address"},
		{"SASL handshake", framed(header(17, 1)), "sasl.*"},
		{"unknown key", framed(header(9999, 0)), "not served"},
		{"negative key", framed(header(-1, 0)), "not served"},
		{"broker key", framed(header(4, 7)), "not served"},
		{"ListOffsets of the future", framed(header(2, 99)), "not served"},
		{"ListOffsets version 0", framed(header(2, 0)), "Kafka 2.1"}, // U-100
		{"client of 2.0", framed(header(0, 2)), "Kafka 2.1"},
		{"header cut off", framed(header(18, 0)[:8]), "malformed"},
		{"client id beyond the frame", framed([]byte{0, 18, 0, 0, 0, 0, 0, 9, 0x7f, 0xff, 'c'}), "malformed"},
		{"body cut off", framed(append(header(18, 3), 0, 200)), "malformed"},
		{"too long for its key", raw(wire.SmallRequestBytesMax+1, header(18, 3)...), "frame_length"},
	}
	old := handler{key: 0, start: func(context.Context, *await, *frame, []byte) (reply, error) { return noReply{}, nil }}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			log := &logLines{}
			s := start(t, Config{Logger: newLogger(log)}, old, handler{key: 2, start: old.start})
			other := s.dial()
			ping(t, other)
			for range 2 {
				socket := s.dial()
				if _, err := socket.Write(c.send); err != nil {
					t.Fatal(err)
				}
				closed(t, socket)
			}
			ping(t, other)
			lines := log.all()
			if len(lines) != 1 || !strings.Contains(kindAndText(s, lines[0]), c.log) {
				t.Errorf("logged %q, want one line with %q", lines, c.log)
			}
			if len(lines) == 1 && !strings.Contains(lines[0], "peer=127.0.0.1:") {
				t.Errorf("the line %q does not name the peer", lines[0])
			}
		})
	}
}

// kindAndText is a log line with the kinds of refusals so far.
func kindAndText(s *started, line string) string {
	for kind := range s.refusals.counts() {
		line += " " + kind
	}
	return line
}

// TestFrameInPieces sends a request byte by byte, and then two and a half in one write.
func TestFrameInPieces(t *testing.T) {
	s := start(t, Config{})
	socket := s.dial()
	request := frameOf(1, apiVersionsRequest())
	for i := range request {
		if _, err := socket.Write(request[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, socket, 1)
	three := bytes.Join([][]byte{frameOf(2, apiVersionsRequest()), frameOf(3, apiVersionsRequest()), frameOf(4, apiVersionsRequest())}, nil)
	half := len(three) - len(request)/2
	if _, err := socket.Write(three[:half]); err != nil {
		t.Fatal(err)
	}
	receive(t, socket, 2)
	receive(t, socket, 3)
	if _, err := socket.Write(three[half:]); err != nil {
		t.Fatal(err)
	}
	receive(t, socket, 4)
}

// TestLargeFrame sends a Produce frame that the buffer has to grow for, twice: the second one starts at its full size.
func TestLargeFrame(t *testing.T) {
	var got [][]byte
	s := start(t, Config{}, overlapping(0, func(_ context.Context, _ *await, f *frame, body []byte) (reply, error) {
		var p wire.Produce
		if err := p.Parse(f.header.Version, body); err != nil {
			return nil, err
		}
		got = append(got, bytes.Clone(p.Partitions(&p.Topics[0])[0].Records))
		return frameReply(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 4}, uint32(f.header.CorrelationID))), nil
	}))
	socket := s.dial()
	records := make([]byte, 3<<20)
	for i := range records {
		records[i] = byte(i * 7 >> 3)
	}
	for id := range int32(2) {
		send(t, socket, id, produceOf(records))
		receive(t, socket, id)
	}
	for i := range got {
		if !bytes.Equal(got[i], records) {
			t.Errorf("the records of frame %d changed on their way", i)
		}
	}
}

func produceOf(records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks = 1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "topic"
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = records
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	return req
}

// parking is a handler whose requests wait until the test resolves them.
type parking struct {
	mu      sync.Mutex
	awaits  map[int32]*await
	hurried []int32
	patient bool
}

func (p *parking) handler(key int16) handler {
	p.awaits = make(map[int32]*await)
	return overlapping(key, func(_ context.Context, a *await, _ *frame, _ []byte) (reply, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.awaits[a.id] = a
		a.park(func() {
			p.mu.Lock()
			p.hurried = append(p.hurried, a.id)
			p.mu.Unlock()
			p.resolve(a.id)
		}, p.patient)
		return nil, nil
	})
}

func (p *parking) resolve(id int32) {
	p.mu.Lock()
	a := p.awaits[id]
	delete(p.awaits, id)
	p.mu.Unlock()
	if a != nil {
		a.resolve(frameReply(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 4}, uint32(id))))
	}
}

func (p *parking) parked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.awaits)
}

// TestAnswersKeepTheOrder resolves pipelined requests from the last to the first: nothing is sent until the first one
// is done, and then all in the order of the requests (D13). A request of another kind waits for them.
func TestAnswersKeepTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p parking
		s := startInMemory(t, Config{}, p.handler(0))
		socket := s.dial()
		var requests []byte
		for id := range int32(5) {
			requests = append(requests, frameOf(id, produceOf(nil))...)
		}
		requests = append(requests, frameOf(5, apiVersionsRequest())...)
		go func() { _, _ = socket.Write(requests) }()
		synctest.Wait()
		if n := p.parked(); n != 5 {
			t.Fatalf("%d requests are under way, want 5", n)
		}
		for _, id := range []int32{4, 2, 3, 1} {
			p.resolve(id)
		}
		synctest.Wait()
		answered := make(chan int32, 10)
		go func() {
			for range 6 {
				var b [8]byte
				if _, err := io.ReadFull(socket, b[:]); err != nil {
					return
				}
				_, _ = io.CopyN(io.Discard, socket, int64(binary.BigEndian.Uint32(b[:]))-4)
				answered <- int32(binary.BigEndian.Uint32(b[4:]))
			}
		}()
		synctest.Wait()
		if len(answered) != 0 {
			t.Fatal("an answer overtook the first one")
		}
		p.resolve(0)
		for want := range int32(6) {
			if got := <-answered; got != want {
				t.Fatalf("answer %d came, want %d", got, want)
			}
		}
	})
}

// TestErrorWaitsItsTurn closes the connection for a bad request only after the request before it is answered.
func TestErrorWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parking{patient: true}
		bad := overlapping(1, func(context.Context, *await, *frame, []byte) (reply, error) { return nil, wire.ErrMalformed })
		s := startInMemory(t, Config{}, p.handler(0), bad)
		socket := s.dial()
		go func() { _, _ = socket.Write(append(frameOf(1, produceOf(nil)), frameOf(2, fetchFrom(12, 0, 0))...)) }()
		synctest.Wait()
		p.resolve(1)
		receive(t, socket, 1)
		closed(t, socket)
	})
}

// TestAnswersToRequestsThatCameTogether leave together, but never wait for one that is parked, for a bad one or for the
// limit of unanswered requests.
func TestAnswersToRequestsThatCameTogether(t *testing.T) {
	prompt := overlapping(0, func(_ context.Context, a *await, _ *frame, _ []byte) (reply, error) {
		return frameReply(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 4}, uint32(a.id))), nil
	})
	bad := overlapping(9, func(context.Context, *await, *frame, []byte) (reply, error) { return nil, wire.ErrMalformed })
	const prompts, parks, refused, alone = 'p', 'w', 'x', 'a'
	for _, test := range []struct {
		what     string
		limit    int
		requests string
		writes   []int // answers in each write before anything that is parked is resolved
		closed   bool
	}{
		{"all at once", 100, "ppppp", []int{5}, false},
		{"one parks", 100, "ppwpp", []int{2}, false},
		{"one is bad", 100, "ppxpp", []int{2}, true},
		{"one is answered alone", 100, "ppapp", []int{2, 1, 2}, false},
		{"more than are held back", 100, strings.Repeat("p", 40), []int{16, 16, 8}, false},
		{"one may be unanswered", 1, "ppp", []int{1, 1, 1}, false},
		{"two may be unanswered", 2, "pppp", []int{1, 1, 1, 1}, false},
		{"three may be unanswered", 3, "ppppp", []int{2, 2, 1}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var p parking
			s := startInMemory(t, Config{Limits: Limits{UnansweredMax: test.limit}}, prompt, p.handler(1), bad)
			socket := s.dial()
			writes := make(chan []byte, 100)
			go func() {
				defer close(writes)
				for {
					b := make([]byte, 1<<16)
					n, err := socket.Read(b)
					if err != nil {
						return
					}
					writes <- b[:n]
				}
			}()
			send(t, socket, 0, produceOf(make([]byte, headBytes))) // from here on the server reads ahead
			if got := <-writes; len(got) != 8 {
				t.Fatalf("%s: %x", test.what, got)
			}
			var requests []byte
			for i, kind := range test.requests {
				var req kmsg.Request
				switch kind {
				case prompts:
					req = produceOf(nil)
				case parks:
					req = fetchFrom(12, 0, 0)
				case refused:
					offsets := kmsg.NewPtrOffsetFetchRequest()
					offsets.SetVersion(5)
					req = offsets
				case alone:
					req = apiVersionsRequest()
				}
				requests = append(requests, frameOf(int32(i+1), req)...)
			}
			go func() { _, _ = socket.Write(requests) }()
			synctest.Wait()
			var got []int
			next := uint32(1)
			take := func(b []byte) (n int) {
				for ; len(b) >= 8; n++ {
					if id := binary.BigEndian.Uint32(b[4:]); id != next {
						t.Errorf("%s: answer %d came, want %d", test.what, id, next)
					}
					next++
					b = b[min(len(b), 4+int(binary.BigEndian.Uint32(b))):]
				}
				return n
			}
			for len(writes) > 0 {
				got = append(got, take(<-writes))
			}
			if !slices.Equal(got, test.writes) {
				t.Errorf("%s: answers in each write %v, want %v", test.what, got, test.writes)
			}
			if test.closed {
				if b, open := <-writes; open {
					t.Errorf("%s: %x after the bad request", test.what, b)
				}
				return
			}
			for id := range len(test.requests) {
				p.resolve(int32(id + 1))
			}
			synctest.Wait()
			for len(writes) > 0 {
				take(<-writes)
			}
			if int(next) != len(test.requests)+1 {
				t.Errorf("%s: %d of %d requests were answered", test.what, next-1, len(test.requests))
			}
			_ = socket.Close()
		})
	}
}

// TestReadingStopsAtTheLimit parks requests until the connection is read no further, and goes on when one is answered.
func TestReadingStopsAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p parking
		s := startInMemory(t, Config{Limits: Limits{UnansweredMax: 3}}, p.handler(0))
		socket := s.dial()
		go func() {
			for id := range int32(10) {
				if _, err := socket.Write(frameOf(id, produceOf(nil))); err != nil {
					return
				}
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, socket) }()
		synctest.Wait()
		if n := p.parked(); n != 3 {
			t.Fatalf("%d requests were read, want 3", n)
		}
		p.resolve(0)
		p.resolve(1)
		synctest.Wait()
		if n := p.parked(); n != 3 {
			t.Errorf("%d requests are under way after two answers, want 3 again", n)
		}
	})
}

// TestTimeouts closes connections that begin a frame and do not go on, and those that are idle; a connection to which
// an answer is owed is not idle.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p parking
		s := startInMemory(t, Config{}, p.handler(0))
		begin := time.Now()
		elapsed := func(socket net.Conn) time.Duration {
			_, _ = io.Copy(io.Discard, socket)
			return time.Since(begin).Round(time.Second)
		}
		half := s.dial()
		_, _ = half.Write(raw(100, 0, 18))
		if got := elapsed(half); got != 10*time.Second {
			t.Errorf("half a first frame was put up with for %v, want 10s", got)
		}
		trickle := s.dial()
		begin = time.Now()
		go func() {
			_, _ = trickle.Write(raw(1<<20, header(0, 9)...))
			for {
				time.Sleep(time.Second)
				if _, err := trickle.Write([]byte{0}); err != nil {
					return
				}
			}
		}()
		if got := elapsed(trickle); got != 10*time.Second {
			t.Errorf("a frame of one byte per second was put up with for %v, want 10s", got)
		}
		idle := s.dial()
		begin = time.Now()
		if got := elapsed(idle); got != 10*time.Minute {
			t.Errorf("an idle connection was kept for %v, want 10m", got)
		}
		waits := s.dial()
		go func() { _, _ = waits.Write(frameOf(7, produceOf(nil))) }()
		time.Sleep(time.Hour)
		p.resolve(7)
		receive(t, waits, 7)
	})
}

// TestStop answers polls at once, gives patient requests their grace, and lets nothing outlive Run.
func TestStop(t *testing.T) {
	for _, patient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := parking{patient: patient}
			h := p.handler(0)
			begin := time.Now()
			s := startInMemory(t, Config{}, h)
			socket := s.dial()
			go func() { _, _ = socket.Write(frameOf(7, produceOf(nil))) }()
			go func() { _, _ = io.Copy(io.Discard, socket) }()
			synctest.Wait()
			s.stop()
			if want := map[bool]time.Duration{false: 0, true: time.Second}[patient]; time.Since(begin) != want {
				t.Errorf("patient %v: the server stopped after %v, want %v", patient, time.Since(begin), want)
			}
			if len(p.hurried) != 1 {
				t.Errorf("patient %v: %d requests were hurried, want 1", patient, len(p.hurried))
			}
		})
	}
}

// TestPanicEndsOneConnection counts a handler's panic and closes its connection only.
func TestPanicEndsOneConnection(t *testing.T) {
	s := start(t, Config{}, overlapping(0, func(context.Context, *await, *frame, []byte) (reply, error) { panic("boom") }))
	other := s.dial()
	ping(t, other)
	socket := s.dial()
	send(t, socket, 1, produceOf(nil))
	closed(t, socket)
	ping(t, other)
	if n := s.metrics.panics.Swap(0); n != 1 {
		t.Errorf("%d panics were counted, want 1", n)
	}
}

// TestConnectionsMax closes what comes above a limit, of all connections or of those from one address.
func TestConnectionsMax(t *testing.T) {
	for _, limits := range []Limits{{ConnectionsMax: 1}, {ConnectionsPerIPMax: 1}} {
		s := start(t, Config{Limits: limits})
		first := s.dial()
		ping(t, first)
		closed(t, s.dial())
		ping(t, first)
		for host, refused := range map[string]bool{"127.0.0.1": true, "::ffff:127.0.0.1": true, "10.0.0.1": limits.ConnectionsMax > 0} {
			if got := s.crowded(&net.TCPAddr{IP: net.ParseIP(host)}); (got != nil) != refused {
				t.Errorf("%+v: one more from %s: %v", limits, host, got)
			}
		}
	}
}
