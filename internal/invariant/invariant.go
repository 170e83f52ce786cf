// Package invariant holds the checks that stay on in production and the switch for those that are too dear for it.
//
// A broken invariant is a fault of this program, never of its input, its disk or its network: those give errors. To go
// on would risk the data that the broker has promised to keep, so the process stops where the fault was seen.
package invariant

import "fmt"

// Check panics with the formatted message when ok is false. Arguments are evaluated by the caller even when ok is true,
// so a message on a hot path should take values that are at hand.
func Check(ok bool, format string, args ...any) {
	if !ok {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
