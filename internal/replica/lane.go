package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// lane is one connection's worth of followers: it asks their leader for all of them at once, and takes what comes. A round
// costs as much as has changed since the last one, not as many replicas as there are.
type lane struct {
	table *Table
	key   laneKey
	kick  chan struct{} // one slot: look again

	mu struct {
		sync.Mutex
		replicas map[*Replica]struct{}
		looks    map[*Replica]struct{} // whose position may have changed
		cancel   context.CancelFunc    // of the fetch that is being waited for

		failing      error // of the last fetch; nil if it was answered
		failingSince time.Time
	}

	lastAnswer atomic.Int64 // when the leader last answered, in nanoseconds since the epoch; 0 for never

	// Owned by the goroutine that runs the lane.
	session session
	waits   map[*Replica]retry // until when those who helped nothing are not asked for
	pause   time.Duration      // after a fetch that failed
}

// retry is when a replica may be asked for again.
type retry struct {
	at    time.Time
	pause time.Duration
	due   bool // it has been asked for since; the pause is kept in case it helps nothing again
}

func newLane(t *Table, key laneKey) *lane {
	l := &lane{table: t, key: key, kick: make(chan struct{}, 1), waits: make(map[*Replica]retry)}
	l.mu.replicas, l.mu.looks = make(map[*Replica]struct{}), make(map[*Replica]struct{})
	l.session.told = make(map[meta.TopicIDPartition]asked)
	return l
}

// answered is when the leader last answered a fetch.
func (l *lane) answered() time.Time { return time.Unix(0, l.lastAnswer.Load()) }

func (l *lane) add(r *Replica) {
	l.mu.Lock()
	l.mu.replicas[r] = struct{}{}
	l.mu.looks[r] = struct{}{}
	l.mu.Unlock()
}

func (l *lane) drop(r *Replica) {
	l.mu.Lock()
	delete(l.mu.replicas, r)
	l.mu.looks[r] = struct{}{}
	l.mu.Unlock()
	l.wake()
}

// look makes the lane ask a replica again where it fetches from.
func (l *lane) look(r *Replica) {
	l.mu.Lock()
	l.mu.looks[r] = struct{}{}
	l.mu.Unlock()
	l.wake()
}

func (l *lane) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.replicas)
}

// wake makes an idle lane look again.
func (l *lane) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// disturb makes a lane look again, and gives up the fetch that it waits for.
func (l *lane) disturb() {
	l.mu.Lock()
	if l.mu.cancel != nil {
		l.mu.cancel()
	}
	l.mu.Unlock()
	l.wake()
}

// round is one fetch, or one wait for something to fetch. False ends the lane, if it may.
func (l *lane) round(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	now := time.Now()
	request, next := l.request(now)
	if len(l.session.told) == 0 {
		l.session.reset() // nothing is sent that would make the leader forget; what it remembers, it would answer for again and again
		if l.size() == 0 {
			return false
		}
		l.idle(ctx, next.Sub(now))
		return true
	}
	c := &l.table.config.Fetch
	request.Broker, request.BrokerEpoch = l.table.config.Broker, l.table.ownEpoch()
	request.WaitMax, request.BytesMin, request.BytesMax = c.Wait, c.BytesMin, c.BytesMax
	if left := next.Sub(now); left < request.WaitMax {
		request.WaitMax = max(left, 0) // somebody waits for a turn
	}

	limited, cancel := context.WithTimeout(ctx, c.Wait+l.table.config.FetchTimeout)
	l.mu.Lock()
	l.mu.cancel = cancel
	l.mu.Unlock()
	response, err := l.table.config.Leaders.Fetch(limited, l.key.leader, l.key.number, request)
	disturbed := errors.Is(limited.Err(), context.Canceled)
	l.mu.Lock()
	l.mu.cancel = nil
	l.mu.Unlock()
	cancel()
	if err == nil {
		err = response.Err
	}
	if err != nil {
		l.failed(ctx, err, disturbed)
		return true
	}
	if l.pause > 0 {
		l.pause = 0
		l.mu.Lock()
		l.mu.failing = nil
		l.mu.Unlock()
	}
	l.take(ctx, response)
	return true
}

// throttlePause is the time after which a throttled replica is looked at again.
const throttlePause = 100 * time.Millisecond

// request makes the request that brings the leader's knowledge up to date, and tells when to look again besides.
func (l *lane) request(now time.Time) (*FetchRequest, time.Time) {
	next := now.Add(time.Minute) // a kick comes before
	l.mu.Lock()
	looks := l.mu.looks
	l.mu.looks = make(map[*Replica]struct{}, len(looks))
	if l.session.id == 0 {
		for r := range l.mu.replicas {
			looks[r] = struct{}{}
		}
	}
	for r, wait := range l.waits {
		switch _, here := l.mu.replicas[r]; {
		case !here:
			delete(l.waits, r)
		case wait.due:
		case now.Before(wait.at):
			looks[r] = struct{}{}
			if wait.at.Before(next) {
				next = wait.at
			}
		default:
			wait.due = true
			l.waits[r], looks[r] = wait, struct{}{}
		}
	}
	q := l.session.next()
	var held []*Replica
	for r := range looks {
		_, here := l.mu.replicas[r]
		position, partition, ok := r.fetchFrom()
		partition.BytesMax = l.table.config.Fetch.PartitionMax
		if wait, waits := l.waits[r]; waits && !wait.due {
			ok = false
		}
		if ok && r.heldBack(now) {
			ok, held = false, append(held, r)
		}
		l.session.tell(q, asked{r, position, partition}, here && ok && position.Leader == l.key.leader)
	}
	for _, r := range held {
		l.mu.looks[r] = struct{}{}
	}
	l.mu.Unlock()
	if again := now.Add(throttlePause); len(held) > 0 && again.Before(next) {
		next = again
	}
	return q, next
}

// idle waits for a kick, at most for a time.
func (l *lane) idle(ctx context.Context, atMost time.Duration) {
	timer := time.NewTimer(max(atMost, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.kick:
	case <-timer.C:
	}
}

// failed waits after a fetch that brought nothing. One that was given up for something better is no failure.
func (l *lane) failed(ctx context.Context, err error, disturbed bool) {
	l.session.reset()
	if disturbed || errors.Is(err, ErrSession) || ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	if l.mu.failing == nil {
		l.mu.failingSince = time.Now()
	}
	l.mu.failing = err
	l.mu.Unlock()
	l.pause = l.longer(l.pause)
	l.table.logger.Debug("fetch from a leader failed", slog.Int("broker", int(l.key.leader)), slog.Any("err", err))
	l.idle(ctx, l.pause)
}

// longer doubles a pause, up to the back-off.
func (l *lane) longer(pause time.Duration) time.Duration {
	most := l.table.config.Fetch.Backoff
	return min(max(2*pause, most/100), most)
}

// take hands each partition's answer to its replica. In the lane of flush partitions it then waits for the group commit: the
// next fetch acknowledges what has been appended.
func (l *lane) take(ctx context.Context, response *FetchResponse) {
	l.session.answered(response.Session)
	now := time.Now()
	l.lastAnswer.Store(now.UnixNano())
	taken := make([]*Replica, 0, len(response.Partitions))
	for i := range response.Partitions {
		p := &response.Partitions[i]
		q, found := l.session.told[p.TopicIDPartition]
		if !found {
			continue
		}
		a := Answer{
			Leader: q.position.Leader, Epoch: q.position.Epoch, Offset: q.position.Offset, LastEpoch: q.partition.LastEpoch,
			Err: p.Err, Diverging: p.Diverging, HighWatermark: p.HighWatermark, LogStart: p.LogStart, Records: len(p.Records) > 0,
		}
		if q.replica.answered(ctx, l, a, p.Records) {
			pause := l.longer(l.waits[q.replica].pause)
			l.waits[q.replica] = retry{at: now.Add(pause), pause: pause}
			if a.Err != nil && pause >= l.table.config.Fetch.Backoff/10 { // not the short while in which statements reach brokers
				q.replica.note(meta.EventFetchFailed, a.Leader, "broker %d answered the fetch of broker %d from offset %d: %v",
					a.Leader, l.table.config.Broker, a.Offset, a.Err)
			}
		} else {
			delete(l.waits, q.replica)
		}
		taken = append(taken, q.replica)
	}
	l.mu.Lock()
	for _, r := range taken {
		l.mu.looks[r] = struct{}{}
	}
	l.mu.Unlock()
	if l.key.number == flushLane {
		l.commit(ctx, taken)
	}
}

// commit waits until what these replicas have appended is synced.
func (l *lane) commit(ctx context.Context, taken []*Replica) {
	for _, r := range taken {
		for ctx.Err() == nil && r.syncing() {
			l.idle(ctx, l.table.config.Fetch.Wait)
		}
	}
}

// asked is what was asked of a leader for a replica.
type asked struct {
	replica   *Replica
	position  Position
	partition FetchPartition
}

// session is the follower's half of a KIP-227 session: what the leader has been told.
type session struct {
	id, epoch int32
	told      map[meta.TopicIDPartition]asked
}

// next begins the next request of the session.
func (s *session) next() *FetchRequest { return &FetchRequest{Session: s.id, SessionEpoch: s.epoch} }

// tell adds to a request what the leader does not know yet of one replica: where it fetches from, or that it is not wanted.
func (s *session) tell(q *FetchRequest, a asked, wanted bool) {
	p := a.partition.TopicIDPartition
	told, known := s.told[p]
	switch {
	case wanted:
		if s.id == 0 || !known || told.partition != a.partition {
			q.Partitions = append(q.Partitions, a.partition)
		}
		s.told[p] = a
	case known && told.replica == a.replica:
		delete(s.told, p)
		if s.id != 0 {
			q.Forgotten = append(q.Forgotten, p)
		}
	}
}

// reset begins another session: the leader knows nothing.
func (s *session) reset() {
	s.id, s.epoch = 0, 0
	clear(s.told)
}

// answered takes the session that the leader has granted. Without one the next request says everything again.
func (s *session) answered(id int32) {
	if id == 0 {
		s.id, s.epoch = 0, 0
		return
	}
	s.id = id
	if s.epoch++; s.epoch < 0 {
		s.epoch = 1 // KIP-227: 0 begins a session
	}
}
