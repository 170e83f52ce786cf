package server

import (
	"slices"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// Keys lists the broker's configuration keys about clients: listeners, connections, requests, security, and the
// coordinators that clients use. They are Kafka's, with the differences that the defaults of listeners and
// advertised.listeners make.
var Keys = slices.Concat(serverKeys, classicGroupKeys, coordinatorKeys, tlsKeys, securityKeys)

var serverKeys = inBroker(false, []meta.ConfigKey{
	{
		Name: "num.io.threads", Type: meta.IntType, HasDefault: true, Default: "8", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Threads that serve requests. Each connection here has its own goroutine.",
	},
	{
		Name: "background.threads", Type: meta.IntType, HasDefault: true, Default: "10", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Threads for background work. The runtime schedules it here.",
	},
	{
		Name: "request.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "30000", NoEffect: true,
		Doc: "Milliseconds that a request to another broker may take.",
	},
	{
		Name: "delete.topic.enable", Type: meta.BoolType, HasDefault: true, Default: "true",
		Doc: "Whether topics can be deleted.",
	},
	{
		Name: "max.incremental.fetch.session.cache.slots", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0),
		Doc: "Fetch sessions that are kept.",
	},
	{
		Name: "fetch.max.bytes", Type: meta.IntType, HasDefault: true, Default: "57671680", Valid: meta.AtLeast(1 << 10),
		Doc: "Bytes of one whole answer to a fetch.",
	},
	{
		Name: "max.request.partition.size.limit", Type: meta.IntType, HasDefault: true, Default: "2000", Valid: meta.AtLeast(1),
		Doc: "Partitions in one answer of DescribeTopicPartitions.",
	},
	{
		Name: "unstable.api.versions.enable", Type: meta.BoolType, HasDefault: true, Default: "false", Internal: true, NoEffect: true,
		Doc: "Whether request versions that are still changing are served. None are.",
	},
	{
		Name: "unstable.feature.versions.enable", Type: meta.BoolType, HasDefault: true, Default: "false", Internal: true, NoEffect: true,
		Doc: "Whether feature levels that are still changing may be enabled. None are.",
	},
	{
		Name: "listeners", Type: meta.ListType, HasDefault: true, Default: "PLAINTEXT://localhost:9092",
		Doc: "Where clients connect, as NAME://host:port,.... An empty host binds every interface.",
	},
	{
		Name: "advertised.listeners", Type: meta.ListType,
		Doc: "The addresses that clients are told, as NAME://host:port,.... Unset, each client is told the address that it dialled.",
	},
	{
		Name: "listener.security.protocol.map", Type: meta.StringType, HasDefault: true, Default: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
		Doc: "The security protocol of each listener name, as NAME:PROTOCOL,.... PLAINTEXT and SSL are served.",
	},
	{
		Name: "socket.send.buffer.bytes", Type: meta.IntType, HasDefault: true, Default: "102400", NoEffect: true,
		Doc: "Send buffer in bytes of a connection; -1 leaves it to the operating system.",
	},
	{
		Name: "socket.receive.buffer.bytes", Type: meta.IntType, HasDefault: true, Default: "102400", NoEffect: true,
		Doc: "Receive buffer in bytes of a connection; -1 leaves it to the operating system.",
	},
	{
		Name: "socket.request.max.bytes", Type: meta.IntType, HasDefault: true, Default: "104857600", Valid: meta.AtLeast(1),
		Doc: "Largest request accepted, in bytes.",
	},
	{
		Name: "socket.listen.backlog.size", Type: meta.IntType, HasDefault: true, Default: "50", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Connections that may wait to be accepted. The operating system's own limit is used.",
	},
	{
		Name: "max.connections.per.ip", Type: meta.IntType, HasDefault: true, Default: "2147483647", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Connections from one address. A change takes effect at the next start.",
	},
	{
		Name: "max.connections.per.ip.overrides", Type: meta.StringType, HasDefault: true, Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Exceptions from max.connections.per.ip, as address:number,....",
	},
	{
		Name: "max.connections", Type: meta.IntType, HasDefault: true, Default: "2147483647", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide,
		Doc: "Connections of this broker. A change takes effect at the next start.",
	},
	{
		Name: "max.connection.creation.rate", Type: meta.IntType, HasDefault: true, Default: "2147483647", Valid: meta.AtLeast(0), Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Connections accepted per second.",
	},
	{
		Name: "connections.max.idle.ms", Type: meta.LongType, HasDefault: true, Default: "600000",
		Doc: "Milliseconds after which a connection without requests is closed.",
	},
	{
		Name: "connection.failed.authentication.delay.ms", Type: meta.IntType, HasDefault: true, Default: "100", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds that a connection is kept after its authentication failed.",
	},
	{
		Name: "queued.max.requests", Type: meta.IntType, HasDefault: true, Default: "500", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Requests that may wait for a thread. Requests here wait on their connection.",
	},
	{
		Name: "queued.max.request.bytes", Type: meta.LongType, HasDefault: true, Default: "-1",
		Doc: "Bytes of requests held in memory at once over all connections; -1 lets the broker choose from the memory it has.",
	},
	{
		Name: "num.network.threads", Type: meta.IntType, HasDefault: true, Default: "3", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Threads that read and write connections. Each connection here has its own goroutine.",
	},
	{
		Name: "offset.metadata.max.bytes", Type: meta.IntType, HasDefault: true, Default: "4096",
		Doc: "Largest text stored with a committed offset, in bytes.",
	},
	{
		Name: "num.partitions", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1),
		Doc: "Partitions of a topic created without a number of its own.",
	},
	{
		Name: "auto.create.topics.enable", Type: meta.BoolType, HasDefault: true, Default: "true",
		Doc: "Whether a topic is created when a client asks for the metadata of one that does not exist.",
	},
	{
		Name: "create.topic.policy.class.name", Type: meta.ClassType, NoEffect: true,
		Doc: "Plug-in that approves the creation of topics. Plug-ins are not supported.",
	},
	{
		Name: "alter.config.policy.class.name", Type: meta.ClassType, NoEffect: true,
		Doc: "Plug-in that approves changes of configurations. Plug-ins are not supported.",
	},
	{
		Name: "telemetry.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048576", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Largest metrics report of a client, in bytes.",
	},
	{
		Name: "quota.window.num", Type: meta.IntType, HasDefault: true, Default: "11", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Samples kept for client quotas.",
	},
	{
		Name: "replication.quota.window.num", Type: meta.IntType, HasDefault: true, Default: "11", Valid: meta.AtLeast(1),
		Doc: "Samples kept for replication quotas.",
	},
	{
		Name: "alter.log.dirs.replication.quota.window.num", Type: meta.IntType, HasDefault: true, Default: "11", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Samples kept for the quota of moves between directories.",
	},
	{
		Name: "controller.quota.window.num", Type: meta.IntType, HasDefault: true, Default: "11", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Samples kept for quotas of admin requests.",
	},
	{
		Name: "quota.window.size.seconds", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Seconds of one sample of client quotas.",
	},
	{
		Name: "replication.quota.window.size.seconds", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1),
		Doc: "Seconds of one sample of replication quotas.",
	},
	{
		Name: "alter.log.dirs.replication.quota.window.size.seconds", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Seconds of one sample of the quota of moves between directories.",
	},
	{
		Name: "controller.quota.window.size.seconds", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Seconds of one sample of quotas of admin requests.",
	},
	{
		Name: "client.quota.callback.class", Type: meta.ClassType, NoEffect: true,
		Doc: "Plug-in that computes quotas. Plug-ins are not supported.",
	},
})

// inBroker marks keys as the broker's, and as without effect if they are.
func inBroker(noEffect bool, keys []meta.ConfigKey) []meta.ConfigKey {
	for i := range keys {
		keys[i].Broker = true
		keys[i].NoEffect = keys[i].NoEffect || noEffect
	}
	return keys
}
