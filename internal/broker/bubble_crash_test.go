package broker

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Whole brokers over disks that lose their power: the followers of a topic come back with less than they had, and copy what
// they lost from the one that has it. (I1, I2)
func TestBubblePowerCutOfFollowers(t *testing.T) {
	for _, mode := range vfs.CrashModes {
		t.Run(mode.String(), func(t *testing.T) {
			inBubble(t, 3, func(c *bubble) {
				c.create("copied", map[string]string{"min.insync.replicas": "2"}, 1, 2, 3)
				c.produce("copied", 0, 20)
				for _, follower := range []int{1, 2} {
					c.cutPower(mode, nil, follower)
					c.produce("copied", 20*follower, 20*follower+20)
					c.restart(follower)
					c.awaitValue("all in sync", "copied", func(p *meta.Partition) bool { return len(p.ISR) == 3 && p.Leader == 1 })
				}
				c.produce("copied", 60, 61)
				c.holds("copied", upTo(61)...)
			})
		})
	}
}

// upTo is 0, 1, … n-1.
func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

// Two replicas lose their power at once, and one of them its copy of a record that was acknowledged, because it was in
// memory only. The one that lost it comes back first. By default it waits for the other, whose copy is longer, and nothing
// is lost. (E-2, D9)
func TestBubbleDivergenceAwaitsTheLongest(t *testing.T) {
	inBubble(t, 2, func(c *bubble) {
		c.divergence(2)
		c.restart(1)
		time.Sleep(time.Minute) // virtual
		if value := c.value("forked"); value.Leader == 2 || value.InSync(2) {
			t.Errorf("broker 2 counts, though it may have lost what broker 1 has: %+v", value)
		}
		c.restart(0)
		value := c.awaitValue("the longest copy leads", "forked", func(p *meta.Partition) bool { return p.Leader == 1 && len(p.ISR) == 2 })
		if value.UncleanEpoch != value.LeaderEpoch {
			t.Errorf("the election of the longest copy is not on record: %+v", value)
		}
		c.produce("forked", 2, 3)
		c.holds("forked", 0, 1, 2)
	})
}

// The same, and the one that lost the record is told to lead nevertheless. It writes another record at its offset; the
// other one gives up what it has there. (E-2, D9)
func TestBubbleDivergenceByUncleanElection(t *testing.T) {
	inBubble(t, 2, func(c *bubble) {
		c.divergence(1)
		c.restart(1)
		client := c.client()
		if _, err := kadm.NewClient(client).ElectLeaders(c.t.Context(), kadm.ElectLiveReplica, kadm.TopicsSet{"forked": {0: {}}}); err != nil {
			t.Fatal(err)
		}
		client.Close()
		c.awaitValue("the short copy leads", "forked", func(p *meta.Partition) bool { return p.Leader == 2 })
		c.produce("forked", 7, 8)
		c.restart(0)
		c.awaitValue("both in sync", "forked", func(p *meta.Partition) bool { return p.Leader == 2 && len(p.ISR) == 2 })
		c.holds("forked", 0, 7)
		if value := c.value("forked"); value.UncleanEpoch != value.LeaderEpoch {
			t.Errorf("the unclean election is not on record: %+v", value)
		}
	})
}

// divergence gives brokers 1 and 2 a record that both have on disk, and another one that only broker 1 has when both have
// lost their power.
func (c *bubble) divergence(minISR int) {
	c.t.Helper()
	c.create("forked", map[string]string{"min.insync.replicas": string('0' + rune(minISR))}, 1, 2)
	log := filepath.Join(bubbleDir, "forked-0", "00000000000000000000.log")
	size := func(disk *vfs.Memory) int {
		content, err := vfs.ReadFile(disk, log, bubbleBytes)
		if err != nil {
			c.t.Fatal(err)
		}
		return len(content)
	}
	c.produce("forked", 0, 1)
	for _, disk := range c.disks {
		if err := disk.SyncAll(bubbleDir); err != nil {
			c.t.Fatal(err)
		}
	}
	short := size(c.disks[1])
	c.produce("forked", 1, 2)
	long := size(c.disks[0])
	if short == 0 || long <= short || size(c.disks[1]) != long {
		c.t.Fatalf("the logs are of %d and %d bytes, of which %d are synced", long, size(c.disks[1]), short)
	}
	c.cutPower(vfs.Prefix, func(i int, disk *vfs.Memory) bool { return size(disk) == [...]int{long, short}[i] }, 0, 1)
}
