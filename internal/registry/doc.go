// Package registry is the typed face of etcd, the one place where a cluster's decisions are durable: topics, partition
// states, configurations, brokers and the controller's seat. Only this package knows keys and encodings
// (docs/format/registry.md), and only it imports etcd.
//
// [Store] is what is needed of a key-value store; it has three implementations that pass one suite: etcd embedded in
// this process ([StartEmbedded]), external etcd endpoints ([Dial]), and memory ([NewMemory]). [Cluster] is the typed
// face over any of them.
//
// The invariant it keeps: a topic exists exactly if its name has a key. Creating writes the name last, deleting removes
// it first, and every change of a partition compares the version that it was decided on, so a crash or a conflict at
// any step leaves what was there.
//
// Callers are controller (decides) and broker (registers, watches configurations). The package never decides anything
// about replicas, and nothing but StartEmbedded, Dial and the Run methods starts goroutines.
package registry
