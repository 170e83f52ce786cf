package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// fetch reads record batches (key 1). What is not there yet is waited for without a goroutine: a Waiter stands with
// each replica and a timer, and whichever fires first reads once more and answers.
func (s *Server) fetch(_ context.Context, a *await, f *frame, body []byte) (reply, error) {
	if err := f.api.Check(f.header.Version, body); err != nil {
		return nil, err
	}
	var req kmsg.FetchRequest
	req.SetVersion(f.header.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode Fetch version %d: %w: %w", req.Version, err, wire.ErrMalformed)
	}
	call := &fetchCall{server: s, await: a, fetchState: fetchStates.Get().(*fetchState)}
	if !call.begin(&req) {
		return call.reply(), nil
	}
	call.deadline = time.Now().Add(call.wait)
	if call.read(); call.satisfied() || call.wait <= 0 {
		return call.reply(), nil
	}
	a.park(call.hurry, false)
	call.park()
	return nil, nil
}

// fetchCall is one Fetch request.
type fetchCall struct {
	server *Server
	await  *await
	*fetchState

	context   fetchContext
	isolation replica.Isolation
	follower  *follower // nil for a consumer
	anyone    bool      // a consumer that reads from followers too: it knows PreferredReadReplica
	near      func(meta.BrokerID) bool
	bytesMin  int64
	bytesMax  int64
	wait      time.Duration
	deadline  time.Time
	told      bool // deadline has been brought forward for news

	mu struct {
		sync.Mutex
		waiter  *replica.Waiter // that is parked now
		timer   *time.Timer     // that fires it
		hurried bool            // answer with what there is
		expired bool            // the timer has fired
	}
}

// fetchState is the memory of a fetch that is worth keeping for the next one.
type fetchState struct {
	parts   []fetchPart
	results []fetchResult
	header  wire.FetchHeader
	slices  []record.Slice // the records of the answer, one for each gap of header
	answer  []int          // the partitions of the answer, as indexes into parts
	aborted []wire.AbortedTxn

	// Sums over the results.
	bytes     int64 // of records
	failed    bool  // a read failed, found the reader's log diverging, or another replica is preferred: not to be waited upon
	news      bool  // a follower does not know the high watermark, or the log's start: to be waited upon for newsWait
	readables int   // partitions that could be read
}

var fetchStates = sync.Pool{New: func() any { return new(fetchState) }}

// follower is the other broker that fetches, in a broker epoch (KIP-903).
type follower struct {
	broker meta.BrokerID
	epoch  int64
}

// followerOf is the broker that a request says it comes from; nil for a consumer.
func followerOf(req *kmsg.FetchRequest) *follower {
	switch {
	case req.ReplicaState.ID >= 0:
		return &follower{meta.BrokerID(req.ReplicaState.ID), req.ReplicaState.Epoch}
	case req.ReplicaID >= 0:
		return &follower{meta.BrokerID(req.ReplicaID), -1}
	}
	return nil
}

// fetchResult is what was found for one partition.
type fetchResult struct {
	topic   *meta.Topic
	replica *replica.Replica // nil if there is none here
	read    replica.ReadResult
	code    int16
	bounds  bool // also with this error the log's bounds are told: a follower outside them needs to know
}

func (r *fetchResult) recordBytes() int64 { return r.read.Records.Bytes() }

// highWatermark and logStart are what the client is told, -1 with an error as in Kafka.
func (r *fetchResult) highWatermark() int64 { return r.orUnset(r.read.HighWatermark) }
func (r *fetchResult) logStart() int64      { return r.orUnset(r.read.LogStart) }
func (r *fetchResult) lastStable() int64    { return r.orUnset(r.read.LastStable) }

func (r *fetchResult) orUnset(offset int64) int64 {
	if (r.code != 0 && !r.bounds) || r.replica == nil {
		return -1
	}
	return offset
}

// begin takes the request's terms and finds the partitions to read. False means that the answer is known already.
func (call *fetchCall) begin(req *kmsg.FetchRequest) bool {
	call.parts, call.results = call.parts[:0], call.results[:0]
	switch {
	case req.IsolationLevel != int8(replica.ReadUncommitted) && req.IsolationLevel != int8(replica.ReadCommitted):
		call.context.code = kerr.InvalidRequest.Code
		return false
	case (followerOf(req) != nil) != (call.server.config.Apply != nil):
		// Only brokers fetch as replicas, and they do so on their own listener (D16).
		call.parts = appendAsked(call.parts, req)
		call.results = resized(call.results, len(call.parts))
		for i := range call.results {
			call.results[i] = fetchResult{code: kerr.TopicAuthorizationFailed.Code}
		}
		return false
	}
	call.isolation, call.follower = replica.Isolation(req.IsolationLevel), followerOf(req)
	call.anyone = call.follower == nil && req.Version >= 11
	call.near = call.server.nearBrokers(req.Rack, &call.await.conn.client)
	call.bytesMax = int64(max(min(req.MaxBytes, call.server.config.FetchBytesMax), 0))
	call.bytesMin = min(int64(max(req.MinBytes, 0)), call.bytesMax)
	call.wait = time.Duration(req.MaxWaitMillis) * time.Millisecond
	call.context, call.parts = call.server.sessions.begin(req, call.parts)
	call.results = resized(call.results, len(call.parts))
	return call.context.code == 0
}

// resized is a slice of n zero results in the memory of s.
func resized(s []fetchResult, n int) []fetchResult {
	if cap(s) < n {
		return make([]fetchResult, n)
	}
	clear(s[:cap(s)])
	return s[:n]
}

// read reads every partition, within the limits of the request and of each partition. The first partition with records
// gives at least one batch, whatever the limits say.
func (call *fetchCall) read() {
	image := call.server.config.Image()
	call.bytes, call.failed, call.news, call.readables = 0, false, false, 0
	left, minOne := call.bytesMax, true
	for i := range call.parts {
		part, result := &call.parts[i], &call.results[i]
		*result = fetchResult{}
		call.readPart(image, part, result, min(int64(part.bytesMax), left), minOne)
		if n := result.recordBytes(); n > 0 {
			minOne = false
			left = max(left-n, 0)
			call.bytes += n
		}
	}
}

func (call *fetchCall) readPart(image *meta.Image, part *fetchPart, result *fetchResult, bytesMax int64, minOne bool) {
	var err error
	if call.await.version >= 13 {
		result.topic, err = topicByID(image, part.id)
	} else {
		result.topic, err = topicByName(image, part.name)
	}
	if err == nil && (part.partition < 0 || int(part.partition) >= len(result.topic.Partitions)) {
		err = errUnknownPartition
	}
	if err != nil {
		// Not a reason to answer at once: the client would ask again at once.
		result.code = codeOf(err)
		return
	}
	call.readables++
	if result.replica, err = call.server.replicaOf(result.topic, part.partition); err == nil {
		result.read, err = call.readReplica(result.replica, part, int32(max(bytesMax, 0)), minOne)
	}
	if err != nil {
		result.code = codeOf(err)
		result.bounds = call.follower != nil && errors.Is(err, replica.ErrOffsetOutOfRange)
		if unexpected(result.code) {
			call.server.log.Error("fetch failed", slog.String("topic", result.topic.Name),
				slog.Int("partition", int(part.partition)), slog.Any("err", err))
		}
	}
	call.failed = call.failed || result.code != 0 || result.read.Diverging != nil || result.read.Preferred != meta.NoBroker
	call.news = call.news || result.read.News
}

// readReplica reads for a consumer up to the bound of its isolation level, for a follower up to the log's end.
func (call *fetchCall) readReplica(r *replica.Replica, part *fetchPart, bytesMax int32, minOne bool) (replica.ReadResult, error) {
	if call.follower == nil {
		return r.Read(replica.ReadRequest{
			Offset: part.offset, BytesMax: bytesMax, Isolation: call.isolation, CurrentEpoch: part.currentEpoch,
			LastFetchedEpoch: part.lastFetchedEpoch, MinOne: minOne, TakesFollowers: call.anyone, Near: call.near,
		})
	}
	return r.ReadForFollower(replica.FollowerRead{
		Broker: call.follower.broker, BrokerEpoch: call.follower.epoch, Offset: part.offset, LogStart: part.logStart,
		CurrentEpoch: part.currentEpoch, LastFetchedEpoch: part.lastFetchedEpoch, KnownHigh: part.knownHigh,
		BytesMax: bytesMax, MinOne: minOne,
	})
}

// nearBrokers tells which brokers a consumer should rather read from: those in its rack, which it can reach (KIP-392). It is nil if
// replica.selector.class does not ask for it, or the consumer is in this broker's rack.
func (s *Server) nearBrokers(rack string, c *client) func(meta.BrokerID) bool {
	if !s.config.RackAware || rack == "" {
		return nil
	}
	image := s.config.Image()
	if self, found := image.Broker(s.config.Broker); found && self.Rack == rack {
		return nil
	}
	return func(id meta.BrokerID) bool {
		_, at, found := s.endpointOf(image, c, id)
		return found && at == rack
	}
}

// newsWait is how long a follower's fetch that has only a newer high watermark to bring waits for records to come with it.
// The followers of a partition in use fetch once for each append then, not twice; nobody's acknowledgement waits for it.
const newsWait = 2 * time.Millisecond

// satisfied tells whether what was read is an answer, or worth waiting upon. News brings the end of the waiting forward.
func (call *fetchCall) satisfied() bool {
	if call.news && !call.told {
		call.told = true
		if soon := time.Now().Add(newsWait); soon.Before(call.deadline) {
			call.deadline = soon
		}
	}
	return call.bytes >= call.bytesMin || call.failed || call.readables == 0
}

// park stands a waiter with each replica that was read, and sets the timer. If anything has happened since the read, the
// waiter fires at once. finish waits for mu, so that it does not begin before everything here is set up.
func (call *fetchCall) park() {
	missing := call.bytesMin - call.bytes
	call.release()
	call.mu.Lock()
	defer call.mu.Unlock()
	w := replica.NewWaiter(missing, func() { go call.finish() })
	call.mu.waiter = w
	call.mu.timer = time.AfterFunc(time.Until(call.deadline), func() {
		call.mu.Lock()
		call.mu.expired = true
		call.mu.Unlock()
		w.Fire()
	})
	if call.mu.hurried {
		w.Fire()
		return
	}
	for i := range call.results {
		if r := &call.results[i]; r.replica != nil && !r.replica.Watch(w, r.read) {
			w.Fire()
			return
		}
	}
}

// hurry answers a parked fetch with what there is.
func (call *fetchCall) hurry() {
	call.mu.Lock()
	call.mu.hurried = true
	w := call.mu.waiter
	call.mu.Unlock()
	if w != nil {
		w.Fire()
	}
}

// finish reads again after the waiter has fired, and answers; a fetch that was woken for too little parks again.
func (call *fetchCall) finish() {
	defer call.await.conn.recovered()
	call.mu.Lock()
	w := call.mu.waiter
	call.mu.waiter = nil
	call.mu.timer.Stop()
	over := call.mu.hurried || !time.Now().Before(call.deadline)
	// Where nobody had anything to say, what was read stands: a fetch of thousands of idle partitions looks at each once.
	quiet := call.mu.expired && !w.Heard() && call.bytes == 0 && call.readables == len(call.results)
	call.mu.Unlock()
	for i := range call.results {
		if r := call.results[i].replica; r != nil {
			r.Unwatch(w)
		}
	}
	if !quiet {
		call.read()
	}
	if !over && !call.satisfied() {
		call.park()
		return
	}
	if call.await.settle(call.reply(), false) {
		call.await.conn.drain()
	}
}

// release gives back what the reads hold.
func (call *fetchCall) release() {
	for i := range call.results {
		call.results[i].read.Records.Release()
	}
}
