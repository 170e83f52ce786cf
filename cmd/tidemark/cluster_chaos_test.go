//go:build netns

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// peaceMax is how long after the end of a fault every replica must be in sync and every partition take records. (I16)
	peaceMax = 30 * time.Second

	// chaosPatience is when a cluster that does not heal is given up.
	chaosPatience = 2 * time.Minute
)

// fault is one way to hurt a broker for a while.
type fault struct {
	name              string
	shortest, longest time.Duration
	begin, end        func(x *chaos, victim int) error
}

// chaosFaults are what may happen. The lease of a broker is 6 s: some are over before it ends, and some after.
var chaosFaults = []fault{
	{"kill", 0, 4 * time.Second, (*chaos).kill, (*chaos).restart},
	{"stand still", 100 * time.Millisecond, 3 * time.Second, (*chaos).freeze, (*chaos).thaw},
	{"stand still beyond the lease", 9 * time.Second, 12 * time.Second, (*chaos).freeze, (*chaos).thaw},
	{"cut off", time.Second, 9 * time.Second, (*chaos).cutOff, (*chaos).mend},
	{"deaf", time.Second, 9 * time.Second, (*chaos).deafen, (*chaos).mend},
	{"mute", time.Second, 9 * time.Second, (*chaos).silence, (*chaos).mend},
	{"slow disk", 3 * time.Second, 6 * time.Second, (*chaos).slowDisk, (*chaos).fastDisk},
}

// aim is which brokers a fault is meant for.
type aim string

const (
	aimLeader     aim = "a leader"
	aimFollower   aim = "a follower"
	aimController aim = "the controller"
	aimRegistry   aim = "the registry's leader"
	aimBoth       aim = "the controller and the registry's leader" // one broker or two: then nobody can decide anything
	aimNeither    aim = "neither"
)

var chaosAims = []aim{aimLeader, aimFollower, aimController, aimRegistry, aimBoth, aimNeither}

// deed is what one cycle does. All of it comes from the seed; who is hit also depends on who leads at that moment.
type deed struct {
	fault     *fault
	aim       aim
	partition int           // whose leader or follower
	records   int           // acknowledged before the fault begins
	lasts     time.Duration // of the fault
}

func (c deed) String() string {
	return fmt.Sprintf("%s: %s for %v", c.aim, c.fault.name, c.lasts.Round(10*time.Millisecond))
}

// choose draws the deeds of a run: every fault at every aim once before any pair comes again.
func choose(seed uint64, cycles int) []deed {
	random := rand.New(rand.NewPCG(seed, 3))
	var deck, all []deed
	for i := range chaosFaults {
		for _, a := range chaosAims {
			deck = append(deck, deed{fault: &chaosFaults[i], aim: a})
		}
	}
	for len(all) < cycles {
		random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		for _, c := range deck {
			c.partition, c.records = random.IntN(chaosPartitions), 200+random.IntN(1_000)
			c.lasts = c.fault.shortest + time.Duration(random.Int64N(int64(c.fault.longest-c.fault.shortest)))
			all = append(all, c)
		}
	}
	return all[:cycles]
}

// chaos is a cluster of three in network namespaces, what is done to it, and what holds it to its promises.
type chaos struct {
	*trio
	net    *network
	client *kgo.Client
	load   *chaosLoad

	cuts   [][2]int // from, to
	slowed [3]*exec.Cmd
}

// TestClusterChaos hurts the brokers of a cluster again and again under load: kill -9, SIGSTOP for less and for more than the
// lease, partitions, whole and in one direction, and a slow disk; in turn a leader, a follower, the controller, the
// registry's leader, both of these or neither. Nothing acknowledged is lost, doubled, out of order or elsewhere, no reader
// sees what is not there in the end, the cluster heals within 30 s of each fault's end, and in the end the replicas hold the
// same bytes and no broker more goroutines or files than at first. (I1, I2, I4, I5, I7, I16)
func TestClusterChaos(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d -cluster.cycles=%d", seed, *clusterCycles)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: this test slows disks with it", err)
	}
	x := newChaos(t)
	x.load.start(x.bootstrap())
	x.load.awaitAcks(2_000)
	x.load.stop()
	x.awaitPeace(0, time.Now(), false)
	before := x.rest()

	x.load.start(x.bootstrap())
	var slowest time.Duration
	for i, c := range choose(seed, *clusterCycles) {
		x.load.awaitAcks(c.records)
		victims := x.victims(c)
		began := time.Now()
		peace := x.hurt(c, victims)
		healed := x.awaitPeace(i, peace, true)
		slowest = max(slowest, healed)
		t.Logf("cycle %d: %s: hit %v for %v, healed after %v; %d acknowledged", i, c, victims, peace.Sub(began).Round(time.Millisecond),
			healed.Round(time.Millisecond), x.load.history.acked())
		if t.Failed() {
			t.Fatalf("%s", x.logs())
		}
	}
	x.load.finish(x.bootstrap())
	t.Logf("%d records acknowledged over %d cycles; the slowest to heal took %v", x.load.history.acked(), *clusterCycles, slowest)
	x.awaitPeace(*clusterCycles, time.Now(), false)
	x.awaitRest(before)
	x.client.Close()
	for i, b := range x.brokers {
		if err := b.stop(); err != nil {
			t.Errorf("stop broker %d: %v", i+1, err)
		}
		verifyFiles(t, b.dir)
	}
	x.compareReplicas(crashTopic, chaosPartitions)
	for _, f := range x.load.history.judge() {
		t.Error(f)
	}
	if t.Failed() {
		t.Logf("%s", x.logs())
	}
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	n := newNetwork(t)
	x := &chaos{trio: &trio{t: t, dir: t.TempDir(), in: n.places}, net: n}
	var entries []string
	var listen [3]string
	for i := range x.brokers {
		entries = append(entries, fmt.Sprintf("%d@%s:9192", i+1, n.address(i)))
		listen[i], x.admin[i] = n.address(i)+":9092", n.address(i)+":9644"
	}
	x.list = strings.Join(entries, ",")
	x.startAll(listen)
	client, err := kgo.NewClient(kgo.SeedBrokers(x.addrs[:]...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	x.client = client
	x.awaitHealth()
	x.brokers[0].createTopic(t, crashTopic, "--partitions", fmt.Sprint(chaosPartitions), "--replication-factor", "3",
		"--set", "min.insync.replicas=2", "--set", "segment.bytes=4194304")
	x.load = newChaosLoad(t)
	return x
}

// status is the cluster's as some broker tells it.
func (x *chaos) status() (*clusterStatus, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
	defer cancel()
	return statusOf(ctx, x.client)
}

// victims finds out whom a deed means at this moment.
func (x *chaos) victims(c deed) []int {
	x.t.Helper()
	s, err := x.status()
	if err != nil || s.Registry == nil || s.Registry.Leader < 1 || s.Controller < 1 {
		x.t.Fatalf("whom to hit: %+v, %v\n%s", s, err, x.logs())
	}
	topics, err := kadm.NewClient(x.client).ListTopics(x.t.Context(), crashTopic)
	if err != nil {
		x.t.Fatal(err)
	}
	partition := topics[crashTopic].Partitions[int32(c.partition)]
	var ids []int32
	switch c.aim {
	case aimLeader:
		ids = append(ids, partition.Leader)
	case aimFollower:
		ids = append(ids, partition.Replicas[(slices.Index(partition.Replicas, partition.Leader)+1)%len(partition.Replicas)])
	case aimController:
		ids = append(ids, s.Controller)
	case aimRegistry:
		ids = append(ids, s.Registry.Leader)
	case aimBoth:
		ids = append(ids, s.Controller)
		if s.Registry.Leader != s.Controller {
			ids = append(ids, s.Registry.Leader)
		}
	case aimNeither:
		for id := int32(1); id <= 3; id++ {
			if id != s.Controller && id != s.Registry.Leader {
				ids = append(ids[:0], id)
			}
		}
	}
	var victims []int
	for _, id := range ids {
		victims = append(victims, int(id-1))
	}
	return victims
}

// hurt does what was chosen, and undoes it. It returns when it began to undo it.
func (x *chaos) hurt(c deed, victims []int) (peace time.Time) {
	x.t.Helper()
	for _, v := range victims {
		if err := c.fault.begin(x, v); err != nil {
			x.t.Fatalf("%s: broker %d: %v", c, v+1, err)
		}
	}
	timer := time.NewTimer(c.lasts)
	defer timer.Stop()
	<-timer.C
	peace = time.Now()
	for _, v := range victims {
		if err := c.fault.end(x, v); err != nil {
			x.t.Fatalf("%s: the end: broker %d: %v\n%s", c, v+1, err, x.logs())
		}
	}
	return peace
}

func (x *chaos) kill(victim int) error {
	x.brokers[victim].kill()
	return nil
}

func (x *chaos) restart(victim int) error { return x.start(victim, x.addrs[victim]) }

func (x *chaos) freeze(victim int) error {
	return x.brokers[victim].cmd.Process.Signal(syscall.SIGSTOP)
}

func (x *chaos) thaw(victim int) error { return x.brokers[victim].cmd.Process.Signal(syscall.SIGCONT) }

// cutOff loses everything between a broker and the two others; clients still reach it.
func (x *chaos) cutOff(victim int) error { return errors.Join(x.deafen(victim), x.silence(victim)) }

// deafen loses what the others send to a broker.
func (x *chaos) deafen(victim int) error {
	for other := range x.brokers {
		x.cut(other, victim)
	}
	return nil
}

// silence loses what a broker sends to the others.
func (x *chaos) silence(victim int) error {
	for other := range x.brokers {
		x.cut(victim, other)
	}
	return nil
}

func (x *chaos) cut(from, to int) {
	if from != to && !slices.Contains(x.cuts, [2]int{from, to}) {
		x.net.cut(from, to)
		x.cuts = append(x.cuts, [2]int{from, to})
	}
}

// mend ends all cuts.
func (x *chaos) mend(int) error {
	for _, c := range x.cuts {
		x.net.mend(c[0], c[1])
	}
	x.cuts = nil
	return nil
}

// slowDisk makes every write of a log take 20 ms longer and every fsync 300 ms. That the broker is traced slows it, too.
func (x *chaos) slowDisk(victim int) error {
	const sync, write = "fsync,fdatasync,sync_file_range,syncfs", "pwrite64,pwritev,pwritev2"
	pid := fmt.Sprint(x.brokers[victim].pid)
	tracer := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace="+sync+","+write,
		"-e", "inject="+sync+":delay_exit=300000", "-e", "inject="+write+":delay_exit=20000", "-p", pid)
	if err := tracer.Start(); err != nil {
		return err
	}
	x.slowed[victim] = tracer
	return nil
}

func (x *chaos) fastDisk(victim int) error {
	tracer := x.slowed[victim]
	x.slowed[victim] = nil
	if err := tracer.Process.Signal(os.Interrupt); err != nil {
		return fmt.Errorf("strace ended early: %w", err)
	}
	_ = tracer.Wait() // it ends by the signal
	return nil
}

// awaitPeace returns how long after the end of a fault the cluster is whole; with load, also every partition has taken a
// record since. It fails the test when that is longer than peaceMax.
func (x *chaos) awaitPeace(cycle int, began time.Time, underLoad bool) time.Duration {
	x.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	at := x.load.counts()
	for {
		s, err := x.status()
		if err == nil && !s.Healthy {
			err = errors.New(s.faults())
		}
		if err == nil {
			err = x.agree()
		}
		if err == nil && (!underLoad || x.load.grown(at)) {
			break
		}
		if time.Since(began) > chaosPatience {
			x.t.Fatalf("cycle %d: not whole after %v: %v\n%s", cycle, chaosPatience, err, x.logs())
		}
		<-again.C
	}
	healed := time.Since(began)
	if healed > peaceMax {
		x.t.Errorf("cycle %d: it took %v to heal", cycle, healed)
	}
	return healed
}

// agree returns an error unless every broker tells the same of each partition, all replicas in sync: one that has just
// stood still knows nothing of what has happened.
func (x *chaos) agree() error {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
	defer cancel()
	var first string
	for i := range x.brokers {
		request := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(crashTopic)
		request.Topics = append(request.Topics, topic)
		answer, err := request.RequestWith(ctx, x.client.Broker(i+1))
		if err != nil {
			return fmt.Errorf("metadata of broker %d: %w", i+1, err)
		}
		view := fmt.Sprintf("controller %d:", answer.ControllerID)
		for _, p := range answer.Topics[0].Partitions {
			if len(p.ISR) != len(x.brokers) {
				return fmt.Errorf("broker %d: partition %d has in sync %v", i+1, p.Partition, p.ISR)
			}
			view += fmt.Sprintf(" %d leads %d in %d,", p.Leader, p.Partition, p.LeaderEpoch)
		}
		if first = cmp.Or(first, view); view != first {
			return fmt.Errorf("broker 1 says %s broker %d %s", first, i+1, view)
		}
	}
	return nil
}
