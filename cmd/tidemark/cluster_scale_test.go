//go:build linux && scale

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	scalePartitions = flag.Int("scale.partitions", 30, "partitions, of three replicas each, of the cluster's test of many")
	scaleIdle       = flag.Duration("scale.idle", 0, "for how long an idle cluster is watched, before and after the partitions are there; 0: not at all")
)

// scaleTopic is the topic of many partitions.
const scaleTopic = "many"

// many is a cluster with a topic of many partitions.
type many struct {
	*trio
	partitions int
	clients    [3]*kgo.Client // one for each broker, which asks nobody else
}

// TestClusterScale creates a topic of many partitions with three replicas each on three brokers in processes of their own,
// kills brokers and starts them again. Asserted is what must come true: every partition has a leader on a broker that lives,
// and a full ISR when all are back. What it took is printed, each figure beside its aim; make cluster-scale runs it with
// 10,000 partitions on a machine that does nothing else. (issue 4, Must show 6 and 7; B-S2, B-S3)
func TestClusterScale(t *testing.T) {
	m := &many{trio: newTrio(t), partitions: *scalePartitions}
	m.awaitHealth()
	for i := range m.clients {
		m.connect(i)
	}
	empty, before := m.idle(), m.resident()

	started := time.Now()
	m.create()
	answered := time.Since(started)
	m.await(started, "every broker shows every partition", func(int) bool { return true }, 3)
	m.figure("created, answered", answered, 10*time.Second)
	m.figure("created, shown by every broker with full ISRs", time.Since(started), 10*time.Second)

	full, after := m.idle(), m.resident()
	for i := range after {
		kib := float64(after[i]-before[i]) / 1024 / float64(m.partitions)
		t.Logf("memory of a replica on broker %d: %.1f KiB, aim 20 (%d MiB, was %d)", i+1, kib, after[i]>>20, before[i]>>20)
	}
	if *scaleIdle > 0 {
		t.Logf("idle, all three brokers: %.1f %% of a core, %.1f before there were partitions; aim 10 more", 100*full, 100*empty)
	}

	status := m.status(0)
	controller, elector := int(status.Controller-1), int(status.Registry.Leader-1)
	plain := 0
	for plain == controller || plain == elector {
		plain++
	}
	m.failOver("neither the controller nor the registry's leader", plain, time.Second)
	m.failOver("the controller", controller, 3*time.Second)
	if status = m.status((elector + 1) % 3); status.Controller != status.Registry.Leader {
		m.failOver("the registry's leader", int(status.Registry.Leader-1), 3*time.Second)
	}
	for i, b := range m.brokers {
		if err := b.stop(); err != nil {
			t.Errorf("stop broker %d: %v\n%s", i+1, err, b.log())
		}
	}
}

func (m *many) figure(what string, took, aim time.Duration) {
	m.t.Helper()
	m.t.Logf("%s: %.2f s, aim %v", what, took.Seconds(), aim)
}

// connect makes the client of one broker.
func (m *many) connect(i int) {
	m.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(m.addrs[i]), kgo.RequestRetries(0), kgo.RequestTimeoutOverhead(30*time.Second))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(cl.Close)
	m.clients[i] = cl
}

// create makes the topic in one request.
func (m *many) create() {
	m.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 120_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = scaleTopic, int32(m.partitions), 3
	req.Topics = append(req.Topics, topic)
	answer, err := m.clients[0].SeedBrokers()[0].Request(withTimeout(m.t, 2*time.Minute), req)
	if err == nil {
		err = kerr.ErrorForCode(answer.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
	}
	if err != nil {
		m.t.Fatalf("create %d partitions: %v\n%s", m.partitions, err, m.logs())
	}
}

// led is what one broker says of the partitions: how many it knows, how many of them are led by each broker, and how many
// have so many replicas in sync.
func (m *many) led(ctx context.Context, i, inSync int) (known int, by [3]int, full int, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(scaleTopic)})
	answer, err := m.clients[i].SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return 0, by, 0, err
	}
	for _, p := range answer.(*kmsg.MetadataResponse).Topics[0].Partitions {
		known++
		if p.Leader > 0 {
			by[p.Leader-1]++
		}
		if len(p.ISR) >= inSync {
			full++
		}
	}
	return known, by, full, nil
}

// await returns when every broker that is asked shows all partitions, each led by a broker that may lead, with so many
// replicas in sync.
func (m *many) await(since time.Time, what string, may func(broker int) bool, inSync int) {
	m.t.Helper()
	ctx := withTimeout(m.t, 2*time.Minute)
	again := time.NewTicker(10*time.Millisecond + time.Duration(m.partitions)*5*time.Microsecond) // each look costs the brokers something
	defer again.Stop()
	for i := 0; i < len(m.clients); {
		if !may(i) {
			i++
			continue
		}
		known, by, full, err := m.led(ctx, i, inSync)
		led := 0
		for broker, n := range by {
			if may(broker) {
				led += n
			}
		}
		if err == nil && known == m.partitions && led == known && full == known {
			i++
			continue
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			m.t.Fatalf("%s: not after %v; broker %d shows %d of %d partitions, %v led, %d with %d in sync: %v\n%s", what, time.Since(since), i+1, known,
				m.partitions, by, full, inSync, err, m.logs())
		}
	}
}

// failOver kills a broker, waits until others lead what it led, and starts it again.
func (m *many) failOver(which string, victim int, aim time.Duration) {
	m.t.Helper()
	_, by, _, err := m.led(withTimeout(m.t, time.Minute), (victim+1)%3, 3)
	if err != nil {
		m.t.Fatal(err)
	}
	started := time.Now()
	m.brokers[victim].kill()
	m.await(started, "every partition has a leader again", func(broker int) bool { return broker != victim }, 0)
	m.figure(fmt.Sprintf("broker %d killed, %s, which led %d partitions: others lead them", victim+1, which, by[victim]), time.Since(started), aim)
	status := m.status((victim + 1) % 3)
	if status.Controller == int32(victim+1) {
		m.t.Errorf("the controller is still broker %d, which is dead", victim+1)
	}

	started = time.Now()
	if err := m.start(victim, m.addrs[victim]); err != nil {
		m.t.Fatalf("broker %d: %v", victim+1, err)
	}
	m.connect(victim)
	m.t.Logf("broker %d ready again: %.2f s", victim+1, time.Since(started).Seconds())
	m.await(started, "every replica is in sync again", func(int) bool { return true }, 3)
	m.t.Logf("broker %d back in every ISR: %.2f s", victim+1, time.Since(started).Seconds())
}

// status asks one broker about the cluster.
func (m *many) status(i int) *clusterStatus {
	m.t.Helper()
	status, err := statusOf(withTimeout(m.t, time.Minute), m.clients[i])
	if err != nil {
		m.t.Fatal(err)
	}
	return status
}

// idle is the processor time that the three brokers use while nobody asks anything of them, in cores.
func (m *many) idle() float64 {
	m.t.Helper()
	if *scaleIdle == 0 {
		return 0
	}
	m.pause(5 * time.Second) // what the last requests left to do
	started, before := time.Now(), m.processorTime()
	m.pause(*scaleIdle)
	return (m.processorTime() - before).Seconds() / time.Since(started).Seconds()
}

func (m *many) pause(d time.Duration) {
	m.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.t.Context().Done():
	}
}

// processorTime is what the three processes have used so far.
func (m *many) processorTime() time.Duration {
	m.t.Helper()
	const tick = 10 * time.Millisecond // of the kernel's accounts
	var sum time.Duration
	for _, b := range m.brokers {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.pid))
		if err != nil {
			m.t.Fatal(err)
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, field := range fields[11:13] { // in user mode and in the kernel
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				m.t.Fatal(err)
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// resident is the memory of each process, in bytes.
func (m *many) resident() (bytes [3]int64) {
	m.t.Helper()
	for i, b := range m.brokers {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.pid))
		if err != nil {
			m.t.Fatal(err)
		}
		pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		bytes[i] = pages * int64(os.Getpagesize())
	}
	return bytes
}
