package registry

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// FormatVersion is the newest version of keys and values that this build reads and writes.
const FormatVersion = 1

// The values, as JSON. A field may be added in place; a change that older builds must not meet raises FormatVersion.
type (
	// formatValue is under /format.
	formatValue struct {
		Version   int    `json:"version"`
		WrittenBy string `json:"written_by"` // the build that set the version
	}

	// clusterValue is under /cluster.
	clusterValue struct {
		ID string `json:"id"`
	}

	// nameValue is under /names/<name>: a topic exists if and only if this key does.
	nameValue struct {
		ID meta.TopicID `json:"id"`
	}

	// topicValue is under /topics/<id>. Partitions at or above the count do not exist: they are being added.
	topicValue struct {
		Name       string `json:"name"`
		Partitions int32  `json:"partitions"`
	}

	// epochValue is under /epochs/<name>: a topic that is created under the name begins above it (U-61).
	epochValue struct {
		LeaderEpoch meta.Epoch `json:"leader_epoch"`
	}

	// controllerValue is under /controller, and without the broker's lease under /controller_epoch.
	controllerValue struct {
		Broker meta.BrokerID `json:"broker"`
		Epoch  int64         `json:"epoch"`
	}

	// liveValue is under /brokers/live/N, and without a lease under /brokers/epoch/N, whose mod revision is the last broker
	// epoch.
	liveValue struct {
		Registration int64 `json:"registration"`
	}

	// brokerRecord is under /brokers/records/N, without a lease: what is known of a broker that is not there (D6).
	brokerRecord struct {
		Endpoints    []meta.Endpoint `json:"endpoints,omitempty"` // of its last registration; none in a record of an older build
		Rack         string          `json:"rack,omitempty"`
		Unclean      bool            `json:"unclean"`                // an I/O error was met that no sweep has dealt with (D9)
		Unregistered bool            `json:"unregistered,omitempty"` // an operator said that it does not come back
	}

	// producerIDsValue is under /producer_ids.
	producerIDsValue struct {
		Next   int64         `json:"next"`
		Broker meta.BrokerID `json:"broker"` // that took the last block
	}

	// featuresValue is under /features.
	featuresValue struct {
		Finalized map[string]int16 `json:"finalized"`
	}
)

// Registration is what a broker says about itself, under /brokers/ids/N with its lease. The key's create revision is
// the registration epoch.
type Registration struct {
	Directories []meta.DirectoryID `json:"directories"`
	Endpoints   []meta.Endpoint    `json:"endpoints"`
	Rack        string             `json:"rack,omitempty"`
	Clean       bool               `json:"clean"`              // its disk has everything that it ever acknowledged (D9)
	Intact      bool               `json:"intact,omitempty"`   // not Clean, but everything that it had synced is there (D9)
	Leaving     bool               `json:"leaving,omitempty"`  // it is about to stop: others shall lead
	Host        string             `json:"host,omitempty"`     // for people: where it runs
	Version     string             `json:"version,omitempty"`  // for people: its build
	Features    map[string]int16   `json:"features,omitempty"` // newest supported levels
}

// Tombstone is a deleted topic whose bytes are not all known to be gone, under /deleted/<id>.
type Tombstone struct {
	Name        string          `json:"name"`
	Partitions  int32           `json:"partitions"`
	Unconfirmed []meta.BrokerID `json:"unconfirmed"` // brokers that may still hold replicas
	Remote      string          `json:"remote,omitempty"`

	mod int64
}

func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		// Every value is a plain struct of this package: only a programming error can come here.
		panic(fmt.Sprintf("encode %T: %v", value, err))
	}
	return data
}

func decode[T any](entry Entry) (T, error) {
	var value T
	if err := json.Unmarshal(entry.Value, &value); err != nil {
		return value, fmt.Errorf("registry value of %s: %w", entry.Key, err)
	}
	return value, nil
}

// decodePartition also checks what everybody relies on.
func decodePartition(entry Entry) (meta.Partition, error) {
	p, err := decode[meta.Partition](entry)
	if err != nil {
		return p, err
	}
	p.Version = entry.Version
	return p, checkPartition(entry.Key, &p)
}

func checkPartition(key string, p *meta.Partition) error {
	wrong := ""
	switch {
	case len(p.Replicas) == 0:
		wrong = "no replicas"
	case p.Leader != meta.NoBroker && !p.HasReplica(p.Leader):
		wrong = fmt.Sprintf("leader %d is not a replica", p.Leader)
	case slices.ContainsFunc(p.ISR, func(id meta.BrokerID) bool { return !p.HasReplica(id) }):
		wrong = "a member of the isr is not a replica"
	case p.Recovery != 0 && len(p.ISR) > 1:
		wrong = fmt.Sprintf("isr %v under a leader that recovers from an unclean election", p.ISR)
	case p.LeaderEpoch < 0:
		wrong = fmt.Sprintf("leader epoch %d", p.LeaderEpoch)
	case len(p.Dirs) != 0 && len(p.Dirs) != len(p.Replicas):
		wrong = fmt.Sprintf("%d directories for %d replicas", len(p.Dirs), len(p.Replicas))
	default:
		return nil
	}
	return fmt.Errorf("registry value of %s: %s", key, wrong)
}
