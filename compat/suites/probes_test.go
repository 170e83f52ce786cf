package suites

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestProbesAreRead(t *testing.T) {
	got, err := parseProbes([]byte(`a client's chatter
{"test": "seek", "status": "passed", "detail": "", "took_ms": 12}
{"test": "pause", "status": "failed", "detail": "at /some/where/probe.js:3\nat ../venv/lib/x.py:4", "took_ms": 7}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Test: "seek", Status: Passed, Took: 12 * time.Millisecond},
		{Test: "pause", Status: Failed, Detail: "at probe.js:3\nat ../venv/lib/x.py:4", Took: 7 * time.Millisecond},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{`{"test": "seek", "status": "well"}`, `{"status": "passed"}`, `{"test": `} {
		if _, err := parseProbes([]byte(bad)); err == nil {
			t.Errorf("%s was taken for a result", bad)
		}
	}
}

func TestJUnitIsRead(t *testing.T) {
	got, err := parseJUnit([]byte(`<?xml version="1.0"?><testsuites><testsuite name="pytest" tests="4">
<testcase classname="test.integration.test_a" name="test_ok[gzip]" time="0.5"/>
<testcase classname="test.integration.test_a.TestB" name="test_bad" time="1"><failure message="no">one
two</failure></testcase>
<testcase classname="test.integration.test_a" name="test_setup" time="0"><error message="no">broken</error></testcase>
<testcase classname="test.integration.test_a" name="test_not" time="0"><skipped message="why not">x.py:3: why not</skipped></testcase>
</testsuite></testsuites>`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Test: "test_a::test_ok[gzip]", Status: Passed, Took: time.Second / 2},
		{Test: "test_a::TestB::test_bad", Status: Failed, Detail: "one\ntwo", Took: time.Second},
		{Test: "test_a::test_setup", Status: Failed, Detail: "broken"},
		{Test: "test_a::test_not", Status: Skipped, Detail: "why not"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := parseJUnit([]byte(`<testsuites/>`)); err == nil {
		t.Error("a report without a test was taken")
	}
}

// TestProbesOfCIExist holds the tests that CI names against the functions that there are: a probe that was renamed would
// fail on a machine with the network alone.
func TestProbesOfCIExist(t *testing.T) {
	for suite, program := range map[string]string{
		"kafka-python": filepath.Join("python", "kafka_python_probes.py"),
		"kafkajs":      filepath.Join("node", "kafkajs_probes.js"),
	} {
		path, err := probeFile(program)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(All(), func(s Suite) bool { return s.Name == suite })
		for _, test := range All()[i].CI {
			if strings.Contains(test, "::") { // one of the client's own
				continue
			}
			defined := regexp.MustCompile(`(?m)^(def test_` + test + `\(|  (async )?` + test + `\W)`)
			if !defined.Match(text) {
				t.Errorf("%s has no test %s", program, test)
			}
		}
	}
}
