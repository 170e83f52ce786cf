package groups

import (
	"container/heap"
	"time"
)

// timerKind says what a deadline is of.
type timerKind uint8

const (
	sessionTimer timerKind = iota // a member's next heartbeat
	pendingTimer                  // the use of a member id that was handed out
	joinTimer                     // a group's members joining
	syncTimer                     // a group's members asking for their assignment
	expireTimer                   // the look for expired offsets
)

// timer is one deadline. Moving it later costs nothing: it keeps its place in the heap until that place comes up.
type timer struct {
	kind   timerKind
	group  *group
	member *member
	id     string // of a pending member

	at     time.Time // zero: not set
	place  time.Time // in the heap
	index  int       // in the heap
	inHeap bool
}

// timers are all deadlines of a machine.
type timers struct{ heap timerHeap }

// set moves a timer's deadline.
func (t *timers) set(timer *timer, at time.Time) {
	timer.at = at
	switch {
	case !timer.inHeap:
		timer.place = at
		heap.Push(&t.heap, timer)
	case at.Before(timer.place):
		timer.place = at
		heap.Fix(&t.heap, timer.index)
	}
}

// cancel takes a timer's deadline away.
func (t *timers) cancel(timer *timer) { timer.at = time.Time{} }

// next is no later than the earliest deadline.
func (t *timers) next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].place, true
}

// pop takes one timer out whose deadline has passed; nil if there is none.
func (t *timers) pop(now time.Time) *timer {
	for len(t.heap) > 0 {
		first := t.heap[0]
		switch {
		case first.at.IsZero():
			heap.Pop(&t.heap)
		case first.place.After(now):
			return nil
		case first.at.After(now):
			first.place = first.at
			heap.Fix(&t.heap, 0)
		default:
			heap.Pop(&t.heap)
			first.at = time.Time{}
			return first
		}
	}
	return nil
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].place.Before(h[j].place) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index, t.inHeap = len(*h), true
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.inHeap = false
	return t
}
