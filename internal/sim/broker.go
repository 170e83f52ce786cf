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

	up      bool
	life    int           // of the process; what an earlier one asked for does not happen
	paused  time.Duration // it does nothing before
	skew    time.Duration // its clock is ahead by so much
	slow    time.Duration // until then its disk takes long
	unclean bool          // its disk may have lost something, and it was not live since
	lossy   bool          // its disk lost something and the registry has not been told yet
	weak    bool          // it may lack what was acknowledged

	machine   replica.Machine
	verified  int          // a prefix of the log that is known to be what was committed
	traced    int          // a prefix of it whose epochs are known to be right
	sequenced int          // a prefix of it whose sequences are known to be right
	last      [4]sequenced // of each producer in that prefix

	// Of the process.
	control   *control
	heard     int64 // the newest controller epoch
	obeyed    int64 // that of the last statement that was acted on
	revision  int64
	epoch     int64 // its broker epoch, -1 while it knows none
	live      []int64
	asked     int // numbers fetches
	waiting   bool
	syncing   bool
	syncAgain bool
	ticked    time.Duration
	acks      []pendingAck
	sequences commitlog.Sequences
}

// disk is what outlives a process: all of it a kill, only what was synced a power cut.
type disk struct {
	topic  int // whose copy it has; 0: none
	log    []entry
	synced int
	epochs commitlog.Epochs // also of epochs that have written nothing, until the process ends
	high   int64            // checkpoint of the high watermark
}

// entry is a record, which stands for a batch.
type entry struct {
	epoch    meta.Epoch
	value    uint64
	producer int64 // 0: it has no sequence
	term     int16 // the producer's epoch
	sequence int32
}

// sequenced is the last batch of a producer.
type sequenced struct {
	seen     bool
	term     int16
	sequence int32
}

// pendingAck is an acks=all produce that waits.
type pendingAck struct {
	offset int64
	value  uint64
	answer func(error) // nil: nobody hears it
}

// start starts the process.
func (b *broker) start() {
	b.up, b.paused = true, 0
	b.life++
	b.machine = newMachine(b.id, lagMax, b.world.options.Mutant)
	b.heard, b.obeyed, b.revision, b.epoch, b.live, b.asked, b.waiting, b.syncing, b.syncAgain, b.acks = 0, 0, 0, -1, nil, 0, false, false, false, nil
	b.ticked = b.world.now
	b.disk.epochs = nil
	for i, e := range b.disk.log {
		if e.epoch > b.disk.epochs.LatestEpoch() {
			b.disk.epochs, _, _ = b.disk.epochs.Assign(e.epoch, int64(i))
		}
	}
	b.foldSequences()
	if b.control == nil {
		b.control = &control{world: b.world, node: b.id, broker: b}
	}
	b.control.life, b.control.epoch = b.life, 0
	if m := &b.world.registry.members[b.id-1]; m.registration == 0 || m.life != b.life {
		b.renew()
	} else {
		b.after(renewEvery, b.renew)
	}
	b.after(tickEvery, b.tick)
	b.after(fetchPause, b.fetch)
	if !b.world.options.Steady {
		b.after(b.world.delay(), b.control.round)
	}
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
	b.unclean = true
	b.disk.synced = kept
	b.cut(kept)
}

// cut shortens the log.
func (b *broker) cut(to int) {
	b.disk.log = b.disk.log[:to]
	b.disk.synced = min(b.disk.synced, to)
	b.verified, b.traced = min(b.verified, to), min(b.traced, to)
	if b.sequenced > to {
		b.sequenced, b.last = 0, [4]sequenced{}
	}
}

// holds tells whether the broker has a copy of the topic as it is now.
func (b *broker) holds() bool { return b.disk.topic == b.world.topic && b.world.topic != 0 }

// runs tells whether a process is there, and which one.
func (b *broker) runs(life int) bool { return b.up && b.life == life }

// clock is what the process takes for the time.
func (b *broker) clock() time.Time { return time.Unix(1, 0).Add(b.world.now + b.skew) }

// do does something in this process: not if it is down, and later if it is paused.
func (b *broker) do(f func()) {
	life := b.life
	switch {
	case !b.up:
	case b.world.now < b.paused:
		b.world.after(b.paused-b.world.now, func() {
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
		switch m := &r.members[b.id-1]; {
		case !b.up || b.life != life:
		case m.registration == 0 || m.life != life:
			r.register(b, life)
			b.world.note("registry: broker %d registers, unclean=%t", b.id, b.unclean)
		default:
			m.renewed = b.world.now
		}
	})
	b.after(renewEvery, b.renew)
}

func (b *broker) logState() replica.LogState {
	return replica.LogState{Written: int64(len(b.disk.log)), Synced: int64(b.disk.synced), Epochs: b.disk.epochs}
}

// apply takes a statement, as replica.Table.Apply does. confirmed says that everything it states counts here now; ended is
// where the copy ends that an election is to compare.
func (b *broker) apply(s statement, from *control) (ended *meta.LogEnd, confirmed bool) {
	if m := &b.world.registry.members[b.id-1]; m.registration != s.registration || m.life != b.life {
		return nil, false // it is meant for another registration
	}
	if s.controller < b.heard && b.world.options.Mutant != obeyDeposed {
		b.world.note("broker %d: refuses a statement of %s, epoch %d, it has heard epoch %d", b.id, from, s.controller, b.heard)
		return nil, false
	}
	b.heard, b.obeyed = max(b.heard, s.controller), s.controller
	if s.revision < b.revision && b.world.options.Mutant != obeyDeposed {
		return nil, true
	}
	b.revision = s.revision
	b.live, b.epoch = s.live, -1
	if epoch := s.live[b.id-1]; epoch != 0 {
		b.epoch = epoch
	}
	if b.disk.topic != s.topic || !s.value.HasReplica(b.id) {
		b.dropCopy(s.gone)
	}
	if s.topic == 0 || !s.value.HasReplica(b.id) {
		return nil, true
	}
	b.disk.topic = s.topic
	b.roleChanged(s.value)
	b.effects(b.machine.BrokersChanged(b.liveEpoch))
	if v := b.machine.Value(); s.value.WaitsForLongest() && v.Version == s.value.Version && v.LeaderEpoch == s.value.LeaderEpoch {
		ended = &meta.LogEnd{Epoch: b.lastEpoch(), End: int64(len(b.disk.log))}
	}
	return ended, true
}

func (b *broker) liveEpoch(id meta.BrokerID) int64 { return b.live[id-1] }

// dropCopy ends the copy's life here; of a topic that is not known to be deleted it is set aside.
func (b *broker) dropCopy(gone int) {
	if b.disk.topic == 0 {
		return
	}
	what := "deletes its copy"
	if b.disk.topic != gone && b.disk.topic != b.world.registry.topic {
		what = "sets its copy aside"
	}
	b.world.note("broker %d: %s", b.id, what)
	for _, p := range b.acks {
		p.fail()
	}
	b.machine = newMachine(b.id, lagMax, b.world.options.Mutant)
	b.cut(0)
	b.disk, b.acks = disk{}, nil
	b.foldSequences()
}

// roleChanged gives the machine a value.
func (b *broker) roleChanged(value meta.Partition) {
	was, role := b.machine.Epoch(), b.machine.Role()
	e := b.machine.RoleChanged(value, b.logState(), b.disk.high, b.clock())
	if !e.Ignored && (b.machine.Epoch() != was || b.machine.Role() != role) {
		b.world.note("broker %d: %s in epoch %d, log ends at %d, high watermark %d", b.id, b.machine.Role(), b.machine.Epoch(), len(b.disk.log), b.machine.HighWatermark())
	}
	b.effects(e)
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
	if e.Sync {
		b.startSync()
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

func (p *pendingAck) fail() {
	if p.answer != nil {
		p.answer(replica.ErrNotLeader)
	}
}

// complete answers produces.
func (b *broker) complete(e replica.Effects) {
	if e.Fail != nil {
		for _, p := range b.acks {
			p.fail()
		}
		b.acks = nil
	}
	if !e.Advanced {
		return
	}
	waiting := b.acks
	b.acks = nil
	for _, p := range waiting {
		if p.offset >= e.HighWatermark {
			b.acks = append(b.acks, p)
		} else {
			b.acknowledge(p, e.Short)
		}
	}
}

// acknowledge answers a produce whose records the high watermark has passed.
func (b *broker) acknowledge(p pendingAck, short bool) {
	var err error
	switch {
	case short:
		err = replica.ErrNotEnoughAfterAppend
	case b.holds() && b.machine.Epoch() >= b.world.relaxed: // an older leader does not know that it promises nothing
		b.world.acked[p.offset] = p.value
	}
	if p.answer != nil {
		p.answer(err)
	}
}

// startSync starts a group commit, or another one after the one that is under way.
func (b *broker) startSync() {
	if b.syncing {
		b.syncAgain = true
		return
	}
	b.syncing, b.syncAgain = true, false
	end, took := len(b.disk.log), b.world.syncsLate+b.world.delay()
	if b.world.now < b.slow {
		took += time.Duration(b.world.rng.IntN(700)) * time.Millisecond
	}
	topic := b.disk.topic
	b.after(took, func() {
		b.syncing = false
		if b.disk.topic == topic {
			b.sync(end)
		}
		if b.syncAgain {
			b.startSync()
		}
	})
}

func (b *broker) sync(end int) {
	end = min(end, len(b.disk.log))
	b.disk.synced = max(b.disk.synced, end)
	b.effects(b.machine.Synced(int64(b.disk.synced)))
}

func (b *broker) truncate(to int64) {
	b.world.note("broker %d: truncates from %d to %d", b.id, len(b.disk.log), to)
	b.cut(int(to))
	b.disk.epochs = b.disk.epochs.TruncateFromEnd(to)
	if b.world.options.Mutant != keepSequences {
		b.foldSequences()
	}
	b.effects(b.machine.Truncated(b.logState()))
}

// append writes a record at the end of the log.
func (b *broker) append(e entry) {
	b.disk.log = append(b.disk.log, e)
	end := int64(len(b.disk.log) - 1)
	if e.epoch > b.disk.epochs.LatestEpoch() {
		b.disk.epochs, _, _ = b.disk.epochs.Assign(e.epoch, end)
	}
	if e.producer != 0 && (b.world.options.Mutant != forgetSequences || b.machine.Role() == replica.RoleLeader) {
		b.sequences.Add(e.batch(end))
	}
}

func (e *entry) batch(offset int64) commitlog.SequencedBatch {
	return commitlog.SequencedBatch{Producer: e.producer, Epoch: e.term, Sequence: e.sequence, Base: offset, Last: offset}
}

// foldSequences makes what is known of producers what the log says.
func (b *broker) foldSequences() {
	b.sequences.Reset()
	for i := range b.disk.log {
		if e := &b.disk.log[i]; e.producer != 0 {
			b.sequences.Add(e.batch(int64(i)))
		}
	}
}

// produce appends records for clients, if the machine allows it.
func (b *broker) produce(n int, acks int16) error {
	if err := b.machine.CheckAppend(meta.NoEpoch, acks); err != nil {
		return err
	}
	for range n {
		b.world.values++
		b.take(entry{value: b.world.values}, acks, nil)
	}
	b.effects(b.machine.Appended(int64(len(b.disk.log))))
	return nil
}

// take appends a leader's record; answer hears when it is acknowledged.
func (b *broker) take(e entry, acks int16, answer func(error)) {
	e.epoch = b.machine.Epoch()
	b.append(e)
	offset := int64(len(b.disk.log) - 1)
	if b.holds() {
		b.world.wrote(origin{e.epoch, offset}, e.value)
	}
	if acks == replica.AcksAll {
		b.acks = append(b.acks, pendingAck{offset, e.value, answer})
	}
}

func (b *broker) tick() {
	if b.world.now-b.ticked > leaseTTL {
		b.machine.Stalled(b.clock())
	}
	b.ticked = b.world.now
	b.effects(b.machine.Tick(b.clock()))
	b.disk.high = b.machine.HighWatermark()
	b.after(tickEvery, b.tick)
}

// write sends a change to the registry. Without an answer its outcome is unknown.
func (b *broker) write(c *replica.Change) {
	q := &changeRequest{broker: b, change: c, epoch: b.epoch, life: b.life, topic: b.disk.topic}
	b.after(300*time.Millisecond, func() { q.done(replica.OutcomeUnknown) })
	b.world.after(b.world.changesLate+b.world.late()+b.world.joining(b, c), func() { b.world.send(b.id, 0, q.arrive) })
}

// changeRequest is a change on its way.
type changeRequest struct {
	broker   *broker
	change   *replica.Change
	epoch    int64 // the broker epoch in which it was asked for
	life     int
	topic    int
	answered bool
}

// done tells the machine of an outcome, once.
func (q *changeRequest) done(outcome replica.Outcome) {
	if !q.answered && q.broker.disk.topic == q.topic {
		q.answered = true
		q.broker.effects(q.broker.machine.ChangeDone(q.change.Value.Version, outcome, q.broker.clock()))
	}
}

func (q *changeRequest) arrive() {
	b := q.broker
	current, ok := b.world.registry.change(b.id, q.epoch, q.topic, q.change)
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
			case b.disk.topic == q.topic:
				q.answered = true
				b.roleChanged(current)
			}
		})
	})
}

func (b *broker) reread() {
	life, topic := b.life, b.disk.topic
	b.world.send(b.id, 0, func() {
		r := &b.world.registry
		if r.topic != topic {
			return
		}
		current := r.value
		b.world.send(0, b.id, func() {
			if b.life != life {
				return
			}
			b.do(func() {
				if b.disk.topic == topic {
					b.roleChanged(current)
					b.effects(b.machine.ValueRead(current.Version))
				}
			})
		})
	})
}

// fetchRequest is a follower's fetch; fetchAnswer is a leader's.
type fetchRequest struct {
	from        meta.BrokerID
	topic       int
	brokerEpoch int64
	position    replica.Position
	last        meta.Epoch
}

type fetchAnswer struct {
	replica.Answer
	topic   int
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
	q := fetchRequest{b.id, b.disk.topic, b.epoch, p, b.disk.epochs.LatestEpoch()}
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

// errUnknownTopic is the answer to a fetch of another life of the topic.
var errUnknownTopic = errors.New("unknown topic id")

// serve answers a follower's fetch, as replica.ReadForFollower does.
func (b *broker) serve(q fetchRequest) fetchAnswer {
	m := &b.machine
	a := fetchAnswer{topic: q.topic, Answer: replica.Answer{Leader: q.position.Leader, Epoch: q.position.Epoch, Offset: q.position.Offset, LastEpoch: q.last}}
	if b.disk.topic != q.topic {
		a.Err = errUnknownTopic
		return a
	}
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
	if a.Diverging == nil && q.position.Offset < end {
		a.records = append([]entry(nil), b.disk.log[q.position.Offset:min(end, q.position.Offset+recordsMax)]...)
		a.Records = true
	}
	b.effects(m.FollowerFetched(replica.FollowerFetch{
		Broker: q.from, BrokerEpoch: q.brokerEpoch, Current: q.brokerEpoch > 0 && b.live != nil && b.liveEpoch(q.from) == q.brokerEpoch,
		Epoch: q.position.Epoch, Offset: q.position.Offset, LeaderEnd: end, Diverges: a.Diverging != nil,
	}, b.clock()))
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
	if a.topic != b.disk.topic {
		return
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

// lastEpoch is the epoch of the last record.
func (b *broker) lastEpoch() meta.Epoch {
	if len(b.disk.log) == 0 {
		return meta.NoEpoch
	}
	return b.disk.log[len(b.disk.log)-1].epoch
}

// agree is how many records of the log are what was committed.
func (b *broker) agree() int {
	for b.verified < len(b.disk.log) && b.verified < len(b.world.committed) && b.disk.log[b.verified] == b.world.committed[b.verified] {
		b.verified++
	}
	return b.verified
}
