package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// partitionsPerRequestMax is how many partitions one request may create, as in Kafka: the answer and the registry's
// transactions stay small.
const partitionsPerRequestMax = 10_000

// createTopics creates topics (key 19), each for itself: one may be refused while others are created. With
// validate_only the answer is the same, and nothing is written (U-121).
func (s *Server) createTopics(ctx context.Context, _ *client, req *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	creation := creation{server: s, image: s.config.Image(), validateOnly: req.ValidateOnly}
	times := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		asked := &req.Topics[i]
		switch times[asked.Topic] {
		case 0: // answered at its first mention
		case 1:
			creation.topics = append(creation.topics, newTopicOf(asked))
		default:
			times[asked.Topic] = 0
			creation.topics = append(creation.topics, newTopic{name: asked.Topic, refused: invalidRequest("Duplicate topic name.")})
		}
	}
	creation.run(ctx)
	d := describer{server: s, image: s.config.Image(), req: kmsg.NewPtrDescribeConfigsRequest()}
	for i := range creation.topics {
		resp.Topics = append(resp.Topics, d.created(&creation.topics[i]))
	}
	return resp, nil
}

// created answers one topic: its id, size and configuration, or why it was refused.
func (d *describer) created(t *newTopic) kmsg.CreateTopicsResponseTopic {
	answer := kmsg.NewCreateTopicsResponseTopic()
	answer.Topic = t.name
	answer.ErrorCode, answer.ErrorMessage = t.refused.code, t.refused.text()
	if t.refused.code != 0 {
		return answer
	}
	answer.TopicID, answer.NumPartitions, answer.ReplicationFactor = t.id, t.partitions, t.replication
	for _, entry := range d.topicEntries(t.configs) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly = entry.Name, entry.Value, entry.ReadOnly
		c.Source, c.IsSensitive = int8(entry.Source), entry.IsSensitive
		answer.Configs = append(answer.Configs, c)
	}
	return answer
}

// newTopic is one topic to create, and what became of it.
type newTopic struct {
	name        string
	partitions  int32 // -1 for the broker's default
	replication int16 // -1 for the broker's default
	assigned    []kmsg.CreateTopicsRequestTopicReplicaAssignment
	assignment  [][]meta.BrokerID
	configs     map[string]string

	id      meta.TopicID
	refused refusedResource
}

func newTopicOf(asked *kmsg.CreateTopicsRequestTopic) newTopic {
	t := newTopic{
		name: asked.Topic, partitions: asked.NumPartitions, replication: asked.ReplicationFactor,
		assigned: asked.ReplicaAssignment, configs: make(map[string]string, len(asked.Configs)),
	}
	var null []string
	for _, c := range asked.Configs {
		if c.Value == nil {
			null = append(null, c.Name)
			continue
		}
		t.configs[c.Name] = *c.Value // of two values of one key the last counts, as in Kafka
	}
	if len(null) > 0 {
		t.refused = invalidConfig("Null value not supported for topic configs: " + strings.Join(null, ","))
	}
	return t
}

// creation is topics to create together.
type creation struct {
	server       *Server
	image        *meta.Image // as of the request
	validateOnly bool
	topics       []newTopic
}

// run checks the topics and creates those that pass. It returns once this broker's Image shows them (D13).
func (c *creation) run(ctx context.Context) {
	c.check()
	var specs []controller.TopicSpec
	var at []int
	for i := range c.topics {
		t := &c.topics[i]
		if t.refused.code == 0 {
			specs = append(specs, controller.TopicSpec{
				Name: t.name, Partitions: t.partitions, Replication: t.replication, Assignment: t.assignment, Config: t.configs,
			})
			at = append(at, i)
		}
	}
	if len(specs) == 0 {
		return
	}
	results, err := c.server.config.Admin.CreateTopics(ctx, specs, c.validateOnly)
	for j, i := range at {
		if err != nil {
			c.topics[i].refused = refusedOf(err)
			continue
		}
		c.topics[i].id, c.topics[i].refused = results[j].ID, refusedOf(results[j].Err)
	}
	if err := c.server.waitFor(ctx, results); err != nil {
		for _, i := range at {
			if c.topics[i].refused.code == 0 {
				c.topics[i].refused = refusedOf(err)
			}
		}
	}
}

// check refuses what can be judged from the Image, in the order and with the words of Kafka.
func (c *creation) check() {
	var total int64
	for i := range c.topics {
		total += int64(c.topics[i].size())
	}
	collisions := make(map[string]string, len(c.image.Topics()))
	for _, t := range c.image.Topics() {
		collisions[meta.CollisionKey(t.Name)] = t.Name
	}
	for i := range c.topics {
		t := &c.topics[i]
		switch {
		case t.refused.message == "Duplicate topic name.":
		case total > partitionsPerRequestMax:
			t.refused = refusedResource{kerr.PolicyViolation.Code, "Excessively large number of partitions per request."}
		default:
			t.refused = c.judge(t, collisions[meta.CollisionKey(t.name)])
		}
	}
}

// size is how many partitions the topic asks for.
func (t *newTopic) size() int {
	return max(int(t.partitions), len(t.assigned), 0)
}

// judge refuses one topic; colliding is the existing topic whose name is the same but for dots and underscores.
func (c *creation) judge(t *newTopic, colliding string) refusedResource {
	if t.name == meta.ClusterMetadataTopic {
		return invalidRequest("Creation of internal topic __cluster_metadata is prohibited.")
	}
	if err := meta.ValidateTopicName(t.name); err != nil {
		return refusedResource{kerr.InvalidTopicException.Code, err.Error()}
	}
	if _, exists := c.image.Topic(t.name); exists {
		return refusedResource{kerr.TopicAlreadyExists.Code, fmt.Sprintf("Topic '%s' already exists.", t.name)}
	}
	if colliding != "" {
		return refusedResource{kerr.InvalidTopicException.Code, fmt.Sprintf("Topic '%s' collides with existing topic: %s", t.name, colliding)}
	}
	if t.refused.code != 0 {
		return t.refused
	}
	table := c.server.config.Configs
	if err := table.CheckTopic(c.image, t.configs); err != nil {
		return invalidConfig(err.Error())
	}
	if len(t.assigned) > 0 {
		return t.assign(c.image)
	}
	if t.partitions < -1 || t.partitions == 0 {
		return refusedResource{kerr.InvalidPartitions.Code, "Number of partitions was set to an invalid non-positive value."}
	}
	if t.replication < -1 || t.replication == 0 {
		return refusedResource{kerr.InvalidReplicationFactor.Code, "Replication factor must be larger than 0, or -1 to use the default value."}
	}
	if t.partitions == -1 {
		t.partitions = int32(table.Int(c.image, "num.partitions"))
	}
	if t.replication == -1 {
		t.replication = int16(table.Int(c.image, "default.replication.factor"))
	}
	return refusedResource{}
}

// assign takes the replicas that the request names.
func (t *newTopic) assign(image *meta.Image) refusedResource {
	if t.replication != -1 {
		return invalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.partitions != -1 {
		return invalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	t.assignment = make([][]meta.BrokerID, len(t.assigned))
	seen := make(map[int32]bool, len(t.assigned))
	var gap bool
	for _, a := range t.assigned {
		if seen[a.Partition] {
			return invalidAssignment(fmt.Sprintf("Found multiple manual partition assignments for partition %d", a.Partition))
		}
		seen[a.Partition] = true
		replicas, refused := checkReplicas(image, a.Replicas, len(t.assigned[0].Replicas))
		if refused.code != 0 {
			return refused
		}
		if gap = gap || a.Partition < 0 || int(a.Partition) >= len(t.assigned); !gap {
			t.assignment[a.Partition] = replicas
		}
	}
	if gap {
		return invalidAssignment("partitions should be a consecutive 0-based integer sequence")
	}
	t.partitions, t.replication = int32(len(t.assignment)), int16(len(t.assignment[0]))
	return refusedResource{}
}

// checkReplicas judges the replicas that a request names for one partition; every partition of a topic has count.
func checkReplicas(image *meta.Image, replicas []int32, count int) ([]meta.BrokerID, refusedResource) {
	if len(replicas) == 0 {
		return nil, invalidAssignment("The manual partition assignment includes an empty replica list.")
	}
	brokers := make([]meta.BrokerID, 0, len(replicas))
	for _, r := range replicas {
		brokers = append(brokers, meta.BrokerID(r))
	}
	sorted := slices.Sorted(slices.Values(brokers))
	for i, id := range sorted {
		if _, registered := image.Broker(id); !registered {
			return nil, invalidAssignment(fmt.Sprintf(
				"The manual partition assignment includes broker %d, but no such broker is registered.", id))
		}
		if i > 0 && sorted[i-1] == id {
			return nil, invalidAssignment(fmt.Sprintf("The manual partition assignment includes the broker %d more than once.", id))
		}
	}
	if len(replicas) != count {
		return nil, invalidAssignment(fmt.Sprintf("The manual partition assignment includes a partition with %d replica(s), but this is not "+
			"consistent with previous partitions, which have %d replica(s).", len(replicas), count))
	}
	return brokers, refusedResource{}
}

func invalidAssignment(message string) refusedResource {
	return refusedResource{kerr.InvalidReplicaAssignment.Code, message}
}
