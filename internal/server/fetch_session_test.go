package server

import (
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// brief writes what a fetch answer says: the partitions mentioned, each with its values or its code.
func brief(t *testing.T, resp *kmsg.FetchResponse) string {
	t.Helper()
	if resp.ErrorCode != 0 {
		return kerr.TypedErrorForCode(resp.ErrorCode).Message
	}
	var out []string
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			said := strings.Join(values(t, p.RecordBatches), ",")
			if p.ErrorCode != 0 {
				said = kerr.TypedErrorForCode(p.ErrorCode).Message
			}
			out = append(out, fmt.Sprintf("%d:%s", p.Partition, said))
		}
	}
	return strings.Join(out, " ")
}

// session fetches with a session's id and epoch.
func session(t *testing.T, socket net.Conn, req *kmsg.FetchRequest, id, epoch int32) *kmsg.FetchResponse {
	t.Helper()
	req.SessionID, req.SessionEpoch = id, epoch
	return ask[*kmsg.FetchResponse](t, socket, req)
}

// nothing is an incremental fetch without changes.
func nothing(version int16) *kmsg.FetchRequest {
	req := fetchFrom(version, 0, 0)
	req.Topics = nil
	return req
}

// TestFetchSession walks through the life of a session (KIP-227): made by a full fetch, silent without news, told of
// new records, moved on, errors repeated until gone, partitions forgotten, and ended.
func TestFetchSession(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			b, config := onReplicas(t)
			topic := b.Create("t", 3, nil)
			put(t, b, topic, 0, "a")
			s := start(t, config)
			socket := s.dial()
			expect := func(what string, resp *kmsg.FetchResponse, want string, id int32) {
				t.Helper()
				if got := brief(t, resp); got != want || resp.SessionID != id {
					t.Errorf("%s: %q in session %d, want %q in %d", what, got, resp.SessionID, want, id)
				}
			}
			full := fetchFrom(version, 0, 0)
			addFetch(full, 1, 0)
			addFetch(full, 9, 0)
			unknown := "UNKNOWN_TOPIC_OR_PARTITION"
			resp := session(t, socket, full, 0, 0)
			id := resp.SessionID
			if id == 0 {
				t.Fatal("no session was made")
			}
			expect("full", resp, "0:a 1: 9:"+unknown, id)
			moved := fetchFrom(version, 0, 1)
			expect("epoch 1: errors are repeated", session(t, socket, moved, id, 1), "9:"+unknown, id)
			put(t, b, topic, 1, "b")
			expect("epoch 2: news", session(t, socket, nothing(version), id, 2), "1:b 9:"+unknown, id)
			forget := fetchFrom(version, 1, 1)
			forgotten := kmsg.NewFetchRequestForgottenTopic()
			forgotten.Topic, forgotten.TopicID, forgotten.Partitions = "t", topic.ID, []int32{9}
			forget.ForgottenTopics = append(forget.ForgottenTopics, forgotten)
			expect("epoch 3: the unknown one is forgotten", session(t, socket, forget, id, 3), "", id)
			put(t, b, topic, 1, "c")
			put(t, b, topic, 0, "d")
			expect("epoch 4: what gave records last comes last", session(t, socket, nothing(version), id, 4), "0:d 1:c", id)
			expect("epoch 4 again", session(t, socket, nothing(version), id, 4), kerr.InvalidFetchSessionEpoch.Message, 0)
			expect("another session", session(t, socket, nothing(version), id+1, 5), kerr.FetchSessionIDNotFound.Message, 0)
			other := nothing(12)
			if version <= 12 {
				other = nothing(13)
			}
			expect("names and ids mixed", session(t, socket, other, id, 5), kerr.FetchSessionTopicIDError.Message, 0)
			b.Set(topic, 0, meta.Partition{Leader: 2, Replicas: []meta.BrokerID{1, 2}, LeaderEpoch: 1})
			step := fetchFrom(version, 0, 2)
			addFetch(step, 1, 2)
			expect("epoch 5: led elsewhere", session(t, socket, step, id, 5), "0:NOT_LEADER_FOR_PARTITION", id)
			b.Set(topic, 0, meta.Partition{LeaderEpoch: 2})
			expect("epoch 6: the error is gone", session(t, socket, nothing(version), id, 6), "0:", id)
			expect("epoch 7: silence", session(t, socket, nothing(version), id, 7), "", id)
			expect("ended by a full fetch", session(t, socket, fetchFrom(version, 0, 2), id, -1), "0:", 0)
			expect("the ended one", session(t, socket, nothing(version), id, 8), kerr.FetchSessionIDNotFound.Message, 0)
			if n, partitions, _ := s.sessions.count(); n != 0 || partitions != 0 {
				t.Errorf("%d sessions with %d partitions are left", n, partitions)
			}
		})
	}
}

// TestFetchSessionFollowsTheEpoch proves that a partition which is sent again with nothing but a newer leader epoch is
// checked by that one from then on (KAFKA-9338).
func TestFetchSessionFollowsTheEpoch(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	put(t, b, topic, 0, "a")
	socket := start(t, config).dial()
	at := func(epoch int32) *kmsg.FetchRequest {
		req := fetchFrom(12, 0, 1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		return req
	}
	id := session(t, socket, at(0), 0, 0).SessionID
	b.Set(topic, 0, meta.Partition{LeaderEpoch: 1})
	for epoch, step := range []struct {
		req  *kmsg.FetchRequest
		want string
	}{
		{nothing(12), "0:" + kerr.FencedLeaderEpoch.Message},
		{at(1), "0:"}, // the error is gone
		{nothing(12), ""},
		{at(2), "0:" + kerr.UnknownLeaderEpoch.Message},
		{nothing(12), "0:" + kerr.UnknownLeaderEpoch.Message},
	} {
		if got := brief(t, session(t, socket, step.req, id, int32(epoch+1))); got != step.want {
			t.Errorf("session epoch %d: %q, want %q", epoch+1, got, step.want)
		}
	}
}

// TestFetchSessionOfNothing ends a session whose last partition was forgotten.
func TestFetchSessionOfNothing(t *testing.T) {
	b, config := onReplicas(t)
	topic := b.Create("t", 1, nil)
	s := start(t, config)
	socket := s.dial()
	id := session(t, socket, fetchFrom(12, 0, 0), 0, 0).SessionID
	req := nothing(12)
	forgotten := kmsg.NewFetchRequestForgottenTopic()
	forgotten.Topic, forgotten.TopicID, forgotten.Partitions = "t", topic.ID, []int32{0}
	req.ForgottenTopics = append(req.ForgottenTopics, forgotten)
	if resp := session(t, socket, req, id, 1); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 0 {
		t.Errorf("answer %+v", resp)
	}
	if n, _, _ := s.sessions.count(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestFetchSessionEviction keeps to the slots: a session that was not used for two minutes goes first, then a smaller
// one that is not new; a new one does not displace what is fresh.
func TestFetchSessionEviction(t *testing.T) {
	now := time.Unix(1e9, 0)
	c := newFetchSessions(2, func() time.Time { return now })
	parts := func(n int) ([]fetchPart, []fetchResult) {
		out := make([]fetchPart, n)
		for i := range out {
			out[i].partition = int32(i)
		}
		return out, make([]fetchResult, n)
	}
	create := func(n int) int32 {
		p, r := parts(n)
		return c.create(false, p, r)
	}
	small, large := create(2), create(9)
	if small == 0 || large == 0 || small == large {
		t.Fatalf("sessions %d and %d", small, large)
	}
	if id := create(5); id != 0 {
		t.Error("a fresh session was displaced")
	}
	now = now.Add(sessionEvictAfter + 1)
	for _, id := range []int32{small, large} {
		s := c.get(id)
		c.touch(s, s.size)
	}
	if id := create(1); id != 0 {
		t.Error("a session was displaced by a smaller one")
	}
	middle := create(5)
	if middle == 0 || c.get(small) != nil || c.get(large) == nil {
		t.Error("the smaller session was to make room")
	}
	now = now.Add(sessionEvictAfter + 1)
	c.touch(c.get(middle), 5)
	if create(1) == 0 || c.get(large) != nil || c.get(middle) == nil {
		t.Error("the session that was not used was to make room")
	}
	if n, partitions, evicted := c.count(); n != 2 || partitions != 6 || evicted != 2 {
		t.Errorf("%d sessions, %d partitions, %d evicted", n, partitions, evicted)
	}
}

// TestFetchSessionPartitionsMax ends a session that grows beyond what all sessions may hold.
func TestFetchSessionPartitionsMax(t *testing.T) {
	c := newFetchSessions(10, time.Now)
	id := c.create(false, make([]fetchPart, 1), make([]fetchResult, 1))
	if c.touch(c.get(id), sessionPartitionsMax+1) || c.get(id) != nil {
		t.Error("the session lives on")
	}
	if _, partitions, _ := c.count(); partitions != 0 {
		t.Errorf("%d partitions are counted", partitions)
	}
}

// TestNextEpoch skips the epochs with a meaning of their own.
func TestNextEpoch(t *testing.T) {
	if got := []int32{nextEpoch(0), nextEpoch(1), nextEpoch(math.MaxInt32)}; got[0] != 1 || got[1] != 2 || got[2] != 1 {
		t.Errorf("epochs %v", got)
	}
}
