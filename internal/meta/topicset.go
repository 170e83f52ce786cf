package meta

import (
	"maps"
	"slices"
	"strings"
)

// topicShards splits the two indexes of a topicSet, so that changing one topic of 10,000 copies two small maps and one
// slice of pointers instead of everything. A power of two.
const topicShards = 256

// topicSet is an immutable set of topics, indexed by name and by id.
type topicSet struct {
	sorted     []*Topic // by name
	partitions int      // known ones
	names      [topicShards]map[string]*Topic
	ids        [topicShards]map[TopicID]*Topic
}

func (s *topicSet) byName(name string) *Topic { return s.names[nameShard(name)][name] }
func (s *topicSet) byID(id TopicID) *Topic    { return s.ids[idShard(id)][id] }

// nameShard is FNV-1a, folded.
func nameShard(name string) int {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int((h ^ h>>16) % topicShards)
}

// idShard uses a byte that is random in every id.
func idShard(id TopicID) int { return int(id[15]) % topicShards }

// topicEdit builds the successor of a set. Topics are copied on their first change.
type topicEdit struct {
	base, next *topicSet
	fresh      map[TopicID]*Topic // copies that this edit owns; nil for a removed topic
	ownNames   [topicShards]bool
	ownIDs     [topicShards]bool
	sortAgain  bool // topics came or went
	removed    []TopicID
}

func editTopics(base *topicSet) *topicEdit { return &topicEdit{base: base} }

// begin makes the successor on the first change, so that a statement without news costs nothing.
func (e *topicEdit) begin() {
	if e.next != nil {
		return
	}
	next := *e.base
	e.next = &next
	e.fresh = make(map[TopicID]*Topic)
}

func (e *topicEdit) current() *topicSet {
	if e.next != nil {
		return e.next
	}
	return e.base
}

// retain removes every topic that a full list does not mention.
func (e *topicEdit) retain(listed []TopicUpdate) {
	keep := make(map[TopicID]bool, len(listed))
	for i := range listed {
		keep[listed[i].ID] = !listed[i].Deleted
	}
	for _, t := range e.base.sorted {
		if !keep[t.ID] {
			e.remove(t)
		}
	}
}

// topic introduces, changes or removes one topic; a statement that is not current introduces nothing.
func (e *topicEdit) topic(u *TopicUpdate, current bool) {
	t := e.current().byID(u.ID)
	switch {
	case u.Deleted:
		if t != nil {
			e.remove(t)
		}
	case t != nil:
		if u.ConfigRevision > t.ConfigRevision {
			e.own(t).ConfigRevision = u.ConfigRevision
		}
	case current:
		// Another life of the same name ends where this one begins.
		if old := e.current().byName(u.Name); old != nil {
			e.remove(old)
		}
		e.put(&Topic{Name: u.Name, ID: u.ID, ConfigRevision: u.ConfigRevision})
		e.sortAgain = true
	}
}

// partition takes one value if it is newer than the known one. Values of unknown topics, and values without a version,
// are ignored.
func (e *topicEdit) partition(u *PartitionUpdate) {
	t := e.current().byID(u.ID)
	if t == nil || u.Partition < 0 || !u.Absent && !u.State.Known() {
		return
	}
	n := int(u.Partition)
	known := t.Partition(u.Partition)
	switch {
	case u.Absent:
		if known != nil {
			e.own(t).Partitions[n] = unknownPartition
			e.next.partitions--
		}
	case known != nil && !u.State.Newer(known):
	default:
		own := e.own(t)
		for len(own.Partitions) <= n {
			own.Partitions = append(own.Partitions, unknownPartition)
		}
		own.Partitions[n] = u.State
		if known == nil {
			e.next.partitions++
		}
	}
}

// own returns a copy of t that this edit may write.
func (e *topicEdit) own(t *Topic) *Topic {
	if mine := e.fresh[t.ID]; mine != nil {
		return mine
	}
	e.begin()
	mine := *t
	mine.Partitions = slices.Clone(t.Partitions)
	e.put(&mine)
	return &mine
}

func (e *topicEdit) put(t *Topic) {
	e.begin()
	e.fresh[t.ID] = t
	e.nameMap(t.Name)[t.Name] = t
	e.idMap(t.ID)[t.ID] = t
}

func (e *topicEdit) remove(t *Topic) {
	e.begin()
	e.fresh[t.ID] = nil
	if e.next.byName(t.Name) == t {
		delete(e.nameMap(t.Name), t.Name)
	}
	delete(e.idMap(t.ID), t.ID)
	for i := range t.Partitions {
		if t.Partitions[i].Known() {
			e.next.partitions--
		}
	}
	e.removed = append(e.removed, t.ID)
	e.sortAgain = true
}

func (e *topicEdit) nameMap(name string) map[string]*Topic {
	i := nameShard(name)
	if !e.ownNames[i] {
		e.ownNames[i] = true
		e.next.names[i] = cloneMap(e.next.names[i])
	}
	return e.next.names[i]
}

func (e *topicEdit) idMap(id TopicID) map[TopicID]*Topic {
	i := idShard(id)
	if !e.ownIDs[i] {
		e.ownIDs[i] = true
		e.next.ids[i] = cloneMap(e.next.ids[i])
	}
	return e.next.ids[i]
}

// done returns the successor, or the base itself when nothing changed.
func (e *topicEdit) done() *topicSet {
	if e.next == nil {
		return e.base
	}
	sorted := make([]*Topic, 0, len(e.base.sorted)+len(e.fresh))
	for _, t := range e.base.sorted {
		mine, touched := e.fresh[t.ID]
		switch {
		case !touched:
			sorted = append(sorted, t)
		case mine != nil:
			sorted = append(sorted, mine)
		}
	}
	if e.sortAgain {
		for id, t := range e.fresh {
			if t != nil && e.base.byID(id) == nil {
				sorted = append(sorted, t)
			}
		}
		slices.SortFunc(sorted, func(x, y *Topic) int { return strings.Compare(x.Name, y.Name) })
	}
	e.next.sorted = sorted
	return e.next
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return make(map[K]V)
	}
	return maps.Clone(m)
}
