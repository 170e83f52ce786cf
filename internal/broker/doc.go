// Package broker assembles one node from its Config, starts its parts in order, and stops them in reverse. It decides
// nothing: what it holds is the wiring, the one path on which a broker learns of the cluster, and the watch over the disk.
//
// # The start
//
//	listeners ─▶ data directory ─┬▶ logs (all partitions)     ─┬▶ registration ─▶ controller ─▶ own statement applied ─▶ clients
//	             (lock, identity) └▶ registry (embedded etcd)  ─┘
//
// Ports are opened first, so that a taken one is told before a directory is touched, but nobody is accepted until the
// broker's own statement has come back and says that it is live. Each step is a phase of the console (docs/operate/health.md).
//
// # What it keeps
//
// A broker acts on the registry only through statements of the controller ([state.apply]), one at a time: configurations
// that a statement relies on are read first, then the replicas change, then the Image shows it. So a client that sees a
// topic finds its partitions here, and an admin request that is answered shows in the next answer of any connection. The
// mark of a clean shutdown is written after every log is closed and synced, and never after an I/O error.
//
// # Goroutines
//
// All are in error groups that Run waits for; nothing is left when Run returns, and several brokers live in one process.
//
//	console          HTTP for operators; outlives everything else
//	logs.Run         group commits, retention, compaction, checkpoints of the data directory
//	table.Run        writes `flushed` into partition values
//	disk.run         looks at the free space
//	watchConfigs     the single watch of configurations
//	watchRegistry    the embedded registry's ballast and health
//	membership       registration, lease, and while it holds: controller.Run
//	server.Run       accepts and serves clients; the first to stop
//
// # Locks
//
// One slot (state.slot) is held by whoever changes the Image; it spans the disk, because an Apply opens logs. It is taken
// before the table's slot and never under any lock.
//
// Its caller is cmd. It never parses a protocol or touches a file but through the packages below.
package broker
