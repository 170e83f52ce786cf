package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// The peers' names, as they stand in the results.
const (
	ours      = "tidemark"
	kafkaName = "kafka"
	natsName  = "nats"
	nullName  = "null"
)

// peer is a broker that can be started over a directory. With durable set its answers are to mean that records are on
// the disk, where that is a matter of the broker and not of a topic.
type peer interface {
	name() string
	start(ctx context.Context, home string, durable bool) (broker, error)
	// overhead is about what a start and a stop take, for the planned length of a series.
	overhead() time.Duration
	// durableTopic are the settings of a topic whose answers mean that records are on the disk.
	durableTopic() map[string]*string
}

// broker is one that runs, or several that are one cluster. Stop after Kill does nothing.
type broker interface {
	addr() string // what clients begin with: host:port, separated by commas if it is several
	pids() []int
	Stop() error
	Kill()
}

type tidemark struct{}

func (tidemark) name() string            { return ours }
func (tidemark) overhead() time.Duration { return time.Second }
func (tidemark) durableTopic() map[string]*string {
	return map[string]*string{"log.flush.acks": new("true")}
}

func (tidemark) start(_ context.Context, home string, _ bool) (broker, error) {
	b, err := compat.StartBroker(filepath.Join(home, "data"))
	if err != nil {
		return nil, err
	}
	return ourBroker{b}, nil
}

type ourBroker struct{ *compat.Broker }

func (b ourBroker) addr() string { return b.Addr }
func (b ourBroker) pids() []int  { return []int{b.PID()} }

type apacheKafka struct{ kafka *compat.Kafka }

func (apacheKafka) name() string            { return kafkaName }
func (apacheKafka) overhead() time.Duration { return 7 * time.Second }
func (apacheKafka) durableTopic() map[string]*string {
	return map[string]*string{"flush.messages": new("1")}
}

func (k apacheKafka) start(_ context.Context, home string, _ bool) (broker, error) {
	// A lone tidemark waits for nobody when a group forms, and the groups of B-C1 are formed before it is measured.
	b, err := k.kafka.StartBroker(home, "group.initial.rebalance.delay.ms=0")
	if err != nil {
		return nil, err
	}
	return kafkaBroker{b}, nil
}

type kafkaBroker struct{ *compat.KafkaBroker }

func (b kafkaBroker) addr() string { return b.Addr }
func (b kafkaBroker) pids() []int  { return []int{b.PID()} }

// natsServer is NATS with JetStream, its storage in files, by the path of its program.
type natsServer struct{ path string }

func (natsServer) name() string                     { return natsName }
func (natsServer) overhead() time.Duration          { return time.Second }
func (natsServer) durableTopic() map[string]*string { return nil }

func (n natsServer) start(ctx context.Context, home string, durable bool) (broker, error) {
	config := fmt.Sprintf("listen: \"127.0.0.1:%d\"\nports_file_dir: %q\njetstream {\n store_dir: %q\n", -1, home, filepath.Join(home, "data"))
	if durable {
		config += " sync_interval: always\n"
	}
	file := filepath.Join(home, "nats.conf")
	if err := os.WriteFile(file, []byte(config+"}\n"), 0o600); err != nil {
		return nil, err
	}
	p, err := startProcess(exec.CommandContext(ctx, n.path, "-c", file), natsListens)
	if err != nil {
		return nil, err
	}
	if err := awaitListening(ctx, p.address); err != nil { // it is ready a moment after it names its port
		p.Kill()
		return nil, fmt.Errorf("start nats-server: %w", err)
	}
	return p, nil
}

var natsListens = regexp.MustCompile(`Listening for client connections on (\S+)`)

// nullPeer answers everything and keeps nothing: what a client reaches at most.
type nullPeer struct{}

func (nullPeer) name() string                     { return nullName }
func (nullPeer) overhead() time.Duration          { return time.Second }
func (nullPeer) durableTopic() map[string]*string { return nil }

func (nullPeer) start(ctx context.Context, _ string, _ bool) (broker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(exec.CommandContext(ctx, self, nullBrokerCommand), childListens)
}

// childListens is the first line of this program where it is the other side of something.
var childListens = regexp.MustCompile(`^listening on (\S+)$`)
