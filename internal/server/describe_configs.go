package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// describeConfigs answers what is configured (key 32): topics and brokers with every key, its value, where the value
// comes from, its type and its documentation; and, as Kafka does, loggers, client metrics and groups.
func (s *Server) describeConfigs(
	_ context.Context, _ *client, req *kmsg.DescribeConfigsRequest,
) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	d := describer{server: s, image: s.config.Image(), req: req}
	for i := range req.Resources {
		if i == describedResourcesMax {
			d.full = true
		}
		resp.Resources = append(resp.Resources, d.resource(&req.Resources[i]))
	}
	return resp, nil
}

// describedResourcesMax is how many resources one request may describe: an answer of some hundred megabytes at worst.
const describedResourcesMax = 20_000

// describer builds the answer to one request, all of it from one image.
type describer struct {
	server *Server
	image  *meta.Image
	req    *kmsg.DescribeConfigsRequest
	full   bool // the answer is as long as it may be
}

func (d *describer) resource(asked *kmsg.DescribeConfigsRequestResource) kmsg.DescribeConfigsResponseResource {
	answer := kmsg.NewDescribeConfigsResponseResource()
	answer.ResourceType, answer.ResourceName = asked.ResourceType, asked.ResourceName
	entries, refused := d.entries(asked)
	answer.ErrorCode, answer.ErrorMessage = refused.code, &refused.message // never null, as in Kafka
	wanted := make(map[string]bool, len(asked.ConfigNames))
	for _, name := range asked.ConfigNames {
		wanted[name] = true
	}
	for _, entry := range entries {
		if len(wanted) == 0 || wanted[entry.Name] {
			answer.Configs = append(answer.Configs, entry)
		}
	}
	return answer
}

func (d *describer) entries(asked *kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, refusedItem) {
	name := asked.ResourceName
	if d.full {
		return nil, invalidRequest(fmt.Sprintf("One request may describe at most %d resources.", describedResourcesMax))
	}
	switch asked.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		return d.topic(name)
	case kmsg.ConfigResourceTypeBroker:
		return d.broker(name)
	case kmsg.ConfigResourceTypeBrokerLogger:
		return d.logger(name)
	case kmsg.ConfigResourceTypeClientMetrics:
		if name == "" {
			return nil, invalidRequest("Client metrics subscription name must not be empty")
		}
		return d.defaults(clientMetricsKeys, false), refusedItem{}
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, invalidRequest("Group name must not be empty")
		}
		return d.defaults(groupKeys, true), refusedItem{}
	default:
		return nil, invalidRequest(kerr.InvalidRequest.Description)
	}
}

func (d *describer) topic(name string) ([]kmsg.DescribeConfigsResponseResourceConfig, refusedItem) {
	if err := meta.ValidateTopicName(name); err != nil {
		return nil, refusedItem{kerr.InvalidTopicException.Code, err.Error()}
	}
	if _, found := d.image.Topic(name); !found {
		return nil, refusedItem{code: kerr.UnknownTopicOrPartition.Code}
	}
	return d.topicEntries(d.image.Config(meta.TopicConfig(name))), refusedItem{}
}

// topicEntries describes a topic for which these values are set.
func (d *describer) topicEntries(set map[string]string) []kmsg.DescribeConfigsResponseResourceConfig {
	table := d.server.config.Configs
	var entries []kmsg.DescribeConfigsResponseResourceConfig
	for _, key := range table.keys.TopicKeys() {
		value, found := set[key.Name]
		if key.Internal && !found {
			continue
		}
		var all []synonym
		if found {
			all = append(all, synonym{key.Name, value, kmsg.ConfigSourceDynamicTopicConfig})
		}
		if key.Synonym != "" {
			all = append(all, table.synonyms(d.image, key.Synonym)...)
		}
		entries = append(entries, d.entry(key, table.TopicValue(d.image, set, key.Name), all))
	}
	return entries
}

func (d *describer) broker(name string) ([]kmsg.DescribeConfigsResponseResourceConfig, refusedItem) {
	if name == "" {
		return d.defaultBrokerEntries(), refusedItem{}
	}
	own := d.server.config.Broker.String()
	id, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil:
		return nil, invalidRequest("Broker id must be an integer, but it is: " + name)
	case meta.BrokerID(id) != d.server.config.Broker:
		return nil, invalidRequest("Unexpected broker id, expected " + own + " or empty string, but received " + name)
	}
	return d.brokerEntries(), refusedItem{}
}

// brokerEntries describes every key of this broker, and whatever else was set for it.
func (d *describer) brokerEntries() []kmsg.DescribeConfigsResponseResourceConfig {
	table := d.server.config.Configs
	var entries []kmsg.DescribeConfigsResponseResourceConfig
	for _, key := range table.keys.BrokerKeys() {
		if !key.Internal {
			entries = append(entries, d.brokerEntry(key, table.synonyms(d.image, key.Name)))
		}
	}
	extra := make(map[string]bool)
	for _, level := range []map[string]string{
		d.image.Config(meta.BrokerConfig(d.server.config.Broker)), d.image.Config(meta.DefaultBrokerConfig), table.static,
	} {
		for name := range level {
			if table.keys.Broker(name) == nil {
				extra[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		entries = append(entries, d.brokerEntry(table.keyOrUnknown(name), table.synonyms(d.image, name)))
	}
	return entries
}

// defaultBrokerEntries describes what is set as the cluster's default, and nothing else.
func (d *describer) defaultBrokerEntries() []kmsg.DescribeConfigsResponseResourceConfig {
	table := d.server.config.Configs
	set := d.image.Config(meta.DefaultBrokerConfig)
	var entries []kmsg.DescribeConfigsResponseResourceConfig
	for _, name := range slices.Sorted(maps.Keys(set)) {
		all := []synonym{{name, set[name], kmsg.ConfigSourceDynamicDefaultBrokerConfig}}
		entries = append(entries, d.brokerEntry(table.keyOrUnknown(name), all))
	}
	return entries
}

// keyOrUnknown finds the key of a name. A name without a key is taken for a secret, as in Kafka.
func (t *ConfigTable) keyOrUnknown(name string) *meta.ConfigKey {
	key := t.brokerKey(name)
	if key == nil {
		return &meta.ConfigKey{Name: name, Broker: true, Sensitive: true}
	}
	if key.Name != name {
		prefixed := *key
		prefixed.Name, prefixed.Dynamic = name, meta.ReadOnly // so Kafka describes it, though it can be set
		return &prefixed
	}
	return key
}

func (d *describer) brokerEntry(key *meta.ConfigKey, all []synonym) kmsg.DescribeConfigsResponseResourceConfig {
	value := key.Default
	if len(all) > 0 {
		value = all[0].value
		if canonical, err := key.Parse(value); err == nil {
			value = canonical
		}
	}
	entry := d.entry(key, value, all)
	entry.ReadOnly = key.Dynamic == meta.ReadOnly
	if len(all) == 0 && !key.HasDefault {
		entry.Value = nil
	}
	return entry
}

// entry describes a key with its value and where that comes from. As in Kafka, a value without any synonym counts as a
// default.
func (d *describer) entry(key *meta.ConfigKey, value string, all []synonym) kmsg.DescribeConfigsResponseResourceConfig {
	entry := kmsg.NewDescribeConfigsResponseResourceConfig()
	entry.Name, entry.IsSensitive = key.Name, key.Sensitive
	entry.ConfigType = kmsg.ConfigType(key.Type)
	entry.Source = kmsg.ConfigSourceDefaultConfig
	if len(all) > 0 {
		entry.Source = all[0].source
	}
	if !key.Sensitive {
		entry.Value = &value
	}
	if d.req.IncludeSynonyms {
		entry.ConfigSynonyms = make([]kmsg.DescribeConfigsResponseResourceConfigConfigSynonym, 0, len(all))
		for i := range all {
			one := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			one.Name, one.Source = all[i].name, all[i].source
			if !key.Sensitive {
				one.Value = d.canonical(key, &all[i])
			}
			entry.ConfigSynonyms = append(entry.ConfigSynonyms, one)
		}
	}
	if d.req.IncludeDocumentation {
		entry.Documentation = &key.Doc
	}
	return entry
}

// canonical is the value of a synonym as descriptions show it.
func (d *describer) canonical(key *meta.ConfigKey, s *synonym) *string {
	if s.source != kmsg.ConfigSourceDynamicTopicConfig {
		if key = d.server.config.Configs.brokerKey(s.name); key == nil {
			return &s.value
		}
	}
	if value, err := key.Parse(s.value); err == nil {
		return &value
	}
	return &s.value
}

// defaults describes keys of resources for which nothing can be set yet: the broker's values, else the defaults, which
// are their own synonyms if asked.
func (d *describer) defaults(keys []meta.ConfigKey, synonyms bool) []kmsg.DescribeConfigsResponseResourceConfig {
	table := d.server.config.Configs
	var entries []kmsg.DescribeConfigsResponseResourceConfig
	for i := range keys {
		key := &keys[i]
		value, all := key.Default, []synonym(nil)
		if key.Synonym != "" {
			value = table.Value(d.image, key.Synonym)
			if key.Type != meta.ListType {
				value, _, _ = strings.Cut(value, ",") // the first of the assignors is the default
			}
			all = table.synonyms(d.image, key.Synonym)
		} else if synonyms {
			all = []synonym{{key.Name, key.Default, kmsg.ConfigSourceDefaultConfig}}
		}
		entries = append(entries, d.entry(key, value, all))
	}
	return entries
}
