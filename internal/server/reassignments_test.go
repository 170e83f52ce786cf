package server

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
)

func TestListPartitionReassignments(t *testing.T) {
	still := meta.Partition{Replicas: []meta.BrokerID{1, 2}, Leader: 1, ISR: []meta.BrokerID{1, 2}, Version: 1}
	moves := meta.Partition{
		Replicas: []meta.BrokerID{3, 1, 2}, Adding: []meta.BrokerID{3}, Removing: []meta.BrokerID{2}, Leader: 1, ISR: []meta.BrokerID{1, 2}, Version: 1,
	}
	image := meta.NewImage("c").Apply(&meta.Apply{
		Full: true, Revision: 1, Topics: []meta.TopicUpdate{{ID: meta.TopicID{1}, Name: "a"}, {ID: meta.TopicID{2}, Name: "b"}},
		Partitions: []meta.PartitionUpdate{
			{ID: meta.TopicID{1}, Partition: 0, State: still}, {ID: meta.TopicID{1}, Partition: 1, State: moves}, {ID: meta.TopicID{2}, Partition: 0, State: still},
		},
	})
	s := start(t, Config{Image: func() *meta.Image { return image }})
	list := func(topics []kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
		t.Helper()
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		resp, err := s.listPartitionReassignments(t.Context(), nil, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*kmsg.ListPartitionReassignmentsResponse).Topics
	}
	for name, asked := range map[string][]kmsg.ListPartitionReassignmentsRequestTopic{
		"all": nil, "one": {{Topic: "a", Partitions: []int32{0, 1, 7}}, {Topic: "nobody's", Partitions: []int32{0}}},
	} {
		got := list(asked)
		if len(got) != 1 || got[0].Topic != "a" || len(got[0].Partitions) != 1 {
			t.Fatalf("%s: %+v", name, got)
		}
		p := got[0].Partitions[0]
		if p.Partition != 1 || !slices.Equal(p.Replicas, []int32{3, 1, 2}) || !slices.Equal(p.AddingReplicas, []int32{3}) || !slices.Equal(p.RemovingReplicas, []int32{2}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if got := list([]kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "b", Partitions: []int32{0}}}); len(got) != 0 {
		t.Errorf("of a topic that stays: %+v", got)
	}
	if got := list([]kmsg.ListPartitionReassignmentsRequestTopic{}); len(got) != 0 {
		t.Errorf("of no topic: %+v", got)
	}
}
