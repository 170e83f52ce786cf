package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// Config is what a Table needs to know and whom it may ask.
type Config struct {
	// Broker is this broker's id: partitions whose replicas name it are hosted here.
	Broker meta.BrokerID
	// Logs is the data directory.
	Logs *commitlog.Manager
	// TopicConfig is the configuration of a topic's logs, as currently known. It is asked when a log is opened.
	TopicConfig func(id meta.TopicID, name string) commitlog.Config
	// ISR writes partition values for leaders; nil if this broker never does.
	ISR ISRWriter
	// Leaders is how followers fetch; nil if this broker stands alone.
	Leaders Leaders
	// Fetch says how followers fetch.
	Fetch FetchConfig
	// Throttle bounds what replicas take that are throttled, and Throttled tells which of a topic are; it is asked when a log is
	// opened. Nil: none.
	Throttle  ThrottleConfig
	Throttled func(id meta.TopicID) Throttled
	// FetchTimeout bounds a fetch beyond its wait (replica.socket.timeout.ms). Default 30 s.
	FetchTimeout time.Duration
	// LagMax is the time after which a follower that has not caught up leaves the ISR (replica.lag.time.max.ms). Default 30 s.
	LagMax time.Duration
	// Lease is how long this broker's registration lives without a sign of life: after a longer stall the followers' lag is
	// measured anew (D8). 0: never.
	Lease time.Duration
	// Roles hears of leadership; nil if nobody wants to.
	Roles RoleListener

	// Logger receives one line for each change of a replica.
	Logger *slog.Logger
	// Registerer takes the metrics; nil means that they are not shown.
	Registerer prometheus.Registerer
}

// RoleListener hears of leadership: the coordinators whose partitions are led here.
type RoleListener interface {
	// RoleChanged says that the role or the epoch of a replica may have changed, or that it is gone: look again. It is
	// called without locks, after the change, on the goroutine that makes it, and must not block.
	RoleChanged(topic string, partition meta.TopicIDPartition)
}

// Table is the replicas that this broker hosts. Make one with NewTable, run it, and feed it with Apply.
type Table struct {
	config   Config
	logger   *slog.Logger
	wanted   chan wanted   // values to be written or read
	failing  chan struct{} // one slot: some log has failed
	metrics  *metrics
	fetchers *fetchers
	journal  journal
	sent     *quota // of throttled replicas that this broker leads
	received *quota // and follows

	brokers atomic.Pointer[map[meta.BrokerID]int64] // the broker epochs of those that are live

	refused  atomic.Pointer[error] // why no append is taken
	applying chan struct{}         // one slot: who holds it applies

	// Owned by the holder of applying.
	registration    int64
	controllerEpoch int64
	fullRevision    int64 // of the newest full statement
	names           map[meta.TopicID]string

	mu struct {
		sync.RWMutex
		replicas map[meta.TopicIDPartition]*Replica
		offline  map[meta.TopicIDPartition]offline // hosted here, but their logs could not be opened
	}
}

// NewTable is a table without replicas. It starts nothing.
func NewTable(config Config) (*Table, error) {
	if config.Logs == nil || config.TopicConfig == nil {
		return nil, errors.New("replica config: Logs and TopicConfig must be set")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.Fetch = config.Fetch.withDefaults()
	config.LagMax = orDefault(config.LagMax, 30*time.Second)
	config.FetchTimeout = orDefault(config.FetchTimeout, 30*time.Second)
	t := &Table{
		config:   config,
		logger:   config.Logger,
		applying: make(chan struct{}, 1),
		wanted:   make(chan wanted, wantedMax),
		failing:  make(chan struct{}, 1),
		names:    make(map[meta.TopicID]string),
	}
	t.mu.replicas = make(map[meta.TopicIDPartition]*Replica)
	t.mu.offline = make(map[meta.TopicIDPartition]offline)
	t.metrics = newMetrics(t)
	t.fetchers = newFetchers(t)
	t.journal.since = time.Now()
	t.sent, t.received = newQuota(config.Throttle, config.Throttle.LeaderRate), newQuota(config.Throttle, config.Throttle.FollowerRate)
	t.brokers.Store(&map[meta.BrokerID]int64{})
	config.Logs.SetHighWatermark(t.highWatermark)
	if config.Registerer != nil {
		if err := config.Registerer.Register(t.metrics); err != nil {
			return nil, fmt.Errorf("register metrics of replicas: %w", err)
		}
	}
	return t, nil
}

// tickInterval is the time between looks at the clock: for followers that lag, and for logs that could not be opened.
const tickInterval = time.Second

// Run does what must not hold up anybody, until ctx ends: it writes partition values for leaders, fetches for followers,
// takes replicas offline whose log has failed, removes followers that lag from the ISR, and tries again to open logs that
// could not be opened, on a full disk for example.
func (t *Table) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.watch(ctx) })
	group.Go(func() error { return t.writeChanges(ctx) })
	group.Go(func() error { return t.fetchers.run(ctx) })
	return group.Wait()
}

// watch looks after logs and clocks.
func (t *Table) watch(ctx context.Context) error {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.failing:
			t.failBroken()
		case <-ticker.C:
			now := time.Now()
			t.tick(now, t.config.Lease > 0 && now.Sub(last) > t.config.Lease)
			last = now
			t.retryOffline(ctx)
		}
	}
}

// tick lets the leaders look at the clock.
func (t *Table) tick(now time.Time, stalled bool) {
	for r := range t.All() {
		r.act(func(m *Machine) Effects {
			if stalled {
				m.Stalled(now)
			}
			return m.Tick(now)
		})
	}
}

// brokersChanged takes the brokers that a statement names: fetches count in their present epochs only. It comes after the
// statement's values: who is live in an epoch has been taken out of every ISR that it is not worth any more.
func (t *Table) brokersChanged(brokers []meta.Broker) {
	if len(brokers) == 0 {
		return
	}
	live := make(map[meta.BrokerID]int64, len(brokers))
	for i := range brokers {
		if !brokers[i].Fenced && brokers[i].Epoch > 0 {
			live[brokers[i].ID] = brokers[i].Epoch
		}
	}
	t.brokers.Store(&live)
	for r := range t.All() {
		r.act(func(m *Machine) Effects { return m.BrokersChanged(func(id meta.BrokerID) int64 { return live[id] }) })
	}
}

// liveIn tells whether a broker is known to be live in a broker epoch.
func (t *Table) liveIn(broker meta.BrokerID, epoch int64) bool {
	return epoch > 0 && (*t.brokers.Load())[broker] == epoch
}

// ownEpoch is this broker's epoch; -1 while it is fenced.
func (t *Table) ownEpoch() int64 {
	if epoch := (*t.brokers.Load())[t.config.Broker]; epoch > 0 {
		return epoch
	}
	return -1
}

// roleChanged tells whoever wants to hear of leadership.
func (t *Table) roleChanged(topic string, partition meta.TopicIDPartition) {
	if t.config.Roles != nil {
		t.config.Roles.RoleChanged(topic, partition)
	}
}

// LogFailed says that a log of the data directory has failed. It returns at once, and may be called by the log itself.
func (t *Table) LogFailed() {
	select {
	case t.failing <- struct{}{}:
	default:
	}
}

// failBroken answers whoever waits on a replica whose log has failed: it stays offline until the next start.
func (t *Table) failBroken() {
	for r := range t.All() {
		if err := r.log.Err(); err != nil {
			r.fail(err)
		}
	}
}

// Close answers whoever waits, with ErrNotLeader, and takes no more requests. The logs stay open: they are the
// data directory's.
func (t *Table) Close() {
	for r := range t.All() {
		r.close(ErrNotLeader)
	}
}

// Get finds the replica of a partition. False means that this broker serves no such partition: it is not hosted here,
// or it is Offline.
func (t *Table) Get(id meta.TopicID, partition int32) (*Replica, bool) {
	t.mu.RLock()
	r, found := t.mu.replicas[meta.TopicIDPartition{Topic: id, Partition: partition}]
	t.mu.RUnlock()
	return r, found
}

// highWatermark tells the data directory what retention may take and what to checkpoint; -1 for a log that has no replica
// yet.
func (t *Table) highWatermark(log *commitlog.Log) int64 {
	if r, found := t.Get(log.TopicID(), log.Partition()); found {
		return r.HighWatermark()
	}
	return -1
}

// Offline tells why a partition that is hosted here has no replica: its log could not be opened. The error is an
// ErrStorage. It is nil for a partition that is not hosted here, or that is served.
func (t *Table) Offline(id meta.TopicID, partition int32) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.offline[meta.TopicIDPartition{Topic: id, Partition: partition}].err
}

// All iterates over a snapshot of the replicas, in no order.
func (t *Table) All() iter.Seq[*Replica] {
	t.mu.RLock()
	all := make([]*Replica, 0, len(t.mu.replicas))
	for _, r := range t.mu.replicas {
		all = append(all, r)
	}
	t.mu.RUnlock()
	return func(yield func(*Replica) bool) {
		for _, r := range all {
			if !yield(r) {
				return
			}
		}
	}
}

// Len is the number of replicas served, and of those offline: their log could not be opened, or has failed.
func (t *Table) Len() (served, offline int) {
	for r := range t.All() {
		if r.State().Failed != nil {
			offline++
		} else {
			served++
		}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return served, offline + len(t.mu.offline)
}

// RefuseAppends makes every append fail with ErrStorage and the reason, while everything else goes on: the disk is
// nearly full (U-72). A nil reason takes appends again.
func (t *Table) RefuseAppends(reason error) {
	if reason == nil {
		t.refused.Store(nil)
		return
	}
	err := errors.Join(ErrStorage, reason)
	t.refused.Store(&err)
}

func (t *Table) refusal() error {
	if err := t.refused.Load(); err != nil {
		return *err
	}
	return nil
}
