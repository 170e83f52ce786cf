package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLane: a gap lasts from the last answer before to the first one after, also where the record was sent before the mark;
// but only one that was sent after it says that the partition is back.
func TestLane(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	l := &lane{}
	l.take(at(0), at(-5), at(-100))
	if l.longest != 0 {
		t.Errorf("the first answer ends a gap of %s", l.longest)
	}
	l.longest, l.back = 0, false // the mark, at 10
	l.take(at(12), at(8), at(10))
	if l.back || l.longest != 12*time.Millisecond {
		t.Errorf("an answer to what was sent before: %+v", l)
	}
	l.take(at(912), at(20), at(10))
	l.take(at(920), at(915), at(10))
	if !l.back || l.longest != 900*time.Millisecond {
		t.Errorf("after 900 ms: %+v", l)
	}
}

// TestPulseAwait: what is waited for is seen when an answer brings it, a failure ends the wait, and so does the context.
func TestPulseAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulse{stir: make(chan struct{}, 1), lanes: []*lane{{topic: "a"}, {topic: "b", pending: 1}}}
		go func() {
			time.Sleep(time.Second) // of the bubble's own time
			p.answer(t.Context(), p.lanes[1], time.Now(), nil)
		}()
		began := time.Now()
		if err := p.await(t.Context(), func(l *lane) bool { return l.pending == 0 }); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.await(ctx, func(*lane) bool { return false }); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "a-0") {
			t.Error(err)
		}
		refused := errors.New("refused")
		p.answer(t.Context(), p.lanes[0], time.Now(), refused)
		if err := p.await(t.Context(), func(*lane) bool { return false }); !errors.Is(err, refused) {
			t.Error(err)
		}
	})
}

func TestCreations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &creations{made: make(chan struct{}, 16), last: time.Now()}
		for _, after := range []time.Duration{100, 700, 100} {
			time.Sleep(after * time.Millisecond)
			c.take(errors.New("no controller"))
			c.take(nil)
		}
		if err := c.await(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if got := c.mark(); got != 700*time.Millisecond {
			t.Errorf("the longest gap is %s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.await(ctx, 1); err == nil || !strings.Contains(err.Error(), "no controller") {
			t.Errorf("waiting in vain: %v", err)
		}
	})
}

func TestLacking(t *testing.T) {
	partition := func(leader int32, isr ...int32) kmsg.MetadataResponseTopicPartition {
		return kmsg.MetadataResponseTopicPartition{Leader: leader, ISR: isr, Replicas: []int32{1, 2, 3}}
	}
	three := make([]kmsg.MetadataResponseBroker, 3)
	for name, c := range map[string]struct {
		brokers    []kmsg.MetadataResponseBroker
		partitions []kmsg.MetadataResponseTopicPartition
		code       int16
		want       string
	}{
		"whole":       {three, []kmsg.MetadataResponseTopicPartition{partition(1, 1, 2, 3)}, 0, ""},
		"two brokers": {three[:2], nil, 0, "2 of 3 brokers"},
		"no leader":   {three, []kmsg.MetadataResponseTopicPartition{partition(-1, 1, 2, 3), partition(1, 1, 2, 3)}, 0, "1 partitions"},
		"behind":      {three, []kmsg.MetadataResponseTopicPartition{partition(1, 1, 2)}, 0, "in sync [1 2]"},
		"not yet":     {three, nil, 3, "UNKNOWN_TOPIC"},
	} {
		got := lacking(&kmsg.MetadataResponse{Brokers: c.brokers, Topics: []kmsg.MetadataResponseTopic{{Topic: new("t"), ErrorCode: c.code, Partitions: c.partitions}}})
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	moved := &kmsg.MetadataResponse{Topics: []kmsg.MetadataResponseTopic{{Topic: new("t"), Partitions: []kmsg.MetadataResponseTopicPartition{partition(2, 2)}}}}
	if ledByOthers(&node{id: 1})(moved) != "" || ledByOthers(&node{id: 2})(moved) == "" {
		t.Error("who leads is mistaken")
	}
}

// TestNodes: the brokers of a cluster share no port and no folder, and each names all three.
func TestNodes(t *testing.T) {
	for _, p := range []clusterPeer{tidemark{}, apacheKafka{}, natsServer{}} {
		nodes, err := p.nodes(t.Context(), t.TempDir())
		if err != nil || len(nodes) != 3 {
			t.Fatalf("%s: %d nodes, %v", p.name(), len(nodes), err)
		}
		cluster := &trio{peer: p, all: nodes}
		if nodes[0].addr == nodes[1].addr || nodes[1].home == nodes[2].home || cluster.addr() != "" {
			t.Errorf("%s: %+v", p.name(), nodes)
		}
		if n, err := cluster.node(3); err != nil || n != nodes[2] || len(cluster.others(n)) != 2 {
			t.Errorf("%s: broker 3 is %+v, %v", p.name(), n, err)
		}
		if _, err := cluster.node(4); err == nil {
			t.Errorf("%s has a fourth broker", p.name())
		}
	}
	if got := rotated([]int32{1, 2, 3}, 4); !slices.Equal(got, []int32{2, 3, 1}) {
		t.Errorf("rotated: %v", got)
	}
	if beatOf(1) != 2*time.Millisecond || beatOf(1000) != 500*time.Millisecond {
		t.Errorf("beats are %s and %s", beatOf(1), beatOf(1000))
	}
}

// TestPeersOf: what takes part in the rows of three brokers, and which rows those are.
func TestPeersOf(t *testing.T) {
	if got := peersOf([]row{{peers: beside}, {peers: besideBoth}}); !slices.Equal(got, []string{ours, kafkaName, natsName}) {
		t.Errorf("the peers are %v", got)
	}
	if got := peersOf([]row{{}, {peers: nil}}); !slices.Equal(got, []string{ours}) {
		t.Errorf("the peers are %v", got)
	}
	lone, trios := split(matrix)
	if len(lone) != len(loneMatrix) || len(trios) != len(clusterMatrix) {
		t.Errorf("%d rows of one broker and %d of three", len(lone), len(trios))
	}
}
