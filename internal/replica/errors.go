package replica

import (
	"errors"

	"github.com/tidemark-io/tidemark/internal/commitlog"
)

// Errors of replicas. The server turns each into a code of the protocol; the name of that code is in the comment.
var (
	// ErrNotLeader is returned by every request to a replica that does not lead, and completes waiting produces when
	// leadership is lost (NOT_LEADER_OR_FOLLOWER, R-109).
	ErrNotLeader = errors.New("this broker does not lead the partition")
	// ErrGone completes requests that wait when their partition is deleted (UNKNOWN_TOPIC_OR_PARTITION).
	ErrGone = errors.New("the partition was deleted")
	// ErrFencedEpoch is returned when the client's leader epoch is older than the replica's (FENCED_LEADER_EPOCH, R-119).
	ErrFencedEpoch = errors.New("the leader epoch of the request is older than the partition's")
	// ErrUnknownEpoch is returned when the client's leader epoch is newer than the replica's (UNKNOWN_LEADER_EPOCH).
	ErrUnknownEpoch = errors.New("the leader epoch of the request is newer than the partition's")
	// ErrNotEnoughReplicas is returned by Append with acks=all when the ISR is below min.insync.replicas
	// (NOT_ENOUGH_REPLICAS, R-108). Nothing was appended.
	ErrNotEnoughReplicas = errors.New("fewer replicas are in sync than min.insync.replicas demands")
	// ErrNotEnoughAfterAppend completes an append whose records are committed, but with an ISR that has fallen below
	// min.insync.replicas (NOT_ENOUGH_REPLICAS_AFTER_APPEND).
	ErrNotEnoughAfterAppend = errors.New("records were appended, but to fewer replicas than min.insync.replicas demands")
	// ErrTimedOut completes an append that was not committed within the request's timeout; the records stay in the log
	// (REQUEST_TIMED_OUT, R-109).
	ErrTimedOut = errors.New("records were not committed in time")
	// ErrOffsetNotAvailable is returned by ListOffset when a new leader has not yet committed up to the start of its
	// epoch (OFFSET_NOT_AVAILABLE, R-144).
	ErrOffsetNotAvailable = errors.New("the high watermark has not reached the start of the leader's epoch")
	// ErrPolicy is returned by DeleteRecords for a topic whose cleanup.policy does not include delete (POLICY_VIOLATION).
	ErrPolicy = errors.New("records cannot be deleted: the topic's cleanup.policy does not include delete")
	// ErrBadAcks is returned by Append for acks other than -1, 0 and 1 (INVALID_REQUIRED_ACKS, R-106).
	ErrBadAcks = errors.New("acks is not one of -1, 0 and 1")
)

// Errors of logs, so that whoever serves requests need not know logs. Those of batches are in package record.
var (
	// ErrStorage is returned by requests whose log failed, and by Append while the disk is nearly full
	// (KAFKA_STORAGE_ERROR).
	ErrStorage = commitlog.ErrStorage
	// ErrOffsetOutOfRange is returned by Read and DeleteRecords for an offset outside the log (OFFSET_OUT_OF_RANGE).
	ErrOffsetOutOfRange = commitlog.ErrOutOfRange
	// ErrSegmentSize is returned by Append when the batches of one request exceed the segment size
	// (RECORD_LIST_TOO_LARGE).
	ErrSegmentSize = commitlog.ErrSegmentSize
	// ErrOutOfOrderSequence is returned by Append (OUT_OF_ORDER_SEQUENCE_NUMBER).
	ErrOutOfOrderSequence = commitlog.ErrOutOfOrderSequence
	// ErrProducerFenced is returned by Append (INVALID_PRODUCER_EPOCH).
	ErrProducerFenced = commitlog.ErrProducerFenced
	// ErrTxnState is returned by Append for transactional batches of no known transaction (INVALID_TXN_STATE).
	ErrTxnState = commitlog.ErrTxnState
	// ErrCoordinatorFenced is returned by Append for markers of an older coordinator (TRANSACTION_COORDINATOR_FENCED).
	ErrCoordinatorFenced = commitlog.ErrCoordinatorFenced
)
