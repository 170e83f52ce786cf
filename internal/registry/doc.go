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
// In a cluster the first brokers each embed a member. A [Door] is the listener where brokers ask each other which cluster
// they belong to, and behind which the member serves its peers and clients; found.go decides who founds and who joins,
// members.go who is let in and who votes. The invariant there: a member is bound to its directory, so that an emptied disk
// never votes (D3, U-63).
//
// Callers are controller (decides) and broker (registers, watches configurations). The package never decides anything
// about replicas, and nothing but OpenDoor, StartEmbedded, Dial and the Run methods starts goroutines.
package registry
