package suites

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/compat"
)

func mustRoot(t *testing.T) string {
	t.Helper()
	root, err := compat.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func mustExceptions(t *testing.T) []Exception {
	t.Helper()
	exceptions, err := LoadExceptions(filepath.Join(mustRoot(t), "compat", "suites", "exceptions.json"))
	if err != nil {
		t.Fatal(err)
	}
	return exceptions
}

// TestDocumentIsWhatTheResultsSay holds the page against the files it is made from.
func TestDocumentIsWhatTheResultsSay(t *testing.T) {
	root := mustRoot(t)
	want, err := Document(filepath.Join(root, "compat", "results"), mustExceptions(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/compatibility.md is not what compat/results say: run `go run ./cmd/compat -document` in compat/")
	}
}

// TestEveryDifferenceHasAReason and every reason a difference: an explanation that explains nothing has to go.
func TestEveryDifferenceHasAReason(t *testing.T) {
	if err := Problems(filepath.Join(mustRoot(t), "compat", "results"), mustExceptions(t)); err != nil {
		t.Error(err)
	}
}

// TestExceptionsNameWhatIsNotServed asks a broker for the APIs of which an exception says that they are not served.
func TestExceptionsNameWhatIsNotServed(t *testing.T) {
	broker, err := compat.StartBroker(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := broker.Stop(); err != nil {
			t.Error(err)
		}
	}()
	served, err := servedAPIs(t.Context(), broker.Addr)
	if err != nil {
		t.Fatal(err)
	}
	exceptions := mustExceptions(t)
	for _, s := range All() {
		if err := stale(s.Name, exceptions, served); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	for _, e := range exceptions {
		if e.API != "" && !slices.Contains(kafkaAPIs(), e.API) {
			t.Errorf("the exception for %s %s: Kafka has no API called %q", e.Suite, e.Test, e.API)
		}
	}
}

// kafkaAPIs are the names of all APIs.
func kafkaAPIs() []string {
	var names []string
	for key := range int16(kmsg.MaxKey + 1) {
		names = append(names, kmsg.NameForKey(key))
	}
	return names
}

// TestResultsBelongToSuites finds files that a renamed suite, or a new version of one, left behind.
func TestResultsBelongToSuites(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(mustRoot(t), "compat", "results", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		run, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		known := func(s Suite) bool {
			return s.Name == run.Suite && s.Source == run.Source && slices.Equal(s.Settings, run.Settings)
		}
		if !slices.ContainsFunc(All(), known) || filepath.Base(file) != filepath.Base(Path("", run.Suite, run.Peer)) {
			t.Errorf("%s: no suite is called %q, from %q, with settings %q", filepath.Base(file), run.Suite, run.Source, run.Settings)
		}
	}
}

// TestSuitesAreComplete checks what the runner takes for granted.
func TestSuitesAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, s := range All() {
		if s.Name == "" || names[s.Name] || s.Source == "" || s.Prepare == nil || s.Run == nil {
			t.Errorf("suite %q lacks a part, or there are two of it", s.Name)
		}
		names[s.Name] = true
		for _, test := range s.CI {
			if skipped(s.Skip, test) {
				t.Errorf("suite %s: CI runs %s, which is skipped", s.Name, test)
			}
		}
	}
}

func TestParseEvents(t *testing.T) {
	events := `{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Test":"TestA","Elapsed":0.5}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/x"}
{"Action":"output","Test":"TestB/x","Output":"    b_test.go:7: no broker\n"}
{"Action":"output","Test":"TestB/x","Output":"    --- FAIL: TestB/x (0.00s)\n"}
{"Action":"fail","Test":"TestB/x","Elapsed":0}
{"Action":"run","Test":"TestB/y"}
{"Action":"pass","Test":"TestB/y","Elapsed":0}
{"Action":"fail","Test":"TestB","Elapsed":0}
{"Action":"run","Test":"TestC"}
{"Action":"output","Test":"TestC","Output":"    c_test.go:1: wants TLS\n"}
{"Action":"output","Test":"TestC","Output":"    panic.go:694: deleting topic t\n"}
{"Action":"skip","Test":"TestC","Elapsed":0}
{"Action":"run","Test":"TestD"}
{"Action":"run","Test":"TestD/z"}
{"Action":"pass","Test":"TestD/z","Elapsed":0}
{"Action":"output","Test":"TestD","Output":"panic: oh\n"}
`
	got, err := parseEvents(bytes.NewBufferString(events), io.Discard, false)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b Result) int { return strings.Compare(a.Test, b.Test) })
	want := []Result{
		{Test: "TestA", Status: Passed, Took: 500_000_000},
		{Test: "TestB/x", Status: Failed, Detail: "b_test.go:7: no broker"},
		{Test: "TestB/y", Status: Passed},
		{Test: "TestC", Status: Skipped, Detail: "c_test.go:1: wants TLS"},
		{Test: "TestD", Status: Failed, Detail: "panic: oh"},
		{Test: "TestD/z", Status: Passed},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestParseEventsOfFlatNames(t *testing.T) {
	events := `{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/x"}
{"Action":"run","Test":"TestA/x/static"}
{"Action":"pass","Test":"TestA/x/static","Elapsed":0}
{"Action":"pass","Test":"TestA/x","Elapsed":0}
{"Action":"pass","Test":"TestA","Elapsed":0}
`
	got, err := parseEvents(bytes.NewBufferString(events), io.Discard, true)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b Result) int { return strings.Compare(a.Test, b.Test) })
	if want := []Result{{Test: "TestA/x", Status: Passed}, {Test: "TestA/x/static", Status: Passed}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTestPattern(t *testing.T) {
	got := testPattern([]string{"TestA", "TestB/one(1)", "TestC*"})
	if want := `^TestA$|^TestB$/^one\(1\)$|^TestC`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
