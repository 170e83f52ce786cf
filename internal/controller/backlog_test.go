package controller

import (
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// New leaders are written before anything else, and a decision that another look has taken back is not written at all: a
// successor that was fenced meanwhile must not be elected (D6).
func TestBacklog(t *testing.T) {
	at := func(n int32) meta.TopicIDPartition { return meta.TopicIDPartition{Partition: n} }
	decision := func(n int32, before, leader meta.BrokerID) decided {
		return decided{PartitionWrite: registry.PartitionWrite{TopicIDPartition: at(n), State: meta.Partition{Leader: leader}}, before: meta.Partition{Leader: before}}
	}
	b := newBacklog()
	b.replace(map[meta.TopicIDPartition]bool{at(0): true, at(1): true, at(2): true, at(3): true}, []decided{
		decision(0, 1, 1), decision(1, 2, 1), decision(2, 1, 1), decision(3, 2, 3),
	})
	b.replace(map[meta.TopicIDPartition]bool{at(1): true, at(2): true}, []decided{decision(2, 1, 3)})
	var got []int32
	for range 4 {
		for _, d := range b.take(2) {
			got = append(got, d.Partition)
		}
	}
	if want := []int32{3, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("written in the order %v, want %v", got, want)
	}
}
