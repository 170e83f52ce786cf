package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"
)

// beneath is the socket under TLS, if there is TLS.
func beneath(socket net.Conn) net.Conn {
	if secure, ok := socket.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return socket
}

// handshake agrees on keys with the peer; it has nothing to do on a plain connection. The peer has as long as for its first
// request.
func (c *conn) handshake(ctx context.Context) error {
	secure, ok := c.socket.(*tls.Conn)
	if !ok {
		return nil
	}
	until := time.Now().Add(c.server.config.FirstFrameTimeout)
	if err := c.socket.SetWriteDeadline(until); err != nil {
		return err
	}
	if err := c.setReadDeadline(ctx, until); err != nil {
		return err
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return refuseHandshake(err)
	}
	return nil
}

// refuseHandshake explains a handshake that failed. What is no fault of either side's settings, such as a peer that leaves,
// stays as it is.
func refuseHandshake(err error) error {
	var foreign tls.RecordHeaderError
	var socket *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &foreign) && foreign.Conn != nil:
		if isHTTP(foreign.RecordHeader[:4]) {
			return refuseHTTP()
		}
		return &refusal{
			refusedPlain, "a request without TLS arrived on a listener with TLS",
			"set security.protocol=SSL in the client, or connect to a listener without TLS",
		}
	case errors.As(err, &socket) && socket.Op == "remote error":
		return &refusal{
			refusedHandshake, "the client ended the TLS handshake: " + socket.Err.Error(),
			"give the client the authority that signed this broker's certificate (ssl.truststore.location), and connect to a host that the certificate names",
		}
	case errors.As(err, &certificate):
		return &refusal{
			refusedHandshake, "the client's certificate is not accepted: " + certificate.Err.Error(),
			"sign it by an authority of this listener's ssl.truststore.location, for the use as a client",
		}
	case errors.As(err, &socket) || !strings.HasPrefix(err.Error(), "tls: "):
		return err
	}
	return &refusal{
		refusedHandshake, "the TLS handshake failed: " + err.Error(),
		"compare ssl.enabled.protocols and ssl.client.auth of this listener with what the client has",
	}
}
