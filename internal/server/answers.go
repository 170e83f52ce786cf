package server

import (
	"net"
	"time"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// reply is what is sent for one request. Its bytes may still be on disk.
type reply interface {
	// send writes the whole frame to the connection.
	send(c *conn) error
	// drop gives back what the answer holds. It is called exactly once, after send or instead of it.
	drop()
}

// frameReply is a reply in memory: a frame with its length.
type frameReply []byte

func (f frameReply) send(c *conn) error { return c.write(f) }
func (f frameReply) drop()              {}

// noReply answers a produce with acks=0: nothing is sent, but it keeps its place in the order.
type noReply struct{}

func (noReply) send(*conn) error { return nil }
func (noReply) drop()            {}

// closeReply ends the connection when its turn comes, after the answers before it.
type closeReply struct{ reason error }

func (a closeReply) send(*conn) error { return a.reason }
func (closeReply) drop()              {}

// await is the place of one request in the order of its connection's answers (D13). Whoever finishes the request
// resolves it, on any goroutine, once.
type await struct {
	conn    *conn
	api     *wire.API
	started time.Time
	version int16
	id      int32 // correlation id
	charge  int64 // of the budget, until the request is resolved

	// next, done, answer and hurry belong to conn.mu.
	next   *await
	done   bool
	answer reply
	// hurry finishes a parked request with what there is. A patient request is given time to finish by itself when
	// the server stops.
	hurry   func()
	patient bool
}

// park says how to finish the request early. It is called before anything can resolve it.
func (a *await) park(hurry func(), patient bool) {
	a.conn.mu.Lock()
	a.hurry, a.patient = hurry, patient
	a.conn.mu.Unlock()
}

// resolve gives the answer of a parked request. The answer is written by a goroutine of its own, so that whoever
// resolves never waits for a slow client.
func (a *await) resolve(ans reply) {
	if a.settle(ans, false) {
		go a.conn.drain()
	}
}

// settle stores the answer and tells whether the caller has become the writer: it then must call drain. With hold nobody
// becomes it: the caller sees to it that uncork is called soon, whatever happens.
func (a *await) settle(ans reply, hold bool) bool {
	c := a.conn
	c.server.budget.release(a.charge)
	c.mu.Lock()
	defer c.mu.Unlock()
	a.done, a.answer, a.hurry = true, ans, nil
	return !hold && c.claimLocked()
}

// claimLocked makes the caller the writer if there is something to write and nobody else is.
func (c *conn) claimLocked() bool {
	if c.mu.writing || c.mu.head == nil || !c.mu.head.done {
		return false
	}
	c.mu.writing = true
	return true
}

// uncork writes the answers that were held back. It is called by the reading goroutine, before it waits for anything.
func (c *conn) uncork() {
	if c.corked == 0 {
		return
	}
	c.corked = 0
	c.mu.Lock()
	writes := c.claimLocked()
	c.mu.Unlock()
	if writes {
		c.drain()
	}
}

// enqueue adds a place at the end of the order.
func (c *conn) enqueue(a *await) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.head == nil {
		c.mu.head = a
	} else {
		c.mu.tail.next = a
	}
	c.mu.tail = a
	c.mu.unanswered++
}

// waitUnanswered blocks until at most limit requests are unanswered. It returns an error if the connection has failed
// or the server stops: no further request is to be read or started then.
func (c *conn) waitUnanswered(limit int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.unanswered > limit && c.mu.err == nil && !c.mu.stopping {
		c.mu.changed.Wait()
	}
	if c.mu.stopping && c.mu.err == nil {
		return net.ErrClosed
	}
	return c.mu.err
}

// stop ends reading: the server stops. Requests in flight go on.
func (c *conn) stop() {
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // a failure means that the connection is over already
	c.mu.Lock()
	c.mu.stopping = true
	c.mu.changed.Broadcast()
	c.mu.Unlock()
}

// finish gives the requests in flight a moment to be answered when the server stops; polls are answered at once.
func (c *conn) finish() {
	c.hurryAll(false)
	timer := time.AfterFunc(c.server.config.StopGrace, func() { c.fail(net.ErrClosed) })
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.unanswered > 0 && c.mu.err == nil && !c.mu.broken {
		c.mu.changed.Wait()
	}
}

// drain writes answers from the head of the order for as long as they are there. Only one drain runs at a time: the one
// that found mu.writing false and set it.
func (c *conn) drain() {
	defer c.recovered()
	for {
		batch := c.takeDone()
		if batch == nil {
			return
		}
		n := 0
		for a := batch; a != nil; a = a.next {
			n++
		}
		c.sendAll(batch)
		c.mu.Lock()
		c.mu.unanswered -= n
		c.mu.changed.Broadcast()
		c.mu.Unlock()
	}
}

// takeDone cuts the done places off the head of the order; without any, writing ends.
func (c *conn) takeDone() *await {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.head == nil || !c.mu.head.done {
		c.mu.writing = false
		c.mu.changed.Broadcast()
		return nil
	}
	first, last := c.mu.head, c.mu.head
	for last.next != nil && last.next.done {
		last = last.next
	}
	c.mu.head = last.next
	if c.mu.head == nil {
		c.mu.tail = nil
	}
	last.next = nil
	return first
}

// sendAll sends a chain of answers, consecutive small ones with one write, and drops each.
func (c *conn) sendAll(batch *await) {
	failed := c.failure()
	for a := batch; a != nil; a = a.next {
		if small, ok := a.answer.(frameReply); ok && a.next != nil && failed == nil {
			if following, ok := a.next.answer.(frameReply); ok {
				a.next.answer = append(small, following...)
				c.server.metrics.answered(a)
				continue
			}
		}
		if failed == nil {
			if failed = a.answer.send(c); failed != nil {
				c.fail(failed)
			}
		}
		a.answer.drop()
		c.server.metrics.answered(a)
	}
}

// hurryAll finishes the parked requests; the patient ones only if asked.
func (c *conn) hurryAll(patientToo bool) {
	c.mu.Lock()
	var hurries []func()
	for a := c.mu.head; a != nil; a = a.next {
		if a.hurry != nil && (patientToo || !a.patient) {
			hurries = append(hurries, a.hurry)
		}
	}
	c.mu.Unlock()
	for _, hurry := range hurries {
		hurry()
	}
}

// fail ends the connection for good, for the first of possibly several reasons.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	if c.mu.err == nil {
		c.mu.err = reason
	}
	c.mu.changed.Broadcast()
	c.mu.Unlock()
	_ = c.socket.Close() // whatever it says, the connection is over
}

func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}
