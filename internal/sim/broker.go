package sim

import (
	"errors"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// broker is a machine, its runner, and the disk under them.
type broker struct {
	world *World
	id    meta.BrokerID
	disk  disk

	up     bool
	life   int       // of the process; what an earlier one asked for does not happen
	paused time.Time // it does nothing before
	lossy  bool      // its disk lost something and nobody has been told yet
	weak   bool      // it may lack what was acknowledged

	machine  replica.Machine
	verified int // a prefix of the log that is known to be what was committed
	traced   int // a prefix of it whose epochs are known to be right

	// Of the process.
	revision int64
	epoch    int64 // its broker epoch, -1 while it knows none
	live     map[meta.BrokerID]int64
	asked    int // numbers fetches
	waiting  bool
	syncing  bool
	acks     []pendingAck
}

// disk is what outlives a process: all of it a kill, only what was synced a power cut.
type disk struct {
	log     []entry
	synced  int
	epochs  commitlog.Epochs // also of epochs that have written nothing, until the process ends
	high    int64            // checkpoint of the high watermark
	unclean bool             // the machine lost power since the last sweep
}

type entry struct {
	epoch meta.Epoch
	value uint64
}

// pendingAck is an acks=all produce that waits.
type pendingAck struct {
	offset int64
	value  uint64
}

// start starts the process.
func (b *broker) start() {
	b.up, b.paused = true, time.Time{}
	b.life++
	b.machine = newMachine(b.id, lagMax, b.world.options.Mutant)
	b.revision, b.epoch, b.live, b.asked, b.waiting, b.syncing, b.acks = 0, -1, nil, 0, false, false, nil
	b.disk.epochs = nil
	for i, e := range b.disk.log {
		if e.epoch > b.disk.epochs.LatestEpoch() {
			b.disk.epochs, _, _ = b.disk.epochs.Assign(e.epoch, int64(i))
		}
	}
	if m := b.world.registry.members[b.id]; m == nil || m.life != b.life {
		b.renew()
	} else {
		b.after(renewEvery, b.renew)
	}
	b.after(tickEvery, b.tick)
	b.after(fetchPause, b.fetch)
}

// kill ends the process; lose says that the power fails with it.
func (b *broker) kill(lose bool) {
	b.up = false
	b.machine = newMachine(b.id, lagMax, b.world.options.Mutant)
	b.acks = nil
	if !lose {
		return
	}
	kept := b.disk.synced
	if tail := len(b.disk.log) - b.disk.synced; tail > 0 && !b.world.options.Steady {
		kept += b.world.rng.IntN(tail + 1)
	}
	if kept < len(b.disk.log) {
		b.lossy = true
	}
	b.weak = b.weak || !b.world.options.Flush
	b.disk.unclean = true
	b.disk.log = b.disk.log[:kept]
	b.disk.synced = kept
	b.verified, b.traced = min(b.verified, kept), min(b.traced, kept)
}

// do does something in this process: not if it is down, and later if it is paused.
func (b *broker) do(f func()) {
	life := b.life
	switch {
	case !b.up:
	case b.world.now.Before(b.paused):
		b.world.after(b.paused.Sub(b.world.now), func() {
			if b.life == life {
				b.do(f)
			}
		})
	default:
		f()
	}
}

// after does something later in this process.
func (b *broker) after(d time.Duration, f func()) {
	life := b.life
	b.world.after(d, func() {
		if b.life == life {
			b.do(f)
		}
	})
}

// renew keeps the registration alive, or takes one.
func (b *broker) renew() {
	life := b.life
	b.world.send(b.id, 0, func() {
		r := &b.world.registry
		switch m := r.members[b.id]; {
		case !b.up || b.life != life:
		case m == nil || m.life != life:
			r.register(b)
			b.world.note("registry: broker %d registers, unclean=%t", b.id, b.disk.unclean)
		default:
			m.renewed = b.world.now
		}
	})
	b.after(renewEvery, b.renew)
}

func (b *broker) logState() replica.LogState {
	return replica.LogState{Written: int64(len(b.disk.log)), Synced: int64(b.disk.synced), Epochs: b.disk.epochs}
}

// apply takes a statement.
func (b *broker) apply(s statement) {
	if s.life != b.life || s.revision < b.revision {
		return
	}
	b.revision = s.revision
	b.live, b.epoch = s.live, -1
	if epoch := s.live[b.id]; epoch != 0 {
		b.epoch = epoch
	}
	if !s.value.HasReplica(b.id) {
		if b.machine.Role() != replica.RoleNone {
			b.world.note("broker %d: deletes its copy", b.id)
			b.machine = newMachine(b.id, lagMax, b.world.options.Mutant)
			b.disk, b.verified, b.traced, b.acks = disk{unclean: b.disk.unclean}, 0, 0, nil
		}
		return
	}
	was := b.machine.Epoch()
	e := b.machine.RoleChanged(s.value, b.logState(), b.disk.high, b.world.now)
	if !e.Ignored && b.machine.Epoch() != was {
		b.world.note("broker %d: %s in epoch %d, log ends at %d, high watermark %d", b.id, b.machine.Role(), b.machine.Epoch(), len(b.disk.log), b.machine.HighWatermark())
	}
	b.effects(e)
	b.effects(b.machine.BrokersChanged(func(id meta.BrokerID) int64 { return s.live[id] }))
}

// effects does what a machine wants.
func (b *broker) effects(e replica.Effects) {
	if e.Ignored {
		return
	}
	if e.AssignEpoch {
		b.disk.epochs, _, _ = b.disk.epochs.Assign(e.Epoch, e.EpochStart)
	}
	b.complete(e)
	if e.Sync && !b.syncing {
		b.syncing = true
		end := len(b.disk.log)
		b.after(b.world.syncsLate+b.world.delay(), func() { b.sync(end) })
	}
	if e.Change != nil {
		b.write(e.Change)
	}
	if e.Reread {
		b.reread()
	}
	if e.Truncate {
		if e.Lost > 0 {
			b.world.note("broker %d: cuts %d committed records after an unclean election", b.id, e.Lost)
		}
		b.truncate(e.TruncateTo)
	}
	if e.RefuseFollow != "" {
		b.world.note("broker %d: refuses to follow: %s", b.id, e.RefuseFollow)
	}
}

// complete answers produces.
func (b *broker) complete(e replica.Effects) {
	if e.Fail != nil {
		b.acks = nil
	}
	if !e.Advanced {
		return
	}
	kept := b.acks[:0]
	for _, p := range b.acks {
		switch {
		case p.offset >= e.HighWatermark:
			kept = append(kept, p)
		case !e.Short:
			b.world.acked[p.offset] = p.value
		}
	}
	b.acks = kept
}

func (b *broker) sync(end int) {
	b.syncing = false
	end = min(end, len(b.disk.log))
	b.disk.synced = max(b.disk.synced, end)
	b.effects(b.machine.Synced(int64(b.disk.synced)))
}

func (b *broker) truncate(to int64) {
	b.world.note("broker %d: truncates from %d to %d", b.id, len(b.disk.log), to)
	b.disk.log = b.disk.log[:to]
	b.disk.synced = min(b.disk.synced, int(to))
	b.disk.epochs = b.disk.epochs.TruncateFromEnd(to)
	b.verified, b.traced = min(b.verified, int(to)), min(b.traced, int(to))
	b.effects(b.machine.Truncated(b.logState()))
}

func (b *broker) append(e entry) {
	b.disk.log = append(b.disk.log, e)
	if e.epoch > b.disk.epochs.LatestEpoch() {
		b.disk.epochs, _, _ = b.disk.epochs.Assign(e.epoch, int64(len(b.disk.log)-1))
	}
}

// produce appends records for clients, if the machine allows it.
func (b *broker) produce(n int, acks int16) error {
	if err := b.machine.CheckAppend(meta.NoEpoch, acks); err != nil {
		return err
	}
	for range n {
		b.world.values++
		b.append(entry{b.machine.Epoch(), b.world.values})
		offset := int64(len(b.disk.log) - 1)
		b.world.wrote(origin{b.machine.Epoch(), offset})
		if acks == replica.AcksAll {
			b.acks = append(b.acks, pendingAck{offset, b.world.values})
		}
	}
	b.effects(b.machine.Appended(int64(len(b.disk.log))))
	return nil
}

func (b *broker) tick() {
	b.effects(b.machine.Tick(b.world.now))
	b.disk.high = b.machine.HighWatermark()
	b.after(tickEvery, b.tick)
}

// write sends a change to the registry. Without an answer its outcome is unknown.
func (b *broker) write(c *replica.Change) {
	q := &changeRequest{broker: b, change: c, epoch: b.epoch, life: b.life}
	b.after(300*time.Millisecond, func() { q.done(replica.OutcomeUnknown) })
	b.world.after(b.world.changesLate+b.world.late()+b.world.joining(b, c), func() { b.world.send(b.id, 0, q.arrive) })
}

// changeRequest is a change on its way.
type changeRequest struct {
	broker   *broker
	change   *replica.Change
	epoch    int64 // the broker epoch in which it was asked for
	life     int
	answered bool
}

// done tells the machine of an outcome, once.
func (q *changeRequest) done(outcome replica.Outcome) {
	if !q.answered {
		q.answered = true
		q.broker.effects(q.broker.machine.ChangeDone(q.change.Value.Version, outcome, q.broker.world.now))
	}
}

func (q *changeRequest) arrive() {
	b := q.broker
	current, ok := b.world.registry.change(b.id, q.epoch, q.change)
	b.world.send(0, b.id, func() {
		if b.life != q.life {
			return
		}
		b.do(func() {
			switch {
			case !ok:
				q.done(replica.OutcomeUnknown)
			case current.Version == q.change.Value.Version:
				q.done(replica.OutcomeRefused)
			default:
				q.answered = true
				b.effects(b.machine.RoleChanged(current, b.logState(), b.disk.high, b.world.now))
			}
		})
	})
}

func (b *broker) reread() {
	life := b.life
	b.world.send(b.id, 0, func() {
		current := b.world.registry.value.Clone()
		b.world.send(0, b.id, func() {
			if b.life != life {
				return
			}
			b.do(func() {
				b.effects(b.machine.RoleChanged(current, b.logState(), b.disk.high, b.world.now))
				b.effects(b.machine.ValueRead(current.Version))
			})
		})
	})
}

// fetchRequest is a follower's fetch; answer is a leader's.
type fetchRequest struct {
	from        meta.BrokerID
	brokerEpoch int64
	position    replica.Position
	last        meta.Epoch
}

type fetchAnswer struct {
	replica.Answer
	records []entry
}

// fetch asks the leader, and again after a while.
func (b *broker) fetch() {
	b.after(fetchPause, b.fetch)
	p, ok := b.machine.FetchFrom()
	if b.waiting || !ok {
		return
	}
	b.asked++
	number := b.asked
	b.waiting = true
	b.after(fetchTimeout, func() {
		if b.asked == number {
			b.waiting = false
		}
	})
	q := fetchRequest{b.id, b.epoch, p, b.disk.epochs.LatestEpoch()}
	life, leader := b.life, b.world.broker(p.Leader)
	b.world.send(b.id, p.Leader, func() {
		leader.do(func() {
			a := leader.serve(q)
			b.world.send(p.Leader, b.id, func() {
				if b.life == life {
					b.do(func() { b.answered(number, a) })
				}
			})
		})
	})
}

// recordsMax is how many records one answer carries.
const recordsMax = 4

// serve answers a follower's fetch, as replica.ReadForFollower does.
func (b *broker) serve(q fetchRequest) fetchAnswer {
	m := &b.machine
	a := fetchAnswer{Answer: replica.Answer{Leader: q.position.Leader, Epoch: q.position.Epoch, Offset: q.position.Offset, LastEpoch: q.last}}
	a.HighWatermark, a.LogStart = m.HighWatermark(), 0
	if a.Err = m.CheckLeader(q.position.Epoch); a.Err != nil && (b.world.options.Mutant != replica.AnyEpochFetches || m.Role() != replica.RoleLeader) {
		return a
	}
	a.Err = nil
	end := int64(len(b.disk.log))
	if q.last >= 0 {
		a.Diverging, a.Err = m.Compare(q.last, q.position.Offset, b.disk.epochs, end)
	}
	if a.Err == nil && a.Diverging == nil && q.position.Offset > end {
		a.Err = replica.ErrOffsetOutOfRange
	}
	if a.Err != nil {
		return a
	}
	if a.Diverging == nil {
		a.records = append([]entry(nil), b.disk.log[q.position.Offset:min(end, q.position.Offset+recordsMax)]...)
		a.Records = len(a.records) > 0
	}
	b.effects(m.FollowerFetched(replica.FollowerFetch{
		Broker: q.from, BrokerEpoch: q.brokerEpoch, Current: q.brokerEpoch > 0 && b.live[q.from] == q.brokerEpoch, Epoch: q.position.Epoch,
		Offset: q.position.Offset, LeaderEnd: end, Diverges: a.Diverging != nil,
	}, b.world.now))
	a.HighWatermark = m.HighWatermark()
	return a
}

// errTorn stops a mutant that would leave a hole in its log.
var errTorn = errors.New("the answer does not continue the log")

// answered takes a leader's answer, as the runner of a replica does.
func (b *broker) answered(number int, a fetchAnswer) {
	if number == b.asked {
		b.waiting = false
	}
	e := b.machine.Answered(a.Answer, b.disk.epochs)
	b.effects(e)
	if !e.Append {
		return
	}
	if a.Offset != int64(len(b.disk.log)) {
		if b.world.failure == nil {
			b.world.failure = errTorn
		}
		return
	}
	for _, record := range a.records {
		if record.epoch > b.machine.Epoch() {
			break // U-52
		}
		b.append(record)
	}
	b.effects(b.machine.Appended(int64(len(b.disk.log))))
	b.effects(b.machine.Followed(a.Answer))
}

// last is the epoch of the last record.
func (b *broker) last() meta.Epoch {
	if len(b.disk.log) == 0 {
		return meta.NoEpoch
	}
	return b.disk.log[len(b.disk.log)-1].epoch
}

// agree is how many records of the log are what was committed.
func (b *broker) agree() int {
	for b.verified < len(b.disk.log) && b.verified < len(b.world.committed) && b.disk.log[b.verified].value == b.world.committed[b.verified] {
		b.verified++
	}
	return b.verified
}
