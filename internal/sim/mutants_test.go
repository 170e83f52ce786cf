//go:build mutants

package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/replica"
)

var mutantSeeds = flag.Int("mutantseeds", 10000, "number of histories in which a mutant must be caught")

// surroundings names the mutants of what surrounds the machines.
var surroundings = map[replica.Mutant]string{
	trustUnclean: "TrustUnclean", keepEpoch: "KeepEpoch", ignoreSeat: "IgnoreSeat", obeyDeposed: "ObeyDeposed", readToEnd: "ReadToEnd",
	forgetSequences: "ForgetSequences", keepSequences: "KeepSequences",
	electAnybody: "ElectAnybody",
}

// killers are seeds that have caught a mutant that few seeds catch; they are tried first.
var killers = map[replica.Mutant]uint64{
	replica.AnyEpochFetches: 8632, replica.JoinAnyLife: 3394, replica.KeepProgress: 331, replica.KeepEnds: 77, replica.ForgetUnknown: 352, keepEpoch: 235,
}

// seconds are second lines of defence: what they stop does not happen while the first ones hold, so scripts break the first
// ones by hand (TestScenariosUnderMutants).
var seconds = []replica.Mutant{replica.CutCommitted}

// TestMutants: each check that a machine can be built without is missed by an invariant within 10,000 histories.
func TestMutants(t *testing.T) {
	mutants := slices.AppendSeq(replica.Mutants(), maps.Keys(surroundings))
	slices.Sort(mutants)
	for _, mutant := range mutants {
		if slices.Contains(seconds, mutant) {
			continue
		}
		t.Run(mutantName(mutant), func(t *testing.T) {
			for seed := uint64(0); seed <= uint64(*mutantSeeds); seed++ {
				o := optionsOf(seed)
				if killer := killers[mutant]; seed == 0 && killer != 0 {
					o = optionsOf(killer)
				}
				o.Mutant = mutant
				if caught := history(o); caught != "" {
					t.Logf("caught by seed %d: %s", o.Seed, caught)
					return
				}
			}
			t.Errorf("nobody missed it in %d histories", *mutantSeeds)
		})
	}
}

// history is what a world's history breaks; a panic of a machine's own invariants counts.
func history(o Options) (caught string) {
	defer func() {
		if p := recover(); p != nil {
			caught = fmt.Sprintf("the machine's own check: %v", p)
		}
	}()
	if _, err := History(o, steps); err != nil {
		return err.Error()
	}
	return ""
}

func mutantName(m replica.Mutant) string {
	if name, found := surroundings[m]; found {
		return name
	}
	return m.String()
}

func TestMutantsAreDocumented(t *testing.T) {
	for mutant := range surroundings {
		documented(t, mutantName(mutant))
	}
	for _, mutant := range replica.Mutants() {
		documented(t, mutantName(mutant))
	}
}
