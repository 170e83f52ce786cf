package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// bubble is a cluster of whole brokers in a synctest bubble: time is virtual, the network is pipes, disks are in memory and
// lose what is not synced when their power is cut, the registry is in memory and each broker's way to it can be cut. Nothing
// waits for a lease, however long.
type bubble struct {
	t       *testing.T
	network pipes
	store   *registry.Memory
	listed  []ClusterBroker
	disks   []*vfs.Memory
	tethers []*tether
	brokers []*running
	script  *script
	died    chan int     // who was silenced and has to be buried
	still   atomic.Int64 // the index of who stands still, -1 for nobody

	inspector *registry.Cluster
}

const (
	bubbleDir   = "/data"
	bubbleBytes = 1 << 40
	drawsMax    = 10_000 // power cuts of one disk
)

// inBubble runs a test in a bubble with n live brokers, which are stopped at its end.
func inBubble(t *testing.T, n int, test func(c *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &bubble{t: t, store: registry.NewMemory(), script: &script{}, died: make(chan int, 1)}
		c.still.Store(-1)
		c.inspector = registry.NewCluster(c.store, "test", nil)
		for i := range n {
			c.listed = append(c.listed, ClusterBroker{ID: meta.BrokerID(i + 1), Internal: Address{fmt.Sprintf("broker%d", i+1), 9192}})
			c.disks = append(c.disks, vfs.NewMemory(uint64(i)))
		}
		c.brokers, c.tethers = make([]*running, n), make([]*tether, n)
		for i := range n {
			c.begin(i)
		}
		for _, b := range c.brokers {
			b.wait()
		}
		c.awaitImage("all are live", c.allLive)
		defer func() { // a test that failed may have left one
			if i := c.still.Load(); i >= 0 {
				c.tethers[i].release()
			}
		}()
		test(c)
		for _, b := range c.brokers {
			b.close()
		}
		if err := c.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// begin starts a broker on its disk.
func (c *bubble) begin(i int) {
	c.t.Helper()
	c.tethers[i] = &tether{Store: c.store, script: c.script}
	settings := map[string]string{"auto.leader.rebalance.enable": "false", "log.segment.delete.delay.ms": "100"}
	c.brokers[i] = launch(c.t, bubbleDir, settings, func(config *Config) {
		host := c.listed[i].Internal.Host
		config.BrokerID, config.Cluster, config.Registry, config.FS = c.listed[i].ID, c.listed, c.tethers[i], c.disks[i]
		config.Listeners = []Listener{{Name: "PLAINTEXT", Address: Address{host, 9092}}}
		config.Admin, config.AdminOff = nil, true
		config.Listen = c.network.listen
		config.Dial = c.network.dial
		config.FreeBytes = func(string) (free, total uint64, err error) { return bubbleBytes, bubbleBytes, nil }
	})
}

// kill ends a broker's process: what it had written stays, nobody hears it again, and its registration is ended, as the
// others do when its port refuses.
func (c *bubble) kill(i int) {
	c.t.Helper()
	c.silence(i)
	c.bury(i)
	c.disks[i].Kill()
}

// cutPower ends brokers at the same moment, and their disks lose what was not synced: one of the outcomes that mode allows
// and kept, if it is not nil, accepts.
func (c *bubble) cutPower(mode vfs.CrashMode, kept func(i int, disk *vfs.Memory) bool, brokers ...int) {
	c.t.Helper()
	after := make(map[int]*vfs.Memory)
	for _, i := range brokers {
		after[i] = c.disks[i].Crash(mode)
		for draw := 0; kept != nil && !kept(i, after[i]); draw++ {
			if draw == drawsMax {
				c.t.Fatalf("no power cut of broker %d leaves what is wanted", i+1)
			}
			after[i] = c.disks[i].Crash(mode)
		}
	}
	c.silence(brokers...)
	for _, i := range brokers {
		c.bury(i)
		c.disks[i] = after[i]
		if err := vfs.WriteAtomic(after[i], filepath.Join(bubbleDir, ".tidemark-boot-id"), []byte("another boot\n")); err != nil {
			c.t.Fatal(err)
		}
	}
}

// silence takes brokers from the world, as the end of their processes does, and lets them end by themselves. The world
// learns of it when all are gone.
func (c *bubble) silence(brokers ...int) {
	for _, i := range brokers {
		c.tethers[i].cut()
		c.network.close(c.listed[i].Internal.Host)
	}
	for _, i := range brokers {
		c.tethers[i].revoke()
		c.brokers[i].stop()
	}
}

// bury waits until a broker that was silenced has ended, as badly as it must.
func (c *bubble) bury(i int) {
	c.t.Helper()
	if _, open := <-c.brokers[i].done; open {
		close(c.brokers[i].done)
	}
}

// strike kills a broker from inside one of its own calls; await does the rest.
func (c *bubble) strike(i int) {
	c.silence(i)
	c.died <- i
}

// restart begins a broker again and waits until it serves.
func (c *bubble) restart(i int) {
	c.t.Helper()
	c.begin(i)
	c.brokers[i].wait()
}

// client is one that knows all brokers.
func (c *bubble) client(options ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	var seeds []string
	for i, b := range c.listed {
		if int64(i) != c.still.Load() {
			seeds = append(seeds, net.JoinHostPort(b.Internal.Host, "9092"))
		}
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.Dialer(c.network.dial), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RequestRetries(1000), kgo.RetryTimeout(10 * time.Minute),
	}, options...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// create makes a topic of one partition on the given brokers, the preferred leader first.
func (c *bubble) create(topic string, configs map[string]string, replicas ...int32) {
	c.t.Helper()
	client := c.client()
	defer client.Close()
	assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	assignment.Replicas = replicas
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, -1, -1
	wanted.ReplicaAssignment = append(wanted.ReplicaAssignment, assignment)
	for key, value := range configs {
		wanted.Configs = append(wanted.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: &value})
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 10_000
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(c.t.Context(), client)
	if err != nil || answer.Topics[0].ErrorCode != 0 {
		c.t.Fatalf("create %s: %v, %+v", topic, err, answer)
	}
	c.awaitValue("creation", topic, func(p *meta.Partition) bool { return len(p.ISR) == len(replicas) })
}

// produce writes numbers, each acknowledged by all in sync.
func (c *bubble) produce(topic string, from, to int) {
	c.t.Helper()
	client := c.client(kgo.DefaultProduceTopic(topic))
	defer client.Close()
	for n := from; n < to; n++ {
		if err := client.ProduceSync(c.t.Context(), kgo.StringRecord(strconv.Itoa(n))).FirstErr(); err != nil {
			c.t.Fatalf("record %d: %v", n, err)
		}
	}
}

// holds checks that a topic holds the numbers, and nothing else, on every replica.
func (c *bubble) holds(topic string, numbers ...int) {
	c.t.Helper()
	client := c.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	var got []int
	for len(got) < int(end.Offset) {
		fetches := client.PollFetches(c.t.Context())
		if err := fetches.Err(); err != nil {
			c.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n, err := strconv.Atoi(string(r.Value))
			if err != nil {
				c.t.Error(err)
			}
			got = append(got, n)
		})
	}
	if !slices.Equal(got, numbers) {
		c.t.Errorf("%s holds %v, want %v", topic, got, numbers)
	}
	c.replicasEqual(topic)
}

// replicasEqual compares the bytes of a topic's logs on the disks of those in sync.
func (c *bubble) replicasEqual(topic string) {
	c.t.Helper()
	var first []byte
	for i, id := range c.value(topic).ISR {
		name := filepath.Join(bubbleDir, topic+"-0", "00000000000000000000.log")
		content, err := vfs.ReadFile(c.disks[id-1], name, bubbleBytes)
		if err != nil {
			c.t.Fatal(err)
		}
		if i == 0 {
			first = content
		} else if !slices.Equal(content, first) {
			c.t.Errorf("%s: broker %s has %d other bytes than broker %s, which has %d", topic, id, len(content), c.value(topic).ISR[0], len(first))
		}
	}
}

// value is what the registry has for partition 0 of a topic.
func (c *bubble) value(topic string) *meta.Partition {
	c.t.Helper()
	state := c.state()
	id, found := state.Names[topic]
	if !found {
		return nil
	}
	return state.Partition(meta.TopicIDPartition{Topic: id})
}

// await lets virtual time pass until something is so. Whoever dies meanwhile is buried and started again.
func (c *bubble) await(what string, satisfied func() bool) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait() // what a script has begun is done, and everybody has heard of what is known
		select {
		case i := <-c.died:
			c.kill(i)
			c.restart(i)
		default:
		}
		if satisfied() {
			return
		}
		if time.Since(began) > 5*time.Minute {
			c.t.Fatalf("%s: never", what)
		}
	}
}

// awaitValue waits until the registry has a value that satisfies.
func (c *bubble) awaitValue(what, topic string, satisfied func(*meta.Partition) bool) (value *meta.Partition) {
	c.t.Helper()
	c.await(what, func() bool {
		value = c.value(topic)
		return value != nil && satisfied(value)
	})
	return value
}

// awaitImage waits until every running broker has heard of something.
func (c *bubble) awaitImage(what string, satisfied func(*meta.Image) bool) {
	c.t.Helper()
	c.await(what, func() bool {
		return !slices.ContainsFunc(c.brokers, func(b *running) bool { return !satisfied(b.state.load()) })
	})
}

func (c *bubble) allLive(image *meta.Image) bool {
	return len(image.Brokers()) == len(c.listed) && !slices.ContainsFunc(image.Brokers(), func(b meta.Broker) bool { return b.Fenced })
}

// controller is the index of the broker in the seat; negative for nobody.
func (c *bubble) controller() int {
	c.t.Helper()
	return int(c.state().Seat.Broker) - 1
}

// state is everything that the registry has.
func (c *bubble) state() *registry.State {
	c.t.Helper()
	state, err := c.inspector.Snapshot(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return state
}

// tether is one broker's way to the registry.
type tether struct {
	registry.Store
	script *script

	mu struct {
		sync.Mutex
		lost   bool
		held   chan struct{} // not nil: calls wait until it is closed
		again  chan int64    // not nil: gets the revision at the next Grant
		leases []registry.Lease
	}
}

// cut loses all that the broker says from now on; its next life has a tether of its own.
func (t *tether) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.lost = true
}

// revoke ends the broker's leases.
func (t *tether) revoke() {
	t.mu.Lock()
	leases := t.mu.leases
	t.mu.leases = nil
	t.mu.Unlock()
	for _, lease := range leases {
		_ = t.Store.Revoke(context.Background(), lease) // it may be over
	}
}

// pass returns when a call may go on.
func (t *tether) pass() error {
	t.mu.Lock()
	held := t.mu.held
	t.mu.Unlock()
	if held != nil {
		<-held
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.lost {
		return registry.ErrUnavailable
	}
	return nil
}

// Grant implements registry.Store. Either the lease is among those that revoke ends, or the broker does not get it.
func (t *tether) Grant(ctx context.Context, ttl time.Duration) (registry.Lease, error) {
	page, err := t.Store.Range(ctx, registry.Range{Prefix: "/format"})
	if err != nil {
		return registry.NoLease, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.lost {
		return registry.NoLease, registry.ErrUnavailable
	}
	lease, err := t.Store.Grant(ctx, ttl)
	if t.mu.again != nil {
		t.mu.again <- page.Revision
		t.mu.again = nil
	}
	t.mu.leases = append(t.mu.leases, lease)
	return lease, err
}

// KeepAlive implements registry.Store.
func (t *tether) KeepAlive(ctx context.Context, lease registry.Lease) error {
	_ = t.pass() // whether the lease is over is for the store to say
	return t.Store.KeepAlive(ctx, lease)
}

// Range implements registry.Store.
func (t *tether) Range(ctx context.Context, r registry.Range) (registry.Page, error) {
	if err := t.pass(); err != nil {
		return registry.Page{}, err
	}
	return t.Store.Range(ctx, r)
}

// Watch implements registry.Store.
func (t *tether) Watch(ctx context.Context, prefix string, from int64, handle func(registry.Changes) error) error {
	return t.Store.Watch(ctx, prefix, from, func(changes registry.Changes) error {
		if err := t.pass(); err != nil {
			return err
		}
		return handle(changes)
	})
}

// hold makes all calls wait, as those of a process that stands still.
func (t *tether) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.held = make(chan struct{})
}

// release ends hold. It returns a channel that gets the store's revision when the broker asks for its next lease.
func (t *tether) release() <-chan int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.mu.held)
	t.mu.held = nil
	t.mu.again = make(chan int64, 1)
	return t.mu.again
}

// Txn lets the script act before or after it.
func (t *tether) Txn(ctx context.Context, txn registry.Txn) (result registry.TxnResult, err error) {
	before, after := t.script.count()
	before()
	if err := t.pass(); err != nil {
		return result, err
	}
	result, err = t.Store.Txn(ctx, txn)
	after()
	return result, errors.Join(err, t.pass())
}

// script makes something happen at one of the transactions to come, whoever makes it.
type script struct {
	mu struct {
		sync.Mutex
		left   int // transactions until it happens, 0 when nothing is planned
		paused bool
		after  bool // it happens after the transaction is done and before its answer arrives
		act    func()

		happened bool
	}
}

func (s *script) plan(k int, after bool, act func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.left, s.mu.after, s.mu.act, s.mu.happened = k, after, act, false
}

// pause lets transactions pass uncounted, until resume.
func (s *script) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = true
}

func (s *script) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = false
}

// count returns what is to happen before and after a transaction.
func (s *script) count() (before, after func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after = func() {}, func() {}
	if s.mu.left == 0 || s.mu.paused {
		return before, after
	}
	if s.mu.left--; s.mu.left > 0 {
		return before, after
	}
	s.mu.happened = true
	if s.mu.after {
		return before, s.mu.act
	}
	return s.mu.act, after
}

// forget gives up what is planned. It tells whether it has happened.
func (s *script) forget() (happened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.left = 0
	return s.mu.happened
}

// pipes is a network of named hosts.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

// listen implements ListenFunc.
func (n *pipes) listen(_ context.Context, _, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = make(map[string]*pipeListener)
	}
	if n.listeners[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &pipeListener{network: n, address: pipeAddress(address), calls: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// dial implements DialFunc, for brokers and clients.
func (n *pipes) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	theirs = &pipeConn{Conn: theirs, local: l.address, remote: "client:1"}
	select {
	case l.calls <- theirs:
		l.hold(ours)
		return &pipeConn{Conn: ours, local: "client:1", remote: l.address}, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends the ports of a host, and all connections to them.
func (n *pipes) close(host string) {
	for _, port := range []string{"9092", "9192"} {
		n.mu.Lock()
		l := n.listeners[net.JoinHostPort(host, port)]
		n.mu.Unlock()
		if l != nil {
			_ = l.Close()
			l.hangUp()
		}
	}
}

type pipeAddress string

func (pipeAddress) Network() string  { return "tcp" }
func (a pipeAddress) String() string { return string(a) }

type pipeConn struct {
	net.Conn
	local, remote pipeAddress
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.local }
func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

type pipeListener struct {
	network *pipes
	address pipeAddress
	calls   chan net.Conn
	once    sync.Once
	closed  chan struct{}
	held    []net.Conn // guarded by network.mu
}

func (l *pipeListener) hold(c net.Conn) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	l.held = append(l.held, c)
}

func (l *pipeListener) hangUp() {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	for _, c := range l.held {
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, string(l.address))
	})
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return l.address }
