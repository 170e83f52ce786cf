package commitlog

// Sequences is what a log knows of its idempotent producers, without a log: the checks of Append and the fold over what was
// appended, for a simulation whose disks are models. The zero value is that of an empty log. It is not safe for concurrent
// use.
type Sequences struct{ state producerState }

// SequencedBatch is a batch of an idempotent producer, with the offsets that it has or would get.
type SequencedBatch struct {
	Producer int64
	Epoch    int16
	Sequence int32 // of its first record
	Base     int64 // offset of its first record
	Last     int64 // offset of its last record
}

func (b *SequencedBatch) fold() producerBatch {
	return producerBatch{producer: b.Producer, epoch: b.Epoch, baseSequence: b.Sequence, base: b.Base, last: b.Last, coordinatorEpoch: -1}
}

// Check tells whether a client's batch may be appended. If it is a retry of one that is remembered, duplicate is the last
// offset of that one, and nothing is to be appended; otherwise it is -1. Errors: ErrProducerFenced, ErrOutOfOrderSequence.
func (s *Sequences) Check(b SequencedBatch) (duplicate int64, err error) {
	batch := b.fold()
	known, err := s.state.check(&batch, producerCheck{origin: FromClient})
	if known != nil {
		return known.lastOffset, err
	}
	return -1, err
}

// Add folds a batch that was appended; offsets rise from one call to the next.
func (s *Sequences) Add(b SequencedBatch) {
	batch := b.fold()
	s.state.update(&batch)
}

// Reset forgets everything: a log that was truncated folds anew.
func (s *Sequences) Reset() { s.state.reset() }
