package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// accept serves every connection of one listener until it closes; it returns after the last connection has ended.
func (s *Server) accept(ctx context.Context, l Listener) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		socket, err := l.Net.Accept()
		if err != nil {
			return err
		}
		group.Go(func() {
			c := &conn{server: s, socket: socket}
			c.client = client{listener: &l, remote: socket.RemoteAddr(), local: socket.LocalAddr()}
			stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
			defer stop()
			defer socket.Close()
			if err := c.serve(ctx); err != nil && !errors.Is(err, io.EOF) {
				s.log.Debug("connection closed", "peer", c.client.remote.String(), "err", err)
			}
		})
	}
}

// conn is one connection of a client.
type conn struct {
	server *Server
	socket net.Conn
	client client
}

// serve reads and answers requests one after the other.
func (c *conn) serve(ctx context.Context) error {
	var size [4]byte
	for {
		if _, err := io.ReadFull(c.socket, size[:]); err != nil {
			return err
		}
		n := int32(binary.BigEndian.Uint32(size[:]))
		if n < 8 || n > wire.RequestBytesMax {
			return fmt.Errorf("frame of %d bytes", n)
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(c.socket, frame); err != nil {
			return err
		}
		out, err := c.answer(ctx, frame)
		if err != nil {
			return err
		}
		if _, err := c.socket.Write(out); err != nil {
			return err
		}
	}
}

// answer decodes one frame, calls its handler and encodes the response with its length.
func (c *conn) answer(ctx context.Context, frame []byte) ([]byte, error) {
	header, api, body, err := wire.ParseHeader(frame)
	if err != nil {
		return nil, err
	}
	h, served := c.server.handlerFor(header.Key)
	if api == nil || !served {
		return nil, fmt.Errorf("request key %d is not served", header.Key)
	}
	if !api.Supports(header.Version) {
		if header.Key != wire.KeyApiVersions {
			return nil, fmt.Errorf("%s version %d is not served", api.Name, header.Version)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = c.server.apiKeys()
		return encode(api, 0, header.CorrelationID, resp), nil
	}
	if err := api.Check(header.Version, body); err != nil {
		return nil, err
	}
	req := h.decode()
	req.SetVersion(header.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode %s version %d: %w", api.Name, header.Version, err)
	}
	c.client.id = string(header.ClientID)
	resp, err := h.serve(ctx, &c.client, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", api.Name, err)
	}
	return encode(api, header.Version, header.CorrelationID, resp), nil
}

// encode builds a whole response frame.
func encode(api *wire.API, version int16, correlationID int32, resp kmsg.Response) []byte {
	resp.SetVersion(version)
	out := wire.AppendResponseHeader(make([]byte, 4, 256), api, version, correlationID)
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}
