package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

const (
	producers      = 3 // idempotent ones
	inFlightMax    = 5 // max.in.flight.requests.per.connection
	requestTimeout = 150 * time.Millisecond
	produceEvery   = 12 * time.Millisecond
)

// producer is an idempotent producer of a client: it sends batches in the order of their sequences on one connection, has
// up to five of them unanswered, and sends again what was not answered, the first one first (U-102, U-103). When it is told
// that the log lacks what it has written, it gives up what is unanswered and goes on in a new epoch (KIP-360).
type producer struct {
	world    *World
	id       int64
	topic    int
	term     int16 // its epoch
	next     int32 // sequence
	known    bool  // the log knows it in this epoch
	leader   meta.BrokerID
	line     *connection
	flight   []*batch // unanswered, in the order of their sequences
	attempts int
}

// batch is a batch on its way.
type batch struct {
	entry
	attempt int  // that is on its way, 0: none
	again   bool // it is to be sent again
	done    bool // answered, but not one before it: answers count in order
}

// connection keeps the order of requests, until it breaks.
type connection struct {
	to     meta.BrokerID
	last   time.Duration // when the last request arrives
	broken bool
}

// work sends what there is to send.
func (p *producer) work() {
	w := p.world
	if p.topic != w.registry.topic { // another life of the topic: another log
		*p = producer{world: w, id: p.id, topic: w.registry.topic, leader: w.registry.value.Leader, attempts: p.attempts}
	}
	if p.topic == 0 {
		return
	}
	for _, b := range p.flight {
		if b.again {
			if first := p.flight[0]; first.attempt == 0 {
				p.send(first)
			}
			return // one at a time until all are through
		}
	}
	if w.quiet {
		return
	}
	inFlight := inFlightMax
	if !p.known {
		inFlight = 1 // a log takes any sequence from whom it does not know (U-104): the second batch must not overtake the first
	}
	for n := w.rng.IntN(3); n > 0 && len(p.flight) < inFlight; n-- {
		w.values++
		b := &batch{entry: entry{value: w.values, producer: p.id, term: p.term, sequence: p.next}}
		p.next++
		p.flight = append(p.flight, b)
		p.send(b)
	}
}

func (p *producer) send(b *batch) {
	w := p.world
	if p.leader == meta.NoBroker {
		p.leader = w.registry.value.Leader
	}
	p.attempts++
	attempt, topic := p.attempts, p.topic
	b.attempt = attempt
	w.after(requestTimeout, func() { p.answered(b, attempt, errTimedOut) })
	if p.leader == meta.NoBroker {
		return
	}
	if p.line == nil || p.line.to != p.leader {
		p.line = &connection{to: p.leader}
	}
	line := p.line
	if line.broken = line.broken || !w.quiet && w.rng.IntN(50) == 0; line.broken {
		return
	}
	line.last = max(w.now+w.delay(), line.last)
	to, record := w.broker(p.leader), b.entry
	w.after(line.last-w.now, func() {
		to.do(func() {
			to.produced(record, topic, func(err error) {
				if w.quiet || w.rng.IntN(50) > 0 {
					w.after(w.delay(), func() { p.answered(b, attempt, err) })
				}
			})
		})
	})
}

var errTimedOut = errors.New("no answer")

// answered takes the answer to one attempt.
func (p *producer) answered(b *batch, attempt int, err error) {
	if b.attempt != attempt {
		return
	}
	b.attempt = 0
	at := slices.Index(p.flight, b)
	if at < 0 {
		return // given up
	}
	switch {
	case err == nil:
		p.known, b.done, b.again = true, true, false
		for len(p.flight) > 0 && p.flight[0].done {
			p.flight = p.flight[1:]
		}
	case at == 0 && (errors.Is(err, commitlog.ErrOutOfOrderSequence) || errors.Is(err, commitlog.ErrProducerFenced)):
		if w := p.world; w.relaxed == 0 && w.refused == nil && p.topic == w.topic {
			w.refused = err
		}
		p.term, p.next, p.known, p.flight, p.line = p.term+1, 0, false, nil, nil
	default:
		b.again = true
		if errors.Is(err, errTimedOut) || errors.Is(err, replica.ErrNotLeader) || errors.Is(err, errUnknownTopic) {
			p.line, p.leader = nil, p.world.registry.value.Leader
		}
	}
}

// produced is the leader's side: what commitlog.Log.Append and replica.Replica.Append do with a batch.
func (b *broker) produced(e entry, topic int, answer func(error)) {
	if b.disk.topic != topic {
		answer(errUnknownTopic)
		return
	}
	if err := b.machine.CheckAppend(meta.NoEpoch, replica.AcksAll); err != nil {
		answer(err)
		return
	}
	duplicate, err := b.sequences.Check(e.batch(int64(len(b.disk.log))))
	switch {
	case err != nil:
		answer(err)
	case duplicate < 0:
		b.take(e, replica.AcksAll, answer)
		b.effects(b.machine.Appended(int64(len(b.disk.log))))
	case duplicate < b.machine.HighWatermark():
		b.acknowledge(pendingAck{duplicate, e.value, answer}, false)
	default:
		b.acks = append(b.acks, pendingAck{duplicate, e.value, answer})
	}
}

// reading is what a consumer was shown.
type reading struct {
	broker meta.BrokerID
	offset int64
	record entry
}

// consume lets a consumer read a little from a broker that may serve it: the leader, or a follower (KIP-392).
func (w *World) consume() {
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	if leader := w.registry.value.Leader; leader != meta.NoBroker && w.rng.IntN(2) == 0 {
		b = w.broker(leader)
	}
	b.do(func() { w.show(b, max(0, int64(len(w.read))-int64(w.rng.IntN(4)))) })
}

// show lets a broker show a consumer what it may see from an offset on.
func (w *World) show(b *broker, from int64) {
	if !b.holds() || b.machine.Role() == replica.RoleNone || b.machine.Epoch() < w.relaxed {
		return
	}
	if w.relaxed > 0 && b.machine.Role() == replica.RoleFollower {
		return // its high watermark may be from before the unclean election
	}
	bound := b.machine.HighWatermark()
	if w.options.Mutant == readToEnd {
		bound = int64(len(b.disk.log))
	}
	for offset := from; offset < min(bound, from+recordsMax, int64(len(b.disk.log))); offset++ {
		w.unread = append(w.unread, reading{b.id, offset, b.disk.log[offset]})
	}
}
