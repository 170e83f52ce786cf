package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// writing names one record of a load: the how manieth of which producer. Each producer numbers its records from 0 for each
// partition, so that a gap is seen as well as a change of order.
type writing struct {
	producer int32
	number   int64
}

func (w writing) String() string { return fmt.Sprintf("%d of producer %d", w.number, w.producer) }

// value is what the record holds: the name, and padding that tells nothing.
func (w writing) value(padding string) []byte {
	return fmt.Appendf(nil, "%d %d %s", w.producer, w.number, padding)
}

// parseWriting is the inverse of value.
func parseWriting(value []byte) (w writing, err error) {
	_, err = fmt.Fscan(bytes.NewReader(value), &w.producer, &w.number)
	return w, err
}

// anomaly is a promise that was broken, by the name that it has in lists of them.
type anomaly string

const (
	lost        anomaly = "lost"        // acknowledged, and nowhere in the log
	doubled     anomaly = "doubled"     // written once, and twice in the log
	reordered   anomaly = "reordered"   // after a later record of its producer
	missing     anomaly = "missing"     // skipped between two records of its producer, which waits for each
	invented    anomaly = "invented"    // in the log, and never written
	moved       anomaly = "moved"       // seen or acknowledged at an offset that holds something else
	uncommitted anomaly = "uncommitted" // read at an offset that the log does not reach
	skipped     anomaly = "skipped"     // a reader was led over an offset that holds a record
)

// finding is one anomaly.
type finding struct {
	anomaly
	partition int32
	offset    int64
	what      string
}

func (f finding) String() string {
	return fmt.Sprintf("%s: partition %d, offset %d: %s", f.anomaly, f.partition, f.offset, f.what)
}

// findingsMax bounds what is said of one history.
const findingsMax = 50

// partitionHistory is what the clients of one partition were told, and what stands there in the end.
type partitionHistory struct {
	sent map[int32]int64   // by producer: how many records were handed to it
	acks map[int64]writing // by offset
	read map[int64]writing // by offset, by any reader at any time
	log  []writing         // in the end, by offset from 0

	said []finding // what was seen at once
}

// history is what the clients of one topic were told. It is for many goroutines.
type history struct {
	mu struct {
		sync.Mutex
		partitions []partitionHistory
		acked      int
	}
}

func newHistory(partitions int) *history {
	h := &history{}
	for range partitions {
		h.mu.partitions = append(h.mu.partitions, partitionHistory{
			sent: make(map[int32]int64), acks: make(map[int64]writing), read: make(map[int64]writing),
		})
	}
	return h
}

// send draws the next number of a producer.
func (h *history) send(partition, producer int32) writing {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.mu.partitions[partition]
	w := writing{producer, p.sent[producer]}
	p.sent[producer]++
	return w
}

// ack notes that a record was acknowledged.
func (h *history) ack(partition int32, offset int64, w writing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.mu.partitions[partition]
	if before, twice := p.acks[offset]; twice {
		p.said = append(p.said, finding{moved, partition, offset, fmt.Sprintf("acknowledged for record %s and for record %s", before, w)})
	}
	p.acks[offset] = w
	h.mu.acked++
}

// acked counts what was acknowledged.
func (h *history) acked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.acked
}

// see notes that a reader which is to go on at offset next was given the record at offset.
func (h *history) see(partition int32, next, offset int64, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.mu.partitions[partition]
	w, err := parseWriting(value)
	before, again := p.read[offset]
	switch {
	case err != nil:
		p.said = append(p.said, finding{invented, partition, offset, fmt.Sprintf("read %.20q", value)})
	case offset != next:
		p.said = append(p.said, finding{skipped, partition, offset, fmt.Sprintf("read where %d was next", next)})
	case again && before != w:
		p.said = append(p.said, finding{moved, partition, offset, fmt.Sprintf("read as record %s and as record %s", before, w)})
	}
	p.read[offset] = w
}

// end notes the next record of the log as it is in the end.
func (h *history) end(partition int32, offset int64, value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.mu.partitions[partition]
	if w, err := parseWriting(value); err != nil {
		p.said = append(p.said, finding{invented, partition, offset, fmt.Sprintf("holds %.20q", value)})
	} else if offset != int64(len(p.log)) {
		p.said = append(p.said, finding{skipped, partition, offset, fmt.Sprintf("the log goes on here after offset %d", len(p.log)-1)})
	} else {
		p.log = append(p.log, w)
	}
}

// judge returns what is wrong, at most findingsMax findings.
func (h *history) judge() []finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []finding
	for i := range h.mu.partitions {
		all = append(all, h.mu.partitions[i].judge(int32(i))...)
	}
	return all[:min(len(all), findingsMax)]
}

func (p *partitionHistory) judge(partition int32) []finding {
	found := slices.Clone(p.said)
	say := func(kind anomaly, offset int64, format string, args ...any) {
		found = append(found, finding{kind, partition, offset, fmt.Sprintf(format, args...)})
	}
	at := make(map[writing]int64, len(p.log))
	last := make(map[int32]int64)
	for offset, w := range p.log {
		offset := int64(offset)
		next := last[w.producer]
		switch first, twice := at[w]; {
		case twice:
			say(doubled, offset, "record %s stands at %d too", w, first)
			continue
		case w.number < 0 || w.number >= p.sent[w.producer]:
			say(invented, offset, "record %s was never written", w)
		case w.number < next:
			say(reordered, offset, "record %s comes after record %d", w, next-1)
		case w.number > next:
			say(missing, offset, "record %s comes where record %d was next", w, next)
		}
		at[w] = offset
		last[w.producer] = max(next, w.number+1)
	}
	for _, offset := range slices.Sorted(maps.Keys(p.acks)) {
		w := p.acks[offset]
		switch stands, there := at[w]; {
		case !there:
			say(lost, offset, "record %s was acknowledged here", w)
		case stands != offset:
			say(moved, offset, "record %s was acknowledged here and stands at %d", w, stands)
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(p.read)) {
		w := p.read[offset]
		switch {
		case offset >= int64(len(p.log)):
			say(uncommitted, offset, "record %s was read, and the log ends at %d", w, len(p.log))
		case p.log[offset] != w:
			say(moved, offset, "record %s was read, and record %s stands here", w, p.log[offset])
		}
	}
	return found
}

// TestHistoryFindsAnomalies: a history that keeps its promises says nothing, and each broken promise is found by its name.
func TestHistoryFindsAnomalies(t *testing.T) {
	type seen struct{ next, offset, number int64 }
	whole := []int64{0, 1, 2, 3}
	for _, c := range []struct {
		what string
		acks map[int64]int64 // offset → number
		read []seen
		log  []int64
		want []anomaly
	}{
		{"nothing", map[int64]int64{0: 0, 2: 2, 3: 3}, []seen{{0, 0, 0}, {1, 1, 1}, {1, 1, 1}}, whole, nil},
		{"an end that was not acknowledged", map[int64]int64{0: 0}, nil, whole[:2], nil},
		{"a lost record", map[int64]int64{1: 1, 2: 2}, nil, whole[:2], []anomaly{lost}},
		{"a doubled record", nil, nil, []int64{0, 1, 1, 2, 3}, []anomaly{doubled}},
		{"another order", nil, nil, []int64{0, 2, 1, 3}, []anomaly{missing, reordered}},
		{"a gap", nil, nil, []int64{0, 1, 3}, []anomaly{missing}},
		{"a record from nowhere", nil, nil, []int64{0, 1, 2, 3, 4}, []anomaly{invented}},
		{"an acknowledged record elsewhere", map[int64]int64{0: 1}, nil, whole, []anomaly{moved}},
		{"a read past the end", nil, []seen{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}}, whole[:2], []anomaly{uncommitted}},
		{"a read of something else", nil, []seen{{0, 0, 1}}, whole, []anomaly{moved}},
		{"two reads that differ", nil, []seen{{0, 0, 1}, {0, 0, 0}}, whole, []anomaly{moved}},
		{"a read that skips", nil, []seen{{0, 0, 0}, {1, 2, 2}}, whole, []anomaly{skipped}},
		{"a read that goes back", nil, []seen{{0, 0, 0}, {1, 0, 0}}, whole, []anomaly{skipped}},
	} {
		h := newHistory(1)
		for range whole {
			h.send(0, 7)
		}
		for offset, number := range c.acks {
			h.ack(0, offset, writing{7, number})
		}
		if h.acked() != len(c.acks) {
			t.Errorf("%s: %d records count as acknowledged, want %d", c.what, h.acked(), len(c.acks))
		}
		for _, s := range c.read {
			h.see(0, s.next, s.offset, writing{7, s.number}.value("x"))
		}
		for offset, number := range c.log {
			h.end(0, int64(offset), writing{7, number}.value(""))
		}
		var got []anomaly
		for _, f := range h.judge() {
			got = append(got, f.anomaly)
		}
		slices.SortFunc(got, func(a, b anomaly) int { return cmp.Compare(a, b) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", c.what, h.judge(), c.want)
		}
	}
}
