package server

import (
	"cmp"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Epochs of a fetch request that do not continue a session (KIP-227).
const (
	sessionInitial int32 = 0  // a full fetch that asks for a session
	sessionFinal   int32 = -1 // a full fetch without one; any session that it names ends
)

// noSession is the id of no session.
const noSession int32 = 0

// sessionEvictAfter is for how long a session is safe from eviction: after it was used, and, against a larger session,
// after it was made (min.incremental.fetch.session.eviction.ms).
const sessionEvictAfter = 2 * time.Minute

// sessionPartitionsMax bounds the partitions in all sessions together: what they hold is memory.
const sessionPartitionsMax = 1 << 20

// fetchPart is one partition that a fetch reads.
type fetchPart struct {
	fetchKey
	offset           int64
	bytesMax         int32
	currentEpoch     meta.Epoch
	lastFetchedEpoch meta.Epoch
	logStart         int64 // of a follower
	knownHigh        int64 // the high watermark that a follower knows, -1 if it does not say

	cached *cachedPart // of the session; nil outside one
}

// fetchKey names a partition as the request's version does: by topic name up to 12, by id since 13.
type fetchKey struct {
	name      string
	id        meta.TopicID
	partition int32
}

// cachedPart is a partition of a session, with what the client was last told of it.
type cachedPart struct {
	part          fetchPart
	highWatermark int64
	logStart      int64
	prev, next    *cachedPart
}

// fetchSession is what the server remembers of a client's fetches, so that a request names only partitions that changed
// and an answer only those with news.
type fetchSession struct {
	id      int32
	usesIDs bool
	made    time.Time

	mu struct {
		sync.Mutex
		epoch int32 // that the next request must have
		parts map[fetchKey]*cachedPart
		ring  cachedPart // the order of reading: ring.next is the first. Partitions that gave records go to the end.
	}

	// Of the cache's lock.
	used time.Time
	size int
}

// fetchSessions are the sessions of all clients (max.incremental.fetch.session.cache.slots).
type fetchSessions struct {
	slots int
	now   func() time.Time

	mu struct {
		sync.Mutex
		sessions   map[int32]*fetchSession
		partitions int
		evicted    int64
	}
}

func newFetchSessions(slots int, now func() time.Time) *fetchSessions {
	c := &fetchSessions{slots: slots, now: now}
	c.mu.sessions = make(map[int32]*fetchSession)
	return c
}

// fetchContext is how one fetch stands to its session.
type fetchContext struct {
	// code refuses the whole request; 0 does not.
	code int16
	// create asks for a session to be made of this full fetch.
	create bool
	// session is continued by this request, and will have the epoch that is expected of the next one.
	session *fetchSession
	epoch   int32
}

// begin finds what a request reads: the partitions that it names, or those of its session as the request changed it.
// The partitions are appended to parts.
func (c *fetchSessions) begin(req *kmsg.FetchRequest, parts []fetchPart) (fetchContext, []fetchPart) {
	full := req.Version < 7 || req.SessionEpoch == sessionInitial || req.SessionEpoch == sessionFinal
	if full {
		if req.Version >= 7 && req.SessionID != noSession {
			c.remove(req.SessionID)
		}
		create := req.Version >= 7 && req.SessionEpoch == sessionInitial
		return fetchContext{create: create}, appendAsked(parts, req)
	}
	session := c.get(req.SessionID)
	if session == nil {
		return fetchContext{code: kerr.FetchSessionIDNotFound.Code}, parts
	}
	session.mu.Lock()
	defer session.mu.Unlock()
	switch {
	case session.mu.epoch != req.SessionEpoch:
		return fetchContext{code: kerr.InvalidFetchSessionEpoch.Code}, parts
	case session.usesIDs != (req.Version >= 13):
		return fetchContext{code: kerr.FetchSessionTopicIDError.Code}, parts
	}
	session.updateLocked(req)
	if len(session.mu.parts) == 0 {
		c.remove(session.id)
		return fetchContext{}, parts
	}
	if !c.touch(session, len(session.mu.parts)) {
		return fetchContext{code: kerr.FetchSessionIDNotFound.Code}, parts
	}
	session.mu.epoch = nextEpoch(session.mu.epoch)
	for cached := session.mu.ring.next; cached != &session.mu.ring; cached = cached.next {
		parts = append(parts, cached.part)
	}
	return fetchContext{session: session, epoch: session.mu.epoch}, parts
}

// appendAsked appends the partitions that a request names.
func appendAsked(parts []fetchPart, req *kmsg.FetchRequest) []fetchPart {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			parts = append(parts, askedPart(t, &t.Partitions[j]))
		}
	}
	return parts
}

func askedPart(t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) fetchPart {
	part := fetchPart{
		fetchKey: fetchKey{t.Topic, t.TopicID, p.Partition}, offset: p.FetchOffset, bytesMax: p.PartitionMaxBytes,
		currentEpoch: meta.Epoch(p.CurrentLeaderEpoch), lastFetchedEpoch: meta.Epoch(p.LastFetchedEpoch),
		logStart: p.LogStartOffset, knownHigh: p.HighWatermark,
	}
	if part.knownHigh == math.MaxInt64 { // the field is left out (KIP-1166)
		part.knownHigh = -1
	}
	return part
}

// nextEpoch follows an epoch: 0 and −1 have meanings of their own, so the last one is followed by 1.
func nextEpoch(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// updateLocked adds, changes and forgets partitions as an incremental request says.
func (s *fetchSession) updateLocked(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			s.putLocked(askedPart(t, &t.Partitions[j]), -1, -1)
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, partition := range t.Partitions {
			key := fetchKey{t.Topic, t.TopicID, partition}
			if cached := s.mu.parts[key]; cached != nil {
				cached.unlink()
				delete(s.mu.parts, key)
			}
		}
	}
}

// putLocked adds a partition at the end of the order, or changes what is asked of it.
func (s *fetchSession) putLocked(part fetchPart, highWatermark, logStart int64) {
	cached := s.mu.parts[part.fetchKey]
	if cached == nil {
		cached = &cachedPart{highWatermark: highWatermark, logStart: logStart}
		s.mu.parts[part.fetchKey] = cached
		s.linkLocked(cached)
	}
	part.cached = cached
	cached.part = part
}

func (s *fetchSession) linkLocked(cached *cachedPart) {
	cached.prev, cached.next = s.mu.ring.prev, &s.mu.ring
	cached.prev.next, cached.next.prev = cached, cached
}

func (p *cachedPart) unlink() {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
}

// newsLocked tells whether an incremental answer must mention the partition, and remembers that the client knows.
// After an error nothing is known: the partition is mentioned again when the error is gone.
func (s *fetchSession) newsLocked(cached *cachedPart, r *fetchResult) bool {
	bytes := r.recordBytes()
	news := bytes > 0
	if cached.highWatermark != r.highWatermark() {
		cached.highWatermark, news = r.highWatermark(), true
	}
	if cached.logStart != r.logStart() {
		cached.logStart, news = r.logStart(), true
	}
	if r.code != 0 || r.read.Diverging != nil || r.read.News || r.read.Preferred != meta.NoBroker {
		cached.highWatermark, news = -1, true
	}
	if bytes > 0 {
		cached.unlink()
		s.linkLocked(cached)
	}
	return news
}

// create makes a session of what a full fetch has read, if there is room for it; it returns its id or noSession.
func (c *fetchSessions) create(usesIDs bool, parts []fetchPart, results []fetchResult) int32 {
	now := c.now()
	s := &fetchSession{usesIDs: usesIDs, made: now, used: now}
	s.mu.epoch = nextEpoch(sessionInitial)
	s.mu.parts = make(map[fetchKey]*cachedPart, len(parts))
	s.mu.ring.prev, s.mu.ring.next = &s.mu.ring, &s.mu.ring
	for i := range parts {
		high := results[i].highWatermark()
		if results[i].code != 0 {
			high = -1
		}
		s.putLocked(parts[i], high, results[i].logStart())
	}
	s.size = len(s.mu.parts)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.size == 0 || !c.makeRoomLocked(s.size, now) {
		return noSession
	}
	for s.id == noSession || c.mu.sessions[s.id] != nil {
		s.id = rand.Int32N(math.MaxInt32-1) + 1
	}
	c.mu.sessions[s.id] = s
	c.mu.partitions += s.size
	return s.id
}

// makeRoomLocked finds a slot for a session of size partitions: a free one, that of a session not used for a while, or
// that of a smaller one that is not new.
func (c *fetchSessions) makeRoomLocked(size int, now time.Time) bool {
	var stale, small *fetchSession
	if len(c.mu.sessions) >= c.slots || c.mu.partitions+size > sessionPartitionsMax {
		for _, s := range c.mu.sessions {
			if now.Sub(s.used) > sessionEvictAfter && (stale == nil || s.used.Before(stale.used)) {
				stale = s
			}
			if s.size < size && now.Sub(s.made) > sessionEvictAfter && (small == nil || s.size < small.size) {
				small = s
			}
		}
	}
	if victim := cmp.Or(stale, small); victim != nil {
		c.removeLocked(victim)
		c.mu.evicted++
	}
	return len(c.mu.sessions) < c.slots && c.mu.partitions+size <= sessionPartitionsMax
}

func (c *fetchSessions) get(id int32) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.sessions[id]
}

// touch says that a session was used and has size partitions now. False means that it ended: it was evicted, or has
// grown beyond what there is room for.
func (c *fetchSessions) touch(s *fetchSession, size int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.sessions[s.id] != s {
		return false
	}
	c.mu.partitions += size - s.size
	s.size, s.used = size, c.now()
	if c.mu.partitions > sessionPartitionsMax {
		c.removeLocked(s)
		return false
	}
	return true
}

func (c *fetchSessions) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.sessions[id]; s != nil {
		c.removeLocked(s)
	}
}

func (c *fetchSessions) removeLocked(s *fetchSession) {
	delete(c.mu.sessions, s.id)
	c.mu.partitions -= s.size
}

// count is the number of sessions, their partitions, and how many sessions were evicted so far.
func (c *fetchSessions) count() (sessions, partitions int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.sessions), c.mu.partitions, c.mu.evicted
}
