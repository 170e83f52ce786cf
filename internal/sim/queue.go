package sim

import "time"

// event is something that will happen.
type event struct {
	at       time.Duration
	sequence int
	do       func()
}

func (e *event) before(other *event) bool {
	if e.at != other.at {
		return e.at < other.at
	}
	return e.sequence < other.sequence
}

// queue is a heap of events, the next one first.
type queue []event

func (q *queue) push(e event) {
	*q = append(*q, e)
	heap := *q
	at := len(heap) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if !e.before(&heap[parent]) {
			break
		}
		heap[at] = heap[parent]
		at = parent
	}
	heap[at] = e
}

func (q *queue) pop() event {
	heap := *q
	first, last := heap[0], heap[len(heap)-1]
	heap[len(heap)-1].do = nil
	heap = heap[:len(heap)-1]
	*q = heap
	if len(heap) == 0 {
		return first
	}
	at := 0
	for {
		child := 2*at + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && heap[child+1].before(&heap[child]) {
			child++
		}
		if !heap[child].before(&last) {
			break
		}
		heap[at] = heap[child]
		at = child
	}
	heap[at] = last
	return first
}
