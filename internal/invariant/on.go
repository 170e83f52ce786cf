//go:build invariants

package invariant

// Enabled tells whether costly checks are compiled in (build tag invariants). It is a constant, so that the compiler
// removes what stands behind it.
const Enabled = true
