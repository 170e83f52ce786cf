package replica

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// fetchers are the lanes on which this broker's followers fetch: for each leader broker as many as num.replica.fetchers
// says, and one more for its flush partitions, whose next fetch waits for the group commit (D9).
type fetchers struct {
	table *Table
	begin chan struct{} // one slot: lanes wait to be started

	mu struct {
		sync.Mutex
		lanes map[laneKey]*lane
		where map[*Replica]*place
		fresh []*lane // to be started
		held  int     // statements that are being applied: lanes are not disturbed before their end
	}
}

// laneKey names a lane; the number of the lane for flush partitions is -1.
type laneKey struct {
	leader meta.BrokerID
	number int
}

const flushLane = -1

// place is where a replica fetches.
type place struct {
	lane  *lane
	epoch meta.Epoch
}

func newFetchers(t *Table) *fetchers {
	f := &fetchers{table: t, begin: make(chan struct{}, 1)}
	f.mu.lanes, f.mu.where = make(map[laneKey]*lane), make(map[*Replica]*place)
	return f
}

// hold keeps lanes as they are until release: what a statement changes disturbs each lane once.
func (f *fetchers) hold() {
	f.mu.Lock()
	f.mu.held++
	f.mu.Unlock()
}

func (f *fetchers) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.held--; f.mu.held > 0 {
		return
	}
	for _, l := range f.mu.lanes {
		l.disturb()
	}
}

// moved puts a replica where its machine says that it fetches from. A lane whose replicas or terms have changed gives up
// the fetch that it waits for, so that a new leader is asked at once; else the lane merely looks again.
func (f *fetchers) moved(r *Replica) {
	if f.table.config.Leaders == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	leader, epoch, flush, ok := r.following()
	old := f.mu.where[r]
	if !ok {
		if old != nil {
			old.lane.drop(r)
			delete(f.mu.where, r)
		}
		return
	}
	l := f.laneLocked(f.key(r, leader, flush))
	if old != nil && old.lane == l && old.epoch == epoch {
		l.wake()
		return
	}
	if old != nil && old.lane != l {
		old.lane.drop(r)
	}
	f.mu.where[r] = &place{l, epoch}
	l.add(r)
	if f.mu.held == 0 {
		l.disturb()
	}
}

func (f *fetchers) key(r *Replica, leader meta.BrokerID, flush bool) laneKey {
	if flush {
		return laneKey{leader, flushLane}
	}
	h := fnv.New32a()
	_, _ = h.Write(r.id[:])
	return laneKey{leader, int((h.Sum32() + uint32(r.partition)) % uint32(max(f.table.config.Fetch.ConnectionsOfOne(), 1)))}
}

func (f *fetchers) laneLocked(key laneKey) *lane {
	l := f.mu.lanes[key]
	if l == nil {
		l = &lane{table: f.table, key: key, kick: make(chan struct{}, 1), retry: make(map[*Replica]retry)}
		l.mu.replicas = make(map[*Replica]struct{})
		f.mu.lanes[key] = l
		f.mu.fresh = append(f.mu.fresh, l)
		select {
		case f.begin <- struct{}{}:
		default:
		}
	}
	return l
}

// run runs the lanes until ctx ends. A lane without replicas ends.
func (f *fetchers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-f.begin:
		}
		f.mu.Lock()
		fresh := f.mu.fresh
		f.mu.fresh = nil
		f.mu.Unlock()
		for _, l := range fresh {
			group.Go(func() error {
				for l.round(ctx) || !f.retire(ctx, l) {
				}
				return nil
			})
		}
	}
}

// retire ends a lane that has no replicas, or whose time is over.
func (f *fetchers) retire(ctx context.Context, l *lane) bool {
	if ctx.Err() != nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.size() > 0 {
		return false
	}
	delete(f.mu.lanes, l.key)
	return true
}

// lane is one connection's worth of followers: it asks their leader for all of them at once, and takes what comes.
type lane struct {
	table *Table
	key   laneKey
	kick  chan struct{} // one slot: look again

	mu struct {
		sync.Mutex
		replicas map[*Replica]struct{}
		cancel   context.CancelFunc // of the fetch that is being waited for
	}

	// Owned by the goroutine that runs the lane.
	session session
	retry   map[*Replica]retry
	pause   time.Duration // after a fetch that failed
}

// retry is when a replica may be asked for again.
type retry struct {
	at    time.Time
	pause time.Duration
}

func (l *lane) add(r *Replica) {
	l.mu.Lock()
	l.mu.replicas[r] = struct{}{}
	l.mu.Unlock()
}

func (l *lane) drop(r *Replica) {
	l.mu.Lock()
	delete(l.mu.replicas, r)
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
	wanted, next := l.wanted(now)
	if len(wanted) == 0 {
		if l.size() == 0 {
			return false
		}
		l.idle(ctx, next.Sub(now))
		return true
	}
	request := l.session.request(wanted)
	c := &l.table.config.Fetch
	request.Broker, request.BrokerEpoch = l.table.config.Broker, l.table.ownEpoch()
	request.WaitMax, request.BytesMin, request.BytesMax = c.Wait, c.BytesMin, c.BytesMax

	limited, cancel := context.WithTimeout(ctx, c.Wait+l.table.config.FetchTimeout)
	l.mu.Lock()
	l.mu.cancel = cancel
	l.mu.Unlock()
	response, err := l.table.config.Leaders.Fetch(limited, l.key.leader, max(l.key.number, flushLane), request)
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
	l.pause = 0
	l.take(ctx, response)
	if l.key.number == flushLane {
		l.commit(ctx)
	}
	return true
}

// wanted are the replicas that can be asked for, and when to look again if there are none.
func (l *lane) wanted(now time.Time) (map[meta.TopicIDPartition]asked, time.Time) {
	l.mu.Lock()
	replicas := make([]*Replica, 0, len(l.mu.replicas))
	for r := range l.mu.replicas {
		replicas = append(replicas, r)
	}
	l.mu.Unlock()
	next := now.Add(time.Minute) // a kick comes before
	all := make(map[meta.TopicIDPartition]asked, len(replicas))
	for _, r := range replicas {
		if again, waits := l.retry[r]; waits && now.Before(again.at) {
			if again.at.Before(next) {
				next = again.at
			}
			continue
		}
		position, partition, ok := r.fetchFrom()
		if !ok || position.Leader != l.key.leader {
			continue
		}
		partition.BytesMax = l.table.config.Fetch.PartitionMax
		all[partition.TopicIDPartition] = asked{r, position, partition}
	}
	return all, next
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
	l.session = session{}
	if disturbed || errors.Is(err, ErrSession) || ctx.Err() != nil {
		return
	}
	l.pause = l.longer(l.pause)
	l.table.logger.Debug("fetch from a leader failed", slog.Int("broker", int(l.key.leader)), slog.Any("err", err))
	l.idle(ctx, l.pause)
}

// longer doubles a pause, up to the back-off.
func (l *lane) longer(pause time.Duration) time.Duration {
	most := l.table.config.Fetch.Backoff
	return min(max(2*pause, most/100), most)
}

// take hands each partition's answer to its replica.
func (l *lane) take(ctx context.Context, response *FetchResponse) {
	l.session.answered(response.Session)
	now := time.Now()
	for i := range response.Partitions {
		p := &response.Partitions[i]
		q, found := l.session.asked[p.TopicIDPartition]
		if !found {
			continue
		}
		a := Answer{
			Leader: q.position.Leader, Epoch: q.position.Epoch, Offset: q.position.Offset, LastEpoch: q.partition.LastEpoch,
			Err: p.Err, Diverging: p.Diverging, HighWatermark: p.HighWatermark, LogStart: p.LogStart, Records: len(p.Records) > 0,
		}
		if q.replica.answered(ctx, a, p.Records) {
			pause := l.longer(l.retry[q.replica].pause)
			l.retry[q.replica] = retry{now.Add(pause), pause}
		} else {
			delete(l.retry, q.replica)
		}
	}
	if len(l.retry) > l.size() {
		l.forget()
	}
}

// forget drops the pauses of replicas that have left the lane.
func (l *lane) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.retry {
		if _, here := l.mu.replicas[r]; !here {
			delete(l.retry, r)
		}
	}
}

// commit waits until what the lane's replicas have appended is synced: their next fetch acknowledges it.
func (l *lane) commit(ctx context.Context) {
	for ctx.Err() == nil {
		waits := false
		for _, q := range l.session.asked {
			waits = waits || q.replica.syncing()
		}
		if !waits {
			return
		}
		l.idle(ctx, l.table.config.Fetch.Wait)
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
	asked     map[meta.TopicIDPartition]asked
}

// request makes the request that brings the leader's knowledge to what is wanted.
func (s *session) request(wanted map[meta.TopicIDPartition]asked) *FetchRequest {
	q := &FetchRequest{Session: s.id, SessionEpoch: s.epoch}
	for p, w := range wanted {
		if told, known := s.asked[p]; s.id == 0 || !known || told.partition != w.partition {
			q.Partitions = append(q.Partitions, w.partition)
		}
	}
	if s.id != 0 {
		for p := range s.asked {
			if _, still := wanted[p]; !still {
				q.Forgotten = append(q.Forgotten, p)
			}
		}
	}
	s.asked = wanted
	return q
}

// answered takes the session that the leader has granted.
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
