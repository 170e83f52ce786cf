package coordinator

import "time"

// Machine decides for one partition. It does no I/O, takes no lock, and reads no clock: its events are methods that take
// the time and return what is to be done. It is used by one goroutine at a time.
type Machine interface {
	// Replay folds a committed record into the state. An error ends the loading: the partition is not served. The record's
	// memory is reused after the call.
	Replay(record Record) error
	// Loaded is the event after the last Replay.
	Loaded(now time.Time) Effects
	// Wake is the event of a deadline that may have passed.
	Wake(now time.Time) Effects
	// Deadline is when to call Wake at the latest; false if nothing is waited for.
	Deadline() (time.Time, bool)
	// Written is the event of a write's outcome. Outcomes come in the order of the writes. An error means that nothing was
	// written.
	Written(id WriteID, err error, now time.Time) Effects
}

// Record is one record of a coordinator's partition. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
	// Timestamp is in milliseconds since the epoch.
	Timestamp int64
}

// Call names who waits for an answer. A machine keeps it until it answers.
type Call uint64

// NoCall is nobody: replies to it go nowhere.
const NoCall Call = 0

// WriteID names a write of a machine, which numbers its writes upwards.
type WriteID uint64

// Effects is what an event wants done. The runner delivers the replies, and appends the writes in their order.
type Effects struct {
	Writes  []Write
	Replies []Reply
}

// Write is a set of records that are appended together or not at all.
type Write struct {
	ID      WriteID
	Records []Record
}

// Reply is the answer to a call. Each call is answered once; a second answer is dropped.
type Reply struct {
	Call  Call
	Value any
}
