package compat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// textLinesMin is how much real text the three producers must carry.
const textLinesMin = 1_000_000

// TestRealText produces more than a million lines of real text (the Go distribution's sources) with kcat, with Kafka's
// console producer and with tidemark, and consumes each with the other two: nine checksums, all equal.
func TestRealText(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Fatal("kcat is missing: install the package kcat")
	}
	kafka := mustKafka(t)
	text, lines := realText(t)
	broker := mustBroker(t)
	program, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	want := sum(t, text)
	t.Logf("%d lines of text, sha256 %s", lines, want)

	producers := map[string]*exec.Cmd{
		"kcat":     exec.Command("kcat", "-b", broker.Addr, "-P", "-t", "text-kcat", "-p", "0", "-X", "linger.ms=20", "-X", "queue.buffering.max.messages=1000000"),
		"kafka":    kafka.Command(t.Context(), producerTool, "--bootstrap-server", broker.Addr, "--topic", "text-kafka"),
		"tidemark": exec.Command(program, "produce", "text-tidemark", "--bootstrap-server", broker.Addr),
	}
	consumers := func(topic string) map[string]*exec.Cmd {
		return map[string]*exec.Cmd{
			"kcat": exec.Command("kcat", "-b", broker.Addr, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"),
			"kafka": kafka.Command(t.Context(), consumerTool, "--bootstrap-server", broker.Addr, "--topic", topic, "--partition", "0",
				"--offset", "earliest", "--timeout-ms", "5000"),
			"tidemark": exec.Command(program, "consume", topic, "--from-beginning", "--exit-at-end", "--bootstrap-server", broker.Addr),
		}
	}
	for name, cmd := range producers {
		topic := "text-" + name
		tidemark(t, broker, "", "topic", "create", topic, "--partitions", "1")
		input, err := os.Open(text)
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = input, &stderr
		err = cmd.Run()
		input.Close()
		if err != nil {
			t.Fatalf("produce with %s: %v\n%s\n%s", name, err, stderr.String(), broker.Log())
		}
		for reader, cmd := range consumers(topic) {
			hash := sha256.New()
			var stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = hash, &stderr
			// Kafka's consumer ends by its time-out, which it reports as an error of its own.
			if err := cmd.Run(); err != nil && !strings.Contains(stderr.String(), "TimeoutException") {
				t.Fatalf("consume %s with %s: %v\n%s\n%s", topic, reader, err, stderr.String(), broker.Log())
			}
			got := hex.EncodeToString(hash.Sum(nil))
			t.Logf("produced with %-8s consumed with %-8s sha256 %s", name, reader, got)
			if got != want {
				t.Errorf("produced with %s, consumed with %s: the checksum differs", name, reader)
			}
		}
	}
}

// realText joins the Go sources that are plain text into one file of more than a million lines. A line that no line tool
// can carry (one with a carriage return, or an empty one, which kcat drops) is left out.
func realText(t *testing.T) (string, int) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "text")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	lines := 0
	err = filepath.WalkDir(strings.TrimSpace(string(root)), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || lines > textLinesMin*11/10 {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !utf8.Valid(content) || bytes.ContainsRune(content, '\r') {
			return nil
		}
		for line := range bytes.Lines(content) {
			if len(bytes.TrimSpace(line)) == 0 || line[len(line)-1] != '\n' {
				continue
			}
			lines++
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines < textLinesMin {
		t.Fatalf("the Go distribution has %d usable lines only", lines)
	}
	return name, lines
}

func sum(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
