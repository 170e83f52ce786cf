package meta

// ConfigType is the type of a configuration value; the numbers are those of the DescribeConfigs protocol.
type ConfigType int8

// The types, as Kafka numbers them.
const (
	BoolType     ConfigType = 1
	StringType   ConfigType = 2
	IntType      ConfigType = 3
	ShortType    ConfigType = 4
	LongType     ConfigType = 5
	DoubleType   ConfigType = 6
	ListType     ConfigType = 7
	ClassType    ConfigType = 8
	PasswordType ConfigType = 9
)

// String is Kafka's name of the type.
func (t ConfigType) String() string {
	names := [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}
	if t < 0 || int(t) >= len(names) {
		return names[0]
	}
	return names[t]
}

// DynamicMode says how a broker key may change while brokers run.
type DynamicMode int8

// The modes, as Kafka's documentation names them.
const (
	ReadOnly    DynamicMode = iota // only by a restart
	PerBroker                      // for one broker by its id
	ClusterWide                    // as the cluster's default, or for one broker by its id
)

// String is Kafka's documentation name of the mode.
func (m DynamicMode) String() string {
	switch m {
	case PerBroker:
		return "per-broker"
	case ClusterWide:
		return "cluster-wide"
	default:
		return "read-only"
	}
}

// ConfigKey describes one configuration key. Each package exports the keys that it understands; broker joins them into
// one table (D14).
type ConfigKey struct {
	Name       string
	Type       ConfigType
	Default    string // in the form a user would write; meaningful when HasDefault
	HasDefault bool   // false: the default is null, or the key must be given
	Doc        string // one or two sentences: what, unit, when to change it

	Topic, Broker bool        // where the key may be set
	Dynamic       DynamicMode // for broker keys
	Synonym       string      // the broker key that a topic key falls back to, "" for none
	Units         []UnitKey   // the broker keys in larger units that count when Synonym is not set, in order

	// Valid says which values are right; nil accepts whatever has the type. Parse applies it.
	Valid Validator

	Sensitive bool // never shown
	Internal  bool // not part of the documented configuration
	NoEffect  bool // accepted for compatibility; does nothing here
}

// UnitKey is a broker key that gives a topic's milliseconds in a larger unit, such as log.retention.hours.
type UnitKey struct {
	Name   string
	Millis int64 // in one unit
}

// ResourceKind says what a configuration belongs to; the numbers are those of the protocol.
type ResourceKind int8

// The kinds that have configurations in the registry.
const (
	TopicResource  ResourceKind = 2
	BrokerResource ResourceKind = 4
)

// String is Kafka's name of the kind.
func (k ResourceKind) String() string {
	switch k {
	case TopicResource:
		return "TOPIC"
	case BrokerResource:
		return "BROKER"
	}
	return "UNKNOWN"
}

// ConfigResource names a configuration: a topic by its name, a broker by its id in decimal, or with the empty name the
// default of all brokers.
type ConfigResource struct {
	Kind ResourceKind
	Name string
}

// TopicConfig is the resource of a topic.
func TopicConfig(name string) ConfigResource { return ConfigResource{TopicResource, name} }

// BrokerConfig is the resource of one broker.
func BrokerConfig(id BrokerID) ConfigResource { return ConfigResource{BrokerResource, id.String()} }

// DefaultBrokerConfig is the resource that holds the defaults of all brokers.
var DefaultBrokerConfig = ConfigResource{Kind: BrokerResource}

// String is the kind and the name, for logs and messages.
func (r ConfigResource) String() string {
	if r.Kind == BrokerResource && r.Name == "" {
		return "BROKER default"
	}
	return r.Kind.String() + " " + r.Name
}
