package meta

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ConfigKeys finds configuration keys by their name. A name may belong to a topic key and to a broker key.
type ConfigKeys struct {
	topic, broker map[string]*ConfigKey

	topicSorted, brokerSorted []*ConfigKey // by name
}

// NewConfigKeys joins the tables of packages. It fails if a name occurs twice in one scope.
func NewConfigKeys(tables ...[]ConfigKey) (*ConfigKeys, error) {
	all := &ConfigKeys{topic: make(map[string]*ConfigKey), broker: make(map[string]*ConfigKey)}
	for _, table := range tables {
		for i := range table {
			key := &table[i]
			for _, scope := range []struct {
				in   bool
				keys map[string]*ConfigKey
			}{{key.Topic, all.topic}, {key.Broker, all.broker}} {
				if !scope.in {
					continue
				}
				if scope.keys[key.Name] != nil {
					return nil, fmt.Errorf("configuration key %s is listed twice", key.Name)
				}
				scope.keys[key.Name] = key
			}
		}
	}
	all.topicSorted, all.brokerSorted = sortedKeys(all.topic), sortedKeys(all.broker)
	return all, nil
}

// Topic finds a topic's key, nil if there is none.
func (all *ConfigKeys) Topic(name string) *ConfigKey { return all.topic[name] }

// Broker finds a broker's key, nil if there is none.
func (all *ConfigKeys) Broker(name string) *ConfigKey { return all.broker[name] }

// TopicKeys lists the topics' keys, sorted by name. The slice is shared: read only.
func (all *ConfigKeys) TopicKeys() []*ConfigKey { return all.topicSorted }

// BrokerKeys lists the brokers' keys, sorted by name. The slice is shared: read only.
func (all *ConfigKeys) BrokerKeys() []*ConfigKey { return all.brokerSorted }

func sortedKeys(keys map[string]*ConfigKey) []*ConfigKey {
	return slices.SortedFunc(maps.Values(keys), func(x, y *ConfigKey) int { return cmp.Compare(x.Name, y.Name) })
}

// ConfigLookup returns what was set for a broker key, and whether anything was set: for the broker itself, as the
// cluster's default, or in the properties file.
type ConfigLookup func(key string) (value string, set bool)

// CheckTopic judges the whole of what is set for a topic: every key must exist, every value be right, and the values
// fit together. The error is Kafka's message, for the code INVALID_CONFIG.
func (all *ConfigKeys) CheckTopic(values map[string]string, broker ConfigLookup) error {
	names := slices.Sorted(maps.Keys(values))
	for _, name := range names {
		if all.topic[name] == nil {
			return fmt.Errorf("Unknown topic config name: %s", name) //nolint:staticcheck // Kafka's words
		}
	}
	for _, name := range names {
		if _, err := all.topic[name].Parse(values[name]); err != nil {
			return err
		}
	}
	if err := all.checkLags(values, broker); err != nil {
		return err
	}
	return checkTier(values, broker)
}

// checkTier refuses to tier a topic on brokers that do not tier.
func checkTier(values map[string]string, broker ConfigLookup) error {
	if !strings.EqualFold(strings.TrimSpace(values["remote.storage.enable"]), "true") {
		return nil
	}
	if enabled, _ := broker("remote.log.storage.system.enable"); enabled == "true" {
		return nil
	}
	//nolint:staticcheck // Kafka's words
	return errors.New("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
}

// checkLags refuses a record that must be compacted before it may be.
func (all *ConfigKeys) checkLags(values map[string]string, broker ConfigLookup) error {
	var lags [2]int64
	for i, name := range []string{"min.compaction.lag.ms", "max.compaction.lag.ms"} {
		key := all.topic[name]
		if key == nil {
			return nil
		}
		value, err := key.Effective(values, broker)
		if err != nil {
			return err
		}
		if lags[i], err = strconv.ParseInt(value, 10, 64); err != nil {
			return InvalidValue(name, value, "Not a number of type LONG")
		}
	}
	if lags[0] > lags[1] {
		return fmt.Errorf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)",
			lags[0], lags[1])
	}
	return nil
}

// Effective is the value that counts for a topic: its own, else the broker's, else the default; in canonical form, and
// empty for null. The error is that of Parse.
func (k *ConfigKey) Effective(topic map[string]string, broker ConfigLookup) (string, error) {
	if value, found := topic[k.Name]; found {
		return k.Parse(value)
	}
	if k.Synonym != "" {
		if value, set := broker(k.Synonym); set {
			return k.Parse(value)
		}
	}
	for _, unit := range k.Units {
		if value, set := broker(unit.Name); set {
			millis, err := unit.toMillis(value)
			if err != nil {
				return "", err
			}
			return k.Parse(strconv.FormatInt(millis, 10))
		}
	}
	return k.Default, nil
}

// toMillis converts; negative values, which stand for no limit, become -1, and what overflows becomes the largest.
func (u UnitKey) toMillis(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return 0, InvalidValue(u.Name, value, "Not a number of type LONG")
	case n < 0:
		return -1, nil
	case n > math.MaxInt64/u.Millis:
		return math.MaxInt64, nil
	}
	return n * u.Millis, nil
}
