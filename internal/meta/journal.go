package meta

import (
	"container/list"
	"slices"
	"time"
)

// EventKind says what an [Event] is about. The words are shown to people and scripts: they do not change.
type EventKind string

// The kinds of events.
const (
	EventShrink       EventKind = "shrink"         // a replica left the ISR
	EventExpand       EventKind = "expand"         // a replica entered the ISR
	EventRefused      EventKind = "expand-refused" // a replica did not enter the ISR
	EventLeader       EventKind = "leader"         // another leader, none, or a higher epoch
	EventUnclean      EventKind = "unclean"        // a broker came back without what its disk had not synced, or an unclean election
	EventTruncate     EventKind = "truncate"       // a follower cut its log
	EventNotFollowing EventKind = "not-following"  // a follower refuses to follow its leader
	EventFetchRefused EventKind = "fetch-refused"  // a leader refused another replica's fetch
	EventFetchFailed  EventKind = "fetch-failed"   // a follower got no answer from its leader
	EventMinISR       EventKind = "min-isr"        // acks=all was refused
	EventConfig       EventKind = "config"         // what the partition's value takes from its topic's configuration changed
	EventConflict     EventKind = "conflict"       // a change of the value was not written, or perhaps not
	EventAssigned     EventKind = "assigned"       // the replicas of the partition changed
	EventOffline      EventKind = "offline"        // a replica's log failed
	EventBroker       EventKind = "broker"         // a broker came, went, or changed its standing
)

// repeats tells whether events of the kind come again and again while nothing else does: they are counted, not listed.
func (k EventKind) repeats() bool {
	return k == EventRefused || k == EventFetchRefused || k == EventFetchFailed || k == EventMinISR || k == EventConflict
}

// Event is something that happened to a partition or to a broker, and why.
type Event struct {
	At   time.Time `json:"at"` // the first time, if it was repeated
	Kind EventKind `json:"kind"`
	// Broker is whom it is about; NoBroker for all.
	Broker BrokerID `json:"broker"`
	// Why is a sentence without a full stop, such as "broker 3 left the ISR: it had not caught up for 30.4 s".
	Why string `json:"why"`
	// Times is how often it happened in a row; 0 for once. Last is when it did so last; Why is of that time.
	Times int       `json:"times,omitempty"`
	Last  time.Time `json:"last,omitzero"`
}

// The bounds of a journal.
const (
	// journalEntriesMax bounds the events of one key: a person reads the last chain of causes, not the history.
	journalEntriesMax = 24
	// journalWhyMax bounds an event's text in bytes.
	journalWhyMax = 400
	// journalBytesMax bounds all events of a journal, in bytes: a broker's memory does not grow with the trouble that it sees.
	journalBytesMax = 8 << 20
	// journalRepeatsIn is how many events back one that repeats is looked for.
	journalRepeatsIn = 4
	// eventBytes is what an event takes besides its text.
	eventBytes = 128
)

// Journal keeps the last events of each key (a partition, a broker), within bounds on events and bytes: when it is full, the key
// whose last event is the oldest is forgotten. A key without events costs nothing. It has no lock: its owner's guards it.
// The zero value is empty.
type Journal[K comparable] struct {
	of    map[K]*list.Element
	order list.List // of *pages[K]; what was written last is at the back
	bytes int
}

type pages[K comparable] struct {
	key    K
	events []Event
	bytes  int
}

// Note adds an event of a key. One that repeats is counted instead.
func (j *Journal[K]) Note(key K, e Event) {
	if len(e.Why) > journalWhyMax {
		e.Why = e.Why[:journalWhyMax-3] + "..."
	}
	element := j.of[key]
	if element == nil {
		if j.of == nil {
			j.of = make(map[K]*list.Element)
		}
		element = j.order.PushBack(&pages[K]{key: key})
		j.of[key] = element
	}
	j.order.MoveToBack(element)
	p := element.Value.(*pages[K])
	before := p.bytes
	p.note(e)
	j.bytes += p.bytes - before
	for j.bytes > journalBytesMax && j.order.Len() > 1 {
		j.forget(j.order.Front())
	}
}

func (p *pages[K]) note(e Event) {
	for i := len(p.events) - 1; i >= max(0, len(p.events)-journalRepeatsIn) && e.Kind.repeats(); i-- {
		if earlier := &p.events[i]; earlier.Kind == e.Kind && earlier.Broker == e.Broker {
			p.bytes += len(e.Why) - len(earlier.Why)
			earlier.Times, earlier.Last, earlier.Why = max(1, earlier.Times)+1, e.At, e.Why
			return
		}
	}
	if len(p.events) == journalEntriesMax {
		p.bytes -= eventBytes + len(p.events[0].Why)
		p.events = slices.Delete(p.events, 0, 1)
	}
	p.events = append(p.events, e)
	p.bytes += eventBytes + len(e.Why)
}

// Of is a copy of a key's events, the oldest first.
func (j *Journal[K]) Of(key K) []Event {
	if element := j.of[key]; element != nil {
		return slices.Clone(element.Value.(*pages[K]).events)
	}
	return nil
}

// Forget drops a key's events.
func (j *Journal[K]) Forget(key K) {
	if element := j.of[key]; element != nil {
		j.forget(element)
	}
}

func (j *Journal[K]) forget(element *list.Element) {
	p := j.order.Remove(element).(*pages[K])
	delete(j.of, p.key)
	j.bytes -= p.bytes
}
