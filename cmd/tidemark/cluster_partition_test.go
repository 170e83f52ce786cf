//go:build netns

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// network is three namespaces on one bridge, whose cables can be cut in either direction.
type network struct {
	t      *testing.T
	prefix string // of the addresses
	name   string // of what is made
	places [3]string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	id := os.Getpid() % 250
	n := &network{t: t, prefix: fmt.Sprintf("10.213.%d.", id), name: fmt.Sprintf("tm%d", id)}
	n.ip("link", "add", n.name, "type", "bridge")
	t.Cleanup(func() { n.ip("link", "delete", n.name) })
	n.ip("addr", "add", n.prefix+"254/24", "dev", n.name)
	n.ip("link", "set", n.name, "up")
	for i := range n.places {
		place, cable := fmt.Sprintf("%s-%d", n.name, i+1), fmt.Sprintf("%sv%d", n.name, i+1)
		n.places[i] = place
		n.ip("netns", "add", place)
		t.Cleanup(func() { n.ip("netns", "delete", place) })
		n.ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", place)
		n.ip("link", "set", cable, "master", n.name, "up")
		n.ip("-n", place, "addr", "add", n.address(i)+"/24", "dev", "eth0")
		n.ip("-n", place, "link", "set", "eth0", "up")
		n.ip("-n", place, "link", "set", "lo", "up")
	}
	return n
}

func (n *network) address(i int) string { return fmt.Sprintf("%s%d", n.prefix, i+1) }

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s (this test wants root): %v: %s", strings.Join(args, " "), err, out)
	}
}

// cut loses what one broker sends to another: it goes to a machine that does not exist. Nobody is told.
func (n *network) cut(from, to int) {
	n.t.Helper()
	n.ip("-n", n.places[from], "neigh", "replace", n.address(to), "lladdr", "02:00:00:00:00:ff", "dev", "eth0", "nud", "permanent")
}

func (n *network) mend(from, to int) {
	n.t.Helper()
	n.ip("-n", n.places[from], "neigh", "del", n.address(to), "dev", "eth0")
}

// TestClusterPartition cuts one broker of three off from the others, wholly or in one direction, again and again under load.
// Clients reach all of them. The two that see each other go on, and nothing that was acknowledged is lost, doubled or out of
// order when the third is back. (I1, I2, I5)
func TestClusterPartition(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d -cluster.cycles=%d", seed, *clusterCycles)
	random := rand.New(rand.NewPCG(seed, 2))
	n := newNetwork(t)
	c := &trio{t: t, dir: t.TempDir(), in: n.places}
	var entries []string
	var listen [3]string
	for i := range c.brokers {
		entries = append(entries, fmt.Sprintf("%d@%s:9192", i+1, n.address(i)))
		listen[i] = n.address(i) + ":9092"
	}
	c.list = strings.Join(entries, ",")
	c.startAll(listen)
	c.awaitHealth()
	c.brokers[0].createTopic(t, crashTopic, "--partitions", fmt.Sprint(crashPartitions), "--replication-factor", "3",
		"--set", "min.insync.replicas=2", "--set", "segment.bytes=1048576")

	load := newCrashLoad(t, c.brokers[0], kgo.SeedBrokers(c.addrs[:]...))
	load.mu.ahead = clusterAhead
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- load.produce(ctx) }()
	for range *clusterCycles {
		load.awaitAcks(load.acked() + 100 + random.IntN(1_000))
		victim, way := random.IntN(len(c.brokers)), random.IntN(3)
		each := func(do func(from, to int)) {
			for other := range c.brokers {
				if other == victim {
					continue
				}
				if way != 1 {
					do(victim, other)
				}
				if way != 2 {
					do(other, victim)
				}
			}
		}
		each(n.cut)
		load.awaitAcks(load.acked() + 1_000 + random.IntN(2_000)) // every partition gets some, so the others lead them all
		each(n.mend)
		c.awaitHealth()
	}
	load.awaitAcks(load.acked() + 1)
	cancel()
	c.judge(load, <-done)
}
