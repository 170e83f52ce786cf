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

// String is the name of the constant.
func (m Mutant) String() string {
	return [...]string{
		"NoMutant", "TruncateToHigh", "TruncateOneRound", "AnyEpochFetches", "KeepProgress", "JoinBelowEpochStart", "JoinBelowHigh",
		"JoinAnyLife", "KeepEnds", "IgnorePending", "ForgetUnknown", "AdvanceWhenShort", "CountWritten", "AnyAnswer",
		"RaiseWhenDiverging", "CountDiverging", "TrustResumed", "IgnoreUnknownEnds", "CutCommitted",
	}[m]
}
