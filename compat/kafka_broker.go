package compat

import (
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

	cmd *exec.Cmd
	out *os.File
}

// startPatience bounds the start of Kafka.
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
	if b.out, err = os.Create(filepath.Join(home, "out")); err != nil {
		return nil, err
	}
	b.cmd = k.java(context.Background(), []string{"-Xmx1g", "-Xms1g"}, "kafka.Kafka", config)
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	if err := b.awaitAnswer(); err != nil {
		return nil, fmt.Errorf("%w\n%s", errors.Join(err, b.Stop()), b.Log())
	}
	return b, nil
}

// awaitAnswer returns when the broker accepts a connection: it opens its listener last.
func (b *KafkaBroker) awaitAnswer() error {
	deadline := time.Now().Add(startPatience)
	for time.Now().Before(deadline) {
		conn, err := net.DialTimeout("tcp", b.Addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		if err := b.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return fmt.Errorf("Apache Kafka ended: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("Apache Kafka does not answer at %s", b.Addr)
}

// PID is the broker's process id.
func (b *KafkaBroker) PID() int { return b.cmd.Process.Pid }

// Log is what the broker printed so far.
func (b *KafkaBroker) Log() string {
	text, err := os.ReadFile(b.out.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop sends SIGTERM and waits; a second call does nothing.
func (b *KafkaBroker) Stop() error {
	if b.cmd.ProcessState != nil {
		return nil
	}
	defer b.out.Close()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	_ = b.cmd.Wait() // its exit code after SIGTERM is 143
	return nil
}

// Kill is SIGKILL: no log is closed, and no mark of a clean shutdown is left.
func (b *KafkaBroker) Kill() {
	if b.cmd.ProcessState == nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.out.Close()
	}
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
