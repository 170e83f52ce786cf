package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errBudget is returned by budget.grow when other requests hold the memory for too long. The connection is closed:
// its frame is half read, and giving up is what frees memory for the others.
var errBudget = errors.New("no memory for the rest of the request: too many large requests are in flight")

// budget is the memory that requests in flight may take, over all connections (queued.max.request.bytes). Whoever finds
// it spent waits, which stops reading from that connection: the pressure goes back to the clients.
//
// New requests may take the first half only; the second is for those that are half read and must grow, so that a crowd
// of beginners cannot keep everybody from finishing. Both kinds are served in order of arrival.
type budget struct {
	bytesMax int64
	growWait time.Duration

	mu struct {
		sync.Mutex
		used              int64
		growing, entering []*budgetWaiter
	}
}

type budgetWaiter struct {
	bytes int64
	ready chan struct{}
}

// enter takes bytes for a new request, waiting for them as long as ctx lasts. More than a quarter of the budget is
// never charged to one request on entry: the caller gets, and has to release, what enter returns.
func (b *budget) enter(ctx context.Context, bytes int64) (charged int64, err error) {
	bytes = min(bytes, b.bytesMax/4)
	b.mu.Lock()
	if len(b.mu.entering) == 0 && b.mayEnterLocked(bytes) {
		b.mu.used += bytes
		b.mu.Unlock()
		return bytes, nil
	}
	w := &budgetWaiter{bytes, make(chan struct{})}
	b.mu.entering = append(b.mu.entering, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return bytes, nil
	case <-ctx.Done():
		b.abandon(&b.mu.entering, w)
		return 0, ctx.Err()
	}
}

// grow takes more bytes for a request that already holds some. It returns errBudget if they do not come free in time.
func (b *budget) grow(ctx context.Context, bytes int64) error {
	b.mu.Lock()
	if len(b.mu.growing) == 0 && b.mu.used+bytes <= b.bytesMax {
		b.mu.used += bytes
		b.mu.Unlock()
		return nil
	}
	w := &budgetWaiter{bytes, make(chan struct{})}
	b.mu.growing = append(b.mu.growing, w)
	b.mu.Unlock()
	timer := time.NewTimer(b.growWait)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		b.abandon(&b.mu.growing, w)
		return errBudget
	case <-ctx.Done():
		b.abandon(&b.mu.growing, w)
		return ctx.Err()
	}
}

// release gives bytes back and serves whoever waits for them.
func (b *budget) release(bytes int64) {
	b.mu.Lock()
	b.mu.used -= bytes
	b.admitLocked()
	b.mu.Unlock()
}

// inUse is the number of bytes taken now.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used
}

// waiting is the number of requests that wait for memory.
func (b *budget) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.mu.growing) + len(b.mu.entering)
}

func (b *budget) mayEnterLocked(bytes int64) bool { return b.mu.used+bytes <= b.bytesMax/2 }

func (b *budget) admitLocked() {
	for len(b.mu.growing) > 0 && b.mu.used+b.mu.growing[0].bytes <= b.bytesMax {
		b.mu.growing = b.grantLocked(b.mu.growing)
	}
	for len(b.mu.entering) > 0 && b.mayEnterLocked(b.mu.entering[0].bytes) {
		b.mu.entering = b.grantLocked(b.mu.entering)
	}
}

func (b *budget) grantLocked(queue []*budgetWaiter) []*budgetWaiter {
	b.mu.used += queue[0].bytes
	close(queue[0].ready)
	queue[0] = nil
	return queue[1:]
}

// abandon removes a waiter that gave up; if it was granted the bytes meanwhile, they go back.
func (b *budget) abandon(queue *[]*budgetWaiter, w *budgetWaiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready:
		b.mu.used -= w.bytes
	default:
		for i, other := range *queue {
			if other == w {
				*queue = append((*queue)[:i:i], (*queue)[i+1:]...)
				break
			}
		}
	}
	b.admitLocked()
}
