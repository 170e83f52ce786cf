package replica

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Replication is throttled while replicas move, so that clients keep their share of the network (KIP-73). It is about replicas that
// are not in sync and that the topic's configuration names: a leader sends no records of them, and a follower does not ask for
// them, while their rate is above the broker's bound. Replicas in sync are never held up.

// Throttled says which replicas of a topic are throttled on one broker: as leader, and as follower.
type Throttled struct {
	Leader, Follower Partitions
}

// Partitions are partitions of a topic.
type Partitions struct {
	all bool
	of  map[int32]bool
}

// ParseThrottled reads leader.replication.throttled.replicas and follower.replication.throttled.replicas of a topic for one
// broker: "*", or a list of partition:broker. What is malformed names nothing.
func ParseThrottled(values map[string]string, broker meta.BrokerID) Throttled {
	return Throttled{
		Leader:   parsePartitions(values["leader.replication.throttled.replicas"], broker),
		Follower: parsePartitions(values["follower.replication.throttled.replicas"], broker),
	}
}

func parsePartitions(list string, broker meta.BrokerID) (p Partitions) {
	for _, element := range meta.SplitList(list) {
		partition, of, _ := strings.Cut(element, ":")
		n, err := strconv.ParseInt(partition, 10, 32)
		switch {
		case element == "*":
			p.all = true
		case err == nil && of == broker.String():
			if p.of == nil {
				p.of = make(map[int32]bool)
			}
			p.of[int32(n)] = true
		}
	}
	return p
}

// Has tells whether a partition is one of them.
func (p Partitions) Has(partition int32) bool { return p.all || p.of[partition] }

// ThrottleConfig bounds the rates of throttled replicas. Zero fields take Kafka's defaults; a rate that is nil has no bound.
type ThrottleConfig struct {
	// LeaderRate and FollowerRate are the bounds at present, in bytes per second (leader.replication.throttled.rate,
	// follower.replication.throttled.rate).
	LeaderRate, FollowerRate func() int64
	// Samples of Sample length each are what a rate is measured over (replication.quota.window.num, default 11;
	// replication.quota.window.size.seconds, default 1 s).
	Samples int
	Sample  time.Duration
}

// SetThrottled says which replicas of the topic are throttled here.
func (r *Replica) SetThrottled(t Throttled) {
	r.throttledLeader.Store(t.Leader.Has(r.partition))
	r.throttledFollower.Store(t.Follower.Has(r.partition))
}

// holdsBack tells whether another replica's fetch gets no records for now.
func (r *Replica) holdsBack(broker meta.BrokerID) bool {
	if !r.throttledLeader.Load() || !r.table.sent.exceeded(time.Now()) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.mu.machine.value.InSync(broker)
}

// heldBack tells whether this replica does not fetch for now.
func (r *Replica) heldBack(now time.Time) bool {
	if !r.throttledFollower.Load() || !r.table.received.exceeded(now) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.mu.machine.value.InSync(r.table.config.Broker)
}

// CountReplicated counts bytes of records that were sent to another replica.
func (r *Replica) CountReplicated(bytes int64) {
	r.traffic.replicationOut.Add(bytes)
	if r.throttledLeader.Load() {
		r.table.sent.add(bytes, time.Now())
	}
}

// countFetched counts bytes of records that were fetched from a leader.
func (r *Replica) countFetched(bytes int64) {
	r.traffic.replicationIn.Add(bytes)
	if r.throttledFollower.Load() {
		r.table.received.add(bytes, time.Now())
	}
}

// quota measures a rate over the last samples and compares it with a bound. Its lock is a leaf.
type quota struct {
	bound  func() int64
	number int
	length time.Duration

	mu struct {
		sync.Mutex
		samples []sample // the oldest first
	}
}

type sample struct {
	began time.Time
	bytes int64
}

func newQuota(c ThrottleConfig, bound func() int64) *quota {
	if bound == nil {
		bound = func() int64 { return math.MaxInt64 }
	}
	return &quota{bound: bound, number: max(orDefault(c.Samples, 11), 1), length: orDefault(c.Sample, time.Second)}
}

func (q *quota) add(bytes int64, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expireLocked(now)
	if n := len(q.mu.samples); n == 0 || now.Sub(q.mu.samples[n-1].began) >= q.length {
		q.mu.samples = append(q.mu.samples, sample{began: now})
	}
	q.mu.samples[len(q.mu.samples)-1].bytes += bytes
}

// expireLocked drops what is too old, or too much.
func (q *quota) expireLocked(now time.Time) {
	s := q.mu.samples
	for len(s) > 0 && (len(s) > q.number || now.Sub(s[0].began) >= time.Duration(q.number)*q.length) {
		s = s[1:]
	}
	q.mu.samples = append(q.mu.samples[:0], s...)
}

// rate is in bytes per second: over the time since the oldest sample began, at least one sample's length.
func (q *quota) rate(now time.Time) float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expireLocked(now)
	if len(q.mu.samples) == 0 {
		return 0
	}
	total := int64(0)
	for _, s := range q.mu.samples {
		total += s.bytes
	}
	return float64(total) / max(now.Sub(q.mu.samples[0].began), q.length).Seconds()
}

func (q *quota) exceeded(now time.Time) bool {
	return q.rate(now) > float64(q.bound())
}
