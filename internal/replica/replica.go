package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// Replica is this broker's copy of one partition: a log, and the [Machine] that decides over it. Its methods may be
// called from any goroutine. They hold the replica's lock for moments only, never across the disk.
type Replica struct {
	table     *Table
	topic     string
	id        meta.TopicID
	partition int32
	log       *commitlog.Log
	traffic   *traffic

	high   atomic.Int64         // the machine's high watermark, for those who only look
	feeder atomic.Pointer[lane] // on which the present leader has answered for this follower; nil before, or if it answers with errors

	throttledLeader, throttledFollower atomic.Bool // by the topic's configuration

	mu struct {
		sync.Mutex
		machine  Machine
		terms    uint64        // counts the changes that a fetch has to look at again
		appends  int           // appends between enter and leave
		drained  chan struct{} // closed by the last append; nil unless a role change waits for it
		changing chan struct{} // closed when the role change is over; nil unless one goes on
		closed   error         // why the replica takes no more requests

		produces []*Pending
		fetches  map[*Waiter]watch
		moved    chan struct{}     // closed by the next event; nil unless somebody waits for the low watermark
		tails    map[*Waiter]int64 // parked fetches of other replicas, with the high watermark that each knows

		appended    int64 // bytes appended in this life, or about to be
		highBytes   int64 // appended when the high watermark last rose: what uncommitted readers can read
		stable      int64 // the last stable offset that read-committed fetches have been told of
		stableBytes int64 // appended when it last rose
	}
}

// Topic is the name of the replica's topic.
func (r *Replica) Topic() string { return r.topic }

// TopicID is the id of the replica's topic.
func (r *Replica) TopicID() meta.TopicID { return r.id }

// Partition is the number of the partition.
func (r *Replica) Partition() int32 { return r.partition }

// HighWatermark is the offset below which records are committed.
func (r *Replica) HighWatermark() int64 { return r.high.Load() }

// StartOffset is the first offset that can be read.
func (r *Replica) StartOffset() int64 { return r.log.StartOffset() }

// EndOffset is the offset of the next record to be appended.
func (r *Replica) EndOffset() int64 { return r.log.EndOffset() }

// SyncedOffset is the end of what a power cut cannot take.
func (r *Replica) SyncedOffset() int64 { return r.log.SyncedOffset() }

// Size is the number of bytes of the log's segments on the local disk.
func (r *Replica) Size() int64 { return r.log.Size() }

// SetConfig gives the replica's log a new configuration.
func (r *Replica) SetConfig(config commitlog.Config) { r.log.SetConfig(config) }

// State is what a replica shows to operators.
type State struct {
	Role  Role
	Value meta.Partition // as last applied; its slices must not be modified

	Start, HighWatermark, Stable, End int64

	Failed error // why it is offline; nil while it serves
}

// State is a snapshot of the replica.
func (r *Replica) State() State {
	r.mu.Lock()
	s := State{
		Role: r.mu.machine.Role(), Value: r.mu.machine.Value(), HighWatermark: r.mu.machine.HighWatermark(), Failed: r.mu.closed,
	}
	r.mu.Unlock()
	s.Start, s.End, s.Stable = r.log.StartOffset(), r.log.EndOffset(), r.log.LastStableOffset(s.HighWatermark)
	return s
}

// leadership is what a request to a leader needs to know.
type leadership struct {
	high        int64
	epoch       meta.Epoch
	terms       uint64
	latestKnown bool
}

// leading tells what the replica knows as leader, or why it does not serve a client that believes in epoch current.
func (r *Replica) leading(current meta.Epoch) (leadership, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.mu.machine
	if r.mu.closed != nil {
		return leadership{}, r.mu.closed
	}
	return leadership{m.HighWatermark(), m.Epoch(), r.mu.terms, m.LatestKnown()}, m.CheckLeader(current)
}

// enter admits one append: it waits while the role changes, checks the request against the machine, and holds role
// changes off until leave. bytes are counted as appended at once, since the log tells of its new end before the append
// returns. It returns the leader epoch to append with.
func (r *Replica) enter(ctx context.Context, current meta.Epoch, acks int16, bytes int64) (meta.Epoch, error) {
	for {
		r.mu.Lock()
		changing := r.mu.changing
		if changing == nil {
			err := r.mu.closed
			if err == nil {
				err = r.mu.machine.CheckAppend(current, acks)
			}
			epoch := r.mu.machine.Epoch()
			if err == nil {
				r.mu.appends++
				r.mu.appended += bytes
			}
			inSync, want := len(r.mu.machine.value.ISR), r.mu.machine.value.MinISRBound()
			r.mu.Unlock()
			if errors.Is(err, ErrNotEnoughReplicas) {
				r.note(meta.EventMinISR, r.table.config.Broker, "acks=all is refused: %d in sync, min.insync.replicas demands %d", inSync, want)
			}
			return epoch, err
		}
		r.mu.Unlock()
		select {
		case <-changing:
		case <-ctx.Done():
			return meta.NoEpoch, ctx.Err()
		}
	}
}

// leave ends what enter admitted.
func (r *Replica) leave() {
	r.mu.Lock()
	r.mu.appends--
	if r.mu.appends == 0 && r.mu.drained != nil {
		close(r.mu.drained)
		r.mu.drained = nil
	}
	r.mu.Unlock()
}

// exclude runs change while no append is in flight. Calls are made by one goroutine at a time (Table.Apply).
func (r *Replica) exclude(change func()) {
	r.mu.Lock()
	over := make(chan struct{})
	r.mu.changing = over
	var drained chan struct{}
	if r.mu.appends > 0 {
		drained = make(chan struct{})
		r.mu.drained = drained
	}
	r.mu.Unlock()
	if drained != nil {
		<-drained // an append is a write to a local file: it ends
	}
	change()
	r.mu.Lock()
	r.mu.changing = nil
	r.mu.Unlock()
	close(over)
}

// roleChanged applies a partition value. Unless this broker goes on leading in the same epoch, the caller holds the
// table's applying slot. An error means that the log could not take the new epoch, or could not be cut: the replica is
// offline.
func (r *Replica) roleChanged(value meta.Partition, checkpoint int64) error {
	r.mu.Lock()
	stale, goesOn := !r.mu.machine.Supersedes(&value), r.mu.machine.GoesOn(&value)
	r.mu.Unlock()
	switch {
	case stale:
		return nil
	case goesOn:
		r.adopt(value)
		return nil
	}
	var err error
	r.exclude(func() {
		r.mu.Lock()
		e := r.mu.machine.RoleChanged(value, r.logState(), checkpoint, time.Now())
		if e.Wake {
			r.feeder.Store(nil) // another leader, or another epoch
		}
		r.mu.Unlock()
		if e.AssignEpoch {
			err = r.log.AssignEpoch(e.Epoch, e.EpochStart)
		}
		if err == nil {
			err = r.cut(e)
		}
		if err != nil {
			r.fail(err)
			return
		}
		r.act(func(*Machine) Effects { return e })
	})
	return err
}

// adopt takes a newer value by which this broker goes on leading in the same epoch; any other is left to roleChanged.
func (r *Replica) adopt(value meta.Partition) {
	r.act(func(m *Machine) Effects {
		if !m.GoesOn(&value) {
			return Effects{Ignored: true}
		}
		return m.RoleChanged(value, LogState{}, 0, time.Now())
	})
}

// logState is what the machine wants to know of the log.
func (r *Replica) logState() LogState {
	return LogState{Start: r.log.StartOffset(), Written: r.log.EndOffset(), Synced: r.log.SyncedOffset(), Epochs: r.log.Epochs()}
}

// cut truncates the log if the effects say so, and tells the machine. Nothing is appended meanwhile.
func (r *Replica) cut(e Effects) error {
	switch {
	case e.Truncate:
		if err := r.log.Truncate(e.TruncateTo); err != nil {
			return err
		}
	case e.StartOver:
		if err := r.log.TruncateFully(e.StartAt); err != nil {
			return err
		}
	default:
		return nil
	}
	if e.Lost > 0 {
		r.table.metrics.truncatedCommitted.Add(e.Lost)
		r.table.logger.Error("committed records were truncated: an unclean election had given them up",
			slog.String("topic", r.topic), slog.Int("partition", int(r.partition)), slog.Int64("offset", e.TruncateTo), slog.Int64("records", e.Lost))
	}
	r.act(func(m *Machine) Effects { return m.Truncated(r.logState()) })
	return nil
}

// appendedTo is the log's hook: once for each round of appends, before they return.
func (r *Replica) appendedTo(end int64) {
	var fired fired
	r.mu.Lock()
	r.applyLocked(r.mu.machine.Appended(end), &fired)
	if len(r.mu.tails) > 0 {
		for w := range r.mu.tails {
			fired.waiters = append(fired.waiters, w)
		}
		clear(r.mu.tails)
	}
	r.mu.Unlock()
	fired.run()
}

// await puts an append that is in the log among those who wait, or completes it.
func (r *Replica) await(p *Pending, acks int16) {
	r.mu.Lock()
	var err error
	waits := false
	if r.mu.closed != nil {
		err = r.mu.closed
	} else {
		waits, err = r.waitsLocked(p, acks)
	}
	if waits {
		r.mu.produces = append(r.mu.produces, p)
	}
	r.mu.Unlock()
	if !waits {
		p.complete(err)
	}
}

// waitsLocked decides whether an append has to wait, and for what; if not, its outcome.
func (r *Replica) waitsLocked(p *Pending, acks int16) (bool, error) {
	m := &r.mu.machine
	switch {
	case acks == AcksAll && m.high < p.need:
		return true, nil
	case acks == AcksAll && m.short():
		return false, ErrNotEnoughAfterAppend
	case acks == AcksLeader && m.value.Flush && m.synced < p.need:
		p.synced = true
		return true, nil
	}
	return false, nil
}

// forget removes an expired append from those who wait.
func (r *Replica) forget(p *Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range r.mu.produces {
		if q == p {
			last := len(r.mu.produces) - 1
			r.mu.produces[i] = r.mu.produces[last]
			r.mu.produces[last] = nil
			r.mu.produces = r.mu.produces[:last]
			return
		}
	}
}

// syncedTo is the log's hook: its synced end has risen. The log is asked again under the lock, so that what it said
// before a truncation does not count after it.
func (r *Replica) syncedTo(end int64) {
	r.act(func(m *Machine) Effects { return m.Synced(min(end, r.log.SyncedOffset())) })
}

// fail takes the replica offline after its log failed: whoever waits is answered, and nothing is served until restart.
func (r *Replica) fail(err error) {
	if r.close(errors.Join(ErrStorage, err)) {
		r.note(meta.EventOffline, r.table.config.Broker, "the log on broker %d failed: %v", r.table.config.Broker, err)
		r.table.logger.Error("replica offline: its log failed",
			slog.String("topic", r.topic), slog.Int("partition", int(r.partition)), slog.Any("err", err))
		r.table.roleChanged(r.topic, meta.TopicIDPartition{Topic: r.id, Partition: r.partition})
	}
}

// close ends the replica's life here; reason answers whoever waits and whoever comes. It tells whether it had not ended
// before.
func (r *Replica) close(reason error) bool {
	var fired fired
	r.mu.Lock()
	first := r.mu.closed == nil
	if first {
		r.mu.closed = reason
		r.applyLocked(r.mu.machine.Closed(reason), &fired)
	}
	r.mu.Unlock()
	fired.run()
	r.table.fetchers.moved(r)
	return first
}

// act runs one event of the machine and its effects.
func (r *Replica) act(event func(*Machine) Effects) {
	var fired fired
	r.mu.Lock()
	r.applyLocked(event(&r.mu.machine), &fired)
	r.mu.Unlock()
	fired.run()
}

// fired collects who is to be told once the lock is released.
type fired struct {
	waiters  []*Waiter
	produces []completion
	replica  *Replica // of what follows
	sync     bool     // it needs a group commit
	change   *Change  // it wants its value written
	reread   bool     // or read
	follow   bool     // where it fetches from has changed
	start    int64    // its log's start is to be raised to this
	journal  []meta.Event
}

type completion struct {
	pending *Pending
	err     error
}

func (f *fired) run() {
	for _, c := range f.produces {
		c.pending.complete(c.err)
	}
	for _, w := range f.waiters {
		w.Fire()
	}
	r := f.replica
	if r == nil {
		return
	}
	if len(f.journal) > 0 {
		r.table.journal.note(r.name(), f.journal...)
	}
	if f.sync {
		r.table.config.Logs.Syncer().Request(r.log)
	}
	if f.change != nil || f.reread {
		r.table.want(wanted{r, f.change})
	}
	if f.follow {
		r.table.fetchers.moved(r)
	}
	if f.start > 0 {
		r.raiseStart(f.start)
	}
}

// applyLocked does the effects of an event. Everything that calls out is put into fired.
func (r *Replica) applyLocked(e Effects, fired *fired) {
	if len(e.Journal) > 0 {
		fired.replica, fired.journal = r, e.Journal
	}
	if e.Ignored {
		return
	}
	r.high.Store(r.mu.machine.HighWatermark())
	if r.mu.moved != nil {
		close(r.mu.moved)
		r.mu.moved = nil
	}
	if e.Advanced {
		r.readableLocked(fired)
	}
	if (e.Advanced || e.SyncedTo) && len(r.mu.produces) > 0 {
		r.completeLocked(e, fired)
	}
	if e.Fail != nil {
		for _, p := range r.mu.produces {
			fired.produces = append(fired.produces, completion{p, e.Fail})
		}
		r.mu.produces = nil
	}
	if e.Wake {
		r.mu.terms++
		for w := range r.mu.fetches {
			fired.waiters = append(fired.waiters, w)
		}
		clear(r.mu.fetches)
		for w := range r.mu.tails {
			fired.waiters = append(fired.waiters, w)
		}
		clear(r.mu.tails)
	}
	if e.Sync || e.Change != nil || e.Reread || e.Follow || e.RaiseStart {
		fired.replica = r
		fired.sync, fired.change, fired.reread, fired.follow = e.Sync, e.Change, e.Reread, e.Follow
		if e.RaiseStart {
			fired.start = e.NewStart
		}
	}
}

// completeLocked completes the appends whose wait is over.
func (r *Replica) completeLocked(e Effects, fired *fired) {
	m := &r.mu.machine
	kept := r.mu.produces[:0]
	for _, p := range r.mu.produces {
		switch {
		case p.synced && m.synced >= p.need:
			fired.produces = append(fired.produces, completion{p, nil})
		case !p.synced && m.high >= p.need && e.Short:
			fired.produces = append(fired.produces, completion{p, ErrNotEnoughAfterAppend})
		case !p.synced && m.high >= p.need:
			fired.produces = append(fired.produces, completion{p, nil})
		default:
			kept = append(kept, p)
		}
	}
	clear(r.mu.produces[len(kept):])
	r.mu.produces = kept
}

// readableLocked counts, for every waiting fetch, the bytes that the risen high watermark has made readable.
func (r *Replica) readableLocked(fired *fired) {
	r.mu.highBytes = r.mu.appended
	for w, known := range r.mu.tails {
		if r.mu.machine.HighWatermark() > known {
			fired.waiters = append(fired.waiters, w)
			delete(r.mu.tails, w)
		}
	}
	if len(r.mu.fetches) == 0 {
		return
	}
	stable := r.log.LastStableOffset(r.mu.machine.HighWatermark())
	if stable > r.mu.stable {
		r.mu.stable, r.mu.stableBytes = stable, r.mu.appended
	}
	for w, watch := range r.mu.fetches {
		readable := r.mu.highBytes
		if watch.isolation == ReadCommitted {
			readable = r.mu.stableBytes
		}
		switch delta := readable - watch.bytes; {
		case w.Fired():
			delete(r.mu.fetches, w)
		case delta > 0 && w.count(delta):
			fired.waiters = append(fired.waiters, w)
			delete(r.mu.fetches, w)
		case delta > 0:
			watch.bytes = readable
			r.mu.fetches[w] = watch
		}
	}
}
