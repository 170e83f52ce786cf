package compat

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOurDumpReadsKafkasFiles has Apache Kafka write a log directory and `tidemark log dump` read all of it.
func TestOurDumpReadsKafkasFiles(t *testing.T) {
	kafka := mustKafka(t)
	program, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, addr, stop := startKafka(t, kafka)
	create := kafka.Command(t.Context(), topicsTool, "--bootstrap-server", addr, "--create", "--topic", "theirs", "--partitions", "1",
		"--config", "segment.bytes=1048576")
	if _, err := Run(create, ""); err != nil {
		t.Fatal(err)
	}
	lines := manyLines(30_000)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		produce := kafka.Command(t.Context(), producerTool, "--bootstrap-server", addr, "--topic", "theirs", "--compression-codec", codec)
		if _, err := Run(produce, lines); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	names, err := files(filepath.Join(dir, "theirs-0"), ".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
	if err != nil {
		t.Fatal(err)
	}
	out, err := Run(exec.Command(program, append([]string{"log", "dump", "--records"}, names...)...), "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		offset := i*30_000 + 29_999
		if want := fmt.Sprintf("offset %d ", offset); !strings.Contains(out.Stdout, want) {
			t.Errorf("the dump of %d files does not show %q", len(names), want)
		}
	}
	if out.Stderr != "" {
		t.Errorf("the dump complains: %s", head(out.Stderr))
	}
	t.Logf("log dump read %d files of Apache Kafka", len(names))
}

// startKafka runs a lone Apache Kafka broker (KRaft, combined) on free ports until stop is called.
func startKafka(t *testing.T, kafka *Kafka) (dir, addr string, stop func()) {
	t.Helper()
	home := t.TempDir()
	dir = filepath.Join(home, "data")
	ports := freePorts(t, 2)
	addr = ports[0]
	config := filepath.Join(home, "server.properties")
	writeFile(t, config, fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
`, ports[0], ports[1], dir))
	format := kafka.Command(t.Context(), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", config)
	if _, err := Run(format, ""); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(home, "out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := kafka.Command(context.WithoutCancel(t.Context()), "kafka.Kafka", config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		log.Close()
	}
	t.Cleanup(stop)
	for range 600 {
		if _, err := Run(kafka.Command(t.Context(), apiVersionsTool, "--bootstrap-server", addr), ""); err == nil {
			return dir, addr, stop
		}
		if cmd.ProcessState != nil {
			break
		}
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("Apache Kafka did not start:\n%s", text)
	return "", "", nil
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		addrs = append(addrs, listener.Addr().String())
	}
	return addrs
}
