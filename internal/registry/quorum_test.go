package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/internal/keystore/keystoretest"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// quorum is a registry of several brokers on loopback. Its ticks are short, so that elections take no time.
type quorum struct {
	t       *testing.T
	peers   []Peer
	members int
	tls     *TLS
	nodes   map[meta.BrokerID]*node
}

// node is one broker of a quorum. It keeps its directory from start to start.
type node struct {
	dir    string
	held   net.Listener // for the first start
	member *Embedded
	failed chan error // of a start under way
	stop   context.CancelFunc
	ran    chan error
}

func newQuorum(t *testing.T, brokers, members int) *quorum {
	t.Helper()
	q := &quorum{t: t, members: members, nodes: make(map[meta.BrokerID]*node)}
	for id := meta.BrokerID(1); int(id) <= brokers; id++ {
		q.add(id)
	}
	t.Cleanup(func() {
		for id := range q.nodes {
			q.stop(id)
		}
	})
	return q
}

// add gives a broker an address that nobody else can draw.
func (q *quorum) add(id meta.BrokerID) {
	q.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		q.t.Fatal(err)
	}
	q.peers = append(q.peers, Peer{id, l.Addr().String()})
	q.nodes[id] = &node{dir: filepath.Join(q.t.TempDir(), "r"), held: l}
	q.t.Cleanup(func() { _ = l.Close() }) // of a broker that never started
}

// door opens a broker's listener, on the port that it had before.
func (q *quorum) door(id meta.BrokerID, cluster string) *Door {
	q.t.Helper()
	for _, p := range q.peers {
		if p.Broker != id {
			continue
		}
		l, err := q.nodes[id].held, error(nil)
		if q.nodes[id].held = nil; l == nil {
			l, err = net.Listen("tcp", p.Address)
		}
		for errors.Is(err, syscall.EADDRINUSE) && q.t.Context().Err() == nil {
			l, err = net.Listen("tcp", p.Address)
		}
		if err != nil {
			q.t.Fatal(err)
		}
		d, err := OpenDoor(DoorConfig{
			Broker: id, Peers: q.peers, Members: q.members, Cluster: cluster, Dir: q.nodes[id].dir, Listener: l, TLS: q.tls, Logger: testLogger(q.t),
		})
		if err != nil {
			q.t.Fatal(err)
		}
		return d
	}
	q.t.Fatalf("no broker %d", id)
	return nil
}

// begin starts members without waiting for them.
func (q *quorum) begin(ids ...meta.BrokerID) {
	q.t.Helper()
	for _, id := range ids {
		n, d := q.nodes[id], q.door(id, "")
		ctx, stop := context.WithCancel(q.t.Context())
		n.failed, n.ran, n.stop = make(chan error, 1), make(chan error, 1), stop
		go func() {
			member, err := StartEmbedded(ctx, EmbeddedConfig{
				Dir: n.dir, BallastBytes: -1, Logger: testLogger(q.t), Door: d, Tick: 10 * time.Millisecond, Election: 100 * time.Millisecond,
			})
			n.member = member
			if err != nil {
				err = errors.Join(err, d.Close())
			}
			n.failed <- err
			if err != nil {
				n.ran <- nil
				return
			}
			n.ran <- member.Run(ctx)
		}()
	}
}

// wait returns when members run.
func (q *quorum) wait(ids ...meta.BrokerID) {
	q.t.Helper()
	for _, id := range ids {
		if err := <-q.nodes[id].failed; err != nil {
			q.t.Fatalf("broker %d: %v", id, err)
		}
	}
}

func (q *quorum) start(ids ...meta.BrokerID) {
	q.t.Helper()
	q.begin(ids...)
	q.wait(ids...)
}

// stop ends a member, or the start of one.
func (q *quorum) stop(ids ...meta.BrokerID) {
	q.t.Helper()
	for _, id := range ids {
		n := q.nodes[id]
		if n.stop == nil {
			continue
		}
		n.stop()
		if err := <-n.ran; err != nil && !errors.Is(err, ErrFailed) {
			q.t.Errorf("broker %d ran: %v", id, err)
		}
		if n.member != nil {
			if err := n.member.Close(); err != nil {
				q.t.Errorf("close broker %d: %v", id, err)
			}
		}
		n.member, n.stop = nil, nil
	}
}

// empty takes a broker's disk away.
func (q *quorum) empty(id meta.BrokerID) {
	q.t.Helper()
	if err := os.RemoveAll(q.nodes[id].dir); err != nil {
		q.t.Fatal(err)
	}
}

func (q *quorum) store(id meta.BrokerID) Store { return q.nodes[id].member.Store() }

// put sets the key that tests look at; a change of leader may take a write with it.
func (q *quorum) put(id meta.BrokerID, value string) {
	q.t.Helper()
	q.eventually(func() error {
		_, err := q.store(id).Txn(q.t.Context(), Txn{Then: []Op{Put("/k", []byte(value))}})
		if err != nil && !errors.Is(err, ErrUnavailable) {
			q.t.Fatal(err)
		}
		return err
	})
}

// roles is what a member says about all members, such as "1v 2v 3l".
func (q *quorum) roles(id meta.BrokerID) string {
	var texts []string
	for _, m := range q.nodes[id].member.Members() {
		role := "l"
		if m.Voter {
			role = "v"
		}
		texts = append(texts, m.Broker.String()+role)
	}
	return strings.Join(texts, " ")
}

// await returns when a member sees the roles.
func (q *quorum) await(id meta.BrokerID, roles string) {
	q.t.Helper()
	q.eventually(func() error {
		if got := q.roles(id); got != roles {
			return fmt.Errorf("members %s, want %s", got, roles)
		}
		return nil
	})
}

// eventually repeats until it succeeds; the test's own time limit bounds it.
func (q *quorum) eventually(try func() error) {
	q.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			q.t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// D3: three empty brokers that start at once become one registry of three voters, and each of them serves all keys.
func TestQuorumFounding(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(3, 2, 1)
	q.await(1, "1v 2v 3v")
	q.put(2, "v")
	for id := meta.BrokerID(1); id <= 3; id++ {
		page, err := q.store(id).Range(t.Context(), Range{Prefix: "/k"})
		if err != nil || len(page.Entries) != 1 {
			t.Errorf("broker %d reads %+v, %v", id, page, err)
		}
	}
	lease, err := q.store(3).Grant(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.store(2).KeepAlive(t.Context(), lease); err != nil { // through whoever leads
		t.Error(err)
	}
}

// A leader that goes takes no call with it for the seconds that etcd would wait: reads and renewals are repeated, a write
// whose outcome is unknown says so, and a watch goes on.
func TestQuorumLosesLeader(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.put(1, "v")
	leader, other := meta.NoBroker, meta.NoBroker
	for _, m := range q.nodes[1].member.Members() {
		if m.Leads {
			leader = m.Broker
		} else {
			other = m.Broker
		}
	}
	store := q.store(other)
	lease, err := store.Grant(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	began, values := make(chan struct{}), make(chan string, 100)
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() {
		watched <- store.Watch(watching, "/", 1, func(changes Changes) error {
			for _, event := range changes.Events {
				values <- string(event.Entry.Value)
			}
			return nil
		})
	}()
	go func() {
		defer close(began)
		<-values
	}()
	<-began
	q.nodes[leader].member.etcd.Server.HardStop() // without handing over
	calls := make(chan error, 3)
	go func() {
		_, err := store.Range(t.Context(), Range{Prefix: "/k"})
		calls <- err
	}()
	go func() { calls <- store.KeepAlive(t.Context(), lease) }()
	go func() {
		_, err := store.Txn(t.Context(), Txn{Then: []Op{Get("/k")}})
		calls <- err
	}()
	for range cap(calls) {
		if err := <-calls; err != nil {
			t.Error(err)
		}
	}
	q.put(other, "last")
	for value := range values {
		if value == "last" {
			break
		}
	}
	stop()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

// A member that is left alone by the others' stop notices it; one that still has a majority waits.
func TestQuorumMinority(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.stop(2)
	ctx, cancel := context.WithCancel(t.Context())
	alone := make(chan bool)
	go func() { alone <- q.nodes[1].member.AwaitMinority(ctx) }()
	q.put(1, "v") // two of three decide
	cancel()
	if <-alone {
		t.Error("two of three members count as a minority")
	}
	q.stop(3)
	if !q.nodes[1].member.AwaitMinority(t.Context()) {
		t.Error("one of three members counts as a majority")
	}
}

// D3: a cluster of which every member was stopped comes back as its members do, in any order; they ask nobody who they
// are, and a minority serves nobody.
func TestQuorumRestartsOneByOne(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.put(1, "v")
	q.stop(1, 2, 3)

	q.begin(3)
	d := q.outside(3)
	q.eventually(func() error { // it says at once that it is a member, before anybody can use it
		a, err := d.ask(t.Context(), q.peers[2])
		if err == nil && !a.Member {
			err = errors.New("broker 3 says that it is empty")
		}
		return err
	})
	q.start(2)
	q.wait(3)
	page, err := q.store(3).Range(t.Context(), Range{Prefix: "/k"})
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("two of three read %+v, %v", page, err)
	}
	q.start(1)
	q.put(1, "w")
}

// outside asks as broker 1 does, which need not run.
func (q *quorum) outside(id meta.BrokerID) *Door {
	q.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		q.t.Fatal(err)
	}
	d, err := OpenDoor(DoorConfig{Broker: id, Peers: q.peers, Members: q.members, Dir: q.t.TempDir(), Listener: l, TLS: q.tls})
	if err != nil {
		q.t.Fatal(err)
	}
	q.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			q.t.Error(err)
		}
	})
	return d
}

// U-63, D3: a member whose disk was emptied comes back as another member, which learns before it votes.
func TestQuorumEmptiedDisk(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.put(2, "v")
	before := q.nodes[3].member.Members()
	q.stop(3)
	q.empty(3)
	q.start(3)
	q.await(3, "1v 2v 3v")
	after := q.nodes[3].member.Members()
	if before[0].ID != after[0].ID || before[1].ID != after[1].ID || before[2].ID == after[2].ID {
		t.Errorf("members %+v, then %+v", before, after)
	}
	page, err := q.store(3).Range(t.Context(), Range{Prefix: "/k"})
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("the new member reads %+v, %v", page, err)
	}
	q.stop(1) // the two others are a majority
	q.put(3, "w")
}

// D3: the member of a single broker becomes one of three, without ever being one of two; its keys stay.
func TestQuorumGrows(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	lone := startEmbedded(t, q.nodes[1].dir)
	put(t, lone.Store(), "/k", "v")
	if err := lone.Close(); err != nil {
		t.Fatal(err)
	}
	q.start(1)
	q.await(1, "1v")
	q.start(2) // although broker 3's port accepts and says nothing
	q.await(1, "1v 2l")
	q.put(2, "w") // a learner's broker works
	if got := q.roles(1); got != "1v 2l" {
		t.Errorf("members %s while one of three is missing", got)
	}
	q.start(3)
	q.await(1, "1v 2v 3v")
	page, err := q.store(3).Range(t.Context(), Range{Prefix: "/k"})
	if err != nil || len(page.Entries) != 1 || string(page.Entries[0].Value) != "w" {
		t.Errorf("the new member reads %+v, %v", page, err)
	}
	q.stop(1, 2, 3)
	_, err = StartEmbedded(t.Context(), EmbeddedConfig{Dir: q.nodes[1].dir, BallastBytes: -1, Logger: testLogger(t)})
	if !errors.Is(err, ErrNeedsCluster) {
		t.Errorf("one of three without its cluster: %v", err)
	}
}

// D3: a broker beyond the members is a client of them, and one whose member has failed goes on with the others.
func TestQuorumClients(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 4, 3)
	d := q.door(4, "")
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if d.Member() {
		t.Error("broker 4 is a member")
	}
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	store, err := Dial(t.Context(), DialConfig{Endpoints: d.Endpoints(), Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, store)
	q.put(1, "v")
	page, err := store.Range(t.Context(), Range{Prefix: "/k"})
	if err != nil {
		t.Fatal(err)
	}
	revision := page.Revision
	watched := make(chan error, 1)
	go func() {
		watched <- store.Watch(t.Context(), "/k", revision, func(Changes) error { return context.Canceled })
	}()
	if err := <-watched; !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}

	failing := q.nodes[2].member
	hanging := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		hanging <- failing.Store().Watch(t.Context(), "/", revision, func(Changes) error { close(began); return nil })
	}()
	<-began
	go failing.etcd.GetLogger().Fatal("failed to save Raft hard state and entries")
	<-failing.Failed()
	if err := <-hanging; !errors.Is(err, ErrUnavailable) {
		t.Errorf("a watch of the failed member ended with %v", err)
	}
	q.put(2, "w")
	if _, err := d.ask(t.Context(), q.peers[1]); err == nil {
		t.Error("the failed member's listener answers")
	}
}

// D3: a broker takes another one's place in the list; whoever comes back to a place that was given away is told so.
func TestQuorumReplacement(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.put(1, "v")
	q.stop(3)
	old := q.peers
	q.add(4)
	q.peers = []Peer{old[0], old[1], q.peers[3]}
	for _, id := range []meta.BrokerID{1, 2} { // rolled, with the new list
		q.stop(id)
		q.begin(id)
	}
	q.wait(1, 2)
	q.start(4)
	q.await(4, "1v 2v 4v")
	q.peers = old
	q.begin(3)
	if err := <-q.nodes[3].failed; !errors.Is(err, ErrRemoved) {
		t.Errorf("the member that was replaced: %v", err)
	}
}

// With certificates, brokers talk to each other only if the authority has signed both sides.
func TestQuorumTLS(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.tls = certificate(t, t.TempDir())
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	store, err := Dial(t.Context(), DialConfig{Endpoints: q.outside(1).Endpoints(), TLS: q.tls, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, store)
	if _, err := store.Range(t.Context(), Range{Prefix: "/k"}); err != nil {
		t.Error(err)
	}

	q.tls = certificate(t, t.TempDir())
	if _, err := q.outside(1).ask(t.Context(), q.peers[1]); err == nil {
		t.Error("a stranger's certificate was accepted")
	}
	q.tls = nil
	if _, err := q.outside(1).ask(t.Context(), q.peers[1]); err == nil {
		t.Error("a question without TLS was answered")
	}
}

// certificate makes an authority and one certificate that it has signed, for loopback.
func certificate(t *testing.T, dir string) *TLS {
	t.Helper()
	authority := keystoretest.NewAuthority(t)
	chain, key := authority.Issue("broker")
	return &TLS{
		CertFile: keystoretest.Write(t, dir, "cert.pem", chain), KeyFile: keystoretest.Write(t, dir, "key.pem", key),
		CAFile: keystoretest.Write(t, dir, "ca.pem", authority.PEM),
	}
}

// A member whose broker has moved makes its new address known to the others.
func TestQuorumMoves(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.stop(2)
	dir := q.nodes[2].dir
	q.add(2)
	q.nodes[2].dir = dir
	q.peers = []Peer{q.peers[0], q.peers[3], q.peers[2]}
	q.start(2)
	q.eventually(func() error {
		if got := q.nodes[1].member.Members()[1].Address; got != q.peers[1].Address {
			return fmt.Errorf("broker 1 knows the address %s, want %s", got, q.peers[1].Address)
		}
		return nil
	})
	for _, id := range []meta.BrokerID{1, 3} {
		q.stop(id)
		q.start(id)
	}
	q.put(2, "v")
	if got := q.roles(2); got != "1v 2v 3v" {
		t.Errorf("members %s", got)
	}
}

// A cluster that lost the majority of its members for ever goes on with the one that is left, and grows again.
func TestQuorumRecovers(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, 3)
	q.start(1, 2, 3)
	q.await(1, "1v 2v 3v")
	q.put(1, "v")
	q.await(2, "1v 2v 3v")
	q.eventually(func() error {
		page, err := q.store(2).Range(t.Context(), Range{Prefix: "/k"})
		if err == nil && len(page.Entries) != 1 {
			err = errors.New("broker 2 has not heard of the key")
		}
		return err
	})
	q.stop(1, 2, 3)
	q.empty(1)
	q.empty(3)
	if _, err := Recover(t.Context(), q.nodes[1].dir, testLogger(t)); !errors.Is(err, ErrNoMember) {
		t.Errorf("an empty directory: %v", err)
	}
	if index, err := Recover(t.Context(), q.nodes[2].dir, testLogger(t)); err != nil || index == 0 {
		t.Fatalf("index %d, %v", index, err)
	}
	q.start(2, 1, 3)
	q.await(1, "1v 2v 3v")
	page, err := q.store(3).Range(t.Context(), Range{Prefix: "/k"})
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("the new members read %+v, %v", page, err)
	}
}
