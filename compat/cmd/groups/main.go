//go:build linux

// Groups measures what steady consumer groups cost a broker: it starts a tidemark broker, has many groups of a few members
// each join over one topic (franz-go clients, one for each member), waits until nothing moves any more, and prints the
// processor time that the broker uses in a window, as a share of one core, beside the aim. What the clients use is not
// counted: they run in this process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"

	"github.com/tidemark-io/tidemark/compat"
)

// options are the flags.
type options struct {
	groups, members int
	partitions      int
	during          time.Duration
	fetchWait       time.Duration
	rate            int
	aim             float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.IntVar(&o.groups, "groups", 500, "how many groups")
	flag.IntVar(&o.members, "members", 3, "members of each group")
	flag.IntVar(&o.partitions, "partitions", 3, "partitions of the topic that all groups read")
	flag.DurationVar(&o.during, "measure", 30*time.Second, "length of the measurement")
	flag.DurationVar(&o.fetchWait, "fetch-wait", 5*time.Second, "how long a member's fetch waits for records (franz-go 5s, the Java client 500ms)")
	flag.IntVar(&o.rate, "rate", 0, "records a second produced to the topic meanwhile, each read and committed by every group")
	flag.Float64Var(&o.aim, "aim", 0.20, "share of a core that the broker may use; printed beside the result")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "groups:", err)
		os.Exit(1)
	}
}

const topic = "steady"

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "groups-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	broker, err := compat.StartBroker(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Stop()) }()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, int32(o.partitions), 1, nil, topic); err != nil {
		return fmt.Errorf("create the topic: %w", err)
	}

	started := time.Now()
	m, err := join(ctx, broker.Addr, o)
	defer m.leave()
	if err != nil {
		return err
	}
	if err := awaitStable(ctx, admin, o); err != nil {
		return err
	}
	fmt.Printf("%d groups of %d members are stable after %.1f s\n", o.groups, o.members, time.Since(started).Seconds())

	ctx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var load sync.WaitGroup
	if o.rate > 0 {
		load.Go(func() { produce(ctx, client, o.rate) })
	}
	before, err := cpuSeconds(broker.PID())
	if err != nil {
		return err
	}
	assigned, read := m.assignments.Load(), m.records.Load()
	began := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.during):
	}
	took := time.Since(began).Seconds()
	after, err := cpuSeconds(broker.PID())
	if err != nil {
		return err
	}
	if moved := m.assignments.Load() - assigned; moved > 0 {
		return fmt.Errorf("the groups were not steady: %d members were assigned anew while measured", moved)
	}
	stopLoad()
	load.Wait()
	share, verdict := (after-before)/took, "reached"
	if share > o.aim {
		verdict = "missed"
	}
	fmt.Printf("broker: %.2f CPU seconds in %.1f s, %.1f %% of a core; %d records delivered; aim %.0f %%: %s\n",
		after-before, took, 100*share, m.records.Load()-read, 100*o.aim, verdict)
	return nil
}

// crowd is the members of all groups.
type crowd struct {
	clients     []*kgo.Client
	polling     sync.WaitGroup
	stop        context.CancelFunc
	assignments atomic.Int64 // how often a member has been given partitions
	records     atomic.Int64 // how many records they have been given
}

// join starts all members.
func join(ctx context.Context, addr string, o options) (*crowd, error) {
	m := &crowd{}
	ctx, m.stop = context.WithCancel(ctx)
	for i := range o.groups * o.members {
		client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("group-"+strconv.Itoa(i/o.members)), kgo.ConsumeTopics(topic),
			kgo.Balancers(kgo.RangeBalancer()), kgo.FetchMaxWait(o.fetchWait),
			kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { m.assignments.Add(1) }))
		if err != nil {
			return m, err
		}
		m.clients = append(m.clients, client)
		m.polling.Go(func() {
			for ctx.Err() == nil {
				m.records.Add(int64(client.PollFetches(ctx).NumRecords()))
			}
		})
	}
	return m, nil
}

// leave has all members leave their groups.
func (m *crowd) leave() {
	m.stop()
	m.polling.Wait()
	var leaving sync.WaitGroup
	for _, client := range m.clients {
		leaving.Go(client.Close)
	}
	leaving.Wait()
}

// awaitStable returns when every group is stable with all its members.
func awaitStable(ctx context.Context, admin *kadm.Client, o options) error {
	for {
		groups, err := admin.DescribeGroups(ctx)
		if err != nil {
			return fmt.Errorf("describe the groups: %w", err)
		}
		steady := 0
		for _, g := range groups {
			if g.State == "Stable" && len(g.Members) == o.members {
				steady++
			}
		}
		if steady == o.groups {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d groups are stable: %w", steady, o.groups, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// produce writes records at a steady rate until ctx ends.
func produce(ctx context.Context, client *kgo.Client, rate int) {
	pace := time.NewTicker(time.Second / time.Duration(rate))
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			client.Produce(ctx, &kgo.Record{Value: []byte("steady")}, nil)
		}
	}
}

// cpuSeconds is the processor time that a process has used, user and system: Linux has a clock for each.
func cpuSeconds(pid int) (float64, error) {
	const processClock = 2 // CPUCLOCK_SCHED, of all threads
	var spent unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &spent); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()).Seconds(), nil
}
