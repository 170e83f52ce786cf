//go:build mutants

package sim

import (
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// newMachine is a machine without the mutant's check.
func newMachine(id meta.BrokerID, lagMax time.Duration, mutant replica.Mutant) replica.Machine {
	return replica.NewMutant(id, lagMax, mutant)
}
