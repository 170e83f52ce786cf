package registry

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// The keys (D4). docs/format/registry.md documents each of them; a test compares the two lists.
const (
	formatKey          = "/format"
	clusterKey         = "/cluster"
	featuresKey        = "/features"
	producerIDsKey     = "/producer_ids"
	controllerKey      = "/controller"
	controllerEpochKey = "/controller_epoch"

	namePrefix         = "/names/"
	epochPrefix        = "/epochs/"
	topicPrefix        = "/topics/"
	topicConfigPrefix  = "/config/topics/"
	brokerConfigPrefix = "/config/brokers/"
	configPrefix       = "/config/"
	brokerPrefix       = "/brokers/"
	registrationPrefix = "/brokers/ids/"
	livePrefix         = "/brokers/live/"
	brokerEpochPrefix  = "/brokers/epoch/"
	brokerRecordPrefix = "/brokers/records/"
	deletedPrefix      = "/deleted/"
	refusedPrefix      = "/refused/"

	defaultBroker = "default"

	// partitionsMax bounds the partitions of a topic, so that a key that somebody wrote by hand takes no memory to speak of.
	partitionsMax = 1_000_000
)

func nameKey(name string) string              { return namePrefix + name }
func epochKey(name string) string             { return epochPrefix + name }
func topicKey(id meta.TopicID) string         { return topicPrefix + id.String() }
func topicConfigKey(id meta.TopicID) string   { return topicConfigPrefix + id.String() }
func deletedKey(id meta.TopicID) string       { return deletedPrefix + id.String() }
func registrationKey(id meta.BrokerID) string { return registrationPrefix + id.String() }
func liveKey(id meta.BrokerID) string         { return livePrefix + id.String() }
func brokerEpochKey(id meta.BrokerID) string  { return brokerEpochPrefix + id.String() }
func brokerRecordKey(id meta.BrokerID) string { return brokerRecordPrefix + id.String() }

// refusalPrefix begins the keys of all reports about a broker.
func refusalPrefix(of meta.BrokerID) string { return refusedPrefix + of.String() + "/" }

func refusalKey(of, by meta.BrokerID) string { return refusalPrefix(of) + by.String() }

// partitionPrefix begins the keys of all partitions of a topic.
func partitionPrefix(id meta.TopicID) string { return topicPrefix + id.String() + "/p/" }

func partitionKey(id meta.TopicID, n int32) string {
	return partitionPrefix(id) + strconv.Itoa(int(n))
}

// brokerConfigKey takes a broker's id in decimal, or "" for the default of all.
func brokerConfigKey(name string) string {
	if name == "" {
		name = defaultBroker
	}
	return brokerConfigPrefix + name
}

// parseTopicKey splits what follows topicPrefix: a topic's key, or one of its partitions'.
func parseTopicKey(rest string) (id meta.TopicID, partition int32, isPartition bool, err error) {
	text, number, isPartition := strings.Cut(rest, "/p/")
	if id, err = meta.ParseTopicID(text); err != nil || !isPartition {
		return id, -1, isPartition, err
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || n >= partitionsMax {
		return id, -1, true, fmt.Errorf("partition number %q", number)
	}
	return id, int32(n), true, nil
}

func parseBroker(text string) (meta.BrokerID, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return meta.NoBroker, fmt.Errorf("broker id %q", text)
	}
	return meta.BrokerID(n), nil
}
