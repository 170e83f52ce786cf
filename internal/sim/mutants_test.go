//go:build mutants

package sim

import (
	"flag"
	"testing"

	"github.com/tidemark-io/tidemark/internal/replica"
)

var mutantSeeds = flag.Int("mutantseeds", 10000, "number of histories in which a mutant must be caught")

// killers are seeds that have caught a mutant that few seeds catch; they are tried first.
var killers = map[replica.Mutant]uint64{replica.AnyEpochFetches: 1042, replica.JoinAnyLife: 2029}

// TestMutants: each check that a machine can be built without is missed by an invariant within 10,000 histories.
func TestMutants(t *testing.T) {
	for _, mutant := range append(replica.Mutants(), trustUnclean) {
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
			caught = p.(string)
		}
	}()
	if _, err := History(o, steps); err != nil {
		return err.Error()
	}
	return ""
}

func mutantName(m replica.Mutant) string {
	if m == trustUnclean {
		return "TrustUnclean"
	}
	return m.String()
}
