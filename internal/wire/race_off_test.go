//go:build !race

package wire

// measuredFactor is what a decoder may take for each byte.
const measuredFactor = ChargeFactor
