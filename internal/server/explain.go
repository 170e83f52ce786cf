package server

import (
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// TagAccount is the tagged field by which a DescribeTopicPartitions request asks for accounts, with an empty value, and in
// which each partition of the answer has one, as the JSON of an [Account]. Kafka's own tags are small numbers, and whoever
// does not know a tag skips it (KIP-482): an Apache Kafka broker simply answers without.
const TagAccount uint32 = 10_100

// accountsMax bounds the accounts in one answer; a person asks for one partition.
const accountsMax = 64

// Account is what one broker knows about why a partition is as it is: the broker that answers, as replica and as controller.
type Account struct {
	Broker meta.BrokerID `json:"broker"`
	At     time.Time     `json:"at"` // when it was asked, by its own clock
	// Value is the partition's value as the broker knows it, and Version which one that is.
	Value   meta.Partition `json:"value"`
	Version int64          `json:"version"`
	// Replica is what it knows through its copy; Role is "none" without one.
	Replica replica.Account `json:"replica"`
	// Controller is what it knows as controller; nil if it is none.
	Controller *controller.Account `json:"controller,omitempty"`
}

// asksForAccounts tells whether a request has the tag.
func asksForAccounts(req *kmsg.DescribeTopicPartitionsRequest) bool {
	return hasTag(&req.UnknownTags, TagAccount)
}

// addAccounts puts an account into every partition of an answer.
func (s *Server) addAccounts(image *meta.Image, resp *kmsg.DescribeTopicPartitionsResponse) {
	left := accountsMax
	for i := range resp.Topics {
		t := &resp.Topics[i]
		topic, found := image.TopicByID(t.TopicID)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if !found || left == 0 {
				return
			}
			if value := topic.Partition(p.Partition); value != nil {
				left--
				p.UnknownTags.Set(TagAccount, s.account(meta.TopicIDPartition{Topic: topic.ID, Partition: p.Partition}, value))
			}
		}
	}
}

func (s *Server) account(tp meta.TopicIDPartition, value *meta.Partition) []byte {
	a := Account{Broker: s.config.Broker, At: s.config.Now(), Value: *value, Version: value.Version, Replica: s.config.Table.Account(tp)}
	if s.config.Governs != nil {
		if governs, ok := s.config.Governs(tp); ok {
			a.Controller = &governs
		}
	}
	data, err := json.Marshal(a)
	if err != nil {
		return nil // plain structs of numbers, texts and times: it cannot be
	}
	return data
}
