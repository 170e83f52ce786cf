package registry

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Folding changes one by one gives the same state as reading everything, after any history.
func TestFoldAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := NewMemory()
		c := NewCluster(m, "1.0", nil)
		folded, err := c.Snapshot(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		seats := []Registered{{}, register(t, c, 1, 1), register(t, c, 2, 2)}
		next := 0
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			step(rt, t, c, seats, &next)
			changes, _, err := m.since(t.Context(), "/", folded.Revision+1)
			if err != nil {
				rt.Fatal(err)
			}
			c.update(folded, changes)
			fresh := snapshot(t, c)
			trim(folded)
			trim(fresh)
			if folded.ConfigRevision > fresh.ConfigRevision {
				rt.Fatalf("configurations of %d, read at %d", folded.ConfigRevision, fresh.ConfigRevision)
			}
			fresh.ConfigRevision = folded.ConfigRevision
			if !reflect.DeepEqual(folded, fresh) {
				rt.Fatalf("folded %s\nread   %s", show(folded), show(fresh))
			}
			for id, topic := range fresh.Topics {
				if named := fresh.Names[topic.Name] == id; named != fresh.Committed(id) {
					rt.Fatalf("topic %s: %+v", id, topic)
				}
				if _, deleted := fresh.Deleted[id]; deleted {
					rt.Fatalf("topic %s is there and has a tombstone", id)
				}
			}
		}
	})
}

// step does something that a cluster does.
func step(rt *rapid.T, t *testing.T, c *Cluster, seats []Registered, next *int) {
	ctx, s := t.Context(), snapshot(t, c)
	var ids []meta.TopicID
	for n := range *next {
		ids = append(ids, topicID(n+1))
	}
	topic := topicID(1 + rapid.IntRange(0, *next).Draw(rt, "topic"))
	broker := meta.BrokerID(rapid.IntRange(1, 2).Draw(rt, "broker"))
	var err error
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0, 1:
		*next++
		name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name")
		_, err = c.CreateTopics(ctx, []NewTopic{newTopic(*next, name, rapid.SampledFrom([]int{1, 3, 70}).Draw(rt, "partitions"))})
	case 2:
		_, err = c.DeleteTopics(ctx, ids)
	case 3:
		if known := s.Topics[topic]; known != nil {
			_, err = c.AddPartitions(ctx, topic, known.Count, newTopic(1, "", rapid.IntRange(1, 3).Draw(rt, "more")).Partitions)
		}
	case 4:
		_, _, err = c.EditConfigs(ctx, []ConfigEdit{{Kind: meta.TopicResource, Topic: topic, Edit: func(map[string]string) (map[string]string, error) {
			return rapid.SampledFrom([]map[string]string{nil, {"k": "1"}, {"k": "2"}}).Draw(rt, "config"), nil
		}}})
	case 5:
		seats[broker] = register(t, c, broker, byte(broker))
	case 6:
		if _, _, err = c.Elect(ctx, broker, seats[broker]); err == nil && s.Seat.Revision != 0 {
			_ = c.Fence(ctx, s.Seat, BrokerState{ID: broker, Live: s.Brokers[broker].Live}) // a conflict when it is not live
		}
	case 7:
		if s.Seat.Revision != 0 {
			_, _ = c.Unfence(ctx, s.Seat, *s.Brokers[broker]) // a conflict when it is live
		}
	case 8:
		if p := s.Partition(meta.TopicIDPartition{Topic: topic}); p != nil && s.Seat.Revision != 0 {
			changed := p.Clone()
			changed.LeaderEpoch++
			_, _, err = c.SetPartitions(ctx, GuardSeat(s.Seat), []PartitionWrite{{
				TopicIDPartition: meta.TopicIDPartition{Topic: topic}, Version: p.Version, State: changed,
			}})
		}
	case 9:
		if s.Seat.Revision != 0 {
			err = c.ConfirmDeleted(ctx, s.Seat, s.Deleted, broker)
		}
	}
	if err != nil {
		rt.Fatal(err)
	}
}

// trim removes what may differ: unknown partitions at the end, and slots of topics that are empty.
func trim(s *State) {
	for _, topic := range s.Topics {
		for n := len(topic.Partitions); n > 0 && !topic.Partitions[n-1].Known(); n-- {
			topic.Partitions = topic.Partitions[:n-1]
		}
	}
}

// No key and no value, whoever wrote them, stops a broker: what cannot be read is left out.
func FuzzFold(f *testing.F) {
	id := meta.TopicID{1}.String()
	for key, value := range map[string]string{
		"/topics/" + id:             `{"name":"a","partitions":1}`,
		"/topics/" + id + "/p/0":    `{"replicas":[1],"leader":1,"leader_epoch":0,"isr":[1],"min_isr":1}`,
		"/topics/" + id + "/p/-1":   `{}`,
		"/names/a":                  `{"id":"` + id + `"}`,
		"/brokers/ids/1":            `{"directories":["` + id + `"],"endpoints":[{"listener":"L","host":"h","port":1}]}`,
		"/brokers/live/1":           `{"registration":1}`,
		"/brokers/epoch/1":          `{"registration":1}`,
		"/brokers/other/1":          `null`,
		"/config/topics/" + id:      `{"a":"b"}`,
		"/config/brokers/default":   `{"a":1}`,
		"/deleted/" + id:            `{"name":"a","partitions":-1,"unconfirmed":[1]}`,
		"/controller":               `{"broker":1,"epoch":2}`,
		"/topics/" + id + "/p/9999": `[`,
	} {
		f.Add(key, []byte(value), false)
		f.Add(key, []byte(value), true)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte, deleted bool) {
		c, s := NewCluster(NewMemory(), "1.0", nil), newState()
		s.Topics[meta.TopicID{1}] = &TopicState{ID: meta.TopicID{1}, Name: "a", Count: 1, create: 1}
		c.fold(s, newDirty(), Event{Deleted: deleted, Entry: Entry{Key: key, Value: value, Create: 2, Mod: 2, Version: 1}})
		for tid, topic := range s.Topics {
			_ = fmt.Sprint(s.Committed(tid), s.Partition(meta.TopicIDPartition{Topic: tid}), topic.Count, len(s.Registered()))
			if len(topic.Partitions) > partitionsMax {
				t.Fatalf("%d partitions", len(topic.Partitions))
			}
		}
	})
}
