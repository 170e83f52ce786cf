package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// KafkaBroker is a lone Apache Kafka broker (KRaft, combined) in a process of its own.
type KafkaBroker struct {
	Addr string // host:port to bootstrap from
	Dir  string // its log directory

	cmd   *exec.Cmd
	out   *output
	ended chan struct{} // closed when the process is gone
}

// startPatience bounds the start of a broker.
const startPatience = 2 * time.Minute

// StartBroker formats a new log directory below home, or takes the one that is there, starts a broker on free ports with
// Kafka's own defaults and these `key=value` settings beside, and returns when it answers.
func (k *Kafka) StartBroker(home string, settings ...string) (*KafkaBroker, error) {
	return k.StartBrokerAt("", home, settings...)
}

// StartBrokerAt is StartBroker with the host:port at which clients find the broker; "" takes a free one.
func (k *Kafka) StartBrokerAt(addr, home string, settings ...string) (*KafkaBroker, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	if addr != "" {
		ports[0] = addr
	}
	b := &KafkaBroker{Addr: ports[0], Dir: filepath.Join(home, "data")}
	config := filepath.Join(home, "server.properties")
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=%[4]s
controller.quorum.voters=%[4]s@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`, ports[0], ports[1], b.Dir, nodeID(settings))
	for _, s := range settings {
		text += s + "\n" // the last line for a key counts
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "meta.properties")); err != nil {
		format := k.Command(context.Background(), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", config)
		if _, err := Run(format, ""); err != nil {
			return nil, err
		}
	}
	file, err := os.Create(filepath.Join(home, "out"))
	if err != nil {
		return nil, err
	}
	b.out = &output{file: file, seen: make(chan struct{})}
	b.cmd = k.java(context.Background(), []string{"-Xmx1g", "-Xms1g"}, "kafka.Kafka", config)
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		defer file.Close()
		_ = b.cmd.Wait() // its exit code after SIGTERM is 143
	}()
	if err := b.awaitStart(); err != nil {
		return nil, fmt.Errorf("%w\n%s", errors.Join(err, b.Stop()), b.Log())
	}
	return b, nil
}

// startedLine is what the broker logs when its listener is open: log4j2.properties lets the line through.
const startedLine = "Kafka Server started"

// output keeps what a broker prints in a file, and tells when startedLine was in it.
type output struct {
	file *os.File
	last []byte        // the line that has no end yet
	seen chan struct{} // closed with the first startedLine
	done bool          // it is closed
}

// Write never cuts a line short: the line that counts may come in two pieces.
func (o *output) Write(p []byte) (int, error) {
	if !o.done {
		o.last = append(o.last, p...)
		if o.done = bytes.Contains(o.last, []byte(startedLine)); o.done {
			close(o.seen)
		}
		o.last = o.last[bytes.LastIndexByte(o.last, '\n')+1:]
	}
	return o.file.Write(p)
}

// awaitStart returns when the broker has opened its listener, which it does last.
func (b *KafkaBroker) awaitStart() error {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-b.out.seen:
		return nil
	case <-b.ended:
		return errors.New("Apache Kafka ended before it had started")
	case <-patience.C:
		return fmt.Errorf("Apache Kafka has not started within %s", startPatience)
	}
}

// PID is the broker's process id.
func (b *KafkaBroker) PID() int { return b.cmd.Process.Pid }

// Log is what the broker printed so far.
func (b *KafkaBroker) Log() string {
	text, err := os.ReadFile(b.out.file.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop sends SIGTERM and waits; a second call does nothing.
func (b *KafkaBroker) Stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	<-b.ended
	return nil
}

// Kill is SIGKILL: no log is closed, and no mark of a clean shutdown is left.
func (b *KafkaBroker) Kill() {
	_ = b.cmd.Process.Kill()
	<-b.ended
}

func freePorts(n int) ([]string, error) {
	var addrs []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addrs = append(addrs, listener.Addr().String())
	}
	return addrs, nil
}

// nodeID is the node.id that the settings ask for, else 1.
func nodeID(settings []string) string {
	for _, s := range settings {
		if id, ok := strings.CutPrefix(s, "node.id="); ok {
			return id
		}
	}
	return "1"
}
