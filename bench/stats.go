package main

import (
	"slices"
	"time"
)

// median is the middle value, or the mean of the two in the middle; 0 of none. The values stay in their order.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// quantile is the smallest latency that at least the share q (0 to 1) of all do not exceed, in milliseconds. The
// latencies must be sorted; 0 of none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q*float64(len(sorted)) + 0.999999)
	return float64(sorted[min(max(rank, 1), len(sorted))-1]) / float64(time.Millisecond)
}

// ratio is a of b, and 0 where there is no b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// moved is by how much the second half of a series differs from its first, as a share of the first: 0.1 is ten per cent.
// Of an odd number the middle one counts for neither; fewer than two have not moved.
func moved(values []float64) float64 {
	half := len(values) / 2
	if half == 0 {
		return 0
	}
	first, second := median(values[:half]), median(values[len(values)-half:])
	if first == 0 {
		return 0
	}
	return max(second/first, first/max(second, 1e-9)) - 1
}
