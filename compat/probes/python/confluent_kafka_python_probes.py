"""What an application does with Confluent's Python client, above all the administration that librdkafka has.

librdkafka has tests of its own, which are another suite. Its wheel brings a newer librdkafka than npm's source.
"""
import contextlib
import functools
import time

import probe
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)


@functools.cache
def admin(broker):
    """The one client for administration: a client that is let go takes its unanswered calls along."""
    return AdminClient({"bootstrap.servers": broker})


def one(futures):
    """The result of the only future of an answer by name."""
    (future,) = futures.values()
    return future.result(timeout=probe.PATIENCE)


def refused(code, futures):
    """Checks that the only future of an answer fails with this code of Kafka's."""
    with probe.raises(KafkaException) as failure:
        one(futures)
    probe.equal(failure.error.args[0].code(), code)


def new_topic(broker, partitions=1, **configs):
    topic = probe.name("topic")
    one(admin(broker).create_topics([NewTopic(topic, partitions, 1, config=configs)]))
    return topic


def produce(broker, topic, values, partition=0, **config):
    """Writes the values and returns the offsets that the broker gave them; raises the first error of a delivery."""
    delivered = []

    def report(error, message):
        delivered.append(error or message.offset())

    p = Producer({"bootstrap.servers": broker, "linger.ms": 5} | {k.replace("_", "."): v for k, v in config.items()})
    for value in values:
        p.produce(topic, value, partition=partition, on_delivery=report)
        p.poll(0)
    probe.equal(p.flush(probe.PATIENCE), 0, "undelivered")
    for result in delivered:
        if isinstance(result, KafkaError):
            raise KafkaException(result)
    return delivered


@contextlib.contextmanager
def consumer(broker, group=None, **config):
    defaults = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    c = Consumer({"bootstrap.servers": broker, "group.id": group or probe.name("group")} | defaults
                 | {k.replace("_", "."): v for k, v in config.items()})
    try:
        yield c
    finally:
        c.close()


def read(c, count):
    """The next count records of a consumer."""
    records = []
    deadline = time.monotonic() + probe.PATIENCE
    while len(records) < count and time.monotonic() < deadline:
        for message in c.consume(count - len(records), timeout=0.5):
            if message.error():
                raise KafkaException(message.error())
            records.append(message)
    probe.equal(len(records), count, "number of records")
    return records


def read_partition(broker, topic, count, **config):
    with consumer(broker, **config) as c:
        c.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        records = read(c, count)
        probe.equal(c.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1], records[-1].offset() + 1)
        return records


def numbered(count, size=10):
    return [f"{i:0{size}d}".encode() for i in range(count)]


# --- administration

def test_topic_create_describe_delete(broker):
    topic = new_topic(broker, 3)
    client = admin(broker)
    described = one(client.describe_topics(TopicCollection([topic])))
    probe.equal([(p.id, [n.id for n in p.isr] == [p.leader.id]) for p in described.partitions], [(0, True), (1, True), (2, True)])
    one(client.delete_topics([topic]))
    probe.await_until(lambda: topic not in client.list_topics().topics, "the end of the topic")
    refused(KafkaError.UNKNOWN_TOPIC_OR_PART, client.delete_topics([topic]))


def test_topic_create_refused(broker):
    topic = new_topic(broker)
    client = admin(broker)
    for new, code in (
        (NewTopic(topic, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic(probe.name("topic"), 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("not/a/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic(probe.name("topic"), 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ):
        refused(code, client.create_topics([new]))
    name = probe.name("topic")
    one(client.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in client.list_topics().topics


def test_partitions_grow(broker):
    topic = new_topic(broker, 2)
    client = admin(broker)
    one(client.create_partitions([NewPartitions(topic, 5)]))
    probe.await_until(lambda: len(client.list_topics(topic).topics[topic].partitions) == 5, "5 partitions")
    refused(KafkaError.INVALID_PARTITIONS, client.create_partitions([NewPartitions(topic, 3)]))


def test_configs_of_topic(broker):
    topic = new_topic(broker, **{"retention.ms": "3600000"})
    client = admin(broker)

    def value(name):
        return one(client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[name].value

    def alter(name, operation, value):
        entry = ConfigEntry(name, value, incremental_operation=operation)
        return client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])

    one(alter("max.message.bytes", AlterConfigOpType.SET, "65536"))
    one(alter("cleanup.policy", AlterConfigOpType.APPEND, "compact"))
    one(alter("retention.ms", AlterConfigOpType.DELETE, None))
    probe.equal([value(n) for n in ("max.message.bytes", "cleanup.policy", "retention.ms")], ["65536", "delete,compact", "604800000"])
    refused(KafkaError.INVALID_CONFIG, alter("max.message.bytes", AlterConfigOpType.SET, "-7"))
    refused(KafkaError.INVALID_CONFIG, alter("no.such.config", AlterConfigOpType.SET, "1"))


def test_cluster_described(broker):
    described = admin(broker).describe_cluster().result(timeout=probe.PATIENCE)
    (node,) = described.nodes
    probe.equal((f"{node.host}:{node.port}", described.controller.id), (broker, node.id))
    assert described.cluster_id


def test_records_deleted(broker):
    topic = new_topic(broker)
    produce(broker, topic, numbered(20))
    deleted = one(admin(broker).delete_records([TopicPartition(topic, 0, 7)]))
    probe.equal(deleted.low_watermark, 7)
    probe.equal([r.value() for r in read_partition(broker, topic, 13)], numbered(20)[7:])


def test_offsets_listed(broker):
    topic = new_topic(broker)
    p = Producer({"bootstrap.servers": broker})
    for second in (10, 30, 20):
        p.produce(topic, b"v", timestamp=1_700_000_000_000 + second * 1000)
        p.flush()
    client = admin(broker)
    listed = lambda spec: one(client.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=IsolationLevel.READ_COMMITTED))
    probe.equal(listed(OffsetSpec.earliest()).offset, 0)
    probe.equal(listed(OffsetSpec.latest()).offset, 3)
    probe.equal((listed(OffsetSpec.max_timestamp()).offset, listed(OffsetSpec.max_timestamp()).timestamp), (1, 1_700_000_030_000))
    probe.equal(listed(OffsetSpec.for_timestamp(1_700_000_015_000)).offset, 1)


def test_leader_election_not_needed(broker):
    topic = new_topic(broker)
    elected = admin(broker).elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(timeout=probe.PATIENCE)
    (error,) = elected.values()
    probe.equal(error.code(), KafkaError.ELECTION_NOT_NEEDED)


# --- producing

def roundtrip(broker, **config):
    topic = new_topic(broker)
    values = [f"{i:04d}".encode() + b" the same again" * (i % 50) for i in range(500)]
    probe.equal(produce(broker, topic, values, **config), list(range(500)))
    records = read_partition(broker, topic, 500)
    probe.equal([r.value() for r in records], values)
    probe.equal([r.offset() for r in records], list(range(500)))


def test_produce_gzip(broker):
    roundtrip(broker, compression_type="gzip")


def test_produce_snappy(broker):
    roundtrip(broker, compression_type="snappy")


def test_produce_lz4(broker):
    roundtrip(broker, compression_type="lz4")


def test_produce_zstd(broker):
    roundtrip(broker, compression_type="zstd")


def test_produce_idempotent(broker):
    roundtrip(broker, enable_idempotence=True, batch_num_messages=10)


def test_record_parts(broker):
    topic = new_topic(broker)
    sent = [
        (b"key", b"value", [("h", b"1"), ("h", b"2"), ("empty", b""), ("none", None)], 1_600_000_000_123),
        (None, b"no key", None, 1_600_000_000_124),
        (b"no value", None, [("b", bytes(range(256)))], 1_600_000_000_125),
        (b"", b"", None, 1_600_000_000_126),
    ]
    p = Producer({"bootstrap.servers": broker, "linger.ms": 20})
    for key, value, headers, when in sent:
        p.produce(topic, value, key, headers=headers, timestamp=when)
    p.flush()
    probe.equal([(r.key(), r.value(), r.headers(), r.timestamp()[1]) for r in read_partition(broker, topic, 4)], sent)


def test_message_at_limit(broker):
    topic = new_topic(broker, **{"max.message.bytes": "100000"})
    fits = b"x" * (100000 - probe.SINGLE_RECORD_OVERHEAD)
    probe.equal(produce(broker, topic, [fits]), [0])
    with probe.raises(KafkaException) as failure:
        produce(broker, topic, [fits + b"x"])
    probe.equal(failure.error.args[0].code(), KafkaError.MSG_SIZE_TOO_LARGE)
    probe.equal([r.value() for r in read_partition(broker, topic, 1)], [fits])


def test_producer_reconnects(broker):
    topic = new_topic(broker)
    offsets = []
    p = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.ms": 10})
    for i, value in enumerate(numbered(30)):
        if i % 10 == 5:
            assert probe.cut_connections(broker) > 0
        p.produce(topic, value, partition=0, on_delivery=lambda error, message: offsets.append(error or message.offset()))
        probe.equal(p.flush(probe.PATIENCE), 0, "undelivered")
    probe.equal(offsets, list(range(30)))
    probe.equal([r.value() for r in read_partition(broker, topic, 30)], numbered(30))


# --- consuming and groups

def test_offsets_for_times(broker):
    topic = new_topic(broker)
    p = Producer({"bootstrap.servers": broker})
    for i in range(50):
        p.produce(topic, b"v", timestamp=1_600_000_000_000 + i * 1000)
    p.flush()
    with consumer(broker) as c:
        (found,) = c.offsets_for_times([TopicPartition(topic, 0, 1_600_000_030_001)], timeout=10)
        probe.equal(found.offset, 31)


def test_consumer_reconnects(broker):
    topic = new_topic(broker)
    with consumer(broker, reconnect_backoff_ms=10) as c:
        c.subscribe([topic])
        for i in range(3):
            produce(broker, topic, [f"round {i}".encode()])
            probe.equal([r.value() for r in read(c, 1)], [f"round {i}".encode()])
            c.commit(asynchronous=False)
            assert probe.cut_connections(broker) > 0


def test_group_resumes_after_commit(broker):
    topic, group = new_topic(broker), probe.name("group")
    produce(broker, topic, numbered(10))
    for first, count in ((0, 4), (4, 6)):
        with consumer(broker, group, enable_auto_commit=False) as c:
            c.subscribe([topic])
            probe.equal([r.offset() for r in read(c, count)], list(range(first, first + count)))
            c.commit(offsets=[TopicPartition(topic, 0, first + count, metadata=f"after {count}")], asynchronous=False)
            (committed,) = c.committed([TopicPartition(topic, 0)], timeout=10)
            probe.equal((committed.offset, committed.metadata), (first + count, f"after {count}"))


def test_group_of_two(broker):
    for strategy in ("range", "roundrobin", "cooperative-sticky"):
        topic, group = new_topic(broker, 4), probe.name("group")
        with consumer(broker, group, partition_assignment_strategy=strategy) as a:
            with consumer(broker, group, partition_assignment_strategy=strategy) as b:
                def share(members, each):
                    for c in members:
                        c.poll(0.05)
                    return [len(c.assignment()) for c in members] == each
                a.subscribe([topic])
                probe.await_until(lambda: share([a], [4]), "all partitions")
                b.subscribe([topic])
                probe.await_until(lambda: share([a, b], [2, 2]), f"two partitions each, by {strategy}")
                b.unsubscribe()
                probe.await_until(lambda: share([a, b], [4, 0]), "all partitions again")


def test_groups_listed_described_deleted(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    client = admin(broker)
    with consumer(broker, group, client_id="the-client") as c:
        c.subscribe([topic])
        probe.await_until(lambda: c.poll(0.1) or len(c.assignment()) == 2, "both partitions")
        listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(timeout=probe.PATIENCE)
        assert group in [g.group_id for g in listed.valid], listed.valid
        described = one(client.describe_consumer_groups([group]))
        (member,) = described.members
        probe.equal((described.state, described.partition_assignor, member.client_id), (ConsumerGroupState.STABLE, "range", "the-client"))
        probe.equal(sorted(tp.partition for tp in member.assignment.topic_partitions), [0, 1])
        refused(KafkaError.NON_EMPTY_GROUP, client.delete_consumer_groups([group]))
    one(client.delete_consumer_groups([group]))
    refused(KafkaError.GROUP_ID_NOT_FOUND, client.delete_consumer_groups([group]))


def test_group_offsets_managed(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    produce(broker, topic, numbered(10))
    client = admin(broker)
    one(client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])]))
    listed = one(client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    probe.equal([(tp.partition, tp.offset) for tp in listed.topic_partitions], [(0, 7)])
    with consumer(broker, group) as c:
        c.subscribe([topic])
        probe.equal([r.value() for r in read(c, 3)], numbered(10)[7:])


def test_transaction(broker):
    topic = new_topic(broker)
    p = Producer({"bootstrap.servers": broker, "transactional.id": probe.name("transaction"), "transaction.timeout.ms": 10_000})
    p.init_transactions(5)
    for value, end in ((b"kept", p.commit_transaction), (b"dropped", p.abort_transaction), (b"kept too", p.commit_transaction)):
        p.begin_transaction()
        p.produce(topic, value)
        p.flush()
        end(10)
    probe.equal([r.value() for r in read_partition_of_transactions(broker, topic, 2, "read_committed")], [b"kept", b"kept too"])
    probe.equal([r.value() for r in read_partition_of_transactions(broker, topic, 3, "read_uncommitted")], [b"kept", b"dropped", b"kept too"])


def read_partition_of_transactions(broker, topic, count, isolation):
    with consumer(broker, isolation_level=isolation) as c:
        c.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return read(c, count)


if __name__ == "__main__":
    probe.main()
