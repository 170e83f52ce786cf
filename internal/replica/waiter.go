package replica

import "sync/atomic"

// Waiter is one parked fetch. It is registered with every replica that the fetch reads ([Replica.Watch]) and fires once:
// when enough bytes have become readable, when the terms of a replica change (leadership, epoch, deletion), or when its
// owner fires it, normally from a time.AfterFunc after the fetch's max wait. It needs no goroutine.
type Waiter struct {
	fired   atomic.Bool
	missing atomic.Int64 // bytes still wanted
	wanted  int64        // bytes wanted at first
	notify  func()
}

// NewWaiter is a waiter that fires after bytesMin more bytes have become readable, counted over all its replicas and
// rounded up to whole appends. notify is called once, on the goroutine that fires it; it must not block.
func NewWaiter(bytesMin int64, notify func()) *Waiter {
	w := &Waiter{wanted: max(bytesMin, 1), notify: notify}
	w.missing.Store(w.wanted)
	return w
}

// Fire wakes the waiter; only the first call has an effect, and returns true.
func (w *Waiter) Fire() bool {
	if w.fired.Swap(true) {
		return false
	}
	w.notify()
	return true
}

// Fired tells whether the waiter has fired.
func (w *Waiter) Fired() bool { return w.fired.Load() }

// Heard tells whether the waiter has been told of bytes that have become readable, enough of them or not.
func (w *Waiter) Heard() bool { return w.missing.Load() != w.wanted }

// count takes bytes that have become readable and tells whether the waiter should fire now.
func (w *Waiter) count(bytes int64) bool { return w.missing.Add(-bytes) <= 0 }

// watch is the registration of a waiter with one replica.
type watch struct {
	isolation Isolation
	bytes     int64 // the replica's count of readable bytes that the waiter has been told of
}
