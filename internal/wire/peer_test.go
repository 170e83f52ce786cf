package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// otherBroker is the far end of a Peer: it answers the frames of its connections, one after the other.
type otherBroker struct {
	t      *testing.T
	answer func(h Header, api *API, body []byte) []byte // nil closes the connection instead

	mu    sync.Mutex
	dials int
}

func (o *otherBroker) dial(context.Context) (net.Conn, error) {
	o.mu.Lock()
	o.dials++
	o.mu.Unlock()
	near, far := net.Pipe()
	go o.serve(far)
	return near, nil
}

func (o *otherBroker) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		h, api, body, err := ParseHeader(frame)
		if err != nil || api == nil {
			o.t.Errorf("header %+v: %v", h, err)
			return
		}
		answer := o.answer(h, api, body)
		if answer == nil {
			return
		}
		out := append(AppendResponseHeader(make([]byte, 4), api, h.Version, h.CorrelationID), answer...)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func newOtherBroker(t *testing.T, answer func(Header, *API, []byte) []byte) (*otherBroker, *Peer) {
	o := &otherBroker{t: t, answer: answer}
	p := NewPeer(PeerConfig{Dial: o.dial, Name: "broker-1"})
	t.Cleanup(p.Close)
	return o, p
}

func TestPeerFetch(t *testing.T) {
	request := &ReplicaFetch{
		Replica: 2, BrokerEpoch: 77, MaxWait: 499*time.Millisecond + time.Microsecond, BytesMin: 1, BytesMax: 10 << 20, SessionID: 3, SessionEpoch: 4,
		Partitions: []ReplicaFetchPartition{
			{TopicPartition: TopicPartition{Topic: [16]byte{1}, Partition: 0}, CurrentEpoch: 5, Offset: 100, LastFetchedEpoch: 4, LogStart: 7, HighWatermark: 99, BytesMax: 1 << 20},
			{TopicPartition: TopicPartition{Topic: [16]byte{1}, Partition: 1}, CurrentEpoch: 6, LastFetchedEpoch: -1, HighWatermark: -1, BytesMax: 1 << 20},
			{TopicPartition: TopicPartition{Topic: [16]byte{2}, Partition: 0}, CurrentEpoch: 7, LastFetchedEpoch: -1, BytesMax: 1},
		},
		Forgotten: []TopicPartition{{Topic: [16]byte{3}, Partition: 1}, {Topic: [16]byte{3}, Partition: 2}},
	}
	_, p := newOtherBroker(t, func(h Header, api *API, body []byte) []byte {
		if err := api.Check(h.Version, body); err != nil {
			t.Error(err)
		}
		var req kmsg.FetchRequest
		req.SetVersion(h.Version)
		if err := req.ReadFrom(body); err != nil {
			t.Error(err)
		}
		if req.ReplicaState.ID != 2 || req.ReplicaState.Epoch != 77 || req.MaxWaitMillis != 500 || req.SessionID != 3 || req.SessionEpoch != 4 ||
			len(req.Topics) != 2 || len(req.Topics[0].Partitions) != 2 || len(req.ForgottenTopics) != 1 || len(req.ForgottenTopics[0].Partitions) != 2 {
			t.Errorf("%+v", req)
		}
		if first := req.Topics[0].Partitions[0]; first.CurrentLeaderEpoch != 5 || first.FetchOffset != 100 || first.LastFetchedEpoch != 4 ||
			first.LogStartOffset != 7 || first.HighWatermark != 99 || first.PartitionMaxBytes != 1<<20 {
			t.Errorf("%+v", first)
		}
		resp := kmsg.NewPtrFetchResponse()
		resp.SetVersion(h.Version)
		resp.SessionID = 3
		part := kmsg.NewFetchResponseTopicPartition()
		part.HighWatermark, part.LogStartOffset, part.RecordBatches = 110, 8, []byte("batches")
		diverging := kmsg.NewFetchResponseTopicPartition()
		diverging.Partition, diverging.DivergingEpoch.Epoch, diverging.DivergingEpoch.EndOffset = 1, 3, 42
		resp.Topics = []kmsg.FetchResponseTopic{{TopicID: [16]byte{1}, Partitions: []kmsg.FetchResponseTopicPartition{part, diverging}}}
		return resp.AppendTo(nil)
	})
	got, err := p.Fetch(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	want := []ReplicaFetchedPartition{
		{TopicPartition: TopicPartition{Topic: [16]byte{1}}, HighWatermark: 110, LogStart: 8, DivergingEpoch: -1, DivergingEnd: -1, Records: []byte("batches")},
		{TopicPartition: TopicPartition{Topic: [16]byte{1}, Partition: 1}, HighWatermark: 0, LogStart: -1, DivergingEpoch: 3, DivergingEnd: 42},
	}
	if got.Code != 0 || got.SessionID != 3 || len(got.Partitions) != 2 {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if len(want[i].Records) == 0 {
			got.Partitions[i].Records = nil
		}
		if !reflect.DeepEqual(got.Partitions[i], want[i]) {
			t.Errorf("got %+v\nwant %+v", got.Partitions[i], want[i])
		}
	}
}

// apply is a call with some body.
func apply(ctx context.Context, p *Peer) (string, error) {
	answer, err := p.Call(ctx, Lookup(KeyApply), 0, func(dst []byte) []byte { return append(dst, "statement"...) })
	if err != nil {
		return "", err
	}
	defer answer.Release()
	return string(answer.Body), nil
}

// A call that is given up leaves the connection to the others, and its late answer goes nowhere.
func TestPeerAbandonedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{})
		calls := 0
		o, p := newOtherBroker(t, func(Header, *API, []byte) []byte {
			if calls++; calls == 1 {
				<-first
				return []byte("late")
			}
			return []byte("second")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := apply(ctx, p); !errors.Is(err, ErrPeer) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first: %v", err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if got, err := apply(t.Context(), p); err != nil || got != "second" {
				t.Errorf("second: %q, %v", got, err)
			}
		}()
		synctest.Wait()
		close(first)
		<-done
		if o.dials != 1 {
			t.Errorf("%d dials", o.dials)
		}
		p.Close()
		synctest.Wait()
	})
}

// A broken connection fails the calls on it; the next call dials again.
func TestPeerReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		o, p := newOtherBroker(t, func(Header, *API, []byte) []byte {
			if calls++; calls == 1 {
				return nil
			}
			return []byte("second")
		})
		if _, err := apply(t.Context(), p); !errors.Is(err, ErrPeer) {
			t.Errorf("on a connection that breaks: %v", err)
		}
		if _, err := apply(t.Context(), p); err != nil || o.dials != 2 {
			t.Errorf("after it: %v, %d dials", err, o.dials)
		}
		p.Close()
		if _, err := apply(t.Context(), p); !errors.Is(err, ErrPeer) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		synctest.Wait()
	})
}

// One call at a time is read by its caller: a call that is given up, and a connection that breaks, take the connection with
// them, and the next call dials again.
func TestPeerOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		ending := make(chan struct{})
		o := &otherBroker{t: t, answer: func(Header, *API, []byte) []byte {
			switch calls.Add(1) {
			case 3:
				<-ending
				return nil
			case 5:
				return nil
			}
			return []byte("answer")
		}}
		p := NewPeer(PeerConfig{Dial: o.dial, Name: "broker-1", OneAtATime: true})
		expect := func(ctx context.Context, dials int, causes ...error) {
			t.Helper()
			got, err := apply(ctx, p)
			if len(causes) == 0 && (err != nil || got != "answer") {
				t.Errorf("%q, %v", got, err)
			}
			for _, cause := range causes {
				if !errors.Is(err, cause) {
					t.Errorf("%v, want %v", err, cause)
				}
			}
			if o.dials != dials {
				t.Errorf("%d dials, want %d", o.dials, dials)
			}
		}
		expect(t.Context(), 1)
		expect(t.Context(), 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		expect(ctx, 1, ErrPeer, context.DeadlineExceeded)
		cancel()
		expect(t.Context(), 2)
		expect(t.Context(), 2, ErrPeer, io.EOF)
		expect(t.Context(), 3)
		p.Close()
		expect(t.Context(), 3, ErrPeer, net.ErrClosed)
		close(ending)
		synctest.Wait()
	})
}

// stubborn is a connection whose reads do not end when it is closed, as one that has its bytes already.
type stubborn struct{ net.Conn }

func (stubborn) Close() error { return nil }

// An answer that arrives while its call is being ended goes nowhere.
func TestPeerClosedWhileAnswerArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		p := NewPeer(PeerConfig{Dial: func(context.Context) (net.Conn, error) { return stubborn{near}, nil }})
		done := make(chan error)
		go func() {
			_, err := apply(t.Context(), p)
			done <- err
		}()
		var head [4]byte
		if _, err := io.ReadFull(far, head[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, far, int64(binary.BigEndian.Uint32(head[:]))); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Write([]byte{0, 0, 0, 6, 0, 0, 0, 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the body
		p.Close()
		if err := <-done; !errors.Is(err, ErrPeer) {
			t.Errorf("the call: %v", err)
		}
		if _, err := far.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = near.Close()
	})
}

func TestPeerRefusesBadAnswers(t *testing.T) {
	for name, raw := range map[string][]byte{
		"too long":  {0x7f, 0, 0, 0, 0, 0, 0, 1},
		"negative":  {0xff, 0, 0, 0, 0, 0, 0, 1},
		"other id":  {0, 0, 0, 4, 0, 0, 0, 9},
		"cut short": {0, 0, 0, 9, 0, 0, 0, 1, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPeer(PeerConfig{Dial: func(context.Context) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					var head [4]byte
					if _, err := io.ReadFull(far, head[:]); err != nil {
						return
					}
					if _, err := io.CopyN(io.Discard, far, int64(binary.BigEndian.Uint32(head[:]))); err == nil {
						_, _ = far.Write(raw)
					}
				}()
				return near, nil
			}})
			defer p.Close()
			if _, err := apply(t.Context(), p); !errors.Is(err, ErrPeer) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestFetchCodesAreKafkas(t *testing.T) {
	for code, want := range map[int16]*kerr.Error{
		CodeOffsetOutOfRange: kerr.OffsetOutOfRange, CodeNotLeaderOrFollower: kerr.NotLeaderForPartition,
		CodeFetchSessionIDNotFound: kerr.FetchSessionIDNotFound, CodeInvalidFetchSessionEpoch: kerr.InvalidFetchSessionEpoch,
		CodeFencedLeaderEpoch: kerr.FencedLeaderEpoch, CodeUnknownLeaderEpoch: kerr.UnknownLeaderEpoch,
		CodeFetchSessionTopicIDError: kerr.FetchSessionTopicIDError,
	} {
		if code != want.Code {
			t.Errorf("%s is %d, here %d", want.Message, want.Code, code)
		}
	}
}
