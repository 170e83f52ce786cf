package suites

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/compat"
)

var only = flag.String("only", "", "names of transcripts, with commas between")

var rewrite = flag.Bool("rewrite", false, "record: write what the tools print on Apache Kafka into the transcripts")

// TestKafkaTools plays the transcripts, which were recorded on Apache Kafka, to a tidemark broker.
func TestKafkaTools(t *testing.T) {
	kafka, err := compat.OpenKafka()
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		record(t, kafka)
		return
	}
	broker, err := compat.StartBroker(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := broker.Stop(); err != nil {
			t.Error(err)
		}
	}()
	exceptions := slices.DeleteFunc(mustExceptions(t), func(e Exception) bool { return e.Suite != "kafka-tools" })
	stage := &Stage{Addr: broker.Addr, Peer: Tidemark, Log: t.Output(), Skip: make(map[string]string)}
	for _, e := range exceptions {
		if e.Skip {
			stage.Skip[e.Test] = e.Reason
		}
	}
	if *only != "" {
		stage.Only = strings.Split(*only, ",")
	}
	results, err := runTranscripts(t.Context(), stage, kafka)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		explained := slices.ContainsFunc(exceptions, func(e Exception) bool { return e.Test == r.Test && !e.Skip })
		if passed := r.Status == Passed; passed == explained {
			t.Errorf("%s: %s, explained: %v", r.Test, r.Status, explained)
		}
	}
}

// record plays the transcripts to Apache Kafka and keeps what the tools print.
func record(t *testing.T, kafka *compat.Kafka) {
	broker, err := kafka.StartBroker(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = broker.Stop() }()
	tools := kafka.Tools()
	defer func() { _ = tools.Stop() }()
	scripts, err := readTranscripts()
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), script.name) {
			continue
		}
		file := filepath.Join("transcripts", script.name+".txt")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		printed := make(map[int]said)
		p := &player{kafka: kafka, tools: tools, addr: broker.Addr, dir: t.TempDir()}
		p.record = func(s *step, got []string, exit int) { printed[s.line] = said{got, exit} }
		if err := p.play(t.Context(), script); err != nil {
			t.Log(err)
		}
		if err := os.WriteFile(file, []byte(rewritten(script, string(text), printed)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// said is what a run of a tool printed, and its exit code.
type said struct {
	lines []string
	exit  int
}

// rewritten is a transcript's text with what the tools have printed, where it was complete or not there yet.
func rewritten(script *transcript, text string, printed map[int]said) string {
	byLine := make(map[int]*step)
	for _, s := range script.steps {
		byLine[s.line] = s
	}
	var out strings.Builder
	var pending *step
	flush := func() {
		if pending == nil {
			return
		}
		if got, ran := printed[pending.line]; ran {
			if got.exit != pending.exit && got.exit != 0 {
				fmt.Fprintf(&out, "? %d\n", got.exit)
			}
			if len(pending.patterns) == 0 {
				for _, line := range got.lines {
					out.WriteString(line + "\n")
				}
			}
		}
		pending = nil
	}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if s, found := byLine[i+1]; found {
			flush()
			pending = s
		} else if pending != nil && pending.kind == '$' && len(pending.patterns) == 0 && !strings.HasPrefix(line, "<") &&
			(!strings.HasPrefix(line, "? ") || printed[pending.line].exit != pending.exit) {
			continue
		}
		if strings.HasPrefix(line, "# ") {
			flush()
		}
		out.WriteString(line + "\n")
	}
	flush()
	return out.String()
}
