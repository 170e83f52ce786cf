package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tidemark-io/tidemark/internal/wire"
)

// refusal is why a connection is closed for what its peer sent, with a remedy that a person can act on. Each kind is
// logged once in a while, not each time: a misconfigured client comes back many times a second.
type refusal struct {
	kind   string // one of a few constants: it labels a metric and limits the log
	what   string
	remedy string
}

func (r *refusal) Error() string { return r.what }

// Kinds of refusal.
const (
	refusedTLS       = "tls"
	refusedPlain     = "plaintext"
	refusedHandshake = "tls_handshake"
	refusedHTTP      = "http"
	refusedSASL      = "sasl"
	refusedOldClient = "old_client"
	refusedKey       = "unknown_request"
	refusedLength    = "frame_length"
	refusedMalformed = "malformed"
	// refusedAccept and refusedConnections are no fault of what the peer sent.
	refusedAccept        = "accept"
	refusedConnections   = "max_connections"
	refusedConnectionsIP = "max_connections_per_ip"
)

const keySaslHandshake = 17

// refuseLength explains the four bytes that cannot be a frame's length. They may be the start of another protocol.
func refuseLength(head [4]byte, length, limit int32) *refusal {
	switch {
	case (head[0] == 0x16 || head[0] == 0x15) && head[1] == 0x03: // a handshake, or the alert of one that was given up
		return &refusal{
			refusedTLS, "a TLS handshake arrived on a listener without TLS",
			"set security.protocol=PLAINTEXT in the client, or connect to a listener that has TLS",
		}
	case isHTTP(head[:]):
		return refuseHTTP()
	}
	return &refusal{
		refusedLength, fmt.Sprintf("a frame of %d bytes was announced, the limit is %d", length, limit),
		"check that the peer speaks the Kafka protocol; for large produce requests raise socket.request.max.bytes",
	}
}

func refuseHTTP() *refusal {
	return &refusal{
		refusedHTTP, "an HTTP request arrived on a Kafka listener",
		"point the browser, probe or proxy at the admin address, by default http://localhost:9644",
	}
}

func isHTTP(head []byte) bool {
	for _, method := range []string{"GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "PATC", "CONN", "TRAC", "PRI "} {
		if bytes.Equal(head, []byte(method)) {
			return true
		}
	}
	return false
}

// refuseRequest explains a key or version that is not served.
func refuseRequest(h wire.Header, api *wire.API) *refusal {
	switch {
	case h.Key == keySaslHandshake:
		return &refusal{
			refusedSASL, "a SASL handshake arrived on a listener without authentication",
			"set security.protocol=PLAINTEXT in the client and remove its sasl.* settings",
		}
	case api == nil:
		return &refusal{
			refusedKey, fmt.Sprintf("request key %d, version %d, is not served", h.Key, h.Version),
			"use a client that asks ApiVersions first; the requests served are listed in docs/protocol/wire.md",
		}
	case h.Version < api.Min:
		return &refusal{
			refusedOldClient, fmt.Sprintf("%s version %d is not served, the oldest is %d", api.Name, h.Version, api.Min),
			"upgrade the client: it must speak the protocol of Kafka 2.1 or newer",
		}
	}
	return &refusal{
		refusedKey, fmt.Sprintf("%s version %d is not served, the newest is %d", api.Name, h.Version, api.Max),
		"use a client that asks ApiVersions first",
	}
}

// refusalInterval is the least time between two log lines for one kind of refusal.
const refusalInterval = 10 * time.Second

// refusals logs refused connections, one line per kind and interval, with the number that went unmentioned.
type refusals struct {
	mu struct {
		sync.Mutex
		kinds map[string]*refusedSoFar
	}
}

type refusedSoFar struct {
	logged  time.Time
	unsaid  int
	counted int
}

// take counts a refusal and tells whether to log it, and how many have not been logged since the last line.
func (r *refusals) take(kind string, now time.Time) (log bool, unsaid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.kinds == nil {
		r.mu.kinds = make(map[string]*refusedSoFar)
	}
	k := r.mu.kinds[kind]
	if k == nil {
		k = &refusedSoFar{}
		r.mu.kinds[kind] = k
	}
	k.counted++
	if !k.logged.IsZero() && now.Sub(k.logged) < refusalInterval {
		k.unsaid++
		return false, 0
	}
	unsaid, k.unsaid, k.logged = k.unsaid, 0, now
	return true, unsaid
}

// counts returns how many connections were refused, by kind.
func (r *refusals) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]int, len(r.mu.kinds))
	for kind, k := range r.mu.kinds {
		counts[kind] = k.counted
	}
	return counts
}

// refused logs why a connection is closed for what its peer sent.
func (s *Server) refused(peer net.Addr, r *refusal) {
	if log, unsaid := s.refusals.take(r.kind, s.config.Now()); log {
		s.log.Warn("connection closed: not what this listener serves",
			slog.String("peer", peer.String()), slog.String("reason", r.what), slog.String("remedy", r.remedy),
			slog.Int("unlogged", unsaid))
	}
}
