package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrPeer is returned by every call to a Peer that got no answer: it could not be reached, the connection broke, or it sent
// what is no answer. Whether the peer acted on the request is unknown.
var ErrPeer = errors.New("the other broker did not answer")

// PeerConfig says how another broker is reached.
type PeerConfig struct {
	// Dial opens a connection to the peer's listener for brokers.
	Dial func(ctx context.Context) (net.Conn, error)
	// Name is what this broker calls itself, as the client id of its requests.
	Name string
	// Pool gives the memory of large answers. Default: one that keeps nothing.
	Pool *Pool
	// AnswerBytesMax bounds an answer in bytes. Default 128 MiB.
	AnswerBytesMax int32
	// OneAtATime says that no call is made before the last one has returned. Whoever calls then reads the answer itself, which
	// spares waking it from another goroutine, and a call that ctx ends takes the connection with it.
	OneAtATime bool
}

// Peer calls one other broker over one connection, which is dialled when it is needed and again after it broke. Calls may be
// made concurrently: they are pipelined, and the peer answers them in order. A Peer starts one goroutine for each
// connection, which ends with it; none if calls come one at a time.
type Peer struct {
	config PeerConfig

	mu struct {
		sync.Mutex
		link    *link
		dialing chan struct{} // closed when the dial in progress is over
		closed  bool
	}
}

// NewPeer prepares calls to a broker. Nothing is dialled yet.
func NewPeer(c PeerConfig) *Peer {
	if c.Pool == nil {
		c.Pool = NewPool(0)
	}
	if c.AnswerBytesMax == 0 {
		c.AnswerBytesMax = 128 << 20
	}
	return &Peer{config: c}
}

// Close ends the connection and fails the calls that wait for an answer. Later calls fail.
func (p *Peer) Close() {
	p.mu.Lock()
	p.mu.closed = true
	l := p.mu.link
	p.mu.link = nil
	p.mu.Unlock()
	if l != nil {
		l.fail(net.ErrClosed)
	}
}

// Answer is the body of an answer, in memory of the pool: the caller releases it.
type Answer struct {
	*Buffer
	Body []byte
}

// Call sends a request of the table, whose body is appended by body, and returns its answer. It returns when ctx ends, too;
// the answer is then dropped when it comes. Errors wrap ErrPeer.
func (p *Peer) Call(ctx context.Context, api *API, version int16, body func(dst []byte) []byte) (Answer, error) {
	l, err := p.linked(ctx)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w: %w", api.Name, ErrPeer, err)
	}
	c := &peerCall{api: api, version: version, done: make(chan struct{})}
	if err := l.send(ctx, c, p.config.Name, body); err != nil {
		p.forget(l)
		return Answer{}, fmt.Errorf("%s: %w: %w", api.Name, ErrPeer, err)
	}
	if p.config.OneAtATime {
		l.readFor(ctx, c)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if l.abandon(c) {
			return Answer{}, fmt.Errorf("%s: %w: %w", api.Name, ErrPeer, context.Cause(ctx))
		}
		<-c.done // it has just been answered
	}
	if c.err != nil {
		p.forget(l)
		return Answer{}, fmt.Errorf("%s: %w: %w", api.Name, ErrPeer, c.err)
	}
	return c.answer, nil
}

// linked is the present connection, or a new one. One caller dials while the others wait.
func (p *Peer) linked(ctx context.Context) (*link, error) {
	for {
		p.mu.Lock()
		switch {
		case p.mu.closed:
			p.mu.Unlock()
			return nil, net.ErrClosed
		case p.mu.link != nil:
			l := p.mu.link
			p.mu.Unlock()
			return l, nil
		case p.mu.dialing == nil:
			p.mu.dialing = make(chan struct{})
			p.mu.Unlock()
			return p.dial(ctx)
		}
		wait := p.mu.dialing
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (p *Peer) dial(ctx context.Context) (*link, error) {
	conn, err := p.config.Dial(ctx)
	var l *link
	if err == nil {
		l = &link{conn: conn, pool: p.config.Pool, answerBytesMax: p.config.AnswerBytesMax}
	}
	p.mu.Lock()
	close(p.mu.dialing)
	p.mu.dialing = nil
	if p.mu.closed && err == nil {
		err = net.ErrClosed
		defer conn.Close()
	}
	if err == nil {
		p.mu.link = l
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !p.config.OneAtATime {
		go l.run()
	}
	return l, nil
}

// forget makes the next call dial again.
func (p *Peer) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.link == l {
		p.mu.link = nil
	}
}

// link is one connection to a peer.
type link struct {
	conn           net.Conn
	pool           *Pool
	answerBytesMax int32

	writing sync.Mutex // held while a request is written: it orders them as calls are ordered
	mu      struct {
		sync.Mutex
		calls  []*peerCall // sent and not answered, in order
		lastID int32
		err    error // why the connection is over
	}
}

// peerCall is one request that waits for its answer.
type peerCall struct {
	api       *API
	version   int16
	id        int32
	abandoned bool // nobody waits any more; under the link's mu
	done      chan struct{}
	answer    Answer // valid after done, unless err is set
	err       error
}

// writePatience bounds how long a peer may take to read a request.
const writePatience = 30 * time.Second

func (l *link) send(ctx context.Context, c *peerCall, name string, body func([]byte) []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.mu.err != nil {
		defer l.mu.Unlock()
		return l.mu.err
	}
	l.mu.lastID++
	c.id = l.mu.lastID
	l.mu.calls = append(l.mu.calls, c)
	l.mu.Unlock()

	frame := appendRequestHeader(make([]byte, 4, 512), c.api, c.version, c.id, name)
	frame = body(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	deadline := time.Now().Add(writePatience)
	if at, ok := ctx.Deadline(); ok && at.Before(deadline) {
		deadline = at
	}
	err := l.conn.SetWriteDeadline(deadline)
	if err == nil {
		_, err = l.conn.Write(frame)
	}
	if err != nil {
		l.fail(err) // part of a frame may have left: nothing can follow it
	}
	return err
}

// appendRequestHeader appends a request's header.
func appendRequestHeader(dst []byte, api *API, version int16, id int32, client string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(api.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(client)))
	dst = append(dst, client...)
	if api.IsFlexible(version) {
		dst = append(dst, 0) // no tagged fields
	}
	return dst
}

// abandon gives a call up; false if it has been answered.
func (l *link) abandon(c *peerCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-c.done:
		return false
	default:
		c.abandoned = true
		return true
	}
}

// run reads answers until the connection ends.
func (l *link) run() {
	for {
		if err := l.readAnswer(); err != nil {
			l.fail(err)
			return
		}
	}
}

// readFor reads the answer to the only call. When it returns, the call is done.
func (l *link) readFor(ctx context.Context, c *peerCall) {
	stop := context.AfterFunc(ctx, func() {
		_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // a failure means that the connection is over already
	})
	err := l.readAnswer()
	if !stop() { // the connection has a deadline in the past now
		err = context.Cause(ctx)
		l.mu.Lock()
		if c.answer.Buffer != nil {
			c.answer.Release()
		}
		c.answer, c.err = Answer{}, err
		l.mu.Unlock()
	}
	if err != nil {
		l.fail(err)
	}
}

func (l *link) readAnswer() error {
	var head [8]byte
	if _, err := io.ReadFull(l.conn, head[:]); err != nil {
		return err
	}
	length, id := int32(binary.BigEndian.Uint32(head[:4])), int32(binary.BigEndian.Uint32(head[4:]))
	if length < 4 || length > l.answerBytesMax {
		return fmt.Errorf("an answer of %d bytes, where 4 to %d are legal", length, l.answerBytesMax)
	}
	l.mu.Lock()
	if len(l.mu.calls) == 0 || l.mu.calls[0].id != id {
		l.mu.Unlock()
		return fmt.Errorf("an answer to request %d, which is not the next one", id)
	}
	c := l.mu.calls[0]
	l.mu.Unlock()
	buffer := l.pool.Get(int(length) - 4)
	_, err := io.ReadFull(l.conn, buffer.Bytes)
	w := walker{in: buffer.Bytes, tags: tagsFree}
	if err == nil && c.api.IsFlexible(c.version) {
		err = w.tagged() // of the header
	}
	if err != nil {
		buffer.Release()
		return err
	}
	l.mu.Lock()
	if l.mu.err != nil { // the calls have ended meanwhile
		defer l.mu.Unlock()
		buffer.Release()
		return l.mu.err
	}
	l.mu.calls = l.mu.calls[1:]
	dropped := c.abandoned
	if !dropped {
		c.answer = Answer{buffer, w.in}
		close(c.done)
	}
	l.mu.Unlock()
	if dropped {
		buffer.Release()
	}
	return nil
}

// fail ends the connection and every call that waits on it.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err != nil {
		return
	}
	l.mu.err = err
	for _, c := range l.mu.calls {
		c.err = err
		close(c.done)
	}
	l.mu.calls = nil
	_ = l.conn.Close() // whatever it says, the connection is over
}
