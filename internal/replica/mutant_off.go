//go:build !mutants

package replica

// mutantsBuilt is a constant, so that the compiler removes what stands behind it.
const mutantsBuilt = false
