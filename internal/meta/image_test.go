package meta

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func testID(n int) TopicID { return TopicID{0: 1, 14: byte(n >> 8), 15: byte(n)} }

func state(epoch Epoch, version int64) Partition {
	return Partition{Replicas: []BrokerID{1}, Leader: 1, LeaderEpoch: epoch, ISR: []BrokerID{1}, MinISR: 1, Version: version}
}

// naive is Image.Apply written for clearness: plain maps, everything copied.
type naive struct {
	epoch, revision, brokersRevision, required int64
	brokers                                    []Broker
	names                                      map[TopicID]string
	configs                                    map[TopicID]int64
	parts                                      map[TopicIDPartition]Partition
}

func newNaive() *naive {
	return &naive{names: map[TopicID]string{}, configs: map[TopicID]int64{}, parts: map[TopicIDPartition]Partition{}}
}

func (n *naive) drop(id TopicID) {
	delete(n.names, id)
	delete(n.configs, id)
	maps.DeleteFunc(n.parts, func(tp TopicIDPartition, _ Partition) bool { return tp.Topic == id })
}

func (n *naive) apply(a *Apply) {
	if a.ControllerEpoch < n.epoch {
		return
	}
	current := a.Revision >= n.revision
	n.epoch, n.revision, n.required = a.ControllerEpoch, max(n.revision, a.Revision), max(n.required, a.ConfigRevision)
	if len(a.Brokers) > 0 && a.Revision >= n.brokersRevision {
		n.brokers, n.brokersRevision = slices.Clone(a.Brokers), a.Revision
		slices.SortFunc(n.brokers, func(x, y Broker) int { return cmp.Compare(x.ID, y.ID) })
	}
	if a.Full && current {
		for id := range maps.Clone(n.names) {
			if !slices.ContainsFunc(a.Topics, func(u TopicUpdate) bool { return u.ID == id && !u.Deleted }) {
				n.drop(id)
			}
		}
	}
	for _, u := range a.Topics {
		_, known := n.names[u.ID]
		switch {
		case u.Deleted:
			n.drop(u.ID)
		case known:
			n.configs[u.ID] = max(n.configs[u.ID], u.ConfigRevision)
		case current:
			for id, name := range maps.Clone(n.names) {
				if name == u.Name {
					n.drop(id)
				}
			}
			n.names[u.ID], n.configs[u.ID] = u.Name, u.ConfigRevision
		}
	}
	for _, u := range a.Partitions {
		tp := TopicIDPartition{u.ID, u.Partition}
		known, found := n.parts[tp]
		if _, topic := n.names[u.ID]; !topic || u.Partition < 0 {
			continue
		}
		switch {
		case u.Absent:
			delete(n.parts, tp)
		case u.State.Version > 0 && (!found || u.State.Newer(&known)):
			n.parts[tp] = u.State
		}
	}
}

func (n *naive) check(t *rapid.T, im *Image) {
	if im.Revision() != n.revision || im.ControllerEpoch() != n.epoch || im.ConfigRequired() != n.required {
		t.Fatalf("revision %d, epoch %d, config %d; want %+v", im.Revision(), im.ControllerEpoch(), im.ConfigRequired(), n)
	}
	if len(n.brokers) > 0 && !reflect.DeepEqual(im.Brokers(), n.brokers) {
		t.Fatalf("brokers %v, want %v", im.Brokers(), n.brokers)
	}
	if len(im.Topics()) != len(n.names) || im.PartitionCount() != len(n.parts) {
		t.Fatalf("%d topics, %d partitions; want %d, %d", len(im.Topics()), im.PartitionCount(), len(n.names), len(n.parts))
	}
	if !slices.IsSortedFunc(im.Topics(), func(x, y *Topic) int { return cmp.Compare(x.Name, y.Name) }) {
		t.Fatal("topics are not sorted")
	}
	for id, name := range n.names {
		byID, foundID := im.TopicByID(id)
		named, foundName := im.Topic(name)
		if !foundID || !foundName || byID != named || byID.Name != name || byID.ConfigRevision != n.configs[id] {
			t.Fatalf("topic %s: by id %v, by name %v", name, byID, named)
		}
		if !slices.Contains(im.Topics(), byID) {
			t.Fatalf("topic %s is not listed", name)
		}
	}
	for tp, want := range n.parts {
		topic, _ := im.TopicByID(tp.Topic)
		got := topic.Partition(tp.Partition)
		if got == nil || !reflect.DeepEqual(*got, want) {
			t.Fatalf("%s: %v, want %v", tp, got, want)
		}
	}
}

// D5: Apply agrees with the naive form on any sequence of statements, in any order, and never changes an older image.
func TestApplyAgainstNaive(t *testing.T) {
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		im, model := NewImage("cluster"), newNaive()
		for range rapid.IntRange(1, 25).Draw(t, "statements") {
			a := drawApply(t, names)
			before := fingerprint(im)
			next := im.Apply(a)
			if got := fingerprint(im); got != before {
				t.Fatalf("an older image changed:\n%s\n%s", before, got)
			}
			model.apply(a)
			model.check(t, next)
			im = next
		}
	})
}

func drawApply(t *rapid.T, names []string) *Apply {
	id := rapid.Custom(func(t *rapid.T) TopicID { return testID(rapid.IntRange(1, 6).Draw(t, "id")) })
	a := &Apply{
		Controller:      1,
		ControllerEpoch: rapid.Int64Range(1, 3).Draw(t, "controller epoch"),
		Revision:        rapid.Int64Range(1, 20).Draw(t, "revision"),
		Full:            rapid.IntRange(0, 4).Draw(t, "full") == 0,
		ConfigRevision:  rapid.Int64Range(0, 20).Draw(t, "config revision"),
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "brokers") {
		a.Brokers = append(a.Brokers, Broker{ID: BrokerID(2 - i), Epoch: rapid.Int64Range(1, 9).Draw(t, "broker epoch")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		a.Topics = append(a.Topics, TopicUpdate{
			ID: id.Draw(t, "topic"), Name: rapid.SampledFrom(names).Draw(t, "name"),
			Deleted: rapid.IntRange(0, 3).Draw(t, "deleted") == 0, ConfigRevision: rapid.Int64Range(0, 5).Draw(t, "topic config"),
		})
	}
	for range rapid.IntRange(0, 5).Draw(t, "partitions") {
		u := PartitionUpdate{ID: id.Draw(t, "of"), Partition: rapid.Int32Range(-1, 3).Draw(t, "partition")}
		if u.Absent = rapid.IntRange(0, 4).Draw(t, "absent") == 0; !u.Absent {
			u.State = state(Epoch(rapid.IntRange(0, 3).Draw(t, "epoch")), rapid.Int64Range(0, 4).Draw(t, "version"))
		}
		a.Partitions = append(a.Partitions, u)
	}
	return a
}

func fingerprint(im *Image) string {
	out := fmt.Sprintln(im.revision, im.controllerEpoch, im.configRequired, im.brokers)
	for _, t := range im.Topics() {
		out += fmt.Sprintln(*t)
	}
	return out
}

// U-61, U-58: a delayed statement about a deleted life of a name brings nothing back.
func TestDeletedTopicStaysDeleted(t *testing.T) {
	first, second := testID(1), testID(2)
	create := func(id TopicID, revision int64) *Apply {
		return &Apply{
			ControllerEpoch: 1, Revision: revision, Topics: []TopicUpdate{{ID: id, Name: "t"}},
			Partitions: []PartitionUpdate{{ID: id, State: state(0, 1)}},
		}
	}
	im := NewImage("c").Apply(create(first, 5))
	im = im.Apply(&Apply{ControllerEpoch: 1, Revision: 7, Topics: []TopicUpdate{{ID: first, Deleted: true}}})
	im = im.Apply(create(second, 9)).Apply(create(first, 5))
	if topic, _ := im.Topic("t"); topic == nil || topic.ID != second || im.PartitionCount() != 1 {
		t.Fatalf("got %+v", topic)
	}
}

// Configurations belong to a life of a topic, may arrive before it, and go with it.
func TestConfig(t *testing.T) {
	id := testID(1)
	values := map[string]string{"retention.ms": "5"}
	im := NewImage("c").WithTopicConfig(id, values, 3)
	if im.Config(TopicConfig("t")) != nil || im.ConfigRevision() != 3 {
		t.Fatal("a topic that does not exist has a configuration")
	}
	im = im.Apply(&Apply{Revision: 4, ConfigRevision: 3, Topics: []TopicUpdate{{ID: id, Name: "t", ConfigRevision: 3}}})
	if !maps.Equal(im.Config(TopicConfig("t")), values) || !maps.Equal(im.TopicConfig(id), values) {
		t.Fatalf("got %v", im.Config(TopicConfig("t")))
	}
	other := im.WithConfig(TopicConfig("t"), map[string]string{"retention.ms": "6"}, 5)
	if im.Config(TopicConfig("t"))["retention.ms"] != "5" || other.Config(TopicConfig("t"))["retention.ms"] != "6" {
		t.Fatal("an older image changed")
	}
	if got := other.WithConfig(TopicConfig("t"), nil, 6).Config(TopicConfig("t")); got != nil {
		t.Fatalf("removed, but %v", got)
	}
	if got := other.Apply(&Apply{Revision: 9, Topics: []TopicUpdate{{ID: id, Deleted: true}}}); got.TopicConfig(id) != nil {
		t.Fatalf("deleted, but %v", got.TopicConfig(id))
	}
	im = im.WithConfig(BrokerConfig(1), values, 7).WithConfig(DefaultBrokerConfig, nil, 8)
	if !maps.Equal(im.Config(BrokerConfig(1)), values) || im.Config(DefaultBrokerConfig) != nil || im.ConfigRevision() != 8 {
		t.Fatalf("broker configurations: %v, %d", im.Config(BrokerConfig(1)), im.ConfigRevision())
	}
}

// D13: an admin call waits until the image shows its write, whether it wrote topics or configurations.
func TestReflects(t *testing.T) {
	im := NewImage("c").Apply(&Apply{Revision: 10, ConfigRevision: 8}).WithConfigRevision(7)
	for revision, want := range map[int64]bool{5: true, 7: true, 8: false, 10: false, 11: false} {
		if got := im.Reflects(revision); got != want {
			t.Errorf("revision %d: %t", revision, got)
		}
	}
	im = im.WithConfigRevision(8)
	for revision, want := range map[int64]bool{8: true, 10: true, 11: false} {
		if got := im.Reflects(revision); got != want {
			t.Errorf("with configurations, revision %d: %t", revision, got)
		}
	}
}

func TestBrokerLookup(t *testing.T) {
	im := NewImage("c").Apply(&Apply{Brokers: []Broker{{ID: 3}, {ID: 1, Endpoints: []Endpoint{{Listener: "A", Port: 9}}}}})
	one, found := im.Broker(1)
	if endpoint, ok := one.Endpoint("A"); !found || !ok || endpoint.Port != 9 {
		t.Fatalf("got %+v", one)
	}
	if _, found := im.Broker(2); found {
		t.Fatal("broker 2 found")
	}
	if _, ok := one.Endpoint("B"); ok {
		t.Fatal("listener B found")
	}
}

// An image of 10,000 topics must be cheap to change: copy-on-write per topic.
func BenchmarkApplyOneOf10kTopics(b *testing.B) {
	full := &Apply{Revision: 1, Full: true}
	for i := range 10_000 {
		full.Topics = append(full.Topics, TopicUpdate{ID: testID(i), Name: fmt.Sprint("topic-", i)})
		full.Partitions = append(full.Partitions, PartitionUpdate{ID: testID(i), State: state(0, 1)})
	}
	im := NewImage("c").Apply(full)
	b.ReportAllocs()
	version := int64(1)
	for b.Loop() {
		version++
		im = im.Apply(&Apply{Revision: version, Partitions: []PartitionUpdate{{ID: testID(7), State: state(0, version)}}})
	}
}

// BenchmarkApplyFull10k is a takeover: everything at once.
func BenchmarkApplyFull10k(b *testing.B) {
	full := &Apply{Revision: 1, Full: true, Topics: []TopicUpdate{{ID: testID(1), Name: "t"}}}
	for i := range 10_000 {
		full.Partitions = append(full.Partitions, PartitionUpdate{ID: testID(1), Partition: int32(i), State: state(0, 1)})
	}
	b.ReportAllocs()
	for b.Loop() {
		NewImage("c").Apply(full)
	}
}

// D6: a broker that is not registered is known, and takes no part: it is listed apart. The next list replaces both.
func TestImageListsBrokersThatAreDownApart(t *testing.T) {
	im := NewImage("c").Apply(&Apply{Revision: 1, Brokers: []Broker{
		{ID: 2, Registration: 7, Fenced: true}, {ID: 5, Fenced: true}, {ID: 1, Rack: "r", Fenced: true},
	}})
	if _, found := im.Broker(1); found || len(im.Brokers()) != 1 || len(im.Down()) != 2 || im.Down()[0].ID != 1 || im.Down()[0].Rack != "r" {
		t.Errorf("brokers %+v, down %+v", im.Brokers(), im.Down())
	}
	im = im.Apply(&Apply{Revision: 2, Brokers: []Broker{{ID: 1, Registration: 9}}})
	if _, found := im.Broker(1); !found || len(im.Down()) != 0 {
		t.Errorf("brokers %+v, down %+v", im.Brokers(), im.Down())
	}
}
