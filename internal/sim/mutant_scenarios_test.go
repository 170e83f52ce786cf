//go:build mutants

package sim

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-io/tidemark/internal/replica"
)

// TestScenariosUnderMutants: each of these scenarios breaks an invariant when the check that it is there for is left out, or
// goes another way if it is about a second line of defence.
func TestScenariosUnderMutants(t *testing.T) {
	for _, test := range []struct {
		scenario string
		mutant   replica.Mutant
	}{
		{"E-1", replica.TruncateToHigh},
		{"E-2", electAnybody},
		{"E-5", replica.TruncateOneRound},
		{"R-41", ignoreSeat},
		{"R-56-all-die", electAnybody},
		{"R-56-alone", electAnybody},
		{"R-69", obeyDeposed},
		{"R-104", readToEnd},
		{"common-power-cut", trustUnclean},
		{"common-power-cut-flush-unsynced", replica.CountWritten},
		{"joining-loses-power", replica.JoinAnyLife},
		{"pending-is-not-enough", replica.IgnorePending},
		{"committed-cut-refused", replica.CutCommitted},
	} {
		t.Run(test.scenario, func(t *testing.T) {
			s := &scenario{mutant: test.mutant}
			other := ""
			datadriven.RunTest(t, filepath.Join("testdata/scenarios", test.scenario), func(t *testing.T, d *datadriven.TestData) string {
				if s.world == nil || s.world.failure == nil {
					if out := s.tell(t, d); out != d.Expected && other == "" {
						other = out
					}
				}
				return d.Expected
			})
			second := slices.Contains(seconds, test.mutant) && other != ""
			switch {
			case s.world.failure != nil:
				t.Logf("%s without the check %s: %v", test.scenario, mutantName(test.mutant), s.world.failure)
			case second:
				t.Logf("%s without the check %s goes another way: %s", test.scenario, mutantName(test.mutant), other)
			default:
				t.Errorf("%s: nothing broke without the check %s", test.scenario, mutantName(test.mutant))
			}
		})
	}
}
