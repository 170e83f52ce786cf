package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterPeer is a peer that can be started as three brokers of one cluster.
type clusterPeer interface {
	peer
	// nodes are the three brokers of a new cluster with what they keep below home. None is started.
	nodes(ctx context.Context, home string) ([]*node, error)
	// whole returns when the cluster at these addresses has all of its brokers.
	whole(ctx context.Context, addr string) error
	// trioOverhead is about what the start and the end of all three take.
	trioOverhead() time.Duration
}

// node is one broker of three. It can end and begin again, over the same data and at the same addresses.
type node struct {
	id    int32
	addr  string // of its clients
	home  string // what it keeps
	begin func(context.Context) (broker, error)

	running broker // nil while there is none
	paused  bool
}

// trio is three brokers that are one cluster.
type trio struct {
	peer clusterPeer
	all  []*node
}

// trioPatience is how long a cluster may take until it is whole.
const trioPatience = 90 * time.Second

// startTrio starts three brokers side by side and returns when each of them is known.
func startTrio(ctx context.Context, p clusterPeer, home string) (*trio, error) {
	nodes, err := p.nodes(ctx, home)
	if err != nil {
		return nil, err
	}
	t := &trio{peer: p, all: nodes}
	if err := t.revive(ctx); err != nil {
		t.Kill()
		return nil, fmt.Errorf("start three brokers: %w", err)
	}
	return t, nil
}

// revive starts those that do not run, lets those go on that were stopped, and returns when all replicas are in sync.
func (t *trio) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, trioPatience, fmt.Errorf("the three are not whole within %s", trioPatience))
	defer cancel()
	errs := make([]error, len(t.all))
	var starting sync.WaitGroup
	for i, n := range t.all {
		starting.Go(func() { errs[i] = n.revive(ctx) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return t.peer.whole(ctx, t.addr())
}

func (n *node) revive(ctx context.Context) (err error) {
	if n.running == nil {
		n.running, err = n.begin(ctx)
		return err
	}
	return n.resume()
}

// kill is SIGKILL.
func (n *node) kill() {
	if n.running != nil {
		n.running.Kill()
		n.running, n.paused = nil, false
	}
}

// stop ends a broker as it wants to be ended.
func (n *node) stop() error {
	if n.running == nil {
		return nil
	}
	err := n.running.Stop()
	n.running = nil
	return err
}

// pause is SIGSTOP: the broker is silent, and its connections stay open.
func (n *node) pause() error {
	n.paused = true
	return n.signal(syscall.SIGSTOP)
}

// resume lets a silent broker go on.
func (n *node) resume() error {
	if !n.paused {
		return nil
	}
	n.paused = false
	return n.signal(syscall.SIGCONT)
}

func (n *node) signal(s syscall.Signal) error {
	for _, pid := range n.running.pids() {
		if err := syscall.Kill(pid, s); err != nil {
			return fmt.Errorf("signal %s to broker %d: %w", s, n.id, err)
		}
	}
	return nil
}

// addr is where a client begins: all brokers that should answer.
func (t *trio) addr() string { return t.addrWithout(nil) }

// addrWithout leaves a broker out, and those that do not run.
func (t *trio) addrWithout(out *node) string {
	var addrs []string
	for _, n := range t.all {
		if n != out && n.running != nil && !n.paused {
			addrs = append(addrs, n.addr)
		}
	}
	return strings.Join(addrs, ",")
}

func (t *trio) pids() (all []int) {
	for _, n := range t.all {
		if n.running != nil {
			all = append(all, n.running.pids()...)
		}
	}
	return all
}

// Kill ends all of them at once: nobody reads what they leave.
func (t *trio) Kill() {
	var ending sync.WaitGroup
	for _, n := range t.all {
		ending.Go(n.kill)
	}
	ending.Wait()
}

// Stop is Kill: three that stop in turn wait for each other.
func (t *trio) Stop() error {
	t.Kill()
	return nil
}

// others are the two brokers beside one.
func (t *trio) others(of *node) []*node {
	return slices.DeleteFunc(slices.Clone(t.all), func(n *node) bool { return n == of })
}

func (t *trio) node(id int32) (*node, error) {
	for _, n := range t.all {
		if n.id == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("the cluster names a broker %d, which is none of the three", id)
}

// admin opens a client of those that run, which asks again soon.
func (t *trio) admin(out *node) (*kgo.Client, error) {
	return kgo.NewClient(append(slices.Clone(quick), seeds(t.addrWithout(out)))...)
}

// quick makes a client ask again soon when a broker does not answer, so that what it measures is the brokers' time. A
// request to a broker that has fallen silent is given up after a second, and made again elsewhere.
var quick = []kgo.Opt{
	kgo.RetryBackoffFn(func(int) time.Duration { return quickly }), kgo.MetadataMinAge(quickly), kgo.DialTimeout(time.Second),
	kgo.RequestTimeoutOverhead(time.Second), kgo.RequestRetries(1 << 20),
}

const quickly = 20 * time.Millisecond

// awaitInSync returns when the partitions of topics, or of all if none is named, have a leader and all replicas in sync.
func (t *trio) awaitInSync(ctx context.Context, topics ...string) error {
	return awaitReplicas(ctx, t.addr(), topics...)
}

// awaitReplicas is the same of any cluster that speaks Kafka's protocol. Each broker is asked: one that was away knows
// nothing new for a moment. Three of them must be there.
func awaitReplicas(ctx context.Context, addr string, topics ...string) error {
	return askAll(ctx, addr, topics, lacking)
}

// askAll asks each of several brokers about topics, or all of them if none is named, until nothing is lacking by any
// answer.
func askAll(ctx context.Context, addr string, topics []string, lacking func(*kmsg.MetadataResponse) string) error {
	cl, err := kgo.NewClient(append(slices.Clone(quick), seeds(addr))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	request := kmsg.NewPtrMetadataRequest() // of all topics
	for _, name := range topics {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	var missing string
	err = poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		for _, broker := range cl.SeedBrokers() {
			if missing = ask(ctx, broker, request, lacking); missing != "" {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, missing)
	}
	return nil
}

// ask takes a failure for something lacking: it may be too early for an answer.
func ask(ctx context.Context, broker *kgo.Broker, request *kmsg.MetadataRequest, lacking func(*kmsg.MetadataResponse) string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := broker.Request(ctx, request)
	if err != nil {
		return err.Error()
	}
	return lacking(answer.(*kmsg.MetadataResponse))
}

// lacking says what a cluster of three is short of.
func lacking(c *kmsg.MetadataResponse) string {
	if len(c.Brokers) < 3 {
		return fmt.Sprintf("%d of 3 brokers are there", len(c.Brokers))
	}
	return eachPartition(c, func(p *kmsg.MetadataResponseTopicPartition) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	})
}

// ledByOthers makes a function that says which partitions are led by a broker still, or by nobody.
func ledByOthers(gone *node) func(*kmsg.MetadataResponse) string {
	return func(c *kmsg.MetadataResponse) string {
		return eachPartition(c, func(p *kmsg.MetadataResponseTopicPartition) bool { return p.Leader >= 0 && p.Leader != gone.id })
	}
}

// eachPartition says of how many partitions something does not hold, and names one.
func eachPartition(c *kmsg.MetadataResponse, holds func(*kmsg.MetadataResponseTopicPartition) bool) string {
	count, one := 0, ""
	for i := range c.Topics {
		t := &c.Topics[i]
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Sprintf("%s: %v", deref(t.Topic), err)
		}
		for j := range t.Partitions {
			if p := &t.Partitions[j]; !holds(p) {
				count++
				one = fmt.Sprintf("%s-%d with leader %d, in sync %v", deref(t.Topic), p.Partition, p.Leader, p.ISR)
			}
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%d partitions are not as they should be, one of them %s", count, one)
}

// roles are the brokers that lead beside serving: the controller and the leader of the quorum, which for Apache Kafka are
// one.
func (t *trio) roles(ctx context.Context) (controller, quorum *node, err error) {
	cl, err := t.admin(nil)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	request := kmsg.NewPtrDescribeQuorumRequest()
	request.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	answer, err := request.RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, fmt.Errorf("describe quorum: %w", err)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return nil, nil, errors.New("describe quorum: an answer about nothing")
	}
	if quorum, err = t.node(answer.Topics[0].Partitions[0].LeaderID); err != nil {
		return nil, nil, err
	}
	if t.peer.name() == kafkaName { // any broker calls itself the controller: it passes on what is asked of it
		return quorum, quorum, nil
	}
	cluster, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return nil, nil, err
	}
	controller, err = t.node(cluster.Controller)
	return controller, quorum, err
}

// clear deletes all topics.
func (t *trio) clear(ctx context.Context) error {
	cl, err := t.admin(nil)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil || len(topics) == 0 {
		return err
	}
	deleted, err := kadm.NewClient(cl).DeleteTopics(ctx, topics.Names()...)
	return errors.Join(err, deleted.Error())
}

// freePorts are free ports of this host, at the moment.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
