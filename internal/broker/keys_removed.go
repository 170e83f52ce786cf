package broker

import "github.com/tidemark-io/tidemark/internal/meta"

// removedKeys are keys that Kafka had before 4.0, so that an old server.properties starts with a warning instead of a
// refusal. They are not described.
var removedKeys = removed(
	"zookeeper.connect", "zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms", "zookeeper.set.acl",
	"zookeeper.max.in.flight.requests", "zookeeper.metadata.migration.enable", "zookeeper.ssl.client.enable",
	"zookeeper.clientCnxnSocket", "zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.password",
	"zookeeper.ssl.keystore.type", "zookeeper.ssl.truststore.location", "zookeeper.ssl.truststore.password",
	"zookeeper.ssl.truststore.type", "zookeeper.ssl.protocol", "zookeeper.ssl.enabled.protocols",
	"zookeeper.ssl.cipher.suites", "zookeeper.ssl.endpoint.identification.algorithm", "zookeeper.ssl.crl.enable",
	"zookeeper.ssl.ocsp.enable",
	"broker.id.generation.enable", "reserved.broker.max.id", "control.plane.listener.name",
	"controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms",
	"leader.imbalance.per.broker.percentage", "log.message.format.version", "log.message.downconversion.enable",
	"log.message.timestamp.difference.max.ms", "offsets.commit.required.acks", "delegation.token.master.key",
	"password.encoder.secret", "password.encoder.old.secret", "password.encoder.keyfactory.algorithm",
	"password.encoder.cipher.algorithm", "password.encoder.key.length", "password.encoder.iterations",
	"quota.producer.default", "quota.consumer.default", "eligible.leader.replicas.enable",
	"group.coordinator.new.enable", "port", "host.name", "advertised.port",
	"advertised.host.name",
)

func removed(names ...string) []meta.ConfigKey {
	keys := make([]meta.ConfigKey, len(names))
	for i, name := range names {
		keys[i] = meta.ConfigKey{
			Name: name, Type: meta.StringType, Broker: true, NoEffect: true, Internal: true,
			Doc: "Removed from Kafka; does nothing.",
		}
	}
	return keys
}
