package broker

import (
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// TestKeysAreSound checks every row of the joined table: a default that its own rule accepts, a text, a fallback that
// exists.
func TestKeysAreSound(t *testing.T) {
	all := Keys()
	for _, key := range slices.Concat(all.TopicKeys(), all.BrokerKeys()) {
		if key.Doc == "" {
			t.Errorf("%s: has no text", key.Name)
		}
		if key.Synonym != "" && all.Broker(key.Synonym) == nil {
			t.Errorf("%s: its fallback %s is no key", key.Name, key.Synonym)
		}
		for _, unit := range key.Units {
			if all.Broker(unit.Name) == nil {
				t.Errorf("%s: its fallback %s is no key", key.Name, unit.Name)
			}
		}
		if !key.HasDefault {
			continue
		}
		if got, err := key.Parse(key.Default); err != nil || got != key.Default {
			t.Errorf("%s: default %q parses to %q, error %v", key.Name, key.Default, got, err)
		}
	}
}

// TestKeysOfConsoles names what consoles and other products look for (U-137).
func TestKeysOfConsoles(t *testing.T) {
	all := Keys()
	for name, want := range map[string]meta.ConfigType{
		"inter.broker.protocol.version": meta.StringType, "metadata.version": meta.StringType,
		"num.partitions": meta.IntType, "default.replication.factor": meta.IntType,
		"advertised.listeners": meta.ListType, "log.dirs": meta.ListType, "delete.topic.enable": meta.BoolType,
		"auto.create.topics.enable": meta.BoolType, "transaction.max.timeout.ms": meta.IntType,
	} {
		if key := all.Broker(name); key == nil || key.Type != want {
			t.Errorf("broker key %s: got %+v, want type %s", name, key, want)
		}
	}
}
