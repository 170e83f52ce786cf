package meta

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// TopicNameBytesMax is the longest legal topic name: "<name>-<partition>" and the suffix of a deleted directory must
// still be a file name.
const TopicNameBytesMax = 249

// ErrTopicName is returned by ValidateTopicName for an illegal name.
var ErrTopicName = errors.New("invalid topic name")

// topicNameError carries Kafka's text and is an ErrTopicName.
type topicNameError string

func (e topicNameError) Error() string        { return "Topic name is invalid: " + string(e) }
func (e topicNameError) Is(target error) bool { return target == ErrTopicName }

// ValidateTopicName applies Kafka's rules. The error is an ErrTopicName whose text is the one that Kafka answers.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return topicNameError("the empty string is not allowed")
	case name == ".":
		return topicNameError("'.' is not allowed")
	case name == "..":
		return topicNameError("'..' is not allowed")
	case len(name) > TopicNameBytesMax:
		return topicNameError(fmt.Sprintf("the length of '%s' is longer than the max allowed length %d", name, TopicNameBytesMax))
	}
	for i := range len(name) {
		c := name[i]
		legal := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
		if !legal {
			return topicNameError("'" + name + "' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
		}
	}
	return nil
}

// CollisionKey is equal for two names that would share a metric name: "." and "_" are the same there, so Kafka refuses
// to create a topic whose key another topic has.
func CollisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// The topics that brokers keep for themselves (D15).
const (
	OffsetsTopic          = "__consumer_offsets"
	TransactionTopic      = "__transaction_state"
	ShareGroupTopic       = "__share_group_state"
	RemoteMetadataTopic   = "__remote_log_metadata"
	DeletionTopic         = "__segment_deletion"
	DeletionRetryTopic    = "__segment_deletion_retry"
	DeletionLastTopic     = "__segment_deletion_dlq"
	ClusterMetadataTopic  = "__cluster_metadata" // Kafka's; never created here, the name is reserved
	internalTopicsPattern = "__"
)

var internalTopics = []string{
	OffsetsTopic, TransactionTopic, ShareGroupTopic, RemoteMetadataTopic, DeletionTopic, DeletionRetryTopic, DeletionLastTopic,
}

// InternalTopics lists the names that IsInternalTopic accepts.
func InternalTopics() []string { return slices.Clone(internalTopics) }

// IsInternalTopic tells whether brokers own the topic: clients see it marked internal, and D15 protects it.
func IsInternalTopic(name string) bool {
	return strings.HasPrefix(name, internalTopicsPattern) && slices.Contains(internalTopics, name)
}

// AlwaysFlushed tells whether acknowledgements of the topic always wait for fsync (D15): a power cut that forgot one of
// its records would leave remote bytes without an owner.
func AlwaysFlushed(name string) bool {
	switch name {
	case RemoteMetadataTopic, DeletionTopic, DeletionRetryTopic, DeletionLastTopic:
		return true
	}
	return false
}
