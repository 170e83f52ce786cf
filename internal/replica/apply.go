package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// Errors of Apply. Nothing was applied.
var (
	// ErrStaleController is returned by Apply when the statement comes from a controller older than one heard before
	//
	ErrStaleController = errors.New("the statement comes from an older controller")
	// ErrOtherRegistration is returned by Apply when the statement is meant for another registration of this broker id.
	ErrOtherRegistration = errors.New("the statement is meant for another registration of this broker")
)

// openersMax is how many logs are opened, created or deleted at a time.
const openersMax = 16

// Applied is the broker's answer to a statement.
type Applied struct {
	// Gone confirms, for every partition that the statement says does not exist or is not this broker's, that this
	// broker holds no copy of it (any more).
	Gone []meta.TopicIDPartition
	// Strays are partitions found here that a complete statement does not mention; they were renamed and kept (U-54,
	// U-57).
	Strays []meta.TopicIDPartition
	// Failed are the partitions whose logs could not be opened or deleted, with the reason. They do not stop the others
	// (U-56).
	Failed map[meta.TopicIDPartition]error
	// Ends are where the copies here end, of the stated partitions that wait for the longest of all copies.
	Ends []meta.PartitionEnd
}

// Registered tells which registration of this broker statements must be meant for.
func (t *Table) Registered(registration int64) {
	t.applying <- struct{}{}
	t.registration = registration
	<-t.applying
}

// Apply makes the replicas here what a controller states (D5). It is the only way from the registry to the replicas.
// Calls are serialised. Values older than those applied are ignored, one by one; a whole statement is refused with
// ErrStaleController or ErrOtherRegistration.
//
// A copy is deleted only on the positive word that its partition is gone, or is assigned elsewhere by a newer value,
// and always by topic id: what a full statement merely does not mention is a stray, renamed and kept.
func (t *Table) Apply(ctx context.Context, a *meta.Apply) (Applied, error) {
	select {
	case t.applying <- struct{}{}:
		defer func() { <-t.applying }()
	case <-ctx.Done():
		return Applied{}, ctx.Err()
	}
	if a.ControllerEpoch < t.controllerEpoch {
		return Applied{}, fmt.Errorf("controller epoch %d, known %d: %w", a.ControllerEpoch, t.controllerEpoch, ErrStaleController)
	}
	if a.Registration != t.registration {
		return Applied{}, fmt.Errorf("registration %d, this one is %d: %w", a.Registration, t.registration, ErrOtherRegistration)
	}
	t.controllerEpoch = a.ControllerEpoch

	work := t.sort(a)
	if a.Full && a.Revision >= t.fullRevision {
		t.fullRevision = a.Revision
		work.strays = t.unmentioned(a)
	}
	work.dropped = t.topicsOf(work.gone, work.strays)
	t.fetchers.hold()
	defer t.fetchers.release()
	applied := t.do(work)
	applied.Ends = t.endsOf(a)
	t.brokersChanged(a.Brokers)
	return applied, nil
}

// endsOf lists where copies end that an election is to compare. Nothing is appended to them while they have no leader.
func (t *Table) endsOf(a *meta.Apply) []meta.PartitionEnd {
	var ends []meta.PartitionEnd
	for i := range a.Partitions {
		u := &a.Partitions[i]
		if u.Absent || !u.State.WaitsForLongest() {
			continue
		}
		r, found := t.Get(u.ID, u.Partition)
		if !found {
			continue
		}
		if state := r.State(); state.Failed == nil && state.Value.LeaderEpoch == u.State.LeaderEpoch && state.Value.Version == u.State.Version {
			ends = append(ends, meta.PartitionEnd{TopicIDPartition: meta.TopicIDPartition{Topic: u.ID, Partition: u.Partition}, LogEnd: r.logEnd()})
		}
	}
	return ends
}

// topicsOf names the topics of the partitions that are served here.
func (t *Table) topicsOf(lists ...[]meta.TopicIDPartition) map[string]bool {
	topics := make(map[string]bool)
	for _, list := range lists {
		for _, p := range list {
			if r, found := t.Get(p.Topic, p.Partition); found {
				topics[r.topic] = true
			}
		}
	}
	return topics
}

// work is a statement, sorted by what is to be done.
type work struct {
	gone   []meta.TopicIDPartition // no copy may be here
	set    []assignment
	strays []meta.TopicIDPartition

	dropped map[string]bool // topics of which something is gone or a stray
}

type assignment struct {
	partition meta.TopicIDPartition
	topic     string
	state     meta.Partition
	config    *commitlog.Config // to open the log with
}

// sort decides what a statement asks for. Ids of topics never come back, so a deletion is never stale.
func (t *Table) sort(a *meta.Apply) work {
	var w work
	configs := make(map[meta.TopicID]*commitlog.Config) // computed once for each topic
	for _, topic := range a.Topics {
		if !topic.Deleted {
			t.names[topic.ID] = topic.Name
			continue
		}
		delete(t.names, topic.ID)
		for _, log := range t.config.Logs.Logs() {
			if log.TopicID() == topic.ID {
				w.gone = append(w.gone, nameOf(log))
			}
		}
	}
	for i := range a.Partitions {
		update := &a.Partitions[i]
		partition := meta.TopicIDPartition{Topic: update.ID, Partition: update.Partition}
		name, named := t.names[update.ID]
		switch {
		case update.Absent:
			w.gone = append(w.gone, partition)
		case !update.State.HasReplica(t.config.Broker):
			if t.supersedes(partition, &update.State) {
				w.gone = append(w.gone, partition)
			}
		case !named:
			t.logger.Warn("partition of a topic without a name ignored", slog.String("topic_id", update.ID.String()), slog.Int("partition", int(update.Partition)))
		default:
			config := configs[update.ID]
			if config == nil {
				parsed := t.config.TopicConfig(update.ID, name)
				config, configs[update.ID] = &parsed, &parsed
			}
			w.set = append(w.set, assignment{partition, name, update.State, config})
		}
	}
	return w
}

// supersedes tells whether a value is newer than the one that the replica here has applied, if there is one.
func (t *Table) supersedes(partition meta.TopicIDPartition, value *meta.Partition) bool {
	r, found := t.Get(partition.Topic, partition.Partition)
	if !found {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.machine.Supersedes(value)
}

// unmentioned lists the partitions on disk that a full statement does not mention.
func (t *Table) unmentioned(a *meta.Apply) []meta.TopicIDPartition {
	mentioned := make(map[meta.TopicIDPartition]bool, len(a.Partitions))
	deleted := make(map[meta.TopicID]bool)
	for i := range a.Partitions {
		mentioned[meta.TopicIDPartition{Topic: a.Partitions[i].ID, Partition: a.Partitions[i].Partition}] = true
	}
	for _, topic := range a.Topics {
		deleted[topic.ID] = topic.Deleted
	}
	var found []meta.TopicIDPartition
	for _, log := range t.config.Logs.Logs() {
		if p := nameOf(log); !mentioned[p] && !deleted[p.Topic] {
			found = append(found, p)
		}
	}
	return found
}

func nameOf(log *commitlog.Log) meta.TopicIDPartition {
	return meta.TopicIDPartition{Topic: log.TopicID(), Partition: log.Partition()}
}

// do carries out the work: first what makes room (deletions, strays), then openings and roles, many at a time.
func (t *Table) do(w work) Applied {
	result := Applied{Failed: make(map[meta.TopicIDPartition]error)}
	if len(w.gone)+len(w.strays) > 0 {
		t.remove(w, &result)
	}
	var mu sync.Mutex
	each(w.set, func(a assignment) {
		if err := t.assign(a); err != nil {
			mu.Lock()
			defer mu.Unlock()
			result.Failed[a.partition] = err
		}
	})
	t.retire(w)
	for p, err := range result.Failed {
		t.logger.Error("partition failed", slog.String("topic", t.names[p.Topic]), slog.Int("partition", int(p.Partition)), slog.Any("err", err))
	}
	return result
}

// remove takes what is gone and what is a stray out of the table and off the disk, and confirms it.
func (t *Table) remove(w work, result *Applied) {
	logs := make(map[meta.TopicIDPartition]*commitlog.Log)
	for _, log := range t.config.Logs.Logs() {
		logs[nameOf(log)] = log
	}
	var doomed []*commitlog.Log
	for _, p := range w.gone {
		t.drop(p, ErrGone)
		if log := logs[p]; log != nil {
			doomed = append(doomed, log)
		}
	}
	if len(doomed) > 0 {
		if err := t.config.Logs.Delete(doomed...); err != nil {
			for _, log := range doomed {
				result.Failed[nameOf(log)] = err
			}
		}
	}
	for _, p := range w.gone {
		if result.Failed[p] == nil {
			result.Gone = append(result.Gone, p)
		}
	}
	for _, p := range w.strays {
		t.drop(p, ErrNotLeader)
		if err := t.config.Logs.SetAside(logs[p]); err != nil {
			result.Failed[p] = err
			continue
		}
		result.Strays = append(result.Strays, p)
	}
}

// retire drops the counters of topics that have no replica here any more.
func (t *Table) retire(w work) {
	if len(w.dropped) == 0 {
		return
	}
	for r := range t.All() {
		delete(w.dropped, r.topic)
	}
	for topic := range w.dropped {
		t.metrics.retire(topic)
	}
}

// each runs do for all items, openersMax at a time, and waits for all.
func each[T any](items []T, do func(T)) {
	if len(items) == 1 {
		do(items[0])
		return
	}
	var group errgroup.Group
	group.SetLimit(openersMax)
	for _, item := range items {
		group.Go(func() error { do(item); return nil })
	}
	_ = group.Wait() // do reports its own errors
}

// assign opens the log if need be, and gives the replica its role.
func (t *Table) assign(a assignment) error {
	defer t.roleChanged(a.topic, a.partition)
	if r, found := t.Get(a.partition.Topic, a.partition.Partition); found {
		return r.roleChanged(a.state, 0)
	}
	r, err := t.open(a)
	t.mu.Lock()
	if err != nil {
		t.mu.offline[a.partition] = offline{a, err}
	} else {
		delete(t.mu.offline, a.partition)
		t.mu.replicas[a.partition] = r
	}
	t.mu.Unlock()
	return err
}

// offline is an assignment whose log could not be opened.
type offline struct {
	assignment
	err error
}

// retryOffline tries again to open logs that could not be opened, except those that were set aside at the start.
func (t *Table) retryOffline(ctx context.Context) {
	t.mu.RLock()
	waiting := len(t.mu.offline)
	t.mu.RUnlock()
	if waiting == 0 {
		return
	}
	select {
	case t.applying <- struct{}{}:
		defer func() { <-t.applying }()
	case <-ctx.Done():
		return
	}
	t.mu.RLock()
	var again []assignment
	for _, o := range t.mu.offline {
		if !errors.Is(o.err, commitlog.ErrQuarantined) {
			again = append(again, o.assignment)
		}
	}
	t.mu.RUnlock()
	for _, a := range again {
		config := t.config.TopicConfig(a.partition.Topic, a.topic) // it may have changed since
		a.config = &config
		if err := t.assign(a); err == nil {
			t.logger.Info("partition is served after all", slog.String("topic", a.topic), slog.Int("partition", int(a.partition.Partition)))
		}
	}
}

// open makes the replica of a partition with its role, before anybody can find it.
func (t *Table) open(a assignment) (*Replica, error) {
	log, err := t.config.Logs.Open(a.topic, a.partition.Topic, a.partition.Partition, *a.config)
	if err != nil {
		return nil, errors.Join(ErrStorage, err)
	}
	r := &Replica{
		table: t, topic: a.topic, id: a.partition.Topic, partition: a.partition.Partition, log: log,
		traffic: t.metrics.traffic(a.topic),
	}
	if t.config.Throttled != nil {
		r.SetThrottled(t.config.Throttled(a.partition.Topic))
	}
	r.mu.machine = NewMachine(t.config.Broker, t.config.LagMax)
	log.SetHooks(commitlog.Hooks{Appended: r.appendedTo, Synced: r.syncedTo})
	return r, r.roleChanged(a.state, t.config.Logs.CheckpointedHighWatermark(log.Name()))
}

// drop takes a replica out of the table and answers whoever waits with reason.
func (t *Table) drop(p meta.TopicIDPartition, reason error) {
	t.mu.Lock()
	r, found := t.mu.replicas[p]
	delete(t.mu.replicas, p)
	delete(t.mu.offline, p)
	t.mu.Unlock()
	if found {
		r.exclude(func() { r.close(reason) })
		t.journal.forget(p)
		t.roleChanged(r.topic, p)
	}
}
