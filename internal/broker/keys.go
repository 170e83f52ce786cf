package broker

import (
	"github.com/tidemark-io/tidemark/internal/commitlog"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
	"github.com/tidemark-io/tidemark/internal/server"
)

// Keys joins the configuration keys of all packages into the one table that the properties file, the admin requests
// and the reference documentation share (D14).
func Keys() *meta.ConfigKeys {
	all, err := meta.NewConfigKeys(commitlog.Keys, replica.Keys, server.Keys, processKeys, remoteKeys, removedKeys)
	if err != nil {
		panic(err) // two packages claim one key
	}
	return all
}

// processKeys are the keys of the process itself, and those of Kafka's process that mean nothing here: a
// server.properties made for Kafka works.
var processKeys = inBroker([]meta.ConfigKey{
	{
		Name: "broker.id", Type: meta.IntType, HasDefault: true, Default: "-1",
		Doc: "Older name of node.id.",
	},
	{
		Name: "socket.connection.setup.timeout.ms", Type: meta.LongType, HasDefault: true, Default: "10000", NoEffect: true,
		Doc: "Milliseconds to set up a connection to another broker.",
	},
	{
		Name: "socket.connection.setup.timeout.max.ms", Type: meta.LongType, HasDefault: true, Default: "30000", NoEffect: true,
		Doc: "Milliseconds to set up a connection to another broker at most, after failures.",
	},
	{
		Name: "config.providers", Type: meta.ListType, HasDefault: true, Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Sources of values written as references. They are not supported.",
	},
	{
		Name: "broker.rack", Type: meta.StringType,
		Doc: "Rack of this broker, told to clients and used to spread replicas.",
	},
	{
		Name: "controlled.shutdown.enable", Type: meta.BoolType, HasDefault: true, Default: "true",
		Doc: "Whether leadership moves away before a broker stops.",
	},
	{
		Name: "process.roles", Type: meta.ListType, HasDefault: true, Default: "broker,controller", Valid: meta.ListOf("broker", "controller"), NoEffect: true,
		Doc: "Roles of this process in Kafka. A tidemark broker always has both.",
	},
	{
		Name: "node.id", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(0),
		Doc: "Id of this broker in the cluster.",
	},
	{
		Name: ClusterKey, Type: meta.ListType, HasDefault: true,
		Doc: "Every broker of the cluster as ID@HOST:PORT[/REGISTRYPORT], the same list for all of them: where it takes the other brokers' requests, and where its member of the registry does (by default the next port). Without it the broker stands alone.",
	},
	{
		Name: "initial.broker.registration.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "60000", NoEffect: true,
		Doc: "Milliseconds that a starting broker waits to be registered.",
	},
	{
		Name: "broker.heartbeat.interval.ms", Type: meta.IntType, HasDefault: true, Default: "2000", NoEffect: true,
		Doc: "Milliseconds between heartbeats of a broker. The registry's lease is used here.",
	},
	{
		Name: "broker.session.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "9000",
		Doc: "Milliseconds after which a broker that has fallen silent is fenced: the length of its lease in the registry, renewed three times as often. At least 1000, in a cluster 6000.",
	},
	{
		Name: "controller.listener.names", Type: meta.ListType, HasDefault: true, NoEffect: true,
		Doc: "Listeners of controllers in Kafka.",
	},
	{
		Name: "controller.performance.sample.period.ms", Type: meta.LongType, HasDefault: true, Default: "60000", Valid: meta.AtLeast(100), Internal: true, NoEffect: true,
		Doc: "Milliseconds between reports of a controller's slow events.",
	},
	{
		Name: "controller.performance.always.log.threshold.ms", Type: meta.LongType, HasDefault: true, Default: "2000", Valid: meta.AtLeast(0), Internal: true, NoEffect: true,
		Doc: "Milliseconds from which a controller's event is always reported.",
	},
	{
		Name: "server.max.startup.time.ms", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(0), Internal: true, NoEffect: true,
		Doc: "Milliseconds that a start may take.",
	},
	{
		Name: "metadata.log.max.record.bytes.between.snapshots", Type: meta.LongType, HasDefault: true, Default: "20971520", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Bytes between snapshots of Kafka's metadata log.",
	},
	{
		Name: "metadata.log.max.snapshot.interval.ms", Type: meta.LongType, HasDefault: true, Default: "3600000", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds between snapshots of Kafka's metadata log.",
	},
	{
		Name: "metadata.log.dir", Type: meta.StringType, NoEffect: true,
		Doc: "Directory of Kafka's metadata log.",
	},
	{
		Name: "metadata.log.segment.bytes", Type: meta.IntType, HasDefault: true, Default: "1073741824", Valid: meta.AtLeast(8 << 20), NoEffect: true,
		Doc: "Segment size of Kafka's metadata log.",
	},
	{
		Name: "metadata.log.segment.ms", Type: meta.LongType, HasDefault: true, Default: "604800000", NoEffect: true,
		Doc: "Segment age of Kafka's metadata log.",
	},
	{
		Name: "metadata.max.retention.bytes", Type: meta.LongType, HasDefault: true, Default: "104857600", NoEffect: true,
		Doc: "Bytes of Kafka's metadata log and snapshots that are kept.",
	},
	{
		Name: "metadata.max.retention.ms", Type: meta.LongType, HasDefault: true, Default: "604800000", NoEffect: true,
		Doc: "Milliseconds that Kafka's metadata log and snapshots are kept.",
	},
	{
		Name: "metadata.max.idle.interval.ms", Type: meta.IntType, HasDefault: true, Default: "500", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds between empty records of Kafka's metadata log.",
	},
	{
		Name: "internal.metadata.log.segment.bytes", Type: meta.IntType, Internal: true, NoEffect: true,
		Doc: "Segment size of Kafka's metadata log in tests.",
	},
	{
		Name: "internal.metadata.max.batch.size.in.bytes", Type: meta.IntType, HasDefault: true, Default: "8388608", Internal: true, NoEffect: true,
		Doc: "Batch size of Kafka's metadata log in tests.",
	},
	{
		Name: "internal.metadata.delete.delay.millis", Type: meta.LongType, HasDefault: true, Default: "60000", Internal: true, NoEffect: true,
		Doc: "Deletion delay of Kafka's metadata log in tests.",
	},
	{
		Name: "controller.socket.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "30000", NoEffect: true,
		Doc: "Milliseconds of a request to a controller.",
	},
	{
		Name: "security.inter.broker.protocol", Type: meta.StringType, HasDefault: true, Default: "PLAINTEXT", Valid: meta.OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
		Doc: "Security protocol among brokers: PLAINTEXT, or SSL with the keys ssl.* or listener.name.brokers.ssl.*; then the registry's traffic has the same certificates, unless registry.ssl.* names others.",
	},
	{
		Name: "inter.broker.listener.name", Type: meta.StringType, NoEffect: true,
		Doc: "Listener that brokers use among themselves.",
	},
	{
		Name: "log.initial.task.delay.ms", Type: meta.LongType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(0), Internal: true, NoEffect: true,
		Doc: "Milliseconds between the start and the first maintenance of logs.",
	},
	{
		Name: "controller.quorum.voters", Type: meta.ListType, HasDefault: true, NoEffect: true,
		Doc: "Voters of Kafka's metadata quorum.",
	},
	{
		Name: "controller.quorum.bootstrap.servers", Type: meta.ListType, HasDefault: true, NoEffect: true,
		Doc: "Addresses of Kafka's metadata quorum.",
	},
	{
		Name: "controller.quorum.election.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds without a leader after which Kafka's quorum elects one.",
	},
	{
		Name: "controller.quorum.fetch.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "2000", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds without a successful fetch after which a voter becomes a candidate.",
	},
	{
		Name: "controller.quorum.election.backoff.max.ms", Type: meta.IntType, HasDefault: true, Default: "1000", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds before a new election at most.",
	},
	{
		Name: "controller.quorum.append.linger.ms", Type: meta.IntType, HasDefault: true, Default: "25", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds that Kafka's quorum gathers writes.",
	},
	{
		Name: "controller.quorum.request.timeout.ms", Type: meta.IntType, HasDefault: true, Default: "2000", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds of a request of Kafka's quorum.",
	},
	{
		Name: "controller.quorum.retry.backoff.ms", Type: meta.IntType, HasDefault: true, Default: "20", Valid: meta.AtLeast(0), NoEffect: true,
		Doc: "Milliseconds before a request of Kafka's quorum is repeated.",
	},
	{
		Name: "controller.quorum.auto.join.enable", Type: meta.BoolType, HasDefault: true, Default: "false", NoEffect: true,
		Doc: "Whether a controller joins Kafka's quorum by itself.",
	},
	{
		Name: "controller.quorum.fetch.snapshot.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048576", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Bytes of one part of a snapshot of Kafka's quorum.",
	},
	{
		Name: "controller.quorum.fetch.max.bytes", Type: meta.IntType, HasDefault: true, Default: "1048576", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Bytes of one fetch of Kafka's quorum.",
	},
	{
		Name: "metrics.num.samples", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Samples of a metric.",
	},
	{
		Name: "metrics.sample.window.ms", Type: meta.LongType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Milliseconds of one sample of a metric.",
	},
	{
		Name: "metric.reporters", Type: meta.ListType, HasDefault: true, Default: "org.apache.kafka.common.metrics.JmxReporter", Dynamic: meta.ClusterWide, NoEffect: true,
		Doc: "Plug-ins that report metrics. Metrics are served over HTTP here.",
	},
	{
		Name: "metrics.recording.level", Type: meta.StringType, HasDefault: true, Default: "INFO", NoEffect: true,
		Doc: "Which metrics are recorded.",
	},
	{
		Name: "kafka.metrics.reporters", Type: meta.ListType, HasDefault: true, NoEffect: true,
		Doc: "Plug-ins that report metrics. Metrics are served over HTTP here.",
	},
	{
		Name: "kafka.metrics.polling.interval.secs", Type: meta.IntType, HasDefault: true, Default: "10", Valid: meta.AtLeast(1), NoEffect: true,
		Doc: "Seconds between reports of metrics.",
	},
	{
		Name: "inter.broker.protocol.version", Type: meta.StringType, HasDefault: true, Default: "4.4-IV2", NoEffect: true,
		Doc: "Protocol level that consoles use to guess what a broker can do. It is only shown.",
	},
	{
		Name: "metadata.version", Type: meta.StringType, HasDefault: true, Default: "4.4-IV2", NoEffect: true,
		Doc: "Feature level that consoles use to guess what a broker can do. It is only shown.",
	},
	{
		Name: "admin.listener", Type: meta.StringType, HasDefault: true, Default: "localhost:9644",
		Doc: "Address of the HTTP server for health, metrics and administration; empty turns it off.",
	},
	{
		Name: "pprof.listener", Type: meta.StringType, HasDefault: true,
		Doc: "Address of the HTTP server for profiles, a loopback one; empty turns it off.",
	},
	{
		Name: "registry.endpoints", Type: meta.ListType, HasDefault: true,
		Doc: "Addresses of an etcd cluster that serves as the registry; empty runs one inside the broker, or inside the first brokers of cluster.brokers.",
	},
	{
		Name: "registry.members", Type: meta.IntType, HasDefault: true, Default: "3", Valid: meta.Between(1, 5),
		Doc: "How many brokers of cluster.brokers, from the lowest id on, have a member of the registry: 1, 3 or 5, or fewer when there are fewer brokers, and never an even number. The others are its clients.",
	},
	{
		Name: "registry.ssl.certificate.location", Type: meta.StringType,
		Doc: "PEM file of the certificate that this broker shows to the other brokers' members of the registry and to external endpoints, for both sides of a connection. It is read again when it changes.",
	},
	{
		Name: "registry.ssl.key.location", Type: meta.StringType,
		Doc: "PEM file of the private key of registry.ssl.certificate.location.",
	},
	{
		Name: "registry.ssl.ca.location", Type: meta.StringType,
		Doc: "PEM file of the authorities that sign the certificates of the registry; with it nobody else may connect.",
	},
})

// remoteKeys are accepted and described; the tier does not exist yet.
var remoteKeys = withoutEffect(inBroker([]meta.ConfigKey{
	{
		Name: "remote.log.storage.system.enable", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether this broker can tier segments to an object store.",
	},
	{
		Name: "remote.log.storage.manager.impl.prefix", Type: meta.StringType, HasDefault: true, Default: "rsm.config.", Valid: meta.NonEmpty(),
		Doc: "Prefix of the keys for the storage plug-in.",
	},
	{
		Name: "remote.log.metadata.manager.impl.prefix", Type: meta.StringType, HasDefault: true, Default: "rlmm.config.", Valid: meta.NonEmpty(),
		Doc: "Prefix of the keys for the metadata plug-in.",
	},
	{
		Name: "remote.log.storage.manager.class.name", Type: meta.StringType, Valid: meta.NonEmpty(),
		Doc: "Storage plug-in. Plug-ins are not supported.",
	},
	{
		Name: "remote.log.storage.manager.class.path", Type: meta.StringType,
		Doc: "Path of the storage plug-in.",
	},
	{
		Name: "remote.log.metadata.manager.class.name", Type: meta.StringType, HasDefault: true, Default: "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", Valid: meta.NonEmpty(),
		Doc: "Metadata plug-in. Plug-ins are not supported.",
	},
	{
		Name: "remote.log.metadata.manager.class.path", Type: meta.StringType,
		Doc: "Path of the metadata plug-in.",
	},
	{
		Name: "remote.log.metadata.manager.listener.name", Type: meta.StringType, Valid: meta.NonEmpty(),
		Doc: "Listener of the metadata plug-in.",
	},
	{
		Name: "remote.log.metadata.custom.metadata.max.bytes", Type: meta.IntType, HasDefault: true, Default: "128", Valid: meta.AtLeast(0),
		Doc: "Largest custom metadata of a segment, in bytes.",
	},
	{
		Name: "remote.log.index.file.cache.total.size.bytes", Type: meta.LongType, HasDefault: true, Default: "1073741824", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Disk space in bytes for cached indexes of remote segments.",
	},
	{
		Name: "remote.log.index.file.cache.ttl.ms", Type: meta.LongType, HasDefault: true, Default: "900000", Valid: meta.AtLeast(-1), Internal: true,
		Doc: "Milliseconds that a cached index stays unused.",
	},
	{
		Name: "remote.log.manager.thread.pool.size", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1),
		Doc: "Threads for the tasks of the tier.",
	},
	{
		Name: "remote.log.manager.copier.thread.pool.size", Type: meta.IntType, HasDefault: true, Default: "10", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Segments copied at once.",
	},
	{
		Name: "remote.log.manager.expiration.thread.pool.size", Type: meta.IntType, HasDefault: true, Default: "10", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Expirations done at once.",
	},
	{
		Name: "remote.log.manager.follower.thread.pool.size", Type: meta.IntType, HasDefault: true, Default: "2", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Follower tasks done at once.",
	},
	{
		Name: "remote.log.manager.task.interval.ms", Type: meta.LongType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between looks for segments to copy or expire.",
	},
	{
		Name: "remote.log.manager.task.retry.backoff.ms", Type: meta.LongType, HasDefault: true, Default: "500", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds before the first retry of a task.",
	},
	{
		Name: "remote.log.manager.task.retry.backoff.max.ms", Type: meta.LongType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1), Internal: true,
		Doc: "Milliseconds between retries of a task at most.",
	},
	{
		Name: "remote.log.manager.task.retry.jitter", Type: meta.DoubleType, HasDefault: true, Default: "0.2", Valid: meta.Between(0, 1), Internal: true,
		Doc: "Share of random variation of the retries.",
	},
	{
		Name: "remote.log.reader.threads", Type: meta.IntType, HasDefault: true, Default: "10", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Remote reads done at once.",
	},
	{
		Name: "remote.log.reader.max.pending.tasks", Type: meta.IntType, HasDefault: true, Default: "100", Valid: meta.AtLeast(1),
		Doc: "Remote reads that may wait.",
	},
	{
		Name: "remote.log.manager.copy.max.bytes.per.second", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Bytes per second copied to the object store.",
	},
	{
		Name: "remote.log.manager.copy.quota.window.num", Type: meta.IntType, HasDefault: true, Default: "11", Valid: meta.AtLeast(1),
		Doc: "Samples kept for the copy quota.",
	},
	{
		Name: "remote.log.manager.copy.quota.window.size.seconds", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1),
		Doc: "Seconds of one sample of the copy quota.",
	},
	{
		Name: "remote.log.manager.fetch.max.bytes.per.second", Type: meta.LongType, HasDefault: true, Default: "9223372036854775807", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Bytes per second read from the object store.",
	},
	{
		Name: "remote.log.manager.fetch.quota.window.num", Type: meta.IntType, HasDefault: true, Default: "11", Valid: meta.AtLeast(1),
		Doc: "Samples kept for the fetch quota.",
	},
	{
		Name: "remote.log.manager.fetch.quota.window.size.seconds", Type: meta.IntType, HasDefault: true, Default: "1", Valid: meta.AtLeast(1),
		Doc: "Seconds of one sample of the fetch quota.",
	},
	{
		Name: "remote.fetch.max.wait.ms", Type: meta.IntType, HasDefault: true, Default: "500", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Milliseconds that a fetch waits for remote data.",
	},
	{
		Name: "remote.list.offsets.request.timeout.ms", Type: meta.LongType, HasDefault: true, Default: "30000", Valid: meta.AtLeast(1), Dynamic: meta.ClusterWide,
		Doc: "Milliseconds that a look-up of a remote offset may take.",
	},
}))

func inBroker(keys []meta.ConfigKey) []meta.ConfigKey {
	for i := range keys {
		keys[i].Broker = true
	}
	return keys
}

func withoutEffect(keys []meta.ConfigKey) []meta.ConfigKey {
	for i := range keys {
		keys[i].NoEffect = true
	}
	return keys
}
