//go:build netns

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
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

// mend ends a cut.
func (n *network) mend(from, to int) {
	n.t.Helper()
	n.ip("-n", n.places[from], "neigh", "del", n.address(to), "dev", "eth0")
}
