// Package sim runs many replica machines and controllers with the real Plan against each other on one goroutine, from a
// seed: a model network that loses, delays, doubles and reorders, disks that forget what was not synced, a registry with
// compare-and-set and leases, a controller's seat that passes on while its holder does not know it, and clocks that only
// events move (ARCHITECTURE.md, L1 of the tests). What decides is the product's own code, also about the sequences of
// producers; what carries is modelled here. One partition stands for all, and one record for a batch.
//
// After every event the invariants are checked, each a type with a name: [AckedDurable], [NoDivergence], [TrueHighWatermark],
// [NoUncommittedRead], [RepeatableRead], [EpochLineage], [Idempotence], [MetadataFence]; after the faults end, [Liveness].
// A history is a function of its seed. With the build tag mutants one check at a time is left out, and the invariants must
// notice (replica.Mutant, and the mutants of what surrounds the machines).
//
// Only tests import it.
package sim
