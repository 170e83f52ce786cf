//go:build !mutants

package sim

import (
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// newMachine is a machine with all its checks: this build has no others.
func newMachine(id meta.BrokerID, lagMax time.Duration, _ replica.Mutant) replica.Machine {
	return replica.NewMachine(id, lagMax)
}
