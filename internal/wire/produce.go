package wire

import (
	"encoding/binary"
	"fmt"
)

// Produce is a decoded Produce request, versions 3 to 13. Everything in it aliases the frame that it was parsed from.
// A value can be parsed into again and again; it keeps its slices.
type Produce struct {
	// TransactionalID is nil if there is none.
	TransactionalID []byte
	// Acks is what the client sent, unchecked: 0, 1 and -1 are legal.
	Acks int16
	// TimeoutMillis is how long the client will wait for the acks.
	TimeoutMillis int32
	// Topics are in the order of the request. A topic may come twice.
	Topics []ProduceTopic

	partitions []ProducePartition
}

// ProduceTopic is one topic of a Produce request: a name up to version 12, an id since 13.
type ProduceTopic struct {
	Name []byte
	ID   [16]byte

	first, count int
}

// ProducePartition is what is to be appended to one partition.
type ProducePartition struct {
	Index int32
	// Records are the batches as they are to lie on disk; nil if the client sent null.
	Records []byte
}

// Partitions are those of one topic of p.
func (p *Produce) Partitions(t *ProduceTopic) []ProducePartition {
	return p.partitions[t.first : t.first+t.count]
}

// PartitionCount is the number of partitions over all topics.
func (p *Produce) PartitionCount() int { return len(p.partitions) }

// Reset forgets the frame that was parsed, and keeps the slices for the next one.
func (p *Produce) Reset() {
	clear(p.Topics)
	clear(p.partitions)
	*p = Produce{Topics: p.Topics[:0], partitions: p.partitions[:0]}
}

// Parse reads body, the bytes after the header, as a Produce request of a version that the table supports, into
// p. Nothing is copied. Errors wrap ErrMalformed.
func (p *Produce) Parse(version int16, body []byte) error {
	p.Reset()
	d := decoder{walker{in: body, version: version, flexible: version >= 9, tags: tagsFree + len(body)/tagBytesMean}}
	if err := p.parse(&d); err != nil {
		p.Reset()
		return fmt.Errorf("Produce v%d: at byte %d of %d: %w", version, len(body)-len(d.in), len(body), err)
	}
	return nil
}

// The fields of Produce as the walker wants them, for their lengths.
var (
	produceText      = text()
	produceTextNull  = text().null()
	produceRecords   = opaque().null()
	produceTopics    = array()
	topicBytesMin    = 2 + 4 // a name and a count, each empty
	topicBytesMinIDs = 16 + 1 + 1
)

func (p *Produce) parse(d *decoder) (err error) {
	if p.TransactionalID, err = d.bytes(&produceTextNull); err != nil {
		return err
	}
	head, err := d.take(2 + 4)
	if err != nil {
		return err
	}
	p.Acks = int16(binary.BigEndian.Uint16(head))
	p.TimeoutMillis = int32(binary.BigEndian.Uint32(head[2:]))
	n, err := d.length(&produceTopics, d.produceTopicBytesMin())
	if err != nil {
		return err
	}
	for range n {
		if err := p.parseTopic(d); err != nil {
			return err
		}
	}
	return d.end()
}

func (d *decoder) produceTopicBytesMin() int {
	switch {
	case d.version >= 13:
		return topicBytesMinIDs
	case d.flexible:
		return 3
	}
	return topicBytesMin
}

func (p *Produce) parseTopic(d *decoder) (err error) {
	t := ProduceTopic{first: len(p.partitions)}
	if d.version >= 13 {
		id, err := d.take(16)
		if err != nil {
			return err
		}
		t.ID = [16]byte(id)
	} else if t.Name, err = d.bytes(&produceText); err != nil {
		return err
	}
	partitionBytesMin := 4 + 4
	if d.flexible {
		partitionBytesMin = 4 + 1 + 1
	}
	if t.count, err = d.length(&produceTopics, partitionBytesMin); err != nil {
		return err
	}
	for range t.count {
		index, err := d.take(4)
		if err != nil {
			return err
		}
		records, err := d.bytes(&produceRecords)
		if err != nil {
			return err
		}
		if err := d.end(); err != nil {
			return err
		}
		p.partitions = append(p.partitions, ProducePartition{int32(binary.BigEndian.Uint32(index)), records})
	}
	p.Topics = append(p.Topics, t)
	return d.end()
}

// decoder is a walker that hands out what it walks over.
type decoder struct{ walker }

// take hands out the next n bytes.
func (d *decoder) take(n int) ([]byte, error) {
	b := d.in
	if err := d.skip(n); err != nil {
		return nil, err
	}
	return b[:n:n], nil
}

// bytes hands out a string or opaque bytes; nil for null, never nil for empty.
func (d *decoder) bytes(f *field) ([]byte, error) {
	before := d.in
	n, err := d.length(f, 1)
	if err != nil {
		return nil, err
	}
	if n == 0 && isNull(before, d.flexible) {
		return nil, nil
	}
	return d.take(n)
}

// isNull tells null from empty in a length that was read and found good: 0 when compact, else the sign of -1.
func isNull(in []byte, flexible bool) bool {
	if flexible {
		u, _ := uvarint(in)
		return u == 0
	}
	return in[0] == 0xff
}

// end closes a struct.
func (d *decoder) end() error {
	if d.flexible {
		return d.tagged()
	}
	return nil
}
