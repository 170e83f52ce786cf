package main

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestClusterEpochs builds the sequences for which leader epochs exist, with real processes: a topic has replicas on two of
// three brokers, which die and come back at the worst moments; the third keeps the registry's majority.
func TestClusterEpochs(t *testing.T) {
	c := newTrio(t)
	c.awaitHealth()

	// A follower comes back that does not know yet that a record is committed, and its leader dies before it could tell. A
	// follower that cut its log to the high watermark it knows would lose the record. (E-1)
	t.Run("E-1", func(t *testing.T) {
		p := newPair(t, c, "kept", "--set", "min.insync.replicas=2")
		follower, leader := p.followerOf(p.leader()), p.leader()
		p.produce(0, 2)
		c.brokers[follower].kill() // its high watermark was not written down
		p.replace(leader, follower)
		p.awaitLeader(follower)
		p.restart(leader)
		p.produce(2, 3)
		p.holds(0, 3)
	})

	// Two replicas lead in turn, each without knowing of the other, so that each has records in an epoch that the other does
	// not have. The answer for an epoch that it never had must lead a follower to where the two logs part, before anything is
	// copied. (E-5: the elections are unclean, and what the one that lost had alone is gone by its operator's choice.)
	t.Run("E-5", func(t *testing.T) {
		p := newPair(t, c, "forked", "--set", "min.insync.replicas=1")
		a := p.leader()
		b := p.followerOf(a)
		p.produce(0, 10)
		c.brokers[a].kill()
		p.awaitLeader(b)
		p.produce(10, 20)
		p.replace(b, a)
		p.electUncleanly(a)
		p.produce(100, 105) // they stand where records 10 to 14 stand on the other
		p.replace(a, b)
		p.electUncleanly(b)
		p.restart(a)
		p.holds(0, 20)
	})

	for i, b := range c.brokers {
		if err := b.stop(); err != nil {
			t.Errorf("stop broker %d: %v\n%s", i+1, err, b.log())
		}
	}
	c.compareReplicas("kept", 1)
	c.compareReplicas("forked", 1)
}

// pair is a topic of one partition with replicas on two brokers of three.
type pair struct {
	t     *testing.T
	c     *trio
	topic string
}

func newPair(t *testing.T, c *trio, topic string, settings ...string) *pair {
	t.Helper()
	c.brokers[0].createTopic(t, append([]string{topic, "--partitions", "1", "--replication-factor", "2"}, settings...)...)
	c.awaitHealth()
	return &pair{t, c, topic}
}

// client is one that knows all brokers, as an old connection would not.
func (p *pair) client(options ...kgo.Opt) *kgo.Client {
	p.t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(p.c.addrs[:]...), kgo.MetadataMinAge(20*time.Millisecond))...)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// partition is what the broker that keeps no replica says of it.
func (p *pair) partition() (detail kadm.PartitionDetail) {
	p.t.Helper()
	client := p.client()
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(withTimeout(p.t, time.Minute), p.topic)
	if err != nil {
		p.t.Fatal(err)
	}
	return topics[p.topic].Partitions[0]
}

func (p *pair) leader() int { return int(p.partition().Leader) - 1 }

func (p *pair) followerOf(leader int) int {
	p.t.Helper()
	replicas := p.partition().Replicas
	return int(replicas[1-slices.Index(replicas, int32(leader+1))]) - 1
}

// awaitLeader returns when a broker leads.
func (p *pair) awaitLeader(i int) {
	p.t.Helper()
	ctx := withTimeout(p.t, time.Minute)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for p.leader() != i {
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("broker %d does not lead: %+v\n%s", i+1, p.partition(), p.c.logs())
		}
	}
}

// electUncleanly makes a broker leader that was not in sync, when its leader is gone.
func (p *pair) electUncleanly(i int) {
	p.t.Helper()
	ctx := withTimeout(p.t, time.Minute)
	for p.leader() != i {
		_, stderr, _ := command(p.t, "", "partition", "elect", "--unclean", p.topic+"-0", "--bootstrap-server", p.c.bootstrap())
		if ctx.Err() != nil {
			p.t.Fatalf("broker %d is not elected: %s\n%s", i+1, stderr, p.c.logs())
		}
	}
}

// replace starts one broker while the leader stands still, so that it can learn nothing from it, and kills the leader.
func (p *pair) replace(leader, by int) {
	p.t.Helper()
	if err := p.c.brokers[leader].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	p.restart(by)
	p.c.brokers[leader].kill()
}

func (p *pair) restart(i int) {
	p.t.Helper()
	if err := p.c.start(i, p.c.addrs[i]); err != nil {
		p.t.Fatalf("broker %d: %v", i+1, err)
	}
}

// produce writes numbers, and waits until all replicas in sync have each.
func (p *pair) produce(from, to int) {
	p.t.Helper()
	client := p.client(kgo.DefaultProduceTopic(p.topic), kgo.RequiredAcks(kgo.AllISRAcks()))
	defer client.Close()
	for n := from; n < to; n++ {
		if err := client.ProduceSync(withTimeout(p.t, time.Minute), kgo.StringRecord(fmt.Sprint(n))).FirstErr(); err != nil {
			p.t.Fatalf("record %d: %v\n%s", n, err, p.c.logs())
		}
	}
}

// holds checks, when both replicas are in sync, that the partition holds these numbers and nothing else.
func (p *pair) holds(from, to int) {
	p.t.Helper()
	p.c.awaitHealth()
	var want, got []string
	for n := from; n < to; n++ {
		want = append(want, fmt.Sprint(n))
	}
	for _, r := range readAll(p.t, p.c.brokers[p.leader()], p.topic, 0) {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("%s holds %v, want %v", p.topic, got, want)
	}
}
