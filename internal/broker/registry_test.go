package broker

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// quorum is a cluster of brokers that embed their registry.
type quorum struct {
	t       *testing.T
	dir     string
	list    []ClusterBroker
	held    sync.Map // of net.Listener: registry ports for the first start, by address
	brokers map[meta.BrokerID]*running
}

// newQuorum lists n brokers on registry ports that nobody else can draw.
func newQuorum(t *testing.T, n int) *quorum {
	t.Helper()
	q := &quorum{t: t, dir: t.TempDir(), brokers: make(map[meta.BrokerID]*running)}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		q.list = append(q.list, ClusterBroker{ID: meta.BrokerID(i + 1), Internal: Address{"127.0.0.1", 0}, Registry: Address{"127.0.0.1", portOf(l.Addr())}})
		q.held.Store(l.Addr().String(), l)
	}
	return q
}

// listen hands out the ports that are held.
func (q *quorum) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if l, held := q.held.LoadAndDelete(address); held {
		return l.(net.Listener), nil
	}
	var tcp net.ListenConfig
	return tcp.Listen(ctx, network, address)
}

func (q *quorum) directory(id meta.BrokerID) string { return filepath.Join(q.dir, fmt.Sprint(id)) }

// begin launches brokers without waiting for them.
func (q *quorum) begin(ids ...meta.BrokerID) {
	q.t.Helper()
	for _, id := range ids {
		q.brokers[id] = launch(q.t, q.directory(id), nil, func(c *Config) { c.BrokerID, c.Cluster, c.Listen = id, q.list, q.listen })
	}
}

func (q *quorum) wait(ids ...meta.BrokerID) {
	q.t.Helper()
	for _, id := range ids {
		q.brokers[id].wait()
	}
}

// awaitVoters returns when a broker's member of the registry knows of three that vote.
func (q *quorum) awaitVoters(id meta.BrokerID) {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.t.Context(), patience)
	defer cancel()
	for {
		members := q.brokers[id].embedded.Members()
		if len(members) == 3 && !slices.ContainsFunc(members, func(m registry.Member) bool { return !m.Voter }) {
			return
		}
		if ctx.Err() != nil {
			q.t.Fatalf("members %+v", members)
		}
		runtime.Gosched()
	}
}

// checkQuorum asks one broker for the members of the registry.
func (q *quorum) checkQuorum(id meta.BrokerID) {
	q.t.Helper()
	request := kmsg.NewPtrDescribeQuorumRequest()
	request.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	answer, err := request.RequestWith(q.t.Context(), q.brokers[id].client())
	if err != nil || answer.ErrorCode != 0 {
		q.t.Fatalf("broker %s: %v, code %d", id, err, answer.ErrorCode)
	}
	p := answer.Topics[0].Partitions[0]
	if len(p.CurrentVoters) != 3 || len(p.Observers) != 0 || p.LeaderID < 1 || p.LeaderID > 3 || p.HighWatermark <= 0 || p.LeaderEpoch <= 0 {
		q.t.Errorf("broker %s describes the registry as %+v", id, p)
	}
	for i, v := range p.CurrentVoters {
		if v.ReplicaID != int32(i+1) || v.LogEndOffset <= 0 || answer.Nodes[i].Listeners[0].Port != uint16(q.list[i].Registry.Port) {
			q.t.Errorf("broker %s: voter %+v at %+v", id, v, answer.Nodes[i])
		}
	}
}

// TestClusterEmbedsItsRegistry proves that brokers which know nothing but their list become one cluster: three members of
// the registry and a client; and that a broker whose disk was emptied finds its cluster again. D3 D6 U-63
func TestClusterEmbedsItsRegistry(t *testing.T) {
	q := newQuorum(t, 4)
	q.begin(4, 3, 2, 1)
	q.wait(1, 2, 3, 4)
	if q.brokers[4].embedded != nil || q.brokers[3].embedded == nil {
		t.Error("the fourth broker has a member of the registry, or the third has none")
	}
	if _, err := kadm.NewClient(q.brokers[4].client()).CreateTopic(t.Context(), 8, 1, nil, "spread"); err != nil {
		t.Fatal(err)
	}
	q.awaitVoters(1)
	for id := range q.brokers {
		q.checkQuorum(id)
	}
	q.brokers[1].close()
	if err := os.RemoveAll(q.directory(1)); err != nil {
		t.Fatal(err)
	}
	q.begin(1)
	q.wait(1)
	q.awaitVoters(1)
	if topics, err := kadm.NewClient(q.brokers[1].client()).ListTopics(t.Context(), "spread"); err != nil || len(topics["spread"].Partitions) != 8 {
		t.Errorf("the emptied broker serves %+v, %v", topics, err)
	}
	if cluster := q.brokers[1].logs.ClusterID(); cluster != q.brokers[2].logs.ClusterID() {
		t.Errorf("the emptied broker founded cluster %s", cluster)
	}
	for _, b := range q.brokers {
		b.stop() // all at once: the last one would wait for the others
	}
}

// TestIDTakenByNewDirectory proves that a broker with a new directory waits for the registration of its former life, and is
// refused, naming the holder, when that does not end. U-65
func TestIDTakenByNewDirectory(t *testing.T) {
	store := registry.NewMemory()
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	settings := map[string]string{"broker.session.timeout.ms": "1000"}
	first := launch(t, filepath.Join(t.TempDir(), "a"), settings, func(c *Config) { c.Registry, c.Host = store, "here" }).wait()
	second := launch(t, filepath.Join(t.TempDir(), "b"), settings, func(c *Config) { c.Registry = store })
	err := <-second.done
	close(second.done)
	want := fmt.Sprintf("broker id 1 is taken by the broker at localhost:%d on host here with data directory id %s: give this one another node.id",
		portOf(first.Addrs()[0]), first.logs.DirectoryID())
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	third := launch(t, filepath.Join(t.TempDir(), "c"), settings, func(c *Config) { c.Registry = store })
	first.close()
	third.wait()
	third.close()
}

// TestUnregisterBroker proves that a broker which was stopped for good can be taken out, once, and one that runs cannot.
func TestUnregisterBroker(t *testing.T) {
	brokers := startCluster(t, 2)
	client := brokers[0].client()
	unregister := func(id int32) string {
		t.Helper()
		request := kmsg.NewPtrUnregisterBrokerRequest()
		request.BrokerID = id
		answer, err := request.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.TypedErrorForCode(answer.ErrorCode); err != nil {
			return err.Message + ": " + *answer.ErrorMessage
		}
		return ""
	}
	if got := unregister(2); got != "INVALID_REQUEST: Broker 2 is running; stop it before it is unregistered" {
		t.Errorf("a running broker: %q", got)
	}
	brokers[1].close()
	if got := unregister(2); got != "" {
		t.Errorf("a stopped broker: %q", got)
	}
	for _, id := range []int32{2, 7} {
		if got := unregister(id); got != fmt.Sprintf("BROKER_ID_NOT_REGISTERED: Broker ID %d is not currently registered", id) {
			t.Errorf("broker %d: %q", id, got)
		}
	}
	quorum := kmsg.NewPtrDescribeQuorumRequest()
	answer, err := quorum.RequestWith(t.Context(), client)
	if err != nil || answer.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("a registry that is not embedded: %v, code %d", err, answer.ErrorCode)
	}
}
