package broker

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/console"
)

// TestDiskWatcher proves that produce is refused while the disk is nearly full, that the reason names the numbers, and
// that it comes back by itself. U-72
func TestDiskWatcher(t *testing.T) {
	const minimum = 128 << 20
	var free uint64
	var statError, refused error
	w := &diskWatcher{
		dir: "data", min: func() uint64 { return minimum }, logger: slog.New(slog.DiscardHandler),
		free:   func(string) (uint64, uint64, error) { return free, 1 << 40, statError },
		refuse: func(reason error) { refused = reason },
	}
	for _, step := range []struct {
		name    string
		free    uint64
		err     error
		refused bool
	}{
		{"plenty", 1 << 30, nil, false},
		{"exactly the minimum", minimum, nil, false},
		{"below", minimum - 1, nil, true},
		{"nothing", 0, nil, true},
		{"unknown: as before", 1 << 30, errors.New("stat"), true},
		{"room again", minimum, nil, false},
	} {
		free, statError = step.free, step.err
		w.look()
		if (refused != nil) != step.refused || (w.err() != nil) != step.refused {
			t.Errorf("%s: refused %v, want %v", step.name, refused, step.refused)
		}
		if refused != nil && !strings.Contains(refused.Error(), "less than 128 MiB") {
			t.Errorf("%s: the reason does not say how much: %v", step.name, refused)
		}
	}
}

// On a full disk the registry takes back every block that it gives up while it opens: nobody else writes meanwhile. (U-72)
func TestRegistryStartsAloneWithoutSpace(t *testing.T) {
	b := startWith(t, t.TempDir(), func(c *Config) {
		c.FreeBytes = func(string) (free, total uint64, err error) { return 0, 1 << 30, nil }
	})
	phases := b.phases.Status().Phases
	at := func(name string) int {
		return slices.IndexFunc(phases, func(p console.PhaseStatus) bool { return p.Name == name })
	}
	if registry, logs := at("registry"), at("logs"); registry < 0 || logs < registry {
		t.Errorf("the phases of the start: %+v", phases)
	}
}
