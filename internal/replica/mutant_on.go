//go:build mutants

package replica

import (
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
)

const mutantsBuilt = true

// NewMutant is NewMachine without one check.
func NewMutant(self meta.BrokerID, lagMax time.Duration, mutant Mutant) Machine {
	m := NewMachine(self, lagMax)
	m.mutant = mutant
	return m
}

// Mutants lists all mutants.
func Mutants() []Mutant {
	all := make([]Mutant, 0, mutantCount-1)
	for m := NoMutant + 1; m < mutantCount; m++ {
		all = append(all, m)
	}
	return all
}
