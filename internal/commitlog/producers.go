package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidemark-io/tidemark/internal/record"
)

// Errors of the producer checks. Each is wrapped with the producer, what it sent and what would have been right.
var (
	// ErrOutOfOrderSequence is returned by Append when a client's batch does not continue its producer's sequence
	// (OUT_OF_ORDER_SEQUENCE_NUMBER): a gap, a retry older than the last five batches, or a new epoch that does not
	// start at 0.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrProducerFenced is returned by Append when the producer epoch is older than one seen before
	// (INVALID_PRODUCER_EPOCH).
	ErrProducerFenced = errors.New("producer epoch is fenced by a newer one")
	// ErrTxnState is returned by Append when a transactional batch of a client belongs to no transaction that is open
	// here or was verified with the coordinator, or a non-transactional one comes in the middle of its producer's
	// transaction (INVALID_TXN_STATE).
	ErrTxnState = errors.New("invalid transaction state")
	// ErrCoordinatorFenced is returned by Append when a marker comes from an older coordinator than the last one of its
	// producer (TRANSACTION_COORDINATOR_FENCED).
	ErrCoordinatorFenced = errors.New("transaction coordinator is fenced by a newer one")
)

// Origin says who appends, and thereby how much of a batch is checked.
type Origin uint8

const (
	// FromClient is a produce request: sequences, epochs and transactions are checked.
	FromClient Origin = iota
	// FromCoordinator is a coordinator on this broker: offset commits, which have no sequences, and markers. Epochs are
	// checked.
	FromCoordinator
	// FromLeader is replication, or a scan of the log itself: the leader has checked, everything is taken.
	FromLeader
)

// producerBatchesKept is how many batches of each producer are remembered to recognise retries: as many as a client may
// have in flight (U-103).
const producerBatchesKept = 5

// TxnGuard proves that a transactional append follows its own verification with the transaction coordinator: it is the
// ticket of one StartVerification. The zero value is no proof.
type TxnGuard uint64

// markerKind is how a control batch ends a transaction.
type markerKind uint8

const (
	noMarker markerKind = iota // a data batch
	abortMarker
	commitMarker
)

// producerBatch is what a batch with a producer id tells: its header, and its marker if it is a control batch.
type producerBatch struct {
	producer     int64
	epoch        int16
	baseSequence int32 // record.NoSequence: written without sequences, by a coordinator
	base, last   int64 // offsets
	maxTimestamp int64 // a marker's: the record's timestamp

	transactional    bool
	marker           markerKind
	coordinatorEpoch int32 // of a marker
}

// lastSequence is the sequence number of the batch's last record; sequences continue at 0 after 2^31−1 (U-102).
func (b *producerBatch) lastSequence() int32 {
	if b.baseSequence == record.NoSequence {
		return record.NoSequence
	}
	return record.AddSequence(b.baseSequence, int32(b.last-b.base))
}

// producerCheck says how a batch is checked.
type producerCheck struct {
	origin Origin
	guard  TxnGuard // of a client's transactional data
	// transactionVersion is the feature level of the transaction that a coordinator's marker ends: from 2 on (KIP-890)
	// each transaction ends with a raised epoch, so the marker's must be above that of the data.
	transactionVersion int16
}

// batchEntry is one remembered batch of a producer. Its first sequence follows from the last one and the offsets, also
// after compaction, which keeps a batch's last offset delta.
type batchEntry struct {
	lastSequence int32
	offsetDelta  int32
	lastOffset   int64
	timestamp    int64
}

func (e *batchEntry) firstSequence() int32 { return subtractSequence(e.lastSequence, e.offsetDelta) }

func (e *batchEntry) firstOffset() int64 { return e.lastOffset - int64(e.offsetDelta) }

// producerEntry is what is known of one producer. batches[:count] are its last batches in the current epoch, oldest first.
type producerEntry struct {
	id               int64
	txnFirst         int64 // first offset of the open transaction, or −1
	lastTimestamp    int64
	coordinatorEpoch int32
	epoch            int16
	count            uint8
	batches          [producerBatchesKept]batchEntry
}

func newProducerEntry(id int64) producerEntry {
	return producerEntry{id: id, txnFirst: -1, lastTimestamp: -1, coordinatorEpoch: -1, epoch: record.NoProducerEpoch}
}

// newest is the last batch; nil when none is remembered.
func (e *producerEntry) newest() *batchEntry {
	if e.count == 0 {
		return nil
	}
	return &e.batches[e.count-1]
}

func (e *producerEntry) lastSequence() int32 {
	if newest := e.newest(); newest != nil {
		return newest.lastSequence
	}
	return record.NoSequence
}

// raiseEpoch forgets the batches of an older epoch: their sequences mean nothing in the new one.
func (e *producerEntry) raiseEpoch(epoch int16) {
	if e.epoch != epoch {
		e.epoch = epoch
		e.count = 0
	}
}

func (e *producerEntry) add(b batchEntry) {
	if e.count == producerBatchesKept {
		copy(e.batches[:], e.batches[1:])
		e.count--
	}
	e.batches[e.count] = b
	e.count++
}

// find is the remembered batch with exactly these sequences, the first append of what is now sent again.
func (e *producerEntry) find(first, last int32) *batchEntry {
	for i := range e.batches[:e.count] {
		if b := &e.batches[i]; b.lastSequence == last && b.firstSequence() == first {
			return b
		}
	}
	return nil
}

// openTxn is a transaction without a marker; a list of them is sorted by first offset.
type openTxn struct{ first, producer int64 }

// closedTxn is a transaction whose marker, at last, may not be replicated yet; a list is sorted by first offset.
type closedTxn struct{ first, last int64 }

// verification is a transaction that a client is about to start here and that the coordinator is being asked about.
type verification struct {
	guard          TxnGuard
	started        int64 // ms since the epoch
	lowestSequence int32
	epoch          int16
}

// completedTxn is a transaction that a marker has just ended.
type completedTxn struct {
	producer    int64
	first, last int64 // first data offset, and the marker's
	aborted     bool
	lastStable  int64 // the last stable offset once the marker is replicated, for the transaction index
}

// producerState is what a log knows of its producers: enough to recognise retries, to fence old epochs, and to tell which
// transactions are open. It is a fold over the log's batches, and it is not safe for concurrent use: the log's lock guards it.
// The zero value is the state of an empty log and allocates nothing.
type producerState struct {
	producers     map[int64]*producerEntry
	open          []openTxn
	unreplicated  []closedTxn
	verifications map[int64]verification
	guards        TxnGuard // the last one handed out
}

// check tells whether a batch may be appended at b.base. A client's retry of a batch that is remembered is answered with
// that batch; then nothing is to be appended. Errors: ErrProducerFenced, ErrOutOfOrderSequence, ErrTxnState,
// ErrCoordinatorFenced. Nothing is checked for FromLeader.
func (s *producerState) check(b *producerBatch, how producerCheck) (duplicate *batchEntry, err error) {
	if how.origin == FromLeader {
		return nil, nil
	}
	entry := s.producers[b.producer]
	if b.marker != noMarker {
		return nil, checkMarker(entry, b, how)
	}
	if how.origin == FromClient && entry != nil && entry.epoch == b.epoch {
		if duplicate := entry.find(b.baseSequence, b.lastSequence()); duplicate != nil {
			return duplicate, nil
		}
	}
	if entry != nil && b.epoch < entry.epoch {
		return nil, fmt.Errorf("producer %d writes in epoch %d, known is epoch %d: %w",
			b.producer, b.epoch, entry.epoch, ErrProducerFenced)
	}
	if how.origin != FromClient {
		return nil, nil
	}
	if err := s.checkTxn(entry, b, how.guard); err != nil {
		return nil, err
	}
	return nil, s.checkSequence(entry, b)
}

// checkTxn checks that a client's transactional batch belongs to an open or verified transaction.
func (s *producerState) checkTxn(entry *producerEntry, b *producerBatch, guard TxnGuard) error {
	open := entry != nil && entry.txnFirst >= 0
	switch {
	case open && !b.transactional:
		return fmt.Errorf("producer %d writes without its transaction, open since offset %d: %w",
			b.producer, entry.txnFirst, ErrTxnState)
	case !b.transactional || open && entry.epoch == b.epoch:
		return nil
	case guard == 0 || s.verifications[b.producer].guard != guard:
		return fmt.Errorf("producer %d epoch %d writes in a transaction that is neither open nor verified: %w",
			b.producer, b.epoch, ErrTxnState)
	}
	return nil
}

// checkSequence checks that a client's batch continues its producer's sequence.
func (s *producerState) checkSequence(entry *producerEntry, b *producerBatch) error {
	if pending, found := s.verifications[b.producer]; found && b.transactional && b.baseSequence > pending.lowestSequence {
		// An earlier batch of the same start was refused or is still being verified: this one would overtake it.
		return fmt.Errorf("producer %d starts a transaction with sequence %d, sequence %d was seen first: %w",
			b.producer, b.baseSequence, pending.lowestSequence, ErrOutOfOrderSequence)
	}
	switch {
	case entry == nil || entry.epoch == record.NoProducerEpoch:
		// Its batches are expired or deleted, or it is new: any first sequence is right (U-104).
		return nil
	case b.epoch != entry.epoch && b.baseSequence != 0:
		return fmt.Errorf("producer %d starts epoch %d with sequence %d, want 0: %w",
			b.producer, b.epoch, b.baseSequence, ErrOutOfOrderSequence)
	case b.epoch == entry.epoch:
		if want := record.AddSequence(entry.lastSequence(), 1); b.baseSequence != want {
			return fmt.Errorf("producer %d epoch %d writes sequence %d, want %d: %w",
				b.producer, b.epoch, b.baseSequence, want, ErrOutOfOrderSequence)
		}
	}
	return nil
}

// checkMarker checks the epochs of a coordinator's marker.
func checkMarker(entry *producerEntry, b *producerBatch, how producerCheck) error {
	if entry == nil {
		return nil
	}
	fenced := b.epoch < entry.epoch
	if how.transactionVersion >= 2 && b.epoch == entry.epoch {
		// Without an open transaction it is a coordinator's retry of a marker that is already here: harmless.
		fenced = entry.txnFirst >= 0
	}
	switch {
	case fenced:
		return fmt.Errorf("marker of producer %d has epoch %d, known is epoch %d (transaction version %d): %w",
			b.producer, b.epoch, entry.epoch, how.transactionVersion, ErrProducerFenced)
	case b.coordinatorEpoch < entry.coordinatorEpoch:
		return fmt.Errorf("marker of producer %d has coordinator epoch %d, known is %d: %w",
			b.producer, b.coordinatorEpoch, entry.coordinatorEpoch, ErrCoordinatorFenced)
	}
	return nil
}

// update folds a batch that has been given its offsets, in offset order. The log calls it after check, under the same
// lock. If a marker ended a transaction with data, that one is returned; an aborted one belongs into the transaction
// index before readers may see the marker.
func (s *producerState) update(b *producerBatch) (completed *completedTxn) {
	entry := s.producers[b.producer]
	if entry == nil {
		entry = new(producerEntry)
		*entry = newProducerEntry(b.producer)
		s.insert(entry)
	}
	entry.raiseEpoch(b.epoch)
	entry.lastTimestamp = b.maxTimestamp
	if b.marker != noMarker {
		entry.coordinatorEpoch = b.coordinatorEpoch
		delete(s.verifications, b.producer)
		return s.closeTxn(entry, b)
	}
	entry.add(batchEntry{
		lastSequence: b.lastSequence(),
		offsetDelta:  int32(b.last - b.base),
		lastOffset:   b.last,
		timestamp:    b.maxTimestamp,
	})
	if !b.transactional {
		return nil
	}
	if s.verifications[b.producer].epoch <= b.epoch { // also one from before a truncation that brought the transaction back
		delete(s.verifications, b.producer)
	}
	if entry.txnFirst < 0 {
		entry.txnFirst = b.base
		s.openTxn(openTxn{first: b.base, producer: b.producer})
	}
	return nil
}

func (s *producerState) closeTxn(entry *producerEntry, b *producerBatch) *completedTxn {
	first := entry.txnFirst
	if first < 0 {
		return nil
	}
	entry.txnFirst = -1
	if at, found := slices.BinarySearchFunc(s.open, first, compareOpen); found {
		s.open = slices.Delete(s.open, at, at+1)
	}
	at, _ := slices.BinarySearchFunc(s.unreplicated, first, compareClosed)
	s.unreplicated = slices.Insert(s.unreplicated, at, closedTxn{first: first, last: b.last})
	completed := &completedTxn{
		producer: b.producer, first: first, last: b.last, aborted: b.marker == abortMarker, lastStable: b.last + 1,
	}
	if len(s.open) > 0 {
		completed.lastStable = s.open[0].first
	}
	return completed
}

// insert adds the entry of a producer that is not known, also one that is loaded from a snapshot.
func (s *producerState) insert(entry *producerEntry) {
	if s.producers == nil {
		s.producers = make(map[int64]*producerEntry, 1)
	}
	s.producers[entry.id] = entry
}

// load replaces the state with what a snapshot holds, less the producers that have expired since.
func (s *producerState) load(entries []producerEntry, now int64, expiry time.Duration) {
	s.reset()
	for i := range entries {
		entry := &entries[i]
		if entry.expired(now, expiry) {
			continue
		}
		own := *entry
		s.insert(&own)
		if own.txnFirst >= 0 {
			s.openTxn(openTxn{first: own.txnFirst, producer: own.id})
		}
	}
}

func (s *producerState) openTxn(txn openTxn) {
	at, found := slices.BinarySearchFunc(s.open, txn.first, compareOpen)
	if !found {
		s.open = slices.Insert(s.open, at, txn)
	}
}

// reset forgets everything but the verifications that are under way: a truncated log starts its fold again.
func (s *producerState) reset() {
	s.producers, s.open, s.unreplicated = nil, nil, nil
}

// lastStable is the last stable offset of a log whose high watermark is highWatermark: no transaction with data below it
// is open, or ended by a marker that is not replicated. The log raises it to its start offset if data of an open
// transaction was deleted.
func (s *producerState) lastStable(highWatermark int64) int64 {
	stable := highWatermark
	if len(s.open) > 0 {
		stable = min(stable, s.open[0].first)
	}
	for _, txn := range s.unreplicated {
		if txn.first >= stable {
			break
		}
		if txn.last >= highWatermark {
			return txn.first
		}
	}
	return stable
}

// replicated drops the transactions that ended below the high watermark, or below a raised log start: it keeps lastStable
// short and changes none of its answers.
func (s *producerState) replicated(highWatermark int64) {
	if len(s.unreplicated) == 0 {
		return
	}
	s.unreplicated = slices.DeleteFunc(s.unreplicated, func(txn closedTxn) bool { return txn.last < highWatermark })
	if len(s.unreplicated) == 0 {
		s.unreplicated = nil
	}
}

// expire forgets the producers that have been silent for expiry and have no open transaction, and verifications as old.
// It tells how many producers went.
func (s *producerState) expire(now int64, expiry time.Duration) (expired int) {
	for id, entry := range s.producers {
		if entry.expired(now, expiry) {
			delete(s.producers, id)
			expired++
		}
	}
	for id, pending := range s.verifications {
		if now-pending.started >= expiry.Milliseconds() {
			delete(s.verifications, id)
		}
	}
	if len(s.producers) == 0 {
		s.producers = nil
	}
	if len(s.verifications) == 0 {
		s.verifications = nil
	}
	return expired
}

func (e *producerEntry) expired(now int64, expiry time.Duration) bool {
	return e.txnFirst < 0 && now-e.lastTimestamp >= expiry.Milliseconds()
}

// startVerification gives the ticket for a client's transactional batch whose transaction the coordinator must confirm
// before it is appended; zero when the transaction is open here, which needs no ticket. Batches of one start share it.
func (s *producerState) startVerification(producer int64, epoch int16, baseSequence int32, now int64) TxnGuard {
	if entry := s.producers[producer]; entry != nil && entry.txnFirst >= 0 && entry.epoch == epoch {
		return 0
	}
	pending, found := s.verifications[producer]
	switch {
	case !found:
		s.guards++
		pending = verification{guard: s.guards, started: now, lowestSequence: baseSequence, epoch: epoch}
	case epoch > pending.epoch:
		pending.epoch, pending.lowestSequence = epoch, baseSequence
	case epoch == pending.epoch:
		pending.lowestSequence = min(pending.lowestSequence, baseSequence)
	}
	if s.verifications == nil {
		s.verifications = make(map[int64]verification, 1)
	}
	s.verifications[producer] = pending
	return pending.guard
}

// Producer is the state of one producer, as DescribeProducers shows it.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // −1: none
	LastTimestamp    int64 // ms since the epoch, −1: none
	CoordinatorEpoch int32 // −1: no transaction of it has ended here
	TxnStart         int64 // first offset of its open transaction, −1: none
}

// view is what others see of the producer.
func (e *producerEntry) view() Producer {
	return Producer{
		ID: e.id, Epoch: e.epoch, LastSequence: e.lastSequence(), LastTimestamp: e.lastTimestamp,
		CoordinatorEpoch: e.coordinatorEpoch, TxnStart: e.txnFirst,
	}
}

// list is the producers, sorted by id.
func (s *producerState) list() []Producer {
	producers := make([]Producer, 0, len(s.producers))
	for _, entry := range s.producers {
		producers = append(producers, entry.view())
	}
	slices.SortFunc(producers, func(a, b Producer) int { return cmp.Compare(a.ID, b.ID) })
	return producers
}

// entries is a copy of the producers sorted by id, for a snapshot: it is taken under the log's lock and encoded without.
func (s *producerState) entries() []producerEntry {
	entries := make([]producerEntry, 0, len(s.producers))
	for _, entry := range s.producers {
		entries = append(entries, *entry)
	}
	slices.SortFunc(entries, func(a, b producerEntry) int { return cmp.Compare(a.id, b.id) })
	return entries
}

func compareOpen(txn openTxn, first int64) int { return cmp.Compare(txn.first, first) }

func compareClosed(txn closedTxn, first int64) int { return cmp.Compare(txn.first, first) }

// subtractSequence is the inverse of record.AddSequence; record.NoSequence stays what it is.
func subtractSequence(sequence, delta int32) int32 {
	if sequence == record.NoSequence {
		return record.NoSequence
	}
	return (sequence - delta) & math.MaxInt32
}
