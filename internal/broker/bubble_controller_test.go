//go:build !race

// Not under the race detector: of go1.26 it ends the process with a fault of its own (in __tsan::SlotLock, or where it keeps stacks)
// when the runtime starts timers of a bubble as long as these, in one run of six. The brokers' code is raced by the other tests
// of this package.

package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// stepsMax is far above the transactions of any operation of these tests.
const stepsMax = 60

// eachStep does an operation again and again, on a topic of its own name, and has something happen to the controller at its
// k-th transaction, whoever makes it: for every k there is, before it is done, and after it is done but before its answer
// arrives.
func eachStep(t *testing.T, c *bubble, act func(controller int), operation func(topic string)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		steps := 0
		for happened := true; happened; steps++ {
			if steps > stepsMax {
				t.Fatalf("%d transactions", steps)
			}
			c.script.plan(steps+1, after, func() {
				if i := c.controller(); i >= 0 {
					act(i)
				}
			})
			operation(fmt.Sprintf("%d-%t", steps, after))
			happened = c.script.forget()
			c.awaitImage("all are live", c.allLive)
		}
		if steps < 3 {
			t.Errorf("only %d steps", steps)
		}
		t.Logf("after: %t, %d steps", after, steps-1)
	}
}

// The controller is killed at every step of a move to other brokers: the next one completes it.
func TestBubbleControllerKilledDuringMove(t *testing.T) {
	inBubble(t, 6, func(c *bubble) {
		const topic = "moved"
		here, there := []int32{1, 2, 3}, []int32{4, 5, 6}
		c.create(topic, map[string]string{"min.insync.replicas": "2"}, here...)
		c.produce(topic, 0, 10)
		produced := 10
		eachStep(t, c, c.strike, func(string) {
			before := c.value(topic)
			c.move(topic, there)
			c.awaitMoved(topic, there)
			after := c.value(topic)
			if after.LeaderEpoch <= before.LeaderEpoch {
				t.Errorf("the epoch was %d and is %d", before.LeaderEpoch, after.LeaderEpoch)
			}
			c.script.pause()
			c.produce(topic, produced, produced+1)
			produced++
			c.awaitDirectories(topic, there)
			c.script.resume()
			here, there = there, here
		})
		c.holds(topic, upTo(produced)...)
	})
}

// move asks for other replicas until somebody has taken it down, or one of them stands still.
func (c *bubble) move(topic string, replicas []int32) {
	c.t.Helper()
	var request kadm.AlterPartitionAssignmentsReq
	request.Assign(topic, 0, replicas)
	c.await("the move begins", func() bool {
		client := c.client() // a new one: whom the last one asked may be no more, or stand still
		defer client.Close()
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		_, _ = kadm.NewClient(client).AlterPartitionAssignments(ctx, request)
		if still := int32(c.still.Load()) + 1; still > 0 && slices.Contains(replicas, still) {
			return true // nobody moves anything to a broker that is not there
		}
		value := c.value(topic)
		return len(value.Adding)+len(value.Removing) > 0 || slices.Equal(value.Replicas, brokerIDs(replicas))
	})
}

// awaitMoved waits for the end of a move.
func (c *bubble) awaitMoved(topic string, replicas []int32) {
	c.t.Helper()
	want := brokerIDs(replicas)
	c.awaitValue("the move ends", topic, func(p *meta.Partition) bool {
		return slices.Equal(p.Replicas, want) && len(p.Adding)+len(p.Removing) == 0 && slices.Contains(want, p.Leader) && len(p.ISR) == len(want)
	})
}

// awaitDirectories waits until nobody but the replicas has files of a topic.
func (c *bubble) awaitDirectories(topic string, replicas []int32) {
	c.t.Helper()
	c.await("what is left is deleted", func() bool {
		for i, disk := range c.disks {
			entries, err := disk.List(bubbleDir)
			if err != nil {
				c.t.Fatal(err)
			}
			has := slices.ContainsFunc(entries, func(e vfs.Entry) bool { return strings.HasPrefix(e.Name, topic+"-0") })
			if has != slices.Contains(replicas, int32(i+1)) {
				return false
			}
		}
		return true
	})
}

func brokerIDs(numbers []int32) (ids []meta.BrokerID) {
	for _, n := range numbers {
		ids = append(ids, meta.BrokerID(n))
	}
	return ids
}

// The controller is killed at every step of a topic's deletion: nothing of it is left in the registry or on a disk. (D11)
func TestBubbleControllerKilledDuringDeletion(t *testing.T) {
	inBubble(t, 3, func(c *bubble) {
		eachStep(t, c, c.strike, func(step string) {
			topic := "deleted-" + step
			c.script.pause()
			c.create(topic, nil, 1, 2, 3)
			id := c.state().Names[topic]
			c.script.resume()
			c.delete(topic)
			c.awaitNothing(topic, id)
		})
	})
}

// delete asks for the deletion of a topic until it has no name any more.
func (c *bubble) delete(topic string) {
	c.t.Helper()
	c.await("the deletion begins", func() bool {
		client := c.client() // a new one: whom the last one asked may be no more, or stand still
		defer client.Close()
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		defer cancel()
		_, _ = kadm.NewClient(client).DeleteTopics(ctx, topic)
		_, found := c.state().Names[topic]
		return !found
	})
}

// awaitNothing waits until no key of the registry and no directory is a topic's.
func (c *bubble) awaitNothing(topic string, id meta.TopicID) {
	c.t.Helper()
	c.await("no key is left", func() bool {
		page, err := c.store.Range(c.t.Context(), registry.Range{})
		if err != nil {
			c.t.Fatal(err)
		}
		return !slices.ContainsFunc(page.Entries, func(e registry.Entry) bool { return strings.Contains(e.Key, id.String()) })
	})
	c.awaitDirectories(topic, nil)
}

// The controller stands still at every step of a move and of a deletion, until another one has finished them, and goes on:
// it changes nothing, and takes its place as a broker again. (I15, R-41)
func TestBubbleTwoControllers(t *testing.T) {
	inBubble(t, 6, func(c *bubble) {
		const moved = "moved"
		here, there := []int32{1, 2, 3}, []int32{4, 5, 6}
		c.create(moved, map[string]string{"min.insync.replicas": "2"}, here...)
		c.produce(moved, 0, 10)
		stop := func(i int) {
			c.tethers[i].hold()
			c.still.Store(int64(i))
		}
		eachStep(t, c, stop, func(step string) {
			deleted := "deleted-" + step
			c.script.pause()
			c.create(deleted, nil, here...)
			id := c.state().Names[deleted]
			c.script.resume()
			c.move(moved, there)
			c.delete(deleted)
			time.Sleep(30 * time.Second) // virtual: until whoever still acts has come to the step
			c.script.forget()
			if i := int(c.still.Load()); i >= 0 {
				c.await("another controller", func() bool { now := c.controller(); return now >= 0 && now != i })
				time.Sleep(time.Minute) // virtual: until nobody has anything to do
				if _, found := c.state().Names[deleted]; found {
					t.Errorf("step %s: the topic is still there", step)
				}
				before := c.state()
				again := c.tethers[i].release()
				c.still.Store(-1)
				if revision := <-again; revision != before.Revision {
					t.Errorf("step %s: the old controller, broker %d, has changed the registry: revision %d, was %d", step, i+1, revision, before.Revision)
				}
			}
			c.move(moved, there)
			c.awaitMoved(moved, there)
			c.awaitNothing(deleted, id)
			c.awaitDirectories(moved, there)
			here, there = there, here
		})
		c.holds(moved, upTo(10)...)
	})
}
