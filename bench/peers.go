package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
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

// broker is one that runs. Stop after Kill does nothing.
type broker interface {
	addr() string
	PID() int
	Stop() error
	Kill()
}

type tidemark struct{}

func (tidemark) name() string            { return ours }
func (tidemark) overhead() time.Duration { return 2 * time.Second }
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

type apacheKafka struct{ kafka *compat.Kafka }

func (apacheKafka) name() string            { return kafkaName }
func (apacheKafka) overhead() time.Duration { return 11 * time.Second }
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

// natsServer is NATS with JetStream, its storage in files, by the path of its program.
type natsServer struct{ path string }

func (natsServer) name() string                     { return natsName }
func (natsServer) overhead() time.Duration          { return 2 * time.Second }
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
	// The server is ready a moment after it names its port.
	for range 500 {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address); err == nil {
			return p, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.Kill()
	return nil, fmt.Errorf("nats-server does not answer at %s", p.address)
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

// process is a server of which no more is known than where it listens.
type process struct {
	cmd     *exec.Cmd
	address string
}

// startProcess starts a server and waits until a line of its output says where it listens.
func startProcess(cmd *exec.Cmd, listens *regexp.Regexp) (*process, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if match := listens.FindStringSubmatch(lines.Text()); match != nil {
			go func() { // what else it prints must not block it
				for lines.Scan() {
				}
				out.Close()
			}()
			return &process{cmd, match[1]}, nil
		}
		said = append(said, lines.Text())
	}
	return nil, fmt.Errorf("%s ended before it listened: %w\n%s", cmd.Path, errors.Join(cmd.Wait(), out.Close()), strings.Join(said, "\n"))
}

func (p *process) addr() string { return p.address }
func (p *process) PID() int     { return p.cmd.Process.Pid }

// Stop asks the server to end, and kills it when it has not after ten seconds.
func (p *process) Stop() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // a signal is how it is meant to end
	if !kill.Stop() {
		return fmt.Errorf("%s did not end within 10 s of SIGTERM", p.cmd.Path)
	}
	return nil
}

func (p *process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// withBroker starts the stage's broker, does something with it and stops it.
func (s *stage) withBroker(ctx context.Context, do func(broker) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := s.peer.start(ctx, s.home, s.row.durable)
	if err != nil {
		return err
	}
	return errors.Join(do(b), b.Stop())
}
