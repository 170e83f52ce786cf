package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// State is everything that the registry holds, as of one revision. It belongs to one goroutine, which folds changes
// into it with Update.
type State struct {
	Revision       int64
	ConfigRevision int64 // no configuration has changed after this revision
	Seat           Seat  // the present controller's; Broker is NoBroker when the seat is vacant

	Names         map[string]meta.TopicID
	Topics        map[meta.TopicID]*TopicState // uncommitted ones too: see Committed
	Brokers       map[meta.BrokerID]*BrokerState
	Deleted       map[meta.TopicID]Tombstone
	TopicConfigs  map[meta.TopicID]Config
	BrokerConfigs map[string]Config // by id in decimal, or "" for the default of all
}

// TopicState is a topic.
type TopicState struct {
	ID   meta.TopicID
	Name string

	// Partitions below Count exist, if they are Known. Others are being added.
	Partitions []meta.Partition
	Count      int32

	create, mod int64 // of its record; 0 while only partitions are there
}

// BrokerState is a broker that is registered, or was.
type BrokerState struct {
	ID           meta.BrokerID
	Registration int64 // create revision of the registration; 0 when there is none now
	Live         int64 // create revision of the live key; 0 while fenced
	Epoch        int64 // the last broker epoch; 0 when it was never live
	Info         Registration

	// Unfenced is the registration that Epoch belongs to. A registration that was live before has been swept.
	Unfenced int64

	lease    Lease
	record   brokerRecord
	recorded int64 // the revision that changed the record last; 0 when there is none
}

// Last is where a broker was when it was registered last, though it is not now, and its rack (D6); false when that is not on
// record, or an operator said that the broker does not come back.
func (b *BrokerState) Last() (endpoints []meta.Endpoint, rack string, known bool) {
	r := &b.record
	return r.Endpoints, r.Rack, len(r.Endpoints) > 0 && !r.Unregistered
}

// Config is the configuration of one resource.
type Config struct {
	Values   map[string]string
	Revision int64 // that set it
}

// Dirty lists what a change of State touched, each thing once.
type Dirty struct {
	All bool // the state was read anew; nothing else is listed

	// Topics that came, went, or have another number of partitions (true), or only another configuration (false).
	Topics     map[meta.TopicID]bool
	Partitions map[meta.TopicIDPartition]bool
	Brokers    map[meta.BrokerID]bool
	Configs    bool // a configuration of a topic or of brokers
	Defaults   bool // a configuration of brokers, which may be the default of topics
	Seat       bool
}

func newState() *State {
	return &State{
		Seat:          Seat{Broker: meta.NoBroker},
		Names:         make(map[string]meta.TopicID),
		Topics:        make(map[meta.TopicID]*TopicState),
		Brokers:       make(map[meta.BrokerID]*BrokerState),
		Deleted:       make(map[meta.TopicID]Tombstone),
		TopicConfigs:  make(map[meta.TopicID]Config),
		BrokerConfigs: make(map[string]Config),
	}
}

func newDirty() *Dirty {
	return &Dirty{
		Topics:     make(map[meta.TopicID]bool),
		Partitions: make(map[meta.TopicIDPartition]bool),
		Brokers:    make(map[meta.BrokerID]bool),
	}
}

// Committed tells whether the topic exists for everybody: its name leads to it.
func (s *State) Committed(id meta.TopicID) bool {
	t := s.Topics[id]
	return t != nil && t.create > 0 && s.Names[t.Name] == id
}

// Partition is a partition of a topic, or nil.
func (s *State) Partition(tp meta.TopicIDPartition) *meta.Partition {
	t := s.Topics[tp.Topic]
	if t == nil || tp.Partition < 0 || tp.Partition >= min(t.Count, int32(len(t.Partitions))) {
		return nil
	}
	if p := &t.Partitions[tp.Partition]; p.Known() {
		return p
	}
	return nil
}

// Registered lists the brokers that are registered now, by id.
func (s *State) Registered() []*BrokerState {
	var brokers []*BrokerState
	for _, id := range slices.Sorted(maps.Keys(s.Brokers)) {
		if s.Brokers[id].Registration != 0 {
			brokers = append(brokers, s.Brokers[id])
		}
	}
	return brokers
}

// Snapshot reads the whole registry as of one revision, in pages.
func (c *Cluster) Snapshot(ctx context.Context) (*State, error) {
	s, dirty := newState(), newDirty()
	revision, err := c.pages(ctx, "/", func(entry Entry) { c.fold(s, dirty, Event{Entry: entry}) })
	if err != nil {
		return nil, fmt.Errorf("read registry: %w", err)
	}
	// A configuration that was removed has left no trace, so all that is known is that none changed later.
	s.Revision, s.ConfigRevision = revision, revision
	return s, nil
}

// Watch keeps a state up to date until ctx ends or handle fails. With every change it calls handle, which calls fold,
// under whatever lock guards the state: fold changes the state and says what it touched. When Watch fell too far behind
// it reads everything anew and says so with Dirty.All.
func (c *Cluster) Watch(ctx context.Context, s *State, handle func(fold func() *Dirty) error) error {
	from := s.Revision + 1
	for {
		err := c.store.Watch(ctx, "/", from, func(changes Changes) error {
			return handle(func() *Dirty { return c.update(s, changes) })
		})
		if !errors.Is(err, ErrCompacted) {
			return err
		}
		fresh, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		from = fresh.Revision + 1
		err = handle(func() *Dirty {
			*s = *fresh
			return &Dirty{All: true}
		})
		if err != nil {
			return err
		}
	}
}

// update folds changes into a state.
func (c *Cluster) update(s *State, changes Changes) *Dirty {
	dirty := newDirty()
	for _, event := range changes.Events {
		c.fold(s, dirty, event)
	}
	s.Revision = changes.Revision
	return dirty
}

// fold folds one event. What it cannot read it leaves out, loudly: a value that somebody broke by hand must not stop a
// cluster.
func (c *Cluster) fold(s *State, dirty *Dirty, event Event) {
	key, err := event.Entry.Key, error(nil)
	switch {
	case strings.HasPrefix(key, topicPrefix):
		err = s.foldTopic(dirty, event)
	case strings.HasPrefix(key, namePrefix):
		err = s.foldName(dirty, event)
	case strings.HasPrefix(key, brokerPrefix):
		err = s.foldBroker(dirty, event)
	case strings.HasPrefix(key, configPrefix):
		err = s.foldConfig(dirty, event)
	case strings.HasPrefix(key, deletedPrefix):
		err = s.foldDeleted(dirty, event)
	case key == controllerKey:
		err = s.foldSeat(dirty, event)
	}
	if err != nil {
		c.logger.Error("registry value is unreadable and left out", slog.Any("key", key), slog.Any("err", err))
	}
}

func (s *State) foldTopic(dirty *Dirty, event Event) error {
	id, n, isPartition, err := parseTopicKey(event.Entry.Key[len(topicPrefix):])
	if err != nil {
		return err
	}
	if isPartition {
		dirty.Partitions[meta.TopicIDPartition{Topic: id, Partition: n}] = true
	} else {
		dirty.Topics[id] = true
	}
	t := s.Topics[id]
	if event.Deleted {
		switch {
		case t == nil:
		case !isPartition:
			t.Count, t.create, t.mod = 0, 0, 0
		case int(n) < len(t.Partitions):
			t.Partitions[n] = meta.Partition{Leader: meta.NoBroker, LeaderEpoch: meta.NoEpoch}
		}
		if t != nil && t.create == 0 && !slices.ContainsFunc(t.Partitions, func(p meta.Partition) bool { return p.Known() }) {
			delete(s.Topics, id)
		}
		return nil
	}
	if !isPartition {
		value, err := decode[topicValue](event.Entry)
		if err != nil {
			return err
		}
		t = s.topic(id)
		t.Name, t.Count, t.create, t.mod = value.Name, value.Partitions, event.Entry.Create, event.Entry.Mod
		return nil
	}
	p, err := decodePartition(event.Entry)
	if err != nil {
		return err
	}
	t = s.topic(id)
	for len(t.Partitions) <= int(n) {
		t.Partitions = append(t.Partitions, meta.Partition{Leader: meta.NoBroker, LeaderEpoch: meta.NoEpoch})
	}
	t.Partitions[n] = p
	return nil
}

func (s *State) topic(id meta.TopicID) *TopicState {
	t := s.Topics[id]
	if t == nil {
		t = &TopicState{ID: id}
		s.Topics[id] = t
	}
	return t
}

func (s *State) foldName(dirty *Dirty, event Event) error {
	name := event.Entry.Key[len(namePrefix):]
	if old, found := s.Names[name]; found {
		dirty.Topics[old] = true
		delete(s.Names, name)
	}
	if event.Deleted {
		return nil
	}
	value, err := decode[nameValue](event.Entry)
	if err != nil {
		return err
	}
	s.Names[name] = value.ID
	dirty.Topics[value.ID] = true
	return nil
}

func (s *State) foldBroker(dirty *Dirty, event Event) error {
	kind, number, _ := strings.Cut(event.Entry.Key[len(brokerPrefix):], "/")
	id, err := parseBroker(number)
	if err != nil {
		return err
	}
	b := s.Brokers[id]
	if b == nil {
		b = &BrokerState{ID: id}
		s.Brokers[id] = b
	}
	dirty.Brokers[id] = true
	switch prefix := brokerPrefix + kind + "/"; {
	case prefix == registrationPrefix && event.Deleted:
		b.Registration, b.lease = 0, NoLease
	case prefix == registrationPrefix:
		if b.Info, err = decode[Registration](event.Entry); err != nil {
			return err
		}
		b.Registration, b.lease = event.Entry.Create, event.Entry.Lease
	case prefix == livePrefix && event.Deleted:
		b.Live = 0
	case prefix == livePrefix:
		b.Live = event.Entry.Create
	case prefix == brokerEpochPrefix && !event.Deleted:
		value, err := decode[liveValue](event.Entry)
		if err != nil {
			return err
		}
		b.Epoch, b.Unfenced = event.Entry.Mod, value.Registration
	case prefix == brokerRecordPrefix && event.Deleted:
		b.record, b.recorded = brokerRecord{}, 0
	case prefix == brokerRecordPrefix:
		record, err := decode[brokerRecord](event.Entry)
		if err != nil {
			return err
		}
		b.record, b.recorded = record, event.Entry.Mod
	}
	return nil
}

func (s *State) foldConfig(dirty *Dirty, event Event) error {
	change, err := decodeConfig(event)
	if err != nil {
		return err
	}
	dirty.Configs, dirty.Defaults = true, dirty.Defaults || change.Kind == meta.BrokerResource
	s.ConfigRevision = max(s.ConfigRevision, event.Entry.Mod)
	if change.Kind == meta.TopicResource {
		// Mentioned, but its partitions are not dirty unless they were.
		if _, mentioned := dirty.Topics[change.Topic]; !mentioned {
			dirty.Topics[change.Topic] = false
		}
	}
	switch value := (Config{Values: change.Values, Revision: event.Entry.Mod}); {
	case change.Kind == meta.TopicResource && event.Deleted:
		delete(s.TopicConfigs, change.Topic)
	case change.Kind == meta.TopicResource:
		s.TopicConfigs[change.Topic] = value
	case event.Deleted:
		delete(s.BrokerConfigs, change.Broker)
	default:
		s.BrokerConfigs[change.Broker] = value
	}
	return nil
}

func (s *State) foldDeleted(dirty *Dirty, event Event) error {
	id, err := meta.ParseTopicID(event.Entry.Key[len(deletedPrefix):])
	if err != nil {
		return err
	}
	dirty.Topics[id] = true
	if event.Deleted {
		delete(s.Deleted, id)
		return nil
	}
	tombstone, err := decode[Tombstone](event.Entry)
	if err != nil {
		return err
	}
	tombstone.mod = event.Entry.Mod
	s.Deleted[id] = tombstone
	return nil
}

func (s *State) foldSeat(dirty *Dirty, event Event) error {
	dirty.Seat = true
	if event.Deleted {
		s.Seat = Seat{Broker: meta.NoBroker}
		return nil
	}
	value, err := decode[controllerValue](event.Entry)
	if err != nil {
		return err
	}
	s.Seat = Seat{Broker: value.Broker, Epoch: value.Epoch, Revision: event.Entry.Create}
	return nil
}
