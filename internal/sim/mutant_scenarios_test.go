//go:build mutants

package sim

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/internal/replica"
)

// TestScenariosUnderMutants: each of these scenarios breaks an invariant when the check that it is there for is left out.
func TestScenariosUnderMutants(t *testing.T) {
	for _, test := range []struct {
		scenario string
		mutant   replica.Mutant
	}{
		{"E-1", replica.TruncateToHigh},
		{"E-5", replica.TruncateOneRound},
		{"joining-loses-power", replica.JoinAnyLife},
		{"common-power-cut-flush-unsynced", replica.CountWritten},
		{"pending-is-not-enough", replica.IgnorePending},
	} {
		s := &scenario{mutant: test.mutant}
		datadriven.RunTest(t, filepath.Join("testdata/scenarios", test.scenario), func(t *testing.T, d *datadriven.TestData) string {
			if s.world == nil || s.world.failure == nil {
				s.command(t, d)
			}
			return d.Expected
		})
		if s.world.failure == nil {
			t.Errorf("%s: nothing broke without the check %s", test.scenario, test.mutant)
		} else {
			t.Logf("%s without the check %s: %v", test.scenario, test.mutant, s.world.failure)
		}
	}
}
