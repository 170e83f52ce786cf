package replica

import "sync"

// The values of acks that a producer may ask for.
const (
	AcksAll    int16 = -1 // answered when the high watermark has passed the records
	AcksNone   int16 = 0  // not answered
	AcksLeader int16 = 1  // answered when the leader has the records: written, or synced in a flush partition (D9)
)

// Pending is an append whose records are in the leader's log and whose answer may have to wait: for the high watermark
// with acks=all, for the group commit in a flush partition. It completes exactly once. All methods may be called from
// any goroutine.
type Pending struct {
	appended Appended
	replica  *Replica
	need     int64 // offset that must be reached
	synced   bool  // need is of the synced end, not of the high watermark

	mu struct {
		sync.Mutex
		done   bool
		err    error
		notify func()
	}
}

// Appended says where the records are. It is known at once, before the append completes.
func (p *Pending) Appended() Appended { return p.appended }

// Done calls notify exactly once, when the append has completed: at once, on this goroutine, if it already has. notify
// must not block. Done is called at most once.
func (p *Pending) Done(notify func()) {
	p.mu.Lock()
	done := p.mu.done
	if !done {
		p.mu.notify = notify
	}
	p.mu.Unlock()
	if done {
		notify()
	}
}

// Err is the outcome of a completed append: nil, ErrNotEnoughAfterAppend, ErrNotLeader, ErrGone, ErrTimedOut or
// ErrStorage. It is nil before completion; Completed tells the two apart.
func (p *Pending) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.err
}

// Completed tells whether the append has its outcome.
func (p *Pending) Completed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.done
}

// Expire completes an append that still waits with ErrTimedOut and calls its notify; the records stay in the log
// . It tells whether it was this call that completed it.
func (p *Pending) Expire() bool {
	if !p.complete(ErrTimedOut) {
		return false
	}
	p.replica.forget(p)
	return true
}

// complete sets the outcome and calls notify, unless there is an outcome already.
func (p *Pending) complete(err error) bool {
	p.mu.Lock()
	if p.mu.done {
		p.mu.Unlock()
		return false
	}
	p.mu.done, p.mu.err = true, err
	notify := p.mu.notify
	p.mu.notify = nil
	p.mu.Unlock()
	if notify != nil {
		notify()
	}
	return true
}
