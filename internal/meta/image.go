package meta

import (
	"cmp"
	"slices"
)

// Image is everything that one broker knows of the cluster at one moment: every Metadata, describe and admin answer is
// read from it. It is immutable. Apply and the With methods return a successor that shares what did not change; a
// holder publishes it behind an atomic pointer. Slices and maps that its methods return are shared and must not be
// written.
type Image struct {
	clusterID       string
	controller      BrokerID
	controllerEpoch int64

	revision        int64 // statements up to this registry revision were applied
	configRevision  int64 // configurations were read up to this revision
	configRequired  int64 // the newest configuration change that a statement named
	brokersRevision int64

	brokers []Broker // registered, sorted by id
	down    []Broker // on record and not registered, sorted by id
	topics  *topicSet

	topicConfigs  configMap[TopicID]
	brokerConfigs configMap[string]
}

// NewImage is the empty image of a cluster: no topics, no brokers, no controller, revision 0.
func NewImage(clusterID string) *Image {
	return &Image{clusterID: clusterID, controller: NoBroker, topics: &topicSet{}}
}

// ClusterID is the cluster's id.
func (im *Image) ClusterID() string { return im.clusterID }

// Controller is the broker whose statement was applied last, NoBroker before the first.
func (im *Image) Controller() BrokerID { return im.controller }

// ControllerEpoch is the newest controller epoch heard.
func (im *Image) ControllerEpoch() int64 { return im.controllerEpoch }

// Revision is the registry revision up to which topics, partitions and brokers are known.
func (im *Image) Revision() int64 { return im.revision }

// ConfigRevision is the registry revision up to which configurations are known.
func (im *Image) ConfigRevision() int64 { return im.configRevision }

// ConfigRequired is the registry revision of the newest configuration change that a statement named: a broker whose
// ConfigRevision is behind it reads the configurations before it acts.
func (im *Image) ConfigRequired() int64 { return im.configRequired }

// Reflects tells whether the image shows everything written up to the revision: an admin call answers only then (D13).
func (im *Image) Reflects(revision int64) bool {
	return im.revision >= revision && im.configRevision >= min(revision, im.configRequired)
}

// Topic finds a topic by its name.
func (im *Image) Topic(name string) (*Topic, bool) {
	t := im.topics.byName(name)
	return t, t != nil
}

// TopicByID finds a topic by its id.
func (im *Image) TopicByID(id TopicID) (*Topic, bool) {
	t := im.topics.byID(id)
	return t, t != nil
}

// Topics lists all topics, sorted by name.
func (im *Image) Topics() []*Topic { return im.topics.sorted }

// PartitionCount is the number of known partitions of all topics.
func (im *Image) PartitionCount() int { return im.topics.partitions }

// Brokers lists the registered brokers, fenced ones too, sorted by id.
func (im *Image) Brokers() []Broker { return im.brokers }

// Down lists the brokers that are known and not registered, with the endpoints and the rack that they had last, sorted by id
// (D6). They take no part in anything.
func (im *Image) Down() []Broker { return im.down }

// Broker finds a registered broker.
func (im *Image) Broker(id BrokerID) (Broker, bool) {
	i, found := slices.BinarySearchFunc(im.brokers, id, func(b Broker, id BrokerID) int { return cmp.Compare(b.ID, id) })
	if !found {
		return Broker{}, false
	}
	return im.brokers[i], true
}

// Config is what was set for the resource itself, without defaults; nil when nothing was. Topics go by name.
func (im *Image) Config(r ConfigResource) map[string]string {
	if r.Kind != TopicResource {
		return im.brokerConfigs.get(r.Name)
	}
	if t := im.topics.byName(r.Name); t != nil {
		return im.topicConfigs.get(t.ID)
	}
	return nil
}

// TopicConfig is what was set for a topic, by its id.
func (im *Image) TopicConfig(id TopicID) map[string]string { return im.topicConfigs.get(id) }

// Apply returns the image after a controller's statement. What is older than the image already knows is ignored:
//
//   - a statement of an older controller epoch, wholly;
//   - a partition value, if it is not newer by (leader epoch, version);
//   - a list of brokers, a full statement's silence about something, and the introduction of a topic, if the
//     statement's revision is below the image's.
//
// A deletion is never ignored, since ids do not come back. The image keeps references to a's values: the caller must
// not change them afterwards.
func (im *Image) Apply(a *Apply) *Image {
	if a.ControllerEpoch < im.controllerEpoch {
		return im
	}
	next := *im
	next.controller, next.controllerEpoch = a.Controller, a.ControllerEpoch
	next.revision = max(im.revision, a.Revision)
	next.configRequired = max(im.configRequired, a.ConfigRevision)
	current := a.Revision >= im.revision
	if len(a.Brokers) > 0 && a.Revision >= im.brokersRevision {
		next.brokers, next.down = nil, nil
		for _, b := range a.Brokers {
			if b.Down() {
				next.down = append(next.down, b)
			} else {
				next.brokers = append(next.brokers, b)
			}
		}
		byID := func(x, y Broker) int { return cmp.Compare(x.ID, y.ID) }
		slices.SortFunc(next.brokers, byID)
		slices.SortFunc(next.down, byID)
		next.brokersRevision = a.Revision
	}

	edit := editTopics(im.topics)
	if a.Full && current {
		edit.retain(a.Topics)
	}
	for i := range a.Topics {
		edit.topic(&a.Topics[i], current)
	}
	for i := range a.Partitions {
		edit.partition(&a.Partitions[i])
	}
	next.topics = edit.done()
	for _, id := range edit.removed {
		next.topicConfigs = next.topicConfigs.with(id, nil)
	}
	return &next
}

// WithConfig returns the image in which the resource has exactly these values (nil removes all), known at a registry
// revision. A topic that the image does not know is ignored: WithTopicConfig takes any.
func (im *Image) WithConfig(r ConfigResource, values map[string]string, revision int64) *Image {
	next := *im
	next.configRevision = max(im.configRevision, revision)
	if r.Kind != TopicResource {
		next.brokerConfigs = im.brokerConfigs.with(r.Name, values)
	} else if t := im.topics.byName(r.Name); t != nil {
		next.topicConfigs = im.topicConfigs.with(t.ID, values)
	}
	return &next
}

// WithTopicConfig is WithConfig for a topic by its id; the topic may be introduced later.
func (im *Image) WithTopicConfig(id TopicID, values map[string]string, revision int64) *Image {
	next := *im
	next.configRevision = max(im.configRevision, revision)
	next.topicConfigs = im.topicConfigs.with(id, values)
	return &next
}

// WithoutConfigs returns the image in which nothing has a configuration: what a complete list of all configurations is
// then put into. The revisions stay.
func (im *Image) WithoutConfigs() *Image {
	next := *im
	next.topicConfigs, next.brokerConfigs = configMap[TopicID]{}, configMap[string]{}
	return &next
}

// WithConfigRevision returns the image that knows all configurations up to the revision, without a change of values.
func (im *Image) WithConfigRevision(revision int64) *Image {
	if revision <= im.configRevision {
		return im
	}
	next := *im
	next.configRevision = revision
	return &next
}

// configMap is a small immutable map of configurations. Few topics have one, so a copy per change is cheap.
type configMap[K comparable] struct{ values map[K]map[string]string }

func (m configMap[K]) get(key K) map[string]string { return m.values[key] }

func (m configMap[K]) with(key K, values map[string]string) configMap[K] {
	if _, found := m.values[key]; !found && len(values) == 0 {
		return m
	}
	next := make(map[K]map[string]string, len(m.values)+1)
	for k, v := range m.values {
		next[k] = v
	}
	if len(values) == 0 {
		delete(next, key)
	} else {
		next[key] = values
	}
	return configMap[K]{next}
}
