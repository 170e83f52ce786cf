package replica

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/record"
)

// Leaders is how followers reach the leaders of their partitions. Methods may be called concurrently.
type Leaders interface {
	// Fetch sends one fetch to a broker and returns its answer. Each lane is a connection of its own, on which fetches come
	// one at a time. The records of the answer are valid until the lane's next Fetch. An error, ctx's end included, means
	// that nothing came back: the connection is given up, and with it the session.
	Fetch(ctx context.Context, leader meta.BrokerID, lane int, request *FetchRequest) (*FetchResponse, error)
}

// ErrSession is the Err of a FetchResponse whose session the leader does not know, or not in that epoch: the follower begins
// another one.
var ErrSession = errors.New("the leader does not know the fetch session")

// FetchRequest is a follower's fetch, in a session of KIP-227.
type FetchRequest struct {
	Broker      meta.BrokerID // who fetches
	BrokerEpoch int64         // of this broker; -1 while it is fenced

	WaitMax            time.Duration // how long the leader may wait for something to answer
	BytesMin, BytesMax int32         // of the whole answer

	// Session and SessionEpoch are 0 to begin a session; then Partitions are all that is wanted. Otherwise Partitions are
	// those that are new or have changed, and Forgotten those that are not wanted any more.
	Session      int32
	SessionEpoch int32
	Partitions   []FetchPartition
	Forgotten    []meta.TopicIDPartition
}

// FetchPartition is what a follower wants of one partition.
type FetchPartition struct {
	meta.TopicIDPartition
	Name          string     // of the topic, for logs and versions of the protocol that need it
	Epoch         meta.Epoch // the leader epoch in which it follows
	Offset        int64      // acknowledges everything below
	LastEpoch     meta.Epoch // of the record before Offset, meta.NoEpoch if there is none
	LogStart      int64
	HighWatermark int64 // that it knows; a newer one is an answer
	BytesMax      int32
}

// FetchResponse is a leader's answer. In a session that goes on, partitions without news are left out.
type FetchResponse struct {
	Err        error // of the whole fetch: ErrSession, or anything else, after which the follower waits a while
	Session    int32 // 0: the leader keeps no session
	Partitions []FetchedPartition
}

// FetchedPartition is a leader's answer for one partition.
type FetchedPartition struct {
	meta.TopicIDPartition
	// Err is nil, or an error of this package: ErrFencedEpoch, ErrUnknownEpoch, ErrNotLeader, ErrOffsetOutOfRange (then
	// HighWatermark and LogStart are set), or another one, which is tried again later.
	Err                     error
	Diverging               *EpochEnd
	HighWatermark, LogStart int64
	Records                 []byte
}

// FetchConfig says how followers fetch. Zero fields take Kafka's defaults.
type FetchConfig struct {
	Wait             time.Duration // replica.fetch.wait.max.ms, default 500 ms
	BytesMin         int32         // replica.fetch.min.bytes, default 1
	PartitionMax     int32         // replica.fetch.max.bytes, default 1 MiB
	BytesMax         int32         // replica.fetch.response.max.bytes, default 10 MiB
	Backoff          time.Duration // replica.fetch.backoff.ms, default 1 s: the longest pause; the first is a hundredth of it
	ConnectionsOfOne func() int    // num.replica.fetchers: fetching connections to each leader, default 1
}

func (c FetchConfig) withDefaults() FetchConfig {
	c.Wait = orDefault(c.Wait, 500*time.Millisecond)
	c.BytesMin = orDefault(c.BytesMin, 1)
	c.PartitionMax = orDefault(c.PartitionMax, 1<<20)
	c.BytesMax = orDefault(c.BytesMax, 10<<20)
	c.Backoff = orDefault(c.Backoff, time.Second)
	if c.ConnectionsOfOne == nil {
		c.ConnectionsOfOne = func() int { return 1 }
	}
	return c
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// following tells which leader the replica is to be fetched from, in which epoch, and whether on synced ends; false if it
// is not.
func (r *Replica) following() (leader meta.BrokerID, epoch meta.Epoch, flush, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.mu.machine
	follows := r.mu.closed == nil && m.Role() == RoleFollower && m.value.Leader != meta.NoBroker &&
		(m.Follower() == FollowerFetches || m.Follower() == FollowerTruncates)
	return m.value.Leader, m.value.LeaderEpoch, m.value.Flush, follows
}

// fetchFrom is what to ask the leader for; false if there is nothing to ask for now.
func (r *Replica) fetchFrom() (Position, FetchPartition, bool) {
	r.mu.Lock()
	p, ok := r.mu.machine.FetchFrom()
	ok = ok && r.mu.closed == nil
	r.mu.Unlock()
	return p, FetchPartition{
		TopicIDPartition: meta.TopicIDPartition{Topic: r.id, Partition: r.partition}, Name: r.topic, Epoch: p.Epoch, Offset: p.Offset,
		LastEpoch: r.log.LatestEpoch(), LogStart: p.LogStart, HighWatermark: p.HighWatermark,
	}, ok
}

// syncing tells whether the replica's next fetch waits for a group commit.
func (r *Replica) syncing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.mu.machine
	return r.mu.closed == nil && m.Role() == RoleFollower && m.value.Flush && m.synced < m.written
}

// enterFetched admits an answer of a leader to the log, and holds role changes off until leave. False while the role
// changes: the answer is void then.
func (r *Replica) enterFetched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.changing != nil || r.mu.closed != nil {
		return false
	}
	r.mu.appends++
	return true
}

// answered does what a leader's answer on a lane asks for. It tells whether the follower should wait a while before it asks again.
func (r *Replica) answered(ctx context.Context, l *lane, a Answer, records []byte) (pause bool) {
	if !r.enterFetched() {
		return false
	}
	defer r.leave()
	r.mu.Lock()
	e := r.mu.machine.Answered(a, r.log.Epochs())
	epoch := r.mu.machine.Epoch()
	switch {
	case e.Ignored:
	case a.Err != nil:
		r.feeder.Store(nil)
	case r.feeder.Load() != l:
		r.feeder.Store(l)
	}
	r.mu.Unlock()
	if e.RefuseFollow != "" {
		r.table.metrics.refused.Add(1)
		r.table.logger.Error("replica is kept out of sync and does not follow its leader", slog.String("topic", r.topic),
			slog.Int("partition", int(r.partition)), slog.Int("epoch", int(epoch)), slog.String("err", e.RefuseFollow))
	}
	err := r.cut(e)
	if err == nil && e.Append {
		if err = r.appendFetched(ctx, records, epoch); err == nil {
			r.act(func(m *Machine) Effects { return m.Followed(a) })
		}
	}
	r.act(func(*Machine) Effects { return e })
	switch {
	case err == nil:
		return e.Backoff
	case errors.Is(err, ErrStorage) && !errors.Is(err, commitlog.ErrDiskFull) && r.log.Err() != nil:
		r.fail(err)
	case ctx.Err() == nil:
		r.note(meta.EventFetchFailed, a.Leader, "broker %d did not append what it fetched from offset %d: %v", r.table.config.Broker, a.Offset, err)
		r.table.logger.Warn("records of the leader were not appended; fetched again in a while", slog.String("topic", r.topic),
			slog.Int("partition", int(r.partition)), slog.Int64("offset", a.Offset), slog.Any("err", err))
	}
	return true
}

// errNothingTaken is returned by appendFetched when the leader's answer holds nothing of this epoch.
var errNothingTaken = errors.New("the leader's answer has no batch of this epoch or an older one")

// appendFetched appends what a leader has answered, with its offsets and epochs.
func (r *Replica) appendFetched(ctx context.Context, records []byte, epoch meta.Epoch) error {
	if err := r.table.refusal(); err != nil {
		return err // the disk is nearly full: the replica falls behind
	}
	r.mu.Lock()
	r.mu.appended += int64(len(records)) // for consumers that wait here: the log tells of its new end before the append returns
	r.mu.Unlock()
	in := commitlog.Append{Batches: records, Epoch: epoch, Origin: commitlog.FromLeader}
	r.countFetched(int64(len(records)))
	appended, err := r.log.Append(ctx, in)
	start := r.log.StartOffset()
	if errors.Is(err, commitlog.ErrUnexpectedOffset) && start == r.log.EndOffset() {
		// The leader's log starts inside a batch (DeleteRecords): an empty log takes the whole batch and starts inside it too.
		batch, _, parseErr := record.Next(records)
		if parseErr != nil {
			return parseErr
		}
		if err := r.log.TruncateFully(batch.BaseOffset()); err != nil {
			return err
		}
		r.act(func(m *Machine) Effects { return m.Truncated(r.logState()) })
		if appended, err = r.log.Append(ctx, in); err == nil {
			r.raiseStart(start)
		}
	}
	if err == nil && appended.Base < 0 {
		return errNothingTaken
	}
	return err
}
