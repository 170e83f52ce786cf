package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// requestPartitionsMax is Kafka's limit on the partitions that one request creates.
const requestPartitionsMax = 10_000

// AdminConfig configures an Admin.
type AdminConfig struct {
	Cluster *registry.Cluster
	Broker  meta.BrokerID      // this broker: assignments and leaders change while it is live
	Image   func() *meta.Image // what this broker knows now
	Random  io.Reader          // for topic ids: crypto/rand.Reader

	Keys     *meta.ConfigKeys
	Settings meta.ConfigLookup // what the properties file sets for broker keys

	// Partitions and Replication are used for topics that ask for the default (num.partitions,
	// default.replication.factor).
	Partitions  int32
	Replication int16

	// DeletionDisabled refuses deletions (delete.topic.enable=false).
	DeletionDisabled bool

	// CheckBroker judges the whole of what is set for a broker, or with the empty name for all of them; the error has
	// Kafka's words, and is a *Refusal unless it stands for INVALID_CONFIG. Topics are judged by Keys.
	CheckBroker func(name string, values map[string]string) error
}

// Admin does what clients ask for. Its methods may be called concurrently, on any broker. Each returns one result per
// item and the registry revision that shows everything that was done: the broker answers when its Image reflects it
// (D13). An error of a call, rather than of an item, means that the registry did not answer: the outcome is unknown.
type Admin struct {
	config AdminConfig
}

// NewAdmin makes an Admin.
func NewAdmin(c AdminConfig) *Admin {
	if c.Settings == nil {
		c.Settings = func(string) (string, bool) { return "", false }
	}
	if c.CheckBroker == nil {
		c.CheckBroker = func(string, map[string]string) error { return nil }
	}
	return &Admin{config: c}
}

// Assignment is a manual assignment of one partition.
type Assignment struct {
	Partition int32
	Brokers   []meta.BrokerID
}

// Setting is one configuration entry of a request; Value is nil for null.
type Setting struct {
	Name  string
	Value *string
}

// NewTopic asks for a topic.
type NewTopic struct {
	Name        string
	Partitions  int32 // -1 for the default, or with assignments
	Replication int16 // -1 for the default, or with assignments
	Assignments []Assignment
	Configs     []Setting
}

// CreatedTopic answers NewTopic.
type CreatedTopic struct {
	Err         error // a *Refusal, or nil
	ID          meta.TopicID
	Partitions  int32
	Replication int16
	Config      map[string]string
}

// CreateTopics creates topics, each atomically and independently of the others. Names must be unique within the
// request. With validateOnly it only says what would happen.
func (a *Admin) CreateTopics(ctx context.Context, topics []NewTopic, validateOnly bool) (results []CreatedTopic, revision int64, err error) {
	results = make([]CreatedTopic, len(topics))
	if err := a.checkPartitionCount(topics); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results, 0, nil
	}
	image := a.config.Image()
	names := newNames(image, topics)
	var create []registry.NewTopic
	var index []int
	for i := range topics {
		topic, refusal := a.design(image, names, &topics[i])
		if refusal != nil {
			results[i].Err = refusal
			continue
		}
		if topic.ID, err = meta.NewTopicID(a.config.Random); err != nil {
			return nil, 0, err
		}
		results[i] = CreatedTopic{
			ID: topic.ID, Partitions: int32(len(topic.Partitions)), Replication: int16(len(topic.Partitions[0].Replicas)), Config: topic.Config,
		}
		create, index = append(create, topic), append(index, i)
	}
	if validateOnly {
		for i := range results {
			results[i].ID = meta.TopicID{}
		}
		return results, 0, nil
	}
	if len(create) == 0 {
		return results, 0, nil
	}
	outcomes, err := a.config.Cluster.CreateTopics(ctx, create)
	if err != nil {
		return nil, 0, err
	}
	for at, o := range outcomes {
		revision = max(revision, o.Revision)
		if refusal := topicRefusal(o.Err, create[at].Name); refusal != nil {
			results[index[at]] = CreatedTopic{Err: refusal}
		}
	}
	return results, revision, nil
}

func (a *Admin) checkPartitionCount(topics []NewTopic) error {
	total := int64(0)
	for i := range topics {
		switch t := &topics[i]; {
		case len(t.Assignments) > 0:
			total += int64(len(t.Assignments))
		case t.Partitions == -1:
			total += int64(a.config.Partitions)
		default:
			total += max(0, int64(t.Partitions))
		}
	}
	if total > requestPartitionsMax {
		return refuse(ErrPolicyViolation, "Excessively large number of partitions per request.")
	}
	return nil
}

// names finds collisions: "." and "_" are one in metric names.
type names struct {
	image   *meta.Image
	present map[string]string // collision key → existing topic; nil until it is needed
	request map[string]int    // how often the request has a name
}

func newNames(image *meta.Image, topics []NewTopic) *names {
	n := &names{image: image, request: make(map[string]int)}
	for i := range topics {
		n.request[topics[i].Name]++
	}
	return n
}

func (n *names) collision(name string) string {
	if !strings.ContainsAny(name, "._") {
		return ""
	}
	if n.present == nil {
		n.present = make(map[string]string)
		for _, t := range n.image.Topics() {
			if strings.ContainsAny(t.Name, "._") {
				n.present[meta.CollisionKey(t.Name)] = t.Name
			}
		}
	}
	return n.present[meta.CollisionKey(name)]
}

// design checks a request and builds the topic, in Kafka's order of checks.
func (a *Admin) design(image *meta.Image, names *names, t *NewTopic) (registry.NewTopic, *Refusal) {
	none := registry.NewTopic{}
	switch _, exists := image.Topic(t.Name); {
	case names.request[t.Name] > 1:
		return none, refuse(ErrInvalidRequest, "Duplicate topic name.")
	case t.Name == meta.ClusterMetadataTopic:
		return none, refuse(ErrInvalidRequest, "Creation of internal topic %s is prohibited.", t.Name)
	case exists:
		return none, refuse(ErrTopicExists, "Topic '%s' already exists.", t.Name)
	}
	if err := meta.ValidateTopicName(t.Name); err != nil {
		return none, refuse(ErrInvalidTopic, "%s", err)
	}
	if other := names.collision(t.Name); other != "" {
		return none, refuse(ErrInvalidTopic, "Topic '%s' collides with existing topic: %s", t.Name, other)
	}
	config, refusal := a.newConfig(image, t.Configs)
	if refusal != nil {
		return none, refusal
	}
	assignments, refusal := a.assign(image, t)
	if refusal != nil {
		return none, refusal
	}
	topic := registry.NewTopic{Name: t.Name, Config: config}
	topic.Partitions = a.firstStates(image, t.Name, config, assignments)
	return topic, nil
}

// newConfig is the configuration of a topic to create.
func (a *Admin) newConfig(image *meta.Image, settings []Setting) (map[string]string, *Refusal) {
	values := make(map[string]string)
	var null []string
	for _, s := range settings {
		if s.Value == nil {
			null = append(null, s.Name)
			continue
		}
		values[s.Name] = *s.Value
	}
	if len(null) > 0 {
		return nil, refuse(ErrInvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	return values, a.checkTopic(image, values)
}

func (a *Admin) checkTopic(image *meta.Image, values map[string]string) *Refusal {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > configValueMax {
			return refuse(ErrInvalidConfig, "The configuration value cannot be added because it exceeds the maximum value size of %d bytes.", configValueMax)
		}
	}
	if err := a.config.Keys.CheckTopic(values, a.brokerLookup(image)); err != nil {
		return refuse(ErrInvalidConfig, "%s", err)
	}
	return nil
}

// brokerLookup is what counts as a broker's default for topics: the cluster's default, else the properties file.
func (a *Admin) brokerLookup(image *meta.Image) meta.ConfigLookup {
	return func(key string) (string, bool) {
		if value, set := image.Config(meta.DefaultBrokerConfig)[key]; set {
			return value, true
		}
		return a.config.Settings(key)
	}
}

// assign decides where a new topic's partitions go.
func (a *Admin) assign(image *meta.Image, t *NewTopic) ([][]meta.BrokerID, *Refusal) {
	if len(t.Assignments) > 0 {
		return manual(image, t)
	}
	partitions, replicas := t.Partitions, t.Replication
	switch {
	case replicas < -1 || replicas == 0:
		return nil, refuse(ErrInvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case partitions < -1 || partitions == 0:
		return nil, refuse(ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if partitions == -1 {
		partitions = a.config.Partitions
	}
	if replicas == -1 {
		replicas = a.config.Replication
	}
	return Place(image.Brokers(), int(partitions), int(replicas), rand.IntN(1<<16))
}

func manual(image *meta.Image, t *NewTopic) ([][]meta.BrokerID, *Refusal) {
	switch {
	case t.Replication != -1:
		return nil, refuse(ErrInvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	case t.Partitions != -1:
		return nil, refuse(ErrInvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	assignments := make([][]meta.BrokerID, len(t.Assignments))
	seen := make(map[int32]bool)
	replicas := 0
	for _, given := range t.Assignments {
		if seen[given.Partition] {
			return nil, refuse(ErrInvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", given.Partition)
		}
		seen[given.Partition] = true
		if refusal := checkAssignment(image, given, replicas); refusal != nil {
			return nil, refusal
		}
		replicas = len(given.Brokers)
		if given.Partition >= 0 && int(given.Partition) < len(assignments) {
			assignments[given.Partition] = given.Brokers
		}
	}
	for _, brokers := range assignments {
		if brokers == nil {
			return nil, refuse(ErrInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	return assignments, nil
}

// checkAssignment checks one manual assignment; replicas is the number that it must have, or 0.
func checkAssignment(image *meta.Image, given Assignment, replicas int) *Refusal {
	const subject = "The manual partition assignment includes "
	if len(given.Brokers) == 0 {
		return refuse(ErrInvalidReplicaAssignment, subject+"an empty replica list.")
	}
	active, previous := false, meta.NoBroker
	for _, id := range slices.Sorted(slices.Values(given.Brokers)) {
		broker, known := image.Broker(id)
		switch {
		case !known:
			return refuse(ErrInvalidReplicaAssignment, subject+"broker %d, but no such broker is registered.", id)
		case id == previous:
			return refuse(ErrInvalidReplicaAssignment, subject+"the broker %d more than once.", id)
		}
		active, previous = active || !broker.Fenced, id
	}
	if replicas != 0 && len(given.Brokers) != replicas {
		return refuse(ErrInvalidReplicaAssignment, subject+"a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(given.Brokers), replicas)
	}
	if !active {
		return refuse(ErrInvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", given.Partition)
	}
	return nil
}

// firstStates are the first values of partitions with these replicas.
func (a *Admin) firstStates(image *meta.Image, topic string, config map[string]string, assignments [][]meta.BrokerID) []meta.Partition {
	wants := wanted(a.config.Keys, topic, config, a.brokerLookup(image))
	partitions := make([]meta.Partition, len(assignments))
	for i, brokers := range assignments {
		if wants.ByFactor {
			wants.MinISR = minISRByFactor(len(brokers))
		}
		partitions[i] = firstState(image, brokers, wants.MinISR, wants.Flush)
	}
	return partitions
}

// firstState is the first value of a partition: the unfenced replicas are in sync, since there is nothing to have.
func firstState(image *meta.Image, replicas []meta.BrokerID, minISR int32, flush bool) meta.Partition {
	p := meta.Partition{Replicas: replicas, Leader: meta.NoBroker, MinISR: minISR, Flush: flush}
	for _, id := range replicas {
		broker, _ := image.Broker(id)
		directory := meta.DirectoryID{}
		if len(broker.Directories) > 0 {
			directory = broker.Directories[0]
		}
		p.Dirs = append(p.Dirs, directory)
		if !broker.Fenced {
			p.ISR = append(p.ISR, id)
		}
	}
	p.Leader = p.ISR[0]
	return p
}

// topicRefusal turns the registry's answer about one topic into a refusal.
func topicRefusal(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.ErrTopicExists):
		return refuse(ErrTopicExists, "Topic '%s' already exists.", name)
	case errors.Is(err, registry.ErrUnknownTopic):
		return refuse(ErrUnknownTopic, "This server does not host this topic-partition.")
	case errors.Is(err, registry.ErrConflict):
		return refuse(ErrConcurrent, "Topic '%s' is being changed by others.", name)
	}
	return fmt.Errorf("topic %s: %w", name, err)
}

// OldTopic names a topic to delete, by name or by id.
type OldTopic struct {
	Name string // empty when it goes by id
	ID   meta.TopicID
}

// DeletedTopic answers OldTopic.
type DeletedTopic struct {
	Err  error // a *Refusal, or nil
	Name string
	ID   meta.TopicID
}

// DeleteTopics deletes topics, each atomically and independently of the others.
func (a *Admin) DeleteTopics(ctx context.Context, topics []OldTopic) (results []DeletedTopic, revision int64, err error) {
	results = make([]DeletedTopic, len(topics))
	image := a.config.Image()
	times, ids := make(map[meta.TopicID]int), make([]meta.TopicID, len(topics))
	for i, t := range topics {
		results[i] = DeletedTopic{Name: t.Name, ID: t.ID}
		if ids[i], results[i].Err = a.resolve(image, t); results[i].Err == nil {
			times[ids[i]]++
		}
	}
	var remove []meta.TopicID
	var index []int
	for i, t := range topics {
		if results[i].Err != nil {
			continue
		}
		if times[ids[i]] > 1 {
			results[i].Err = refuse(ErrInvalidRequest, "%s", duplicateWords(topics, t))
			continue
		}
		known, _ := image.TopicByID(ids[i])
		results[i].Name, results[i].ID = known.Name, known.ID
		remove, index = append(remove, ids[i]), append(index, i)
	}
	if len(remove) == 0 {
		return results, 0, nil
	}
	outcomes, err := a.config.Cluster.DeleteTopics(ctx, remove)
	if err != nil {
		return nil, 0, err
	}
	for at, o := range outcomes {
		i := index[at]
		revision = max(revision, o.Revision)
		results[i].Err = topicRefusal(o.Err, results[i].Name)
		if errors.Is(results[i].Err, ErrUnknownTopic) && topics[i].Name == "" {
			results[i].Err = unknownID()
		}
	}
	return results, revision, nil
}

func unknownID() *Refusal {
	return refuse(ErrUnknownTopicID, "This server does not host this topic ID.")
}

func duplicateWords(topics []OldTopic, t OldTopic) string {
	same := 0
	for _, other := range topics {
		if other == t {
			same++
		}
	}
	switch {
	case same < 2:
		return "The provided topic name maps to an ID that was already supplied."
	case t.Name == "":
		return "Duplicate topic id."
	}
	return "Duplicate topic name."
}

// resolve finds a topic to delete.
func (a *Admin) resolve(image *meta.Image, t OldTopic) (meta.TopicID, error) {
	switch {
	case t.Name != "" && !t.ID.IsZero():
		return t.ID, refuse(ErrInvalidRequest, "You may not specify both topic name and topic id.")
	case t.Name == "" && t.ID.IsZero():
		return t.ID, refuse(ErrInvalidRequest, "Neither topic name nor id were specified.")
	case a.config.DeletionDisabled:
		return t.ID, refuse(ErrDeletionDisabled, "Topic deletion is disabled.")
	case t.Name == "":
		if _, found := image.TopicByID(t.ID); !found {
			return t.ID, unknownID()
		}
		return t.ID, nil
	}
	topic, found := image.Topic(t.Name)
	if !found {
		return t.ID, refuse(ErrUnknownTopic, "This server does not host this topic-partition.")
	}
	return topic.ID, nil
}

// MorePartitions asks for a topic to have Count partitions. Assignments, if not nil, are of the new ones in order.
type MorePartitions struct {
	Name        string
	Count       int32
	Assignments [][]meta.BrokerID
}

// CreatePartitions adds partitions to topics, each atomically and independently of the others. It returns one error for
// each: a *Refusal, or nil.
func (a *Admin) CreatePartitions(ctx context.Context, topics []MorePartitions, validateOnly bool) (results []error, revision int64, err error) {
	results = make([]error, len(topics))
	image := a.config.Image()
	if err := checkAdditions(image, topics); err != nil {
		for i := range results {
			results[i] = err
		}
		return results, 0, nil
	}
	times := make(map[string]int)
	for i := range topics {
		times[topics[i].Name]++
	}
	for i := range topics {
		if times[topics[i].Name] > 1 {
			results[i] = refuse(ErrInvalidRequest, "Duplicate topic name.")
			continue
		}
		topic, partitions, refusal := a.additions(image, &topics[i])
		if refusal != nil {
			results[i] = refusal
			continue
		}
		if validateOnly {
			continue
		}
		shown, err := a.config.Cluster.AddPartitions(ctx, topic.ID, int32(len(topic.Partitions)), partitions)
		revision = max(revision, shown)
		results[i] = topicRefusal(err, topic.Name)
		if refusal := (*Refusal)(nil); results[i] != nil && !errors.As(results[i], &refusal) {
			return nil, 0, err
		}
	}
	return results, revision, nil
}

func checkAdditions(image *meta.Image, topics []MorePartitions) error {
	total := int64(0)
	for i := range topics {
		if topic, found := image.Topic(topics[i].Name); found {
			total += max(0, int64(topics[i].Count)-int64(len(topic.Partitions)))
		}
	}
	if total > requestPartitionsMax {
		return refuse(ErrPolicyViolation, "Excessively large number of additional partitions per request.")
	}
	return nil
}

// additions checks a request and builds the new partitions.
func (a *Admin) additions(image *meta.Image, t *MorePartitions) (*meta.Topic, []meta.Partition, *Refusal) {
	topic, found := image.Topic(t.Name)
	if !found {
		return nil, nil, refuse(ErrUnknownTopic, "This server does not host this topic-partition.")
	}
	count := int32(len(topic.Partitions))
	switch {
	case t.Count == count:
		return nil, nil, refuse(ErrInvalidPartitions, "Topic already has %d partition(s).", count)
	case t.Count < count:
		return nil, nil, refuse(ErrInvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", t.Name, count, t.Count)
	}
	replicas, assignments := len(topic.Partitions[0].Replicas), t.Assignments
	if assignments != nil {
		if int64(len(assignments)) != int64(t.Count)-int64(count) {
			return nil, nil, refuse(ErrInvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", t.Count-count, len(assignments))
		}
		for i, brokers := range assignments {
			given := Assignment{Partition: count + int32(i), Brokers: brokers}
			if refusal := checkAssignment(image, given, replicas); refusal != nil {
				return nil, nil, refusal
			}
		}
	} else {
		var refusal *Refusal
		if assignments, refusal = Place(image.Brokers(), int(t.Count-count), replicas, int(count)); refusal != nil {
			return nil, nil, refusal
		}
	}
	return topic, a.firstStates(image, t.Name, image.TopicConfig(topic.ID), assignments), nil
}
