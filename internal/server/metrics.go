package server

import "sync/atomic"

// metrics counts what the server does.
type metrics struct {
	panics      atomic.Int64
	connections atomic.Int64
}

// answered counts one request whose answer was sent or dropped.
func (m *metrics) answered(*await) {}
