package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

const (
	minISRKey = "min.insync.replicas"
	flushKey  = "log.flush.acks"

	// uncleanKey allows a leader that may lack what was acknowledged.
	uncleanKey = "unclean.leader.election.enable"

	// internalReplicas is how many replicas internal topics want (D15).
	internalReplicas = 3
)

// term is one time in the seat. Its goroutines are the watcher, which folds changes and asks Plan, the writer of what Plan
// decides, one sender for each registered broker, and the collector of unfinished topics.
type term struct {
	cluster  *registry.Cluster
	channel  Channel
	keys     *meta.ConfigKeys
	settings meta.ConfigLookup
	logger   *slog.Logger
	seat     registry.Seat
	group    *errgroup.Group
	decided  chan struct{} // one slot: there is something to write
	journal  *journal

	balanceEvery time.Duration // 0: leadership does not return to preferred replicas by itself

	// mu guards the state, the outboxes and the backlog. Nothing waits under it.
	mu struct {
		sync.Mutex
		state    *registry.State
		outboxes map[meta.BrokerID]*outbox
		backlog  backlog
		stops    map[meta.BrokerID]context.CancelFunc // of the senders
		orphans  map[meta.TopicID]time.Time           // ids without a name, and since when
		ends     map[meta.TopicIDPartition]copyEnds   // of partitions that wait for the longest copy

		standings map[meta.BrokerID]standing // for the journal; nil before the first look
	}
}

func newTerm(c *Controller, seat registry.Seat, state *registry.State) *term {
	t := &term{
		cluster: c.config.Cluster, channel: c.config.Channel, keys: c.config.Keys, settings: c.config.Settings,
		logger: c.logger, seat: seat, decided: make(chan struct{}, 1), balanceEvery: c.config.BalanceEvery, journal: &c.journal,
	}
	t.mu.state = state
	t.mu.outboxes = make(map[meta.BrokerID]*outbox)
	t.mu.backlog = newBacklog()
	t.mu.stops = make(map[meta.BrokerID]context.CancelFunc)
	t.mu.orphans = make(map[meta.TopicID]time.Time)
	t.mu.ends = make(map[meta.TopicIDPartition]copyEnds)
	return t
}

// run governs until ctx ends, the seat is lost (registry.ErrDeposed), or the registry fails.
func (t *term) run(ctx context.Context) error {
	t.group, ctx = errgroup.WithContext(ctx)
	t.group.Go(func() error {
		// The watch begins where the state was read, so deciding about everything first loses nothing.
		if err := t.handle(ctx, func() *registry.Dirty { return &registry.Dirty{All: true} }); err != nil {
			return err
		}
		return t.cluster.Watch(ctx, t.mu.state, func(fold func() *registry.Dirty) error { return t.handle(ctx, fold) })
	})
	t.group.Go(func() error { return t.writeDecisions(ctx) })
	t.group.Go(func() error { return t.collect(ctx) })
	if t.balanceEvery > 0 {
		t.group.Go(func() error { return t.balance(ctx) })
	}
	return t.group.Wait()
}

// handle folds a change, tells the senders, and leaves what Plan makes of it to be written.
func (t *term) handle(ctx context.Context, fold func() *registry.Dirty) error {
	t.mu.Lock()
	dirty := fold()
	deposed := t.mu.state.Seat != t.seat
	if !deposed {
		t.noteOrphansLocked(dirty)
		t.noteBrokersLocked(dirty)
		t.startSendersLocked(ctx)
		p := t.planLocked(dirty)
		t.mu.backlog.replace(p.decided, p.writes)
		t.wakeWriter()
	}
	for _, o := range t.mu.outboxes {
		o.mark(dirty)
		o.signal()
	}
	t.mu.Unlock()
	if deposed {
		return registry.ErrDeposed
	}
	return nil
}

// commit writes decisions. It returns those that met another value, which the watch brings, and the revision that shows
// the others.
func (t *term) commit(ctx context.Context, decisions []decided) (conflicts []meta.TopicIDPartition, revision int64, err error) {
	if len(decisions) == 0 {
		return nil, 0, nil
	}
	writes := make([]registry.PartitionWrite, len(decisions))
	for i := range decisions {
		writes[i] = decisions[i].PartitionWrite
	}
	outcomes, revision, err := t.cluster.SetPartitions(ctx, registry.GuardSeat(t.seat), writes)
	if err != nil {
		return nil, 0, err
	}
	for i, o := range outcomes {
		if o.Err == nil {
			t.journal.decided(&decisions[i])
		} else if errors.Is(o.Err, registry.ErrConflict) {
			conflicts = append(conflicts, writes[i].TopicIDPartition)
		}
	}
	return conflicts, revision, nil
}

// planLocked decides about every partition that a change may concern.
func (t *term) planLocked(dirty *registry.Dirty) *planner {
	p := t.newPlannerLocked(meta.NoBroker)
	if dirty.All || dirty.Defaults || len(dirty.Brokers) > 0 {
		all := dirty.All || dirty.Defaults
		for id := range t.mu.state.Topics {
			p.decideTopic(id, func(value *meta.Partition) bool { return all || concerns(value, dirty.Brokers) })
		}
	}
	for id := range dirty.Topics {
		p.decideTopic(id, func(*meta.Partition) bool { return true })
	}
	for tp := range dirty.Partitions {
		p.decide(tp)
	}
	return p
}

func concerns(value *meta.Partition, brokers map[meta.BrokerID]bool) bool {
	for _, id := range value.Replicas {
		if brokers[id] {
			return true
		}
	}
	return false
}

// planner collects decisions about many partitions of one state.
type planner struct {
	t       *term
	facts   Facts
	decided map[meta.TopicIDPartition]bool
	writes  []decided

	topic  meta.TopicID // that MinISR and Flush of facts belong to
	filled bool
}

func (t *term) newPlannerLocked(unclean meta.BrokerID) *planner {
	return &planner{t: t, decided: make(map[meta.TopicIDPartition]bool), facts: Facts{
		Unclean: unclean,
		Unfenced: func(id meta.BrokerID) bool {
			b := t.mu.state.Brokers[id]
			return b != nil && b.Registration != 0 && b.Live != 0 && !b.Info.Leaving
		},
	}}
}

// decideTopic decides about the partitions of a topic that pass the filter.
func (p *planner) decideTopic(id meta.TopicID, filter func(*meta.Partition) bool) {
	topic := p.t.mu.state.Topics[id]
	for n := int32(0); topic != nil && n < topic.Count; n++ {
		tp := meta.TopicIDPartition{Topic: id, Partition: n}
		if value := p.t.mu.state.Partition(tp); value != nil && filter(value) {
			p.decide(tp)
		}
	}
}

// decide decides about one partition, once.
func (p *planner) decide(tp meta.TopicIDPartition) {
	value := p.t.mu.state.Partition(tp)
	if value == nil || p.decided[tp] || !p.t.mu.state.Committed(tp.Topic) {
		return
	}
	p.decided[tp] = true
	if !p.filled || p.topic != tp.Topic {
		p.filled, p.topic = true, tp.Topic
		p.facts.Wants = p.t.wantedLocked(tp.Topic)
	}
	p.facts.End = p.t.endOfLocked(tp, value)
	p.facts.Intact = p.t.intactLocked(value, p.facts.Unclean)
	next, reasons := Plan(value, p.facts)
	if len(reasons) == 0 {
		next, reasons = p.grow(tp, value)
	}
	if len(reasons) == 0 {
		return
	}
	p.t.logger.Debug("partition changes", slog.Any("topic", p.t.mu.state.Topics[tp.Topic].Name), slog.Any("partition", tp.Partition),
		slog.Any("leader", next.Leader), slog.Any("epoch", next.LeaderEpoch), slog.Any("isr", next.ISR), slog.Any("because", reasons))
	p.writes = append(p.writes, decided{registry.PartitionWrite{TopicIDPartition: tp, Version: value.Version, State: next}, *value, reasons})
}

// grow gives a partition of an internal topic the replicas that it lacks since it was created on fewer brokers (D15).
func (p *planner) grow(tp meta.TopicIDPartition, value *meta.Partition) (next meta.Partition, reasons []string) {
	if !meta.IsInternalTopic(p.t.mu.state.Topics[tp.Topic].Name) {
		return *value, nil
	}
	var live []meta.BrokerID
	for _, b := range p.t.mu.state.Registered() {
		if p.facts.Unfenced(b.ID) {
			live = append(live, b.ID)
		}
	}
	target := Grow(value, tp.Partition, internalReplicas, live)
	if target == nil {
		return *value, nil
	}
	next, refusal := Move(value, target, p.facts)
	if refusal != nil {
		return *value, nil // nobody in sync: it grows when somebody is
	}
	next.Dirs = p.t.directoriesLocked(&next)
	return next, []string{"an internal topic grows with the cluster"}
}

// intactLocked tells whether a broker that restarted uncleanly has the disk that held its copy, with everything that was
// synced on it (D9).
func (t *term) intactLocked(value *meta.Partition, unclean meta.BrokerID) bool {
	at, b := slices.Index(value.Replicas, unclean), t.mu.state.Brokers[unclean]
	return at >= 0 && at < len(value.Dirs) && !value.Dirs[at].IsZero() && b != nil && b.Info.Intact && slices.Contains(b.Info.Directories, value.Dirs[at])
}

// directoriesLocked fills in the data directories of replicas that are new.
func (t *term) directoriesLocked(value *meta.Partition) []meta.DirectoryID {
	dirs := slices.Clone(value.Dirs)
	for i, id := range value.Replicas {
		b := t.mu.state.Brokers[id]
		if i < len(dirs) && dirs[i].IsZero() && b != nil && len(b.Info.Directories) > 0 {
			dirs[i] = b.Info.Directories[0]
		}
	}
	return dirs
}

// wantedLocked is what a topic's configuration says about its partitions.
func (t *term) wantedLocked(id meta.TopicID) Wants {
	return wanted(t.keys, t.mu.state.Topics[id].Name, t.mu.state.TopicConfigs[id].Values, func(key string) (string, bool) {
		if value, set := t.mu.state.BrokerConfigs[""].Values[key]; set {
			return value, true
		}
		return t.settings(key)
	})
}

// wanted reads out of a topic's configuration what its partitions are to be. A value that somebody broke counts as the
// default. An internal topic for which min.insync.replicas is not set has it by its replication factor (D15); one that is
// always flushed never has an unclean election (D9).
func wanted(keys *meta.ConfigKeys, topic string, values map[string]string, broker meta.ConfigLookup) Wants {
	w := Wants{MinISR: 1}
	_, set := values[minISRKey]
	w.ByFactor = meta.IsInternalTopic(topic) && !set
	if n, err := strconv.ParseInt(effective(keys, minISRKey, values, broker), 10, 32); err == nil && n >= 1 {
		w.MinISR = int32(n)
	}
	always := meta.AlwaysFlushed(topic)
	w.Flush = always || effective(keys, flushKey, values, broker) == "true"
	w.UncleanElection = !always && effective(keys, uncleanKey, values, broker) == "true"
	return w
}

func effective(keys *meta.ConfigKeys, name string, values map[string]string, broker meta.ConfigLookup) string {
	key := keys.Topic(name)
	if key == nil {
		return ""
	}
	value, err := key.Effective(values, broker)
	if err != nil {
		return key.Default
	}
	return value
}

// noteOrphansLocked keeps the list of ids that have no name.
func (t *term) noteOrphansLocked(dirty *registry.Dirty) {
	note := func(id meta.TopicID) {
		if topic := t.mu.state.Topics[id]; topic == nil || t.mu.state.Committed(id) {
			delete(t.mu.orphans, id)
		} else if _, known := t.mu.orphans[id]; !known {
			t.mu.orphans[id] = time.Now()
		}
	}
	if dirty.All {
		for id := range t.mu.state.Topics {
			note(id)
		}
	}
	for id := range dirty.Topics {
		note(id)
	}
}

// collect removes what unfinished creations left, when they had their time.
func (t *term) collect(ctx context.Context) error {
	for {
		sleep(ctx, orphanAge/2)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, topic := range t.dueOrphans() {
			err := t.cluster.Collect(ctx, t.seat, &topic)
			if errors.Is(err, registry.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
			t.logger.Info("leftover of an unfinished topic is collected", slog.Any("topic", topic.Name), slog.Any("id", topic.ID))
		}
	}
}

func (t *term) dueOrphans() []registry.TopicState {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []registry.TopicState
	for id, since := range t.mu.orphans {
		if topic := t.mu.state.Topics[id]; topic != nil && time.Since(since) >= orphanAge {
			due = append(due, *topic)
		}
	}
	return due
}
