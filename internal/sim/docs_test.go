package sim

import (
	"os"
	"strings"
	"testing"
)

// documented tells whether docs/correctness.md names something of the simulator.
func documented(t *testing.T, what string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/correctness.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "`"+what+"`") {
		t.Errorf("docs/correctness.md does not name %s", what)
	}
}

func TestSimulatorIsDocumented(t *testing.T) {
	for _, invariant := range append(checked(), &Liveness{}) {
		documented(t, name(invariant))
	}
	scripts, err := os.ReadDir("testdata/scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		documented(t, script.Name())
	}
}
