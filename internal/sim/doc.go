// Package sim runs many replica machines and the controller's Plan against each other on one goroutine, from a seed: a
// model network that loses, delays, doubles and reorders, disks that forget what was not synced, a registry with
// compare-and-set and leases, and a clock that only events move (ARCHITECTURE.md, L1 of the tests). What decides is the
// product's own code; what carries is modelled here. One partition stands for all, and one record for a batch.
//
// After every event the invariants are checked, each a type with a name: [AckedDurable], [NoDivergence], [TrueHighWatermark],
// [EpochLineage]; after the faults end, [Liveness]. A history is a function of its seed. With the build tag mutants one
// check of the machines at a time is left out, and the invariants must notice (replica.Mutant).
//
// Only tests import it.
package sim
