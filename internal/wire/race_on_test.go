//go:build race

package wire

// measuredFactor: a race build makes the new elements of an array before it appends them, a plain build grows in place.
const measuredFactor = 2 * ChargeFactor
