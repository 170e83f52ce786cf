package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed is returned by ParseApply and ParseApplyAnswer for bytes that are no whole statement or answer: cut short, too
// long, or with a list longer than the bytes that are there. Nothing is allocated on the strength of a length that the bytes
// do not cover.
var ErrMalformed = errors.New("malformed statement")

// ApplyAnswer is a broker's answer to a statement.
type ApplyAnswer struct {
	// Refusal says why nothing was applied; empty when the statement was.
	Refusal string
	// Holding lists topics that the statement says are deleted and that the broker has not yet put aside.
	Holding []TopicID
	// Ends are where this broker's copies end, of the stated partitions that wait for the longest of all copies (D9).
	Ends []PartitionEnd
}

// PartitionEnd is where one copy of a partition ends.
type PartitionEnd struct {
	TopicIDPartition
	LogEnd
}

// LogEnd is where a log ends: what elections compare when every copy may have lost something (D9).
type LogEnd struct {
	Epoch Epoch // of the last record, NoEpoch if there is none
	End   int64
}

// Longer tells whether e has more than f: a higher epoch, or more of the same.
func (e LogEnd) Longer(f LogEnd) bool {
	return e.Epoch > f.Epoch || e.Epoch == f.Epoch && e.End > f.End
}

// The bits of an Apply's flags.
const (
	applyFull    = 1 << iota // Topics and Partitions are complete
	applyBrokers             // Brokers is stated
)

// The bits of a partition's flags.
const (
	partitionAbsent = 1 << iota
	partitionFlush
	partitionFlushed
	partitionRecovery
)

// AppendApply appends the body of an Apply request, version 0. Numbers are variable-length and unsigned unless they can be
// negative; texts and lists are preceded by their length.
func AppendApply(dst []byte, a *Apply) []byte {
	e := packer{dst}
	e.signed(int64(a.Controller))
	e.number(a.ControllerEpoch)
	e.number(a.Registration)
	e.number(a.Revision)
	e.number(a.ConfigRevision)
	flags := byte(0)
	if a.Full {
		flags |= applyFull
	}
	if a.Brokers != nil {
		flags |= applyBrokers
	}
	e.byte(flags)
	e.count(len(a.Brokers))
	for i := range a.Brokers {
		e.broker(&a.Brokers[i])
	}
	e.count(len(a.Topics))
	for i := range a.Topics {
		t := &a.Topics[i]
		e.bytes(t.ID[:])
		e.text(t.Name)
		e.bool(t.Deleted)
		e.number(t.ConfigRevision)
	}
	e.count(len(a.Partitions))
	for i := range a.Partitions {
		e.partition(&a.Partitions[i])
	}
	return e.out
}

func (e *packer) broker(b *Broker) {
	e.signed(int64(b.ID))
	e.number(b.Registration)
	e.number(b.Epoch)
	e.text(b.Rack)
	e.bool(b.Fenced)
	e.count(len(b.Endpoints))
	for _, p := range b.Endpoints {
		e.text(p.Listener)
		e.text(p.Host)
		e.signed(int64(p.Port))
		e.text(p.Protocol)
	}
	e.directories(b.Directories)
}

func (e *packer) partition(u *PartitionUpdate) {
	e.bytes(u.ID[:])
	e.signed(int64(u.Partition))
	if u.Absent {
		e.byte(partitionAbsent)
		return
	}
	s, flags := &u.State, byte(0)
	if s.Flush {
		flags |= partitionFlush
	}
	if s.Flushed {
		flags |= partitionFlushed
	}
	if s.Recovery != 0 {
		flags |= partitionRecovery
	}
	e.byte(flags)
	e.number(s.Version)
	e.signed(int64(s.Leader))
	e.signed(int64(s.LeaderEpoch))
	e.signed(int64(s.UncleanEpoch))
	e.signed(int64(s.MinISR))
	for _, ids := range [][]BrokerID{s.Replicas, s.Adding, s.Removing, s.ISR, s.ELR, s.LastKnownISR} {
		e.count(len(ids))
		for _, id := range ids {
			e.signed(int64(id))
		}
	}
	e.directories(s.Dirs)
}

func (e *packer) directories(ids []DirectoryID) {
	e.count(len(ids))
	for i := range ids {
		e.bytes(ids[i][:])
	}
}

// ParseApply decodes the body of an Apply request. What it returns shares no memory with body. Errors wrap ErrMalformed.
func ParseApply(body []byte) (*Apply, error) {
	d := unpacker{in: body}
	a := &Apply{
		Controller: BrokerID(d.signed(math.MaxInt32)), ControllerEpoch: d.number(), Registration: d.number(),
		Revision: d.number(), ConfigRevision: d.number(),
	}
	flags := d.byte()
	a.Full = flags&applyFull != 0
	if n := d.count(brokerBytesMin); flags&applyBrokers != 0 {
		a.Brokers = make([]Broker, n)
		for i := range a.Brokers {
			d.broker(&a.Brokers[i])
		}
	} else if n > 0 {
		d.fail("brokers are listed that are not stated")
	}
	if n := d.count(topicUpdateBytesMin); n > 0 {
		a.Topics = make([]TopicUpdate, n)
		for i := range a.Topics {
			t := &a.Topics[i]
			d.bytes(t.ID[:])
			t.Name, t.Deleted, t.ConfigRevision = d.text(), d.bool(), d.number()
		}
	}
	if n := d.count(partitionUpdateBytesMin); n > 0 {
		a.Partitions = make([]PartitionUpdate, n)
		for i := range a.Partitions {
			d.partition(&a.Partitions[i])
		}
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("Apply: %w", err)
	}
	return a, nil
}

// The least that an element takes, which bounds how many a count can announce.
const (
	brokerBytesMin          = 7
	endpointBytesMin        = 4
	topicUpdateBytesMin     = 19
	partitionEndBytesMin    = 19
	partitionUpdateBytesMin = 18 // an absent one
)

func (d *unpacker) broker(b *Broker) {
	b.ID = BrokerID(d.signed(math.MaxInt32))
	b.Registration, b.Epoch, b.Rack, b.Fenced = d.number(), d.number(), d.text(), d.bool()
	if n := d.count(endpointBytesMin); n > 0 {
		b.Endpoints = make([]Endpoint, n)
		for i := range b.Endpoints {
			p := &b.Endpoints[i]
			p.Listener, p.Host, p.Port, p.Protocol = d.text(), d.text(), int32(d.signed(math.MaxInt32)), d.text()
		}
	}
	b.Directories = d.directories()
}

func (d *unpacker) partition(u *PartitionUpdate) {
	d.bytes(u.ID[:])
	u.Partition = int32(d.signed(math.MaxInt32))
	flags := d.byte()
	if u.Absent = flags&partitionAbsent != 0; u.Absent {
		return
	}
	s := &u.State
	s.Flush, s.Flushed = flags&partitionFlush != 0, flags&partitionFlushed != 0
	if flags&partitionRecovery != 0 {
		s.Recovery = 1
	}
	s.Version = d.number()
	s.Leader, s.LeaderEpoch = BrokerID(d.signed(math.MaxInt32)), Epoch(d.signed(math.MaxInt32))
	s.UncleanEpoch = Epoch(d.signed(math.MaxInt32))
	s.MinISR = int32(d.signed(math.MaxInt32))
	for _, ids := range []*[]BrokerID{&s.Replicas, &s.Adding, &s.Removing, &s.ISR, &s.ELR, &s.LastKnownISR} {
		if n := d.count(1); n > 0 {
			*ids = make([]BrokerID, n)
			for i := range *ids {
				(*ids)[i] = BrokerID(d.signed(math.MaxInt32))
			}
		}
	}
	s.Dirs = d.directories()
}

func (d *unpacker) directories() []DirectoryID {
	n := d.count(len(DirectoryID{}))
	if n == 0 {
		return nil
	}
	ids := make([]DirectoryID, n)
	for i := range ids {
		d.bytes(ids[i][:])
	}
	return ids
}

// AppendApplyAnswer appends the body of an Apply response, version 0.
func AppendApplyAnswer(dst []byte, a *ApplyAnswer) []byte {
	e := packer{dst}
	e.text(a.Refusal)
	e.count(len(a.Holding))
	for i := range a.Holding {
		e.bytes(a.Holding[i][:])
	}
	e.count(len(a.Ends))
	for i := range a.Ends {
		p := &a.Ends[i]
		e.bytes(p.Topic[:])
		e.signed(int64(p.Partition))
		e.signed(int64(p.Epoch))
		e.number(p.End)
	}
	return e.out
}

// ParseApplyAnswer decodes the body of an Apply response. Errors wrap ErrMalformed.
func ParseApplyAnswer(body []byte) (ApplyAnswer, error) {
	d := unpacker{in: body}
	a := ApplyAnswer{Refusal: d.text()}
	if n := d.count(len(TopicID{})); n > 0 {
		a.Holding = make([]TopicID, n)
		for i := range a.Holding {
			d.bytes(a.Holding[i][:])
		}
	}
	if n := d.count(partitionEndBytesMin); n > 0 {
		a.Ends = make([]PartitionEnd, n)
		for i := range a.Ends {
			p := &a.Ends[i]
			d.bytes(p.Topic[:])
			p.Partition, p.Epoch, p.End = int32(d.signed(math.MaxInt32)), Epoch(d.signed(math.MaxInt32)), d.number()
		}
	}
	if err := d.end(); err != nil {
		return ApplyAnswer{}, fmt.Errorf("answer to Apply: %w", err)
	}
	return a, nil
}

// packer appends the primitives of private bodies.
type packer struct{ out []byte }

func (e *packer) byte(b byte)      { e.out = append(e.out, b) }
func (e *packer) bytes(b []byte)   { e.out = append(e.out, b...) }
func (e *packer) number(v int64)   { e.out = binary.AppendUvarint(e.out, uint64(v)) }
func (e *packer) signed(v int64)   { e.out = binary.AppendVarint(e.out, v) }
func (e *packer) count(n int)      { e.number(int64(n)) }
func (e *packer) text(text string) { e.count(len(text)); e.out = append(e.out, text...) }

func (e *packer) bool(v bool) {
	if v {
		e.byte(1)
		return
	}
	e.byte(0)
}

// unpacker reads them back. After the first error every read gives zero, and end returns the error.
type unpacker struct {
	in  []byte
	err error
}

func (d *unpacker) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %w", what, ErrMalformed)
	}
	d.in = nil
}

func (d *unpacker) byte() byte {
	if len(d.in) == 0 {
		d.fail("cut short")
		return 0
	}
	b := d.in[0]
	d.in = d.in[1:]
	return b
}

func (d *unpacker) bool() bool { return d.byte() != 0 }

func (d *unpacker) bytes(into []byte) {
	if len(d.in) < len(into) {
		d.fail("cut short")
		return
	}
	d.in = d.in[copy(into, d.in):]
}

// number is a number that cannot be negative.
func (d *unpacker) number() int64 {
	v, n := binary.Uvarint(d.in)
	if n <= 0 || v > math.MaxInt64 {
		d.fail("bad number")
		return 0
	}
	d.in = d.in[n:]
	return int64(v)
}

// signed is a number whose magnitude is at most most.
func (d *unpacker) signed(most int64) int64 {
	v, n := binary.Varint(d.in)
	if n <= 0 || v > most || v < -most {
		d.fail("bad number")
		return 0
	}
	d.in = d.in[n:]
	return v
}

// count is the length of a list whose elements take at least bytesMin each.
func (d *unpacker) count(bytesMin int) int {
	n := d.number()
	if n > int64(len(d.in)/bytesMin) {
		d.fail("a list is longer than the bytes that are there")
		return 0
	}
	return int(n)
}

func (d *unpacker) text() string {
	n := d.count(1)
	text := string(d.in[:n])
	d.in = d.in[n:]
	return text
}

func (d *unpacker) end() error {
	if d.err == nil && len(d.in) > 0 {
		d.fail("bytes follow the end")
	}
	return d.err
}
