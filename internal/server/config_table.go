package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// ConfigTable is the configuration of this broker: the keys that exist and the values that its properties file,
// environment and flags gave. What was set at run time is in the Image. It is immutable.
type ConfigTable struct {
	keys   *meta.ConfigKeys
	broker meta.BrokerID
	static map[string]string   // canonical values
	units  map[string][]string // broker key → its elder forms in larger units, in order
}

// NewConfigTable checks the static values against the keys. The error names the first key, in alphabetical order, that
// does not exist or has a wrong value.
func NewConfigTable(keys *meta.ConfigKeys, broker meta.BrokerID, static map[string]string) (*ConfigTable, error) {
	t := &ConfigTable{keys: keys, broker: broker, static: make(map[string]string), units: make(map[string][]string)}
	for _, name := range slices.Sorted(maps.Keys(static)) {
		key := t.brokerKey(name)
		if key == nil {
			return nil, fmt.Errorf("unknown configuration key %s", name)
		}
		value, err := key.Parse(static[name])
		if err != nil {
			return nil, err
		}
		t.static[name] = value
	}
	for _, name := range []string{"node.id", "broker.id"} {
		if keys.Broker(name) != nil {
			t.static[name] = broker.String() // both names, whichever was given
		}
	}
	for _, key := range keys.TopicKeys() {
		for _, unit := range key.Units {
			t.units[key.Synonym] = append(t.units[key.Synonym], unit.Name)
		}
	}
	return t, nil
}

// ListenerPrefix begins keys that hold for one listener only, such as listener.name.internal.ssl.keystore.location: its
// name in lower case follows, a dot, and the key.
const ListenerPrefix = "listener.name."

// brokerKey finds the key of a name, which may have the prefix of a listener; nil if there is none.
func (t *ConfigTable) brokerKey(name string) *meta.ConfigKey {
	rest, found := strings.CutPrefix(name, ListenerPrefix)
	if !found {
		return t.keys.Broker(name)
	}
	_, rest, _ = strings.Cut(rest, ".")
	return t.keys.Broker(rest)
}

// Keys lists what may be configured.
func (t *ConfigTable) Keys() *meta.ConfigKeys { return t.keys }

// Lookup returns what is set for a broker key at this moment: for this broker, as the cluster's default or in the
// properties file, in this order.
func (t *ConfigTable) Lookup(image *meta.Image) meta.ConfigLookup {
	own := image.Config(meta.BrokerConfig(t.broker))
	byDefault := image.Config(meta.DefaultBrokerConfig)
	return func(name string) (string, bool) {
		for _, values := range [...]map[string]string{own, byDefault, t.static} {
			if value, set := values[name]; set {
				return value, true
			}
		}
		return "", false
	}
}

// Value is the value of a broker key that counts at this moment, in canonical form; empty for null. A key that does not
// exist is a mistake of the caller and has no value.
func (t *ConfigTable) Value(image *meta.Image, name string) string {
	value, set := t.Lookup(image)(name)
	key := t.keys.Broker(name)
	switch {
	case key == nil:
		return ""
	case set:
		if canonical, err := key.Parse(value); err == nil {
			return canonical
		}
	}
	return key.Default // nothing was set, or by a version with other rules
}

// Bool is Value for a boolean key.
func (t *ConfigTable) Bool(image *meta.Image, name string) bool {
	return t.Value(image, name) == "true"
}

// Int is Value for a number; 0 for null.
func (t *ConfigTable) Int(image *meta.Image, name string) int64 {
	n, err := strconv.ParseInt(t.Value(image, name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// TopicValue is the value of a topic key that counts for the topic at this moment, in canonical form.
func (t *ConfigTable) TopicValue(image *meta.Image, topic map[string]string, name string) string {
	key := t.keys.Topic(name)
	if key == nil {
		return ""
	}
	value, err := key.Effective(topic, t.Lookup(image))
	if err != nil {
		return key.Default
	}
	return value
}

// CheckTopic judges the whole of what would be set for a topic. The error is Kafka's message for INVALID_CONFIG.
func (t *ConfigTable) CheckTopic(image *meta.Image, values map[string]string) error {
	return t.keys.CheckTopic(values, t.Lookup(image))
}

// chain lists the broker keys that stand behind one: itself and its elder forms in larger units.
func (t *ConfigTable) chain(name string) []string { return append([]string{name}, t.units[name]...) }

// level is one place where a broker key may have a value.
type level struct {
	source kmsg.ConfigSource
	value  func(name string) (string, bool)
}

// levels lists the places in the order in which they count.
func (t *ConfigTable) levels(image *meta.Image) []level {
	in := func(values map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			value, set := values[name]
			return value, set
		}
	}
	return []level{
		{kmsg.ConfigSourceDynamicBrokerConfig, in(image.Config(meta.BrokerConfig(t.broker)))},
		{kmsg.ConfigSourceDynamicDefaultBrokerConfig, in(image.Config(meta.DefaultBrokerConfig))},
		{kmsg.ConfigSourceStaticBrokerConfig, in(t.static)},
		{kmsg.ConfigSourceDefaultConfig, func(name string) (string, bool) {
			key := t.keys.Broker(name)
			if key == nil || !key.HasDefault {
				return "", false
			}
			return key.Default, true
		}},
	}
}

// synonym is one value that was given for a key, at one level.
type synonym struct {
	name, value string
	source      kmsg.ConfigSource
}

// synonyms lists what was given for a broker key and its elder forms, in the order in which it counts. As in Kafka,
// what stands before the first value of the key itself is left out.
func (t *ConfigTable) synonyms(image *meta.Image, name string) []synonym {
	var all []synonym
	for _, level := range t.levels(image) {
		for _, link := range t.chain(name) {
			if value, set := level.value(link); set {
				all = append(all, synonym{link, value, level.source})
			}
		}
	}
	first := slices.IndexFunc(all, func(s synonym) bool { return s.name == name })
	if first < 0 {
		return nil
	}
	return all[first:]
}
