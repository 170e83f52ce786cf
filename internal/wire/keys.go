package wire

// Keys of the requests that this package itself must know by number.
const (
	KeyProduce     int16 = 0
	KeyFetch       int16 = 1
	KeyApiVersions int16 = 18
)

// Limits on the length of a request frame, in bytes without the length field.
const (
	// ProduceBytesMax is the default of socket.request.max.bytes, which bounds Produce frames.
	ProduceBytesMax = 100 << 20
	// RequestBytesMax bounds every other request that carries lists or opaque bytes.
	RequestBytesMax = 4 << 20
	// SmallRequestBytesMax bounds requests that have no body to speak of.
	SmallRequestBytesMax = 64 << 10
	// ChargeFactor is how many times its own size a decoded request may take in memory, at most; the server charges
	// it to the budget of requests in flight.
	ChargeFactor = 32
)

// API is one row of the table of requests: a key, the versions that are served once a handler is registered for it,
// and how its header and size are limited. The ranges are those of Apache Kafka 4.4 (KIP-896 set the floors).
type API struct {
	// Key is the request's number in the protocol.
	Key int16
	// Name is Kafka's name of the request, as metrics and logs spell it.
	Name string
	// Min and Max are the first and last version that is parsed and answered.
	Min, Max int16
	// Flexible is the first version with compact lengths and tagged fields (KIP-482).
	Flexible int16
	// BytesMax bounds the frame's length, in bytes without the length field.
	BytesMax int32
	// AdvertisedMin is the first version that ApiVersions claims. It differs from Min for Produce only: librdkafka
	// before 2.11.1 switches compression off unless the range starts at 0 (KAFKA-18659), so Kafka claims versions
	// that it then refuses.
	AdvertisedMin int16

	fields []field
}

// Supports tells whether the version is parsed and answered.
func (a *API) Supports(version int16) bool { return version >= a.Min && version <= a.Max }

// IsFlexible tells whether the version has compact lengths and tagged fields.
func (a *API) IsFlexible(version int16) bool { return version >= a.Flexible }

// apis is the table. A row means that the request can be checked and decoded, not that it is served: the server
// serves, and ApiVersions lists, the keys with a handler.
var apis = [...]API{
	{Key: 0, Name: "Produce", Min: 3, Max: 13, Flexible: 9, BytesMax: ProduceBytesMax},
	{Key: 1, Name: "Fetch", Min: 4, Max: 18, Flexible: 12},
	{Key: 2, Name: "ListOffsets", Min: 1, Max: 11, Flexible: 6},
	{Key: 3, Name: "Metadata", Min: 0, Max: 13, Flexible: 9},
	{Key: 8, Name: "OffsetCommit", Min: 2, Max: 10, Flexible: 8},
	{Key: 9, Name: "OffsetFetch", Min: 1, Max: 10, Flexible: 6},
	{Key: 10, Name: "FindCoordinator", Min: 0, Max: 6, Flexible: 3},
	{Key: 11, Name: "JoinGroup", Min: 0, Max: 9, Flexible: 6},
	{Key: 12, Name: "Heartbeat", Min: 0, Max: 4, Flexible: 4, BytesMax: SmallRequestBytesMax},
	{Key: 13, Name: "LeaveGroup", Min: 0, Max: 5, Flexible: 4},
	{Key: 14, Name: "SyncGroup", Min: 0, Max: 5, Flexible: 4},
	{Key: 15, Name: "DescribeGroups", Min: 0, Max: 6, Flexible: 5},
	{Key: 16, Name: "ListGroups", Min: 0, Max: 5, Flexible: 3, BytesMax: SmallRequestBytesMax},
	{Key: 18, Name: "ApiVersions", Min: 0, Max: 5, Flexible: 3, BytesMax: SmallRequestBytesMax},
	{Key: 19, Name: "CreateTopics", Min: 2, Max: 7, Flexible: 5},
	{Key: 20, Name: "DeleteTopics", Min: 1, Max: 6, Flexible: 4},
	{Key: 21, Name: "DeleteRecords", Min: 0, Max: 2, Flexible: 2},
	{Key: 22, Name: "InitProducerId", Min: 0, Max: 5, Flexible: 2, BytesMax: SmallRequestBytesMax},
	{Key: 23, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, Flexible: 4},
	{Key: 32, Name: "DescribeConfigs", Min: 1, Max: 4, Flexible: 4},
	{Key: 33, Name: "AlterConfigs", Min: 0, Max: 2, Flexible: 2},
	{Key: 35, Name: "DescribeLogDirs", Min: 1, Max: 5, Flexible: 2},
	{Key: 37, Name: "CreatePartitions", Min: 0, Max: 3, Flexible: 2},
	{Key: 42, Name: "DeleteGroups", Min: 0, Max: 3, Flexible: 2},
	{Key: 43, Name: "ElectLeaders", Min: 0, Max: 2, Flexible: 2},
	{Key: 44, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, Flexible: 1},
	{Key: 45, Name: "AlterPartitionReassignments", Min: 0, Max: 1, Flexible: 0},
	{Key: 46, Name: "ListPartitionReassignments", Min: 0, Max: 0, Flexible: 0},
	{Key: 47, Name: "OffsetDelete", Min: 0, Max: 0, Flexible: 1}, // never flexible
	{Key: 55, Name: "DescribeQuorum", Min: 0, Max: 2, Flexible: 0, BytesMax: SmallRequestBytesMax},
	{Key: 57, Name: "UpdateFeatures", Min: 0, Max: 2, Flexible: 0, BytesMax: SmallRequestBytesMax},
	{Key: 60, Name: "DescribeCluster", Min: 0, Max: 2, Flexible: 0, BytesMax: SmallRequestBytesMax},
	{Key: 61, Name: "DescribeProducers", Min: 0, Max: 0, Flexible: 0},
	{Key: 64, Name: "UnregisterBroker", Min: 0, Max: 0, Flexible: 0, BytesMax: SmallRequestBytesMax},
	{Key: 74, Name: "ListConfigResources", Min: 0, Max: 1, Flexible: 0, BytesMax: SmallRequestBytesMax},
	{Key: 75, Name: "DescribeTopicPartitions", Min: 0, Max: 0, Flexible: 0},
}

// byKey finds a row by its key without a map; keys that have no row are nil.
var byKey = func() (table [76]*API) {
	for i := range apis {
		api := &apis[i]
		if api.BytesMax == 0 {
			api.BytesMax = RequestBytesMax
		}
		api.AdvertisedMin = api.Min
		if api.Key == KeyProduce {
			api.AdvertisedMin = 0
		}
		api.fields = requestFields[api.Key]
		table[api.Key] = api
	}
	return table
}()

// Lookup finds the row of a key; it is nil for a key that this build does not know. The row is shared: read only.
func Lookup(key int16) *API {
	if key >= privateKeyMin {
		return lookupPrivate(key)
	}
	if key < 0 || int(key) >= len(byKey) {
		return nil
	}
	return byKey[key]
}
