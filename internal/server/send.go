package server

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// sendfileBytesMin is the shortest file range that is worth a sendfile; shorter ones are read and sent together with
// what surrounds them.
const sendfileBytesMin = 16 << 10

// copyBytes is the buffer of the copying path.
const copyBytes = 128 << 10

// sendRecords sends a header with records in its gaps: slices[i] belongs to the i-th gap and has its length.
// Bytes in memory and short ranges are gathered into one buffer; long ranges go from the file to the socket without
// passing through this process, where system and socket allow it.
func (c *conn) sendRecords(h *wire.FetchHeader, slices []record.Slice) error {
	if len(h.Gaps) == 0 {
		return c.write(h.Bytes)
	}
	buffer := c.server.pool.Get(c.gathered(h, slices))
	defer buffer.Release()
	g := gatherer{conn: c, buffer: buffer.Bytes[:0]}
	at := 0
	for i, gap := range h.Gaps {
		if err := g.data(h.Bytes[at:gap.At]); err != nil {
			return err
		}
		at = gap.At
		if got := slices[i].Bytes(); got != gap.Length {
			return fmt.Errorf("records of %d bytes for a gap of %d", got, gap.Length)
		}
		for _, run := range slices[i].Runs {
			if err := g.run(run); err != nil {
				return err
			}
		}
	}
	if err := g.data(h.Bytes[at:]); err != nil {
		return err
	}
	return g.flush(false)
}

// gathered is how many bytes of an answer go through a buffer, at most copyBytes.
func (c *conn) gathered(h *wire.FetchHeader, slices []record.Slice) int {
	total := int64(len(h.Bytes))
	for i := range slices {
		for _, run := range slices[i].Runs {
			if n := run.Bytes(); run.File == nil || n < sendfileBytesMin || !c.sender.sendsFiles() {
				total += n
			}
		}
	}
	return int(min(total, copyBytes))
}

// gatherer collects bytes into one buffer and writes it when it is full or a file range is to be sent.
type gatherer struct {
	conn   *conn
	buffer []byte
}

// data adds bytes in memory.
func (g *gatherer) data(b []byte) error {
	for len(b) > 0 {
		if len(g.buffer) == cap(g.buffer) {
			if err := g.flush(true); err != nil {
				return err
			}
		}
		n := min(len(b), cap(g.buffer)-len(g.buffer))
		g.buffer = append(g.buffer, b[:n]...)
		b = b[n:]
	}
	return nil
}

// flush writes what is gathered; more tells that the answer goes on.
func (g *gatherer) flush(more bool) error {
	if len(g.buffer) == 0 {
		return nil
	}
	if err := g.conn.socket.SetWriteDeadline(time.Now().Add(g.conn.server.config.IdleTimeout)); err != nil {
		return err
	}
	err := g.conn.sender.write(g.buffer, more)
	g.buffer = g.buffer[:0]
	return err
}

func (g *gatherer) run(run record.Run) error {
	if run.File == nil {
		return g.data(run.Data)
	}
	offset, length := run.Offset, run.Length
	if length >= sendfileBytesMin && g.conn.sender.sendsFiles() {
		fd, release, err := run.File.Descriptor()
		if err == nil {
			defer release()
			if err := g.flush(true); err != nil {
				return err
			}
			if err := g.conn.socket.SetWriteDeadline(time.Now().Add(g.conn.server.config.IdleTimeout)); err != nil {
				return err
			}
			sent, err := g.conn.sender.sendfile(fd, offset, length)
			if err != nil {
				return fmt.Errorf("send %d bytes of a segment at %d: %w", length, offset, err)
			}
			offset, length = offset+sent, length-sent
		}
	}
	return g.copyRange(run.File, offset, length)
}

// copyRange reads a file range through the buffer.
func (g *gatherer) copyRange(file record.RangeFile, offset, length int64) error {
	for length > 0 {
		if len(g.buffer) == cap(g.buffer) {
			if err := g.flush(true); err != nil {
				return err
			}
		}
		from := len(g.buffer)
		n := int(min(length, int64(cap(g.buffer)-from)))
		g.buffer = g.buffer[:from+n]
		if k, err := file.ReadAt(g.buffer[from:], offset); k < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read %d bytes of a segment at %d: %w", n, offset, err)
		}
		offset, length = offset+int64(n), length-int64(n)
	}
	return nil
}
