package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// conn is one connection of a client. One goroutine reads its requests and runs the handlers; a second one exists only
// while answers that were parked are being written (D13).
type conn struct {
	server *Server
	socket net.Conn
	sender sender // how bytes reach the socket
	client client

	// head is what was read beyond the current frame: with it a small request costs one read, and a connection that
	// sent nothing costs no buffer. It belongs to the reading goroutine, as do provenBytes and ended.
	head        []byte // firstHead, or aheadBytes
	firstHead   [headBytes]byte
	headFrom    int
	headTo      int
	provenBytes int   // size of the largest frame that the peer has sent in full
	corked      int   // answers that are done and held back, because the next request is here already; see dispatch
	ended       error // why reading has ended

	mu struct {
		sync.Mutex
		changed    sync.Cond
		head, tail *await
		unanswered int
		writing    bool
		stopping   bool // the server stops: nothing more is read
		broken     bool // somebody panicked: what is left may stay unanswered
		err        error
	}
}

const (
	headBytes = 256
	// aheadBytes is the size of head once a peer has sent a request that is larger than headBytes and small enough to come
	// with others in one read.
	aheadBytes = 8 << 10
	// corkedMax is how many answers are held back at most while requests are here already.
	corkedMax = 16
	// firstChunkBytes is the first buffer of a frame on a connection that has not yet sent a whole request, and
	// chunkBytes on one that has: what a peer can make us hold by announcing a large frame and sending none of it.
	firstChunkBytes = 2 << 10
	chunkBytes      = 4 << 10
	// frameBytesPerSecond is the slowest transfer of a frame that is put up with, after the frame timeout.
	frameBytesPerSecond = 16 << 10
)

func newConn(s *Server, socket net.Conn, l *Listener) *conn {
	c := &conn{server: s, socket: socket, sender: newSender(socket)}
	c.head = c.firstHead[:]
	c.client = client{listener: l, remote: socket.RemoteAddr(), local: socket.LocalAddr()}
	c.mu.changed.L = &c.mu
	return c
}

// run serves the connection until its peer leaves, misbehaves, or ctx ends. It returns after the last request that it
// took has ended. Little lies on the stack while it waits for a request: an idle connection costs a stack of 2 KiB.
func (c *conn) run(ctx context.Context) {
	defer c.end(ctx)
	c.ended = c.handshake(ctx)
	for c.ended == nil {
		if c.corked >= min(corkedMax, c.server.config.UnansweredMax-1) || !c.buffered() {
			c.uncork()
		}
		if c.ended = c.waitUnanswered(c.server.config.UnansweredMax - 1); c.ended != nil {
			return
		}
		f, err := c.readFrame(ctx)
		if err == nil {
			err = c.dispatch(ctx, f)
		}
		c.ended = err
	}
}

// end closes the connection, says why if it is worth a line, and waits for the requests that are under way. It turns a
// panic, which no input should cause, into the end of this one connection.
func (c *conn) end(ctx context.Context) {
	defer c.server.forget(c)
	if cause := recover(); cause != nil {
		c.ended = c.server.panicked(c, cause)
		c.breakOff()
	} else {
		c.uncork()
	}
	if ctx.Err() != nil {
		c.finish()
	}
	err := c.ended
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		c.server.refused(c.client.remote, refused)
	case errors.Is(err, wire.ErrMalformed):
		c.server.refused(c.client.remote, &refusal{refusedMalformed, err.Error(), "report it to the makers of the client"})
	case ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed):
	default:
		c.server.log.Debug("connection closed", slog.String("peer", c.client.remote.String()), slog.Any("err", err))
	}
	c.fail(err)
	c.hurryAll(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.mu.unanswered > 0 || c.mu.writing) && !c.mu.broken {
		c.mu.changed.Wait()
	}
	for a := c.mu.head; a != nil && c.mu.broken; a = a.next {
		if !a.done {
			c.server.budget.release(a.charge)
		}
	}
}

// recovered is deferred by the other goroutines of the connection.
func (c *conn) recovered() {
	if cause := recover(); cause != nil {
		err := c.server.panicked(c, cause)
		c.breakOff()
		c.fail(err)
	}
}

// breakOff says that places in the order may stay unanswered for ever: a goroutine that would have resolved or written
// them is gone.
func (c *conn) breakOff() {
	c.mu.Lock()
	c.mu.broken = true
	c.mu.changed.Broadcast()
	c.mu.Unlock()
}

func (s *Server) panicked(c *conn, cause any) error {
	s.metrics.panics.Add(1)
	s.log.Error("a request handler panicked; its connection is closed",
		slog.String("peer", c.client.remote.String()), slog.Any("cause", cause), slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("panic: %v", cause)
}

// frame is one request as it was read.
type frame struct {
	header  wire.Header
	api     *wire.API
	handler *handler
	bytes   []byte       // without the length field
	buffer  *wire.Buffer // where bytes lie, if pooled: Produce only
	charge  int64        // taken from the budget
	started time.Time
}

// release gives the frame's memory back; a second time it has no effect.
func (f *frame) release(b *budget) {
	if f.buffer != nil {
		f.buffer.Release()
		f.buffer = nil
	}
	b.release(f.charge)
	f.charge = 0
}

// readFrame reads the next request. The length is checked before anything is stored, the key before a byte of the body
// is.
func (c *conn) readFrame(ctx context.Context) (*frame, error) {
	length, err := c.readLength(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := c.setReadDeadline(ctx, begun.Add(c.frameTimeout())); err != nil {
		return nil, err
	}
	if err := c.fill(8); err != nil {
		return nil, err
	}
	f := &frame{started: begun}
	f.header, _ = wire.PeekHeader(c.head[c.headFrom:c.headTo])
	if err := c.admit(f, length); err != nil {
		return nil, err
	}
	// No buffer before head is full: a peer that announces a frame and sends little of it costs nothing more.
	if err := c.fill(min(int(length), headBytes)); err != nil {
		return nil, err
	}
	if f.api.Key == wire.KeyProduce {
		err = c.readPooled(ctx, f, int(length), begun)
	} else {
		err = c.readDecoded(ctx, f, int(length), begun)
	}
	if err != nil {
		f.release(c.server.budget)
		return nil, err
	}
	c.provenBytes = max(c.provenBytes, int(length), chunkBytes)
	if length > headBytes && length < aheadBytes/2 && len(c.head) == headBytes {
		larger := make([]byte, aheadBytes)
		c.headFrom, c.headTo = 0, copy(larger, c.head[c.headFrom:c.headTo])
		c.head = larger
	}
	return f, nil
}

// buffered tells whether the next frame has been read in full.
func (c *conn) buffered() bool {
	have := c.head[c.headFrom:c.headTo]
	return len(have) >= 4 && uint64(len(have)-4) >= uint64(binary.BigEndian.Uint32(have))
}

// readLength waits for the next frame's length, as long as a connection may be idle, and checks it.
func (c *conn) readLength(ctx context.Context) (int32, error) {
	for {
		if err := c.setReadDeadline(ctx, time.Now().Add(c.server.config.IdleTimeout)); err != nil {
			return 0, err
		}
		err := c.fill(4)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil || c.headTo > c.headFrom {
			return 0, err
		}
		c.mu.Lock()
		busy := c.mu.unanswered > 0
		c.mu.Unlock()
		if !busy {
			return 0, fmt.Errorf("nothing was sent for connections.max.idle.ms: %w", err)
		}
	}
	head := [4]byte(c.head[c.headFrom:])
	length := int32(binary.BigEndian.Uint32(head[:]))
	limit := max(c.server.config.RequestBytesMax, wire.RequestBytesMax)
	if length < 8 || length > limit {
		return 0, refuseLength(head, length, limit)
	}
	c.headFrom += 4
	return length, nil
}

// admit checks key, version and length of a frame of which nothing but the header's start was read.
func (c *conn) admit(f *frame, length int32) error {
	f.api = wire.Lookup(f.header.Key)
	served := false
	f.handler, served = c.server.handlerFor(f.header.Key)
	if f.api == nil || !served {
		return refuseRequest(f.header, nil)
	}
	if !f.api.Supports(f.header.Version) && f.api.Key != wire.KeyApiVersions {
		return refuseRequest(f.header, f.api)
	}
	limit := f.api.BytesMax
	if f.api.Key == wire.KeyProduce {
		limit = c.server.config.RequestBytesMax
	}
	if length > limit {
		return refuseLength([4]byte{}, length, limit)
	}
	return nil
}

// frameTimeout is the time that a frame may take besides what its bytes need at frameBytesPerSecond.
func (c *conn) frameTimeout() time.Duration {
	if c.provenBytes == 0 {
		return c.server.config.FirstFrameTimeout
	}
	return c.server.config.FrameTimeout
}

// readPooled reads a Produce frame into a pooled buffer. The buffer starts no larger than what the peer has once sent in
// full, and grows fourfold with what arrives.
func (c *conn) readPooled(ctx context.Context, f *frame, length int, begun time.Time) error {
	size := min(length, max(c.provenBytes, firstChunkBytes))
	charge, err := c.server.budget.enter(ctx, int64(wire.SizeFor(size)))
	if err != nil {
		return err
	}
	f.charge = charge
	f.buffer = c.server.pool.Get(size)
	for read := 0; ; {
		n, err := c.readBody(ctx, f.buffer.Bytes[read:], read, begun)
		read += n
		if err != nil {
			return err
		}
		if read == length {
			f.bytes = f.buffer.Bytes[:length]
			return nil
		}
		size = min(length, 4*read)
		grown := int64(wire.SizeFor(size))
		if err := c.server.budget.grow(ctx, grown); err != nil {
			return err
		}
		larger := c.server.pool.Get(size)
		copy(larger.Bytes, f.buffer.Bytes)
		f.buffer.Release()
		c.server.budget.release(f.charge)
		f.buffer, f.charge = larger, grown
	}
}

// readDecoded reads any other frame into memory of its own, which its decoded form may go on using. What decoding can
// take is charged first.
func (c *conn) readDecoded(ctx context.Context, f *frame, length int, begun time.Time) error {
	charge, err := c.server.budget.enter(ctx, int64(length)*wire.ChargeFactor)
	if err != nil {
		return err
	}
	f.charge = charge
	f.bytes = make([]byte, min(length, max(c.provenBytes, firstChunkBytes)))
	for read := 0; ; {
		n, err := c.readBody(ctx, f.bytes[read:], read, begun)
		read += n
		if err != nil {
			return err
		}
		if read == length {
			return nil
		}
		larger := make([]byte, min(length, 4*read))
		copy(larger, f.bytes)
		f.bytes = larger
	}
}

// readBody fills into; already is how much of the frame came before.
func (c *conn) readBody(ctx context.Context, into []byte, already int, begun time.Time) (int, error) {
	read := copy(into, c.head[c.headFrom:c.headTo])
	c.headFrom += read
	for read < len(into) {
		n, err := c.socket.Read(into[read:])
		read += n
		if err != nil {
			return read, noEOF(err)
		}
		if read < len(into) {
			earned := time.Duration(already+read) * (time.Second / frameBytesPerSecond)
			if err := c.setReadDeadline(ctx, begun.Add(c.frameTimeout()+earned)); err != nil {
				return read, err
			}
		}
	}
	return read, nil
}

// fill reads until n bytes stand in head; it takes more if they come along.
func (c *conn) fill(n int) error {
	if c.headTo-c.headFrom >= n {
		return nil
	}
	c.headTo = copy(c.head, c.head[c.headFrom:c.headTo])
	c.headFrom = 0
	for c.headTo < n {
		k, err := c.socket.Read(c.head[c.headTo:])
		c.headTo += k
		if err != nil && c.headTo < n {
			if c.headTo > 0 {
				return noEOF(err)
			}
			return err
		}
	}
	return nil
}

// noEOF tells an end inside a frame from one between frames.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// setReadDeadline sets the deadline, unless the server stops: then reading has ended for good.
func (c *conn) setReadDeadline(ctx context.Context, at time.Time) error {
	if err := c.socket.SetReadDeadline(at); err != nil {
		return err
	}
	if ctx.Err() != nil {
		_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // the read fails at once either way
		return ctx.Err()
	}
	return nil
}

// dispatch starts one request. It owns the frame.
func (c *conn) dispatch(ctx context.Context, f *frame) error {
	defer f.release(c.server.budget) // again, where it was released before
	header, _, body, err := wire.ParseHeader(f.bytes)
	if err != nil {
		return err
	}
	f.header = header
	c.setClientID(header.ClientID)
	if f.handler.start == nil || !f.api.Supports(header.Version) {
		return c.alone(ctx, f, body)
	}
	a := &await{conn: c, api: f.api, started: f.started, version: header.Version, id: header.CorrelationID}
	if f.buffer == nil {
		a.charge, f.charge = f.charge, 0 // until the request is resolved; a pooled frame is done with when start returns
	}
	c.enqueue(a)
	ans, err := f.handler.start(ctx, a, f, body)
	f.release(c.server.budget)
	if err != nil {
		ans = closeReply{err}
	}
	switch {
	case ans == nil:
		c.uncork() // nothing may wait for a request that is parked
	case err == nil && c.buffered():
		// The client has sent the next request without waiting for this answer: one write takes both answers.
		a.settle(ans, true)
		c.corked++
	case a.settle(ans, false):
		c.corked = 0
		c.drain()
	}
	if err != nil {
		// The connection ends when the answers before this one have left; polls among them are not waited for.
		c.hurryAll(false)
		_ = c.waitUnanswered(0) // it ends either way
	}
	return err
}

// setClientID keeps the client id; clients do not change it, so it is copied once.
func (c *conn) setClientID(id []byte) {
	if c.client.id != string(id) {
		c.client.id = string(id)
	}
}

// alone runs a request that waits for all earlier ones of its connection and that no later one overtakes.
func (c *conn) alone(ctx context.Context, f *frame, body []byte) error {
	c.uncork()
	if err := c.waitUnanswered(0); err != nil {
		return err
	}
	version := f.header.Version
	var resp kmsg.Response
	switch {
	case !f.api.Supports(version):
		version, resp = 0, c.server.unsupportedApiVersions()
	case f.handler.private != nil:
		answer, err := f.handler.private(ctx, body)
		if err != nil {
			return fmt.Errorf("%s: %w", f.api.Name, err)
		}
		return c.answer(f, version, responseFrame(f.api, version, f.header.CorrelationID, func(dst []byte) []byte { return append(dst, answer...) }))
	default:
		if err := f.api.Check(version, body); err != nil {
			return err
		}
		req := f.handler.decode()
		req.SetVersion(version)
		if err := req.ReadFrom(body); err != nil {
			return fmt.Errorf("decode %s version %d: %w: %w", f.api.Name, version, err, wire.ErrMalformed)
		}
		var err error
		if resp, err = f.handler.serve(ctx, &c.client, req); err != nil {
			return fmt.Errorf("%s: %w", f.api.Name, err)
		}
	}
	return c.answer(f, version, encode(f.api, version, f.header.CorrelationID, resp))
}

// answer sends the answer to a request that ran alone.
func (c *conn) answer(f *frame, version int16, out []byte) error {
	a := await{conn: c, api: f.api, started: f.started, version: version, id: f.header.CorrelationID}
	err := frameReply(out).send(c)
	c.server.metrics.answered(&a)
	return err
}

// unsupportedApiVersions answers a version of ApiVersions from the future (KIP-511).
func (s *Server) unsupportedApiVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	resp.ApiKeys = s.apiKeys()
	return resp
}

// encode builds a whole response frame.
func encode(api *wire.API, version int16, correlationID int32, resp kmsg.Response) []byte {
	resp.SetVersion(version)
	return responseFrame(api, version, correlationID, resp.AppendTo)
}

// responseFrame builds a whole response frame around what body appends.
func responseFrame(api *wire.API, version int16, correlationID int32, body func(dst []byte) []byte) []byte {
	out := body(wire.AppendResponseHeader(make([]byte, 4, 256), api, version, correlationID))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// write sends b; the peer may take as long as a connection may be idle.
func (c *conn) write(b []byte) error {
	if err := c.socket.SetWriteDeadline(time.Now().Add(c.server.config.IdleTimeout)); err != nil {
		return err
	}
	_, err := c.socket.Write(b)
	return err
}
