package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// fetchReply is the answer to a fetch: a header in memory, records mostly in files.
type fetchReply struct{ call *fetchCall }

// reply builds the answer from the results.
func (call *fetchCall) reply() reply {
	sessionID := call.selectAnswer()
	if call.context.code != 0 {
		call.answer = call.answer[:0]
	}
	h := &call.header
	h.Begin(call.await.version, call.await.id, call.context.code, sessionID, call.topicRuns())
	image := call.server.config.Image()
	var endpoints []wire.FetchEndpoint
	call.slices, call.aborted = call.slices[:0], call.aborted[:0]
	for from := 0; from < len(call.answer); {
		to := call.runEnd(from)
		part := &call.parts[call.answer[from]]
		h.Topic(part.name, part.id, to-from)
		for k, i := range call.answer[from:to] {
			p := call.partition(&call.parts[i], &call.results[i])
			if p.LeaderID >= 0 {
				endpoints = call.addEndpoint(endpoints, image, p.LeaderID)
			}
			h.Partition(&p, k == to-from-1)
			if p.RecordBytes > 0 {
				call.slices = append(call.slices, call.results[i].read.Records)
			}
		}
		from = to
	}
	if size := h.End(endpoints); size > math.MaxInt32 {
		call.drop()
		return closeReply{fmt.Errorf("a fetch answer of %d bytes has no frame", size)}
	}
	return fetchReply{call}
}

// selectAnswer decides which partitions are mentioned, and the session's id: all of them outside a session and in the
// answer that makes one, else only those with news.
func (call *fetchCall) selectAnswer() int32 {
	call.answer = call.answer[:0]
	if call.context.session == nil {
		for i := range call.parts {
			call.answer = append(call.answer, i)
		}
		if call.context.create && call.context.code == 0 {
			return call.server.sessions.create(call.await.version >= 13, call.parts, call.results)
		}
		return noSession
	}
	session := call.context.session
	session.mu.Lock()
	defer session.mu.Unlock()
	if session.mu.epoch != call.context.epoch {
		// A later request of the session was read while this one waited: only a confused client sends that.
		call.context.code = kerr.InvalidFetchSessionEpoch.Code
		return noSession
	}
	for i := range call.parts {
		if cached := call.parts[i].cached; session.newsLocked(cached, &call.results[i]) {
			call.answer = append(call.answer, i)
		}
	}
	return session.id
}

// runEnd is the end of the run of partitions of one topic that starts at from: a topic is written once for each run.
func (call *fetchCall) runEnd(from int) int {
	first := &call.parts[call.answer[from]]
	to := from + 1
	for to < len(call.answer) {
		if p := &call.parts[call.answer[to]]; p.name != first.name || p.id != first.id {
			break
		}
		to++
	}
	return to
}

func (call *fetchCall) topicRuns() int {
	runs := 0
	for from := 0; from < len(call.answer); from = call.runEnd(from) {
		runs++
	}
	return runs
}

// partition is what the answer says of one partition.
func (call *fetchCall) partition(part *fetchPart, r *fetchResult) wire.FetchPartition {
	p := wire.NewFetchPartition(part.partition)
	p.ErrorCode = r.code
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = r.highWatermark(), r.lastStable(), r.logStart()
	if r.code != 0 {
		if r.code == kerr.NotLeaderForPartition.Code || r.code == kerr.FencedLeaderEpoch.Code {
			p.LeaderID, p.LeaderEpoch = leaderOf(r.topic, part.partition)
		}
		if r.replica == nil {
			p.Aborted = []wire.AbortedTxn{} // Kafka's answer to what it did not even try to read
		}
		return p
	}
	p.RecordBytes, p.PreferredReadReplica = r.recordBytes(), int32(r.read.Preferred)
	if d := r.read.Diverging; d != nil {
		p.DivergingEpoch, p.DivergingEnd = int32(d.Epoch), d.End
	}
	if call.isolation == replica.ReadCommitted {
		p.Aborted = call.abortedOf(r)
	}
	return p
}

// abortedOf is the aborted transactions of a partition in order of their first offset (U-110); never nil.
func (call *fetchCall) abortedOf(r *fetchResult) []wire.AbortedTxn {
	from := len(call.aborted)
	for i := range r.read.Aborted {
		txn := &r.read.Aborted[i]
		call.aborted = append(call.aborted, wire.AbortedTxn{ProducerID: txn.Producer, FirstOffset: txn.First})
	}
	of := call.aborted[from:len(call.aborted):len(call.aborted)]
	if of == nil {
		return []wire.AbortedTxn{}
	}
	slices.SortStableFunc(of, func(a, b wire.AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return of
}

// addEndpoint adds the broker that a partition points to, once.
func (call *fetchCall) addEndpoint(endpoints []wire.FetchEndpoint, image *meta.Image, id int32) []wire.FetchEndpoint {
	for _, e := range endpoints {
		if e.ID == id {
			return endpoints
		}
	}
	at, rack, found := call.server.endpointOf(image, &call.await.conn.client, meta.BrokerID(id))
	if !found {
		return endpoints
	}
	return append(endpoints, wire.FetchEndpoint{ID: id, Host: at.host, Port: at.port, Rack: rack})
}

// send writes header and records.
func (f fetchReply) send(c *conn) error {
	call := f.call
	if err := c.sendRecords(&call.header, call.slices); err != nil {
		return err
	}
	for _, i := range call.answer {
		if r := &call.results[i]; r.replica != nil {
			if n := r.recordBytes(); n > 0 {
				if call.follower != nil {
					r.replica.CountReplicated(n)
				} else {
					r.replica.CountSent(n)
				}
			}
		}
	}
	return nil
}

// drop releases the records and gives the memory to the next fetch.
func (f fetchReply) drop() { f.call.drop() }

func (call *fetchCall) drop() {
	call.release()
	state := call.fetchState
	call.fetchState = nil
	clear(state.parts)
	clear(state.results)
	clear(state.slices)
	if cap(state.parts) <= partsKept {
		fetchStates.Put(state)
	}
}

// partsKept is the largest fetch, in partitions, whose memory is kept: a giant one should not be paid for ever.
const partsKept = 4096
