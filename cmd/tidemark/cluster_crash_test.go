package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	clusterCycles = flag.Int("cluster.cycles", 1, "how often the cluster's crash test hurts a broker")
	clusterStops  = flag.Bool("cluster.stops", false, "whether brokers are also stopped (SIGSTOP) for longer than their lease")
)

// clusterAhead bounds what is produced while a cluster recovers, so that a test's disk use grows with its cycles only.
const clusterAhead = 20_000

// trio is a cluster of three brokers in processes of their own.
type trio struct {
	t       *testing.T
	dir     string
	list    string
	brokers [3]*child
	addrs   [3]string

	// in is the network namespace of each broker; empty for the test's own.
	in [3]string

	// admin is where each broker tells its health and metrics; empty for any port.
	admin [3]string
}

// newTrio starts three brokers on this host that find each other.
func newTrio(t *testing.T) *trio {
	t.Helper()
	c := &trio{t: t, dir: t.TempDir()}
	var entries []string
	ports := freePorts(t, 6)
	for i := range c.brokers {
		entries = append(entries, fmt.Sprintf("%d@127.0.0.1:%d/%d", i+1, ports[2*i], ports[2*i+1]))
	}
	c.list = strings.Join(entries, ",")
	c.startAll([3]string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"})
	return c
}

// startAll starts the brokers at once, as a cluster's first start needs it.
func (c *trio) startAll(listen [3]string) {
	c.t.Helper()
	type started struct {
		at  int
		err error
	}
	results := make(chan started)
	for i := range c.brokers {
		go func() { results <- started{i, c.start(i, listen[i])} }()
	}
	for range c.brokers {
		if r := <-results; r.err != nil {
			c.t.Fatalf("broker %d: %v", r.at+1, r.err)
		}
	}
	for i, b := range c.brokers {
		c.addrs[i] = b.addr
	}
}

// freePorts draws ports that nobody uses at the moment.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func (c *trio) start(i int, listen string) (err error) {
	dir := filepath.Join(c.dir, fmt.Sprint(i+1))
	cmd := childCommand("start", "--set", "log.dirs="+dir, "--set", "listeners=PLAINTEXT://"+listen, "--set", "admin.listener="+cmp.Or(c.admin[i], "127.0.0.1:0"),
		"--set", fmt.Sprintf("node.id=%d", i+1), "--set", fmt.Sprintf("broker.rack=%d", i+1),
		"--set", "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", "--set", "broker.session.timeout.ms=6000", "--cluster", c.list)
	if c.in[i] != "" { // ip becomes the broker: signals reach it
		inside := exec.Command("ip", append([]string{"netns", "exec", c.in[i]}, cmd.Args...)...)
		inside.Env = cmd.Env
		cmd = inside
	}
	c.brokers[i], err = startCommand(c.t, dir, cmd)
	return err
}

func (c *trio) bootstrap() string { return strings.Join(c.addrs[:], ",") }

// awaitHealth returns when every broker is there and every replica in sync.
func (c *trio) awaitHealth() {
	c.t.Helper()
	ctx := withTimeout(c.t, 2*time.Minute)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		out, stderr, code := command(c.t, "", "cluster", "status", "--bootstrap-server", c.bootstrap())
		if code == exitOK {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			c.t.Fatalf("the cluster does not become healthy: %s\n%s\n%s", out, stderr, c.logs())
		}
	}
}

func (c *trio) logs() string {
	var out strings.Builder
	for i, b := range c.brokers {
		fmt.Fprintf(&out, "--- broker %d\n%s\n", i+1, b.log())
	}
	return out.String()
}

// TestClusterCrash kills brokers of three with SIGKILL, one after the other, under the load of one idempotent producer that
// waits for all acknowledgements, and lets each come back: leaders and followers, the controller, the registry's leader.
// Nothing acknowledged is lost, doubled or out of order, and in the end the replicas hold the same bytes. (I1, I2, I5, E-1)
func TestClusterCrash(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d -cluster.cycles=%d", seed, *clusterCycles)
	random := rand.New(rand.NewPCG(seed, 1))
	c := newTrio(t)
	c.awaitHealth()
	c.brokers[0].createTopic(t, crashTopic, "--partitions", fmt.Sprint(crashPartitions), "--replication-factor", "3",
		"--set", "min.insync.replicas=2", "--set", "segment.bytes=1048576")

	load := newCrashLoad(t, c.brokers[0], kgo.SeedBrokers(c.addrs[:]...))
	load.mu.ahead = clusterAhead
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- load.produce(ctx) }()
	for cycle := range *clusterCycles {
		// As in TestCrash, moments are numbers of acknowledgements.
		load.awaitAcks(load.acked() + 100 + random.IntN(1_000))
		victim := random.IntN(len(c.brokers))
		if *clusterStops && random.IntN(4) == 0 {
			c.stopFor(victim, load, random)
			continue
		}
		c.brokers[victim].kill()
		if random.IntN(2) == 0 {
			load.awaitAcks(load.acked() + 1 + random.IntN(500)) // the others go on without it
		}
		if err := c.start(victim, c.addrs[victim]); err != nil {
			t.Fatalf("cycle %d: broker %d: %v", cycle, victim+1, err)
		}
		c.awaitHealth()
	}
	load.awaitAcks(load.acked() + 1)
	cancel()
	c.judge(load, <-done)
}

// judge holds what the cluster has against what its producer was promised, and stops it.
func (c *trio) judge(load *crashLoad, produced error) {
	t := c.t
	t.Helper()
	if produced != nil {
		t.Fatalf("produce: %v\n%s", produced, c.logs())
	}
	t.Logf("%d records acknowledged over %d cycles", load.acked(), *clusterCycles)
	c.awaitHealth()
	load.verify(t, c.brokers[0])
	for i, b := range c.brokers {
		if err := b.stop(); err != nil {
			t.Errorf("stop broker %d: %v\n%s", i+1, err, b.log())
		}
		verifyFiles(t, b.dir)
	}
	c.compareReplicas(crashTopic, crashPartitions)
}

// stopFor lets a process stand still, as a machine that swaps, until the others have gone on without it.
func (c *trio) stopFor(victim int, load *crashLoad, random *rand.Rand) {
	c.t.Helper()
	process := c.brokers[victim].cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	load.awaitAcks(load.acked() + 200 + random.IntN(500))
	if err := process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
	c.awaitHealth()
}

// compareReplicas compares the bytes of every partition of a topic on the disks that have it, two at least.
func (c *trio) compareReplicas(topic string, partitions int) {
	c.t.Helper()
	for p := range partitions {
		sums := make(map[[sha256.Size]byte][]int)
		replicas := 0
		for i := range c.brokers {
			names, err := filepath.Glob(filepath.Join(c.dir, fmt.Sprint(i+1), fmt.Sprintf("%s-%d", topic, p), "*.log"))
			if err != nil {
				c.t.Fatal(err)
			}
			if len(names) == 0 {
				continue
			}
			slices.Sort(names)
			hash := sha256.New()
			for _, name := range names {
				content, err := os.ReadFile(name)
				if err != nil {
					c.t.Fatal(err)
				}
				hash.Write(content)
			}
			sum := [sha256.Size]byte(hash.Sum(nil))
			sums[sum] = append(sums[sum], i+1)
			replicas++
		}
		if len(sums) != 1 || replicas < 2 {
			c.t.Errorf("%s-%d: the replicas by their bytes: %v", topic, p, sums)
		}
	}
}
