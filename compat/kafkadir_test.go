package compat

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOurDumpReadsKafkasFiles has Apache Kafka write a log directory and `tidemark log dump` read all of it.
func TestOurDumpReadsKafkasFiles(t *testing.T) {
	kafka := mustKafka(t)
	program, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := kafka.StartBroker(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Stop() })
	dir, addr := theirs.Dir, theirs.Addr
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
	if err := theirs.Stop(); err != nil {
		t.Fatal(err)
	}

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
