package controller

import (
	"errors"
	"fmt"
)

// The kinds of refusals; each is the Kafka error of the same name, and server gives it its code. A refusal changes
// nothing (U-92).
var (
	ErrInvalidTopic             = errors.New("INVALID_TOPIC_EXCEPTION")
	ErrTopicExists              = errors.New("TOPIC_ALREADY_EXISTS")
	ErrInvalidPartitions        = errors.New("INVALID_PARTITIONS")
	ErrInvalidReplicationFactor = errors.New("INVALID_REPLICATION_FACTOR")
	ErrInvalidReplicaAssignment = errors.New("INVALID_REPLICA_ASSIGNMENT")
	ErrInvalidConfig            = errors.New("INVALID_CONFIG")
	ErrInvalidRequest           = errors.New("INVALID_REQUEST")
	ErrPolicyViolation          = errors.New("POLICY_VIOLATION")
	ErrUnknownTopic             = errors.New("UNKNOWN_TOPIC_OR_PARTITION")
	ErrUnknownTopicID           = errors.New("UNKNOWN_TOPIC_ID")
	ErrUnknownBroker            = errors.New("BROKER_ID_NOT_REGISTERED")
	ErrNoMove                   = errors.New("NO_REASSIGNMENT_IN_PROGRESS")
	ErrElectionNotNeeded        = errors.New("ELECTION_NOT_NEEDED")
	ErrPreferredNotAvailable    = errors.New("PREFERRED_LEADER_NOT_AVAILABLE")
	ErrEligibleNotAvailable     = errors.New("ELIGIBLE_LEADERS_NOT_AVAILABLE")
	ErrDeletionDisabled         = errors.New("TOPIC_DELETION_DISABLED")
	ErrInvalidUpdateVersion     = errors.New("INVALID_UPDATE_VERSION")
	ErrConcurrent               = errors.New("NOT_CONTROLLER") // others changed it meanwhile; the code makes clients read again and try again
)

// Refusal is returned, for one item of a request, when Kafka would refuse it.
type Refusal struct {
	Kind    error  // one of the kinds above
	Message string // Kafka's words, for the client
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// Unwrap is the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

func refuse(kind error, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Message: fmt.Sprintf(format, args...)}
}
