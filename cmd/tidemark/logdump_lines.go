package main

import (
	"fmt"
	"strings"
)

// The lines of `log dump`, one type for each kind of entry: JSON by their tags, text by String.

type batchLine struct {
	First         int64  `json:"first_offset"`
	Last          int64  `json:"last_offset"`
	Count         int32  `json:"count"`
	Position      int64  `json:"position"`
	Bytes         int    `json:"bytes"`
	Codec         string `json:"codec"`
	LeaderEpoch   int32  `json:"leader_epoch"`
	MaxTimestamp  int64  `json:"max_timestamp"`
	LogAppendTime bool   `json:"log_append_time"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	Sequence      int32  `json:"sequence"`
	Transactional bool   `json:"transactional"`
	Control       bool   `json:"control"`
	CRC           string `json:"crc"`
	Fault         string `json:"fault,omitempty"`
}

// String implements fmt.Stringer.
func (l batchLine) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "batch %d-%d count %d position %d bytes %d codec %s epoch %d max-timestamp %d", l.First, l.Last, l.Count,
		l.Position, l.Bytes, l.Codec, l.LeaderEpoch, l.MaxTimestamp)
	if l.LogAppendTime {
		s.WriteString(" log-append-time")
	}
	if l.ProducerID >= 0 {
		fmt.Fprintf(&s, " producer %d/%d sequence %d", l.ProducerID, l.ProducerEpoch, l.Sequence)
	}
	if l.Transactional {
		s.WriteString(" transactional")
	}
	if l.Control {
		s.WriteString(" control")
	}
	fmt.Fprintf(&s, " crc %s", l.CRC)
	if l.Fault != "" {
		fmt.Fprintf(&s, " FAULT: %s", l.Fault)
	}
	return s.String()
}

type recordLine struct {
	Offset    int64        `json:"offset"`
	Timestamp int64        `json:"timestamp"`
	Key       text         `json:"key"`
	Value     text         `json:"value"`
	Headers   []jsonHeader `json:"headers,omitempty"`
	Marker    string       `json:"marker,omitempty"`
}

// String implements fmt.Stringer.
func (l recordLine) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "  offset %d timestamp %d", l.Offset, l.Timestamp)
	if l.Marker != "" {
		return s.String() + " marker " + l.Marker
	}
	for _, header := range l.Headers {
		fmt.Fprintf(&s, " header %q=%s", header.Key, quoted(header.Value))
	}
	fmt.Fprintf(&s, " key %s value %s", quoted(l.Key), quoted(l.Value))
	return s.String()
}

func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

type offsetLine struct {
	Offset   int64 `json:"offset"`
	Position int64 `json:"position"`
}

// String implements fmt.Stringer.
func (l offsetLine) String() string {
	return fmt.Sprintf("offset %d position %d", l.Offset, l.Position)
}

type timeLine struct {
	Timestamp int64 `json:"timestamp"`
	Offset    int64 `json:"offset"`
}

// String implements fmt.Stringer.
func (l timeLine) String() string {
	return fmt.Sprintf("timestamp %d offset %d", l.Timestamp, l.Offset)
}

type txnLine struct {
	Producer   int64 `json:"producer_id"`
	First      int64 `json:"first_offset"`
	Last       int64 `json:"last_offset"`
	LastStable int64 `json:"last_stable_offset"`
}

// String implements fmt.Stringer.
func (l txnLine) String() string {
	return fmt.Sprintf("aborted producer %d offsets %d-%d last-stable %d", l.Producer, l.First, l.Last, l.LastStable)
}

type producerLine struct {
	Producer         int64 `json:"producer_id"`
	Epoch            int16 `json:"producer_epoch"`
	LastSequence     int32 `json:"last_sequence"`
	LastTimestamp    int64 `json:"last_timestamp"`
	CoordinatorEpoch int32 `json:"coordinator_epoch"`
	TxnStart         int64 `json:"txn_start_offset"`
}

// String implements fmt.Stringer.
func (l producerLine) String() string {
	return fmt.Sprintf("producer %d epoch %d last-sequence %d last-timestamp %d coordinator-epoch %d txn-start %d", l.Producer,
		l.Epoch, l.LastSequence, l.LastTimestamp, l.CoordinatorEpoch, l.TxnStart)
}

type epochLine struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start_offset"`
}

// String implements fmt.Stringer.
func (l epochLine) String() string { return fmt.Sprintf("epoch %d start %d", l.Epoch, l.Start) }

type checkpointLine struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// String implements fmt.Stringer.
func (l checkpointLine) String() string {
	return fmt.Sprintf("%s-%d offset %d", l.Topic, l.Partition, l.Offset)
}

type metaLine struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// String implements fmt.Stringer.
func (l metaLine) String() string { return l.Key + " " + l.Value }

type partitionLine struct {
	TopicID string `json:"topic_id"`
}

// String implements fmt.Stringer.
func (l partitionLine) String() string { return "topic id " + l.TopicID }
