package meta

// Apply is the controller's statement to one broker of what the registry holds (D5). It is level-triggered: it names
// current values, so that repeating or merging statements is harmless.
type Apply struct {
	Controller      BrokerID
	ControllerEpoch int64 // of the sender; a broker ignores senders older than the newest it has heard
	Registration    int64 // the registration epoch of the broker that it is meant for; another one refuses it
	Revision        int64 // every value named here was read at this registry revision or later
	ConfigRevision  int64 // the last revision, not above Revision, at which any configuration changed

	// Full says that Topics and Partitions are complete: what they do not mention does not exist at Revision.
	Full bool

	Brokers    []Broker // all registered brokers; empty when unchanged
	Topics     []TopicUpdate
	Partitions []PartitionUpdate
}

// TopicUpdate introduces, changes or removes one life of a topic.
type TopicUpdate struct {
	ID             TopicID
	Name           string
	Deleted        bool // the id will never exist again
	ConfigRevision int64
}

// PartitionUpdate states one partition: its whole value, or that the registry has none.
type PartitionUpdate struct {
	ID        TopicID
	Partition int32
	Absent    bool // absent from the registry; State is empty
	State     Partition
}
