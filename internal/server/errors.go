package server

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/record"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// Errors of this package that become codes.
var (
	// errUnknownPartition is for a topic or partition that the Image does not have (UNKNOWN_TOPIC_OR_PARTITION).
	errUnknownPartition = errors.New("this server does not host this topic-partition")
	// errUnknownTopicID is for a topic id that the Image does not have (UNKNOWN_TOPIC_ID).
	errUnknownTopicID = errors.New("this server does not host this topic id")
	// errInternalTopic is for records of clients to an internal topic, or their deletion (INVALID_TOPIC_EXCEPTION).
	errInternalTopic = errors.New("the topic is internal: clients neither write to it nor delete from it")
)

// codes is the map from errors to Kafka's codes. The first entry that an error is decides.
var codes = []struct {
	err  error
	code *kerr.Error
}{
	{replica.ErrNotLeader, kerr.NotLeaderForPartition},
	{replica.ErrGone, kerr.UnknownTopicOrPartition},
	{errUnknownPartition, kerr.UnknownTopicOrPartition},
	{errUnknownTopicID, kerr.UnknownTopicID},
	{errInternalTopic, kerr.InvalidTopicException},
	{replica.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{replica.ErrFencedEpoch, kerr.FencedLeaderEpoch},
	{replica.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{replica.ErrOffsetNotAvailable, kerr.OffsetNotAvailable},
	{replica.ErrNotEnoughReplicas, kerr.NotEnoughReplicas},
	{replica.ErrNotEnoughAfterAppend, kerr.NotEnoughReplicasAfterAppend},
	{replica.ErrTimedOut, kerr.RequestTimedOut},
	{replica.ErrBadAcks, kerr.InvalidRequiredAcks},
	{replica.ErrPolicy, kerr.PolicyViolation},
	{replica.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{replica.ErrProducerFenced, kerr.InvalidProducerEpoch},
	{replica.ErrTxnState, kerr.InvalidTxnState},
	{replica.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
	{replica.ErrSegmentSize, kerr.RecordListTooLarge},
	{record.ErrTooLarge, kerr.MessageTooLarge},
	{record.ErrCodec, kerr.UnsupportedCompressionType},
	{record.ErrTimestamp, kerr.InvalidTimestamp},
	{record.ErrMagic, kerr.InvalidRecord},
	{record.ErrInvalid, kerr.InvalidRecord},
	{record.ErrCorrupt, kerr.CorruptMessage},
	{replica.ErrStorage, kerr.KafkaStorageError},
	// The server stops, or a role change outlasted the request: the client finds out who leads now.
	{context.Canceled, kerr.NotLeaderForPartition},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
}

// adminCodes is the map for errors of admin calls. The first entry that an error is decides.
var adminCodes = []struct {
	err  error
	code *kerr.Error
}{
	{controller.ErrInvalidTopic, kerr.InvalidTopicException},
	{controller.ErrTopicExists, kerr.TopicAlreadyExists},
	{controller.ErrInvalidPartitions, kerr.InvalidPartitions},
	{controller.ErrInvalidReplicationFactor, kerr.InvalidReplicationFactor},
	{controller.ErrInvalidReplicaAssignment, kerr.InvalidReplicaAssignment},
	{controller.ErrInvalidConfig, kerr.InvalidConfig},
	{controller.ErrInvalidRequest, kerr.InvalidRequest},
	{controller.ErrPolicyViolation, kerr.PolicyViolation},
	{controller.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{controller.ErrUnknownTopicID, kerr.UnknownTopicID},
	{controller.ErrUnknownBroker, kerr.BrokerIDNotRegistered},
	{controller.ErrDeletionDisabled, kerr.TopicDeletionDisabled},
	{controller.ErrNoMove, kerr.NoReassignmentInProgress},
	{controller.ErrElectionNotNeeded, kerr.ElectionNotNeeded},
	{controller.ErrPreferredNotAvailable, kerr.PreferredLeaderNotAvailable},
	{controller.ErrEligibleNotAvailable, kerr.EligibleLeadersNotAvailable},
	{controller.ErrInvalidUpdateVersion, kerr.InvalidUpdateVersion},
	{controller.ErrConcurrent, kerr.NotController},
	{context.Canceled, kerr.RequestTimedOut},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{registry.ErrConflict, kerr.RequestTimedOut}, // lost a race too often: asking again may help
	{registry.ErrDeposed, kerr.NotController},    // this broker is fenced
	{registry.ErrUnavailable, kerr.RequestTimedOut},
	{registry.ErrFull, kerr.KafkaStorageError},
	{registry.ErrFailed, kerr.KafkaStorageError},
}

// codeOf is the code that a client is given for an error; 0 for nil, UNKNOWN_SERVER_ERROR for one that has none.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			return codes[i].code.Code
		}
	}
	return kerr.UnknownServerError.Code
}

// unexpected tells an error that has no code of its own: it is logged, because nobody else will.
func unexpected(code int16) bool { return code == kerr.UnknownServerError.Code }

// adminCodeOf is the code that a client is given for an error of an admin call; UNKNOWN_SERVER_ERROR for one that has
// none.
func adminCodeOf(err error) int16 {
	for i := range adminCodes {
		if errors.Is(err, adminCodes[i].err) {
			return adminCodes[i].code.Code
		}
	}
	return kerr.UnknownServerError.Code
}
