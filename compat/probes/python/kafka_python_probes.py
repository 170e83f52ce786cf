"""What an application does with kafka-python, beside what that client's own tests do."""
import threading
import time

import probe
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec
from kafka.errors import (
    GroupIdNotFoundError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    NoError,
    NoOffsetForPartitionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata


def admin(broker):
    return KafkaAdminClient(bootstrap_servers=broker)


def new_topic(broker, partitions=1, **configs):
    topic = probe.name("topic")
    with admin(broker) as client:
        spec = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        client.create_topics({topic: spec}, wait_for_metadata=True)
    return topic


def producer(broker, **config):
    return KafkaProducer(bootstrap_servers=broker, **config)


def consumer(broker, *topics, **config):
    config = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, "heartbeat_interval_ms": 100} | config
    return KafkaConsumer(*topics, bootstrap_servers=broker, **config)


def produce(broker, topic, values, partition=0, **config):
    """Writes the values and returns the offsets that the broker gave them."""
    with producer(broker, **config) as p:
        sent = [p.send(topic, value, partition=partition) for value in values]
        return [future.get(timeout=20).offset for future in sent]


def read(c, count):
    """The next count records of a consumer."""
    records = []
    deadline = time.monotonic() + probe.PATIENCE
    while len(records) < count and time.monotonic() < deadline:
        for batch in c.poll(timeout_ms=500).values():
            records += batch
    probe.equal(len(records), count, "number of records")
    return records


def read_partition(broker, topic, count, partition=0, **config):
    """The first count records of a partition, and a check that there is not one more."""
    with consumer(broker, **config) as c:
        tp = TopicPartition(topic, partition)
        c.assign([tp])
        records = read(c, count) if count else []
        probe.equal(c.position(tp), c.end_offsets([tp])[tp], "position at the end")
        return records


def numbered(count, size=10):
    return [f"{i:0{size}d}".encode() for i in range(count)]


# --- administration

def test_topic_create_describe_delete(broker):
    topic = new_topic(broker, 3)
    with admin(broker) as client:
        assert topic in client.list_topics()
        (described,) = client.describe_topics([topic])
        probe.equal(sorted(p["partition_index"] for p in described["partitions"]), [0, 1, 2])
        assert all(p["leader_id"] >= 0 and p["isr_nodes"] == p["replica_nodes"] for p in described["partitions"])
        client.delete_topics([topic])
        probe.await_until(lambda: topic not in client.list_topics(), "the end of the topic")
        with probe.raises(UnknownTopicOrPartitionError):
            client.delete_topics([topic])


def test_topic_create_refused(broker):
    topic = new_topic(broker)
    with admin(broker) as client:
        for name, spec, error in (
            (topic, {}, TopicAlreadyExistsError),
            (probe.name("topic"), {"num_partitions": 0, "replication_factor": 1}, InvalidPartitionsError),
            (probe.name("topic"), {"num_partitions": 1, "replication_factor": 9}, InvalidReplicationFactorError),
            ("not/a/name", {"num_partitions": 1, "replication_factor": 1}, InvalidTopicError),
            (probe.name("topic"), {"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
            (probe.name("topic"), {"configs": {"no.such.config": "1"}}, InvalidConfigurationError),
        ):
            with probe.raises(error):
                client.create_topics({name: spec})
            assert name == topic or name not in client.list_topics()


def test_topic_create_validate_only(broker):
    name = probe.name("topic")
    with admin(broker) as client:
        client.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, validate_only=True)
        assert name not in client.list_topics()


def test_partitions_grow(broker):
    topic = new_topic(broker, 2)
    with admin(broker) as client:
        client.create_partitions({topic: 5})
        probe.await_until(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 5, "5 partitions")
        for count in (5, 3, 0):
            with probe.raises(InvalidPartitionsError):
                client.create_partitions({topic: count})
        with probe.raises(UnknownTopicOrPartitionError):
            client.create_partitions({probe.name("missing"): 3})
    probe.equal(produce(broker, topic, [b"last"], partition=4), [0])


def test_configs_of_topic(broker):
    topic = new_topic(broker, **{"retention.ms": "3600000", "cleanup.policy": "compact"})

    def values(client):
        configs = client.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
        return {name: config["value"] for name, config in configs.items()}

    with admin(broker) as client:
        probe.equal(values(client), {"retention.ms": "3600000", "cleanup.policy": "compact"})
        client.alter_configs([ConfigResource("topic", topic, {"max.message.bytes": "65536", "cleanup.policy": ("APPEND", "delete")})])
        probe.equal(values(client), {"retention.ms": "3600000", "cleanup.policy": "compact,delete", "max.message.bytes": "65536"})
        client.reset_configs([ConfigResource("topic", topic, ["retention.ms"])])
        probe.equal(values(client), {"cleanup.policy": "compact,delete", "max.message.bytes": "65536"})
        answer = client.alter_configs([ConfigResource("topic", topic, {"max.message.bytes": "-7"})])
        assert "Invalid" in str(answer["topic"][topic]), answer
        probe.equal(values(client), {"cleanup.policy": "compact,delete", "max.message.bytes": "65536"})


def test_configs_replaced_whole(broker):
    topic = new_topic(broker, **{"retention.ms": "3600000"})
    with admin(broker) as client:
        client.alter_configs([ConfigResource("topic", topic, {"segment.bytes": "2097152"})], incremental=False)
        configs = client.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
        probe.equal({n: c["value"] for n, c in configs.items()}, {"retention.ms": "3600000", "segment.bytes": "2097152"})


def test_cluster_described(broker):
    with admin(broker) as client:
        cluster = client.describe_cluster()
        (node,) = cluster["brokers"]
        probe.equal(f"{node['host']}:{node['port']}", broker)
        probe.equal(cluster["controller_id"], node["broker_id"])
        assert cluster["cluster_id"], cluster


def test_records_deleted(broker):
    topic = new_topic(broker)
    produce(broker, topic, numbered(20))
    tp = TopicPartition(topic, 0)
    with admin(broker) as client:
        probe.equal(client.delete_records({tp: 7})[tp]["low_watermark"], 7)
        with consumer(broker) as c:
            probe.equal(c.beginning_offsets([tp]), {tp: 7})
        probe.equal([r.value for r in read_partition(broker, topic, 13)], numbered(20)[7:])
        probe.equal(client.delete_records({tp: -1})[tp]["low_watermark"], 20)
    probe.equal(read_partition(broker, topic, 0), [])


def test_offsets_listed(broker):
    topic, tp = new_topic(broker), None
    tp = TopicPartition(topic, 0)
    with producer(broker) as p:
        for second in (10, 30, 20):  # not in order
            p.send(topic, b"v", partition=0, timestamp_ms=1_700_000_000_000 + second * 1000).get(timeout=20)
    with admin(broker) as client:
        listed = lambda spec: client.list_partition_offsets({tp: spec})[tp]
        probe.equal(listed(OffsetSpec.EARLIEST).offset, 0)
        probe.equal(listed(OffsetSpec.LATEST).offset, 3)
        probe.equal(listed(OffsetSpec.MAX_TIMESTAMP)[:2], (1, 1_700_000_030_000))
        probe.equal(listed(1_700_000_015_000)[:2], (1, 1_700_000_030_000))
        probe.equal(listed(1_700_000_099_000).offset, -1)


# --- producing

def roundtrip(broker, **config):
    """Writes records in batches and reads each back as it was."""
    topic = new_topic(broker)
    values = [f"{i:04d}".encode() + b" the same again" * (i % 50) for i in range(500)]
    probe.equal(produce(broker, topic, values, linger_ms=20, **config), list(range(500)))
    records = read_partition(broker, topic, 500)
    probe.equal([r.value for r in records], values)
    probe.equal([r.offset for r in records], list(range(500)))


def test_produce_uncompressed(broker):
    roundtrip(broker)


def test_produce_gzip(broker):
    roundtrip(broker, compression_type="gzip")


def test_produce_snappy(broker):
    roundtrip(broker, compression_type="snappy")


def test_produce_lz4(broker):
    roundtrip(broker, compression_type="lz4")


def test_produce_zstd(broker):
    roundtrip(broker, compression_type="zstd")


def test_produce_without_idempotence(broker):
    roundtrip(broker, enable_idempotence=False)


def test_produce_acks_leader(broker):
    roundtrip(broker, acks=1, enable_idempotence=False)


def test_produce_acks_none(broker):
    topic = new_topic(broker)
    with producer(broker, acks=0, enable_idempotence=False) as p:
        for value in numbered(100):
            p.send(topic, value, partition=0)
        p.flush()
    probe.equal([r.value for r in read_partition(broker, topic, 100)], numbered(100))


def test_compression_of_topic(broker):
    topic = new_topic(broker, **{"compression.type": "zstd"})
    produce(broker, topic, numbered(50), compression_type="gzip", linger_ms=20)
    probe.equal([r.value for r in read_partition(broker, topic, 50)], numbered(50))


def test_record_parts(broker):
    topic = new_topic(broker)
    sent = [
        (b"key", b"value", [("h", b"1"), ("h", b"2"), ("empty", b"")], 1_600_000_000_123),
        (None, b"no key", [], 1_600_000_000_124),
        (b"no value", None, [("ü", bytes(range(256)))], 1_600_000_000_125),
        (b"", b"", [], 1_600_000_000_126),
    ]
    with producer(broker) as p:
        for key, value, headers, when in sent:
            p.send(topic, value, key, headers, partition=0, timestamp_ms=when).get(timeout=20)
    records = read_partition(broker, topic, 4)
    probe.equal([(r.key, r.value, list(r.headers), r.timestamp) for r in records], sent)
    probe.equal({r.timestamp_type for r in records}, {0})


def test_log_append_time(broker):
    topic = new_topic(broker, **{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    with producer(broker) as p:
        written = p.send(topic, b"v", partition=0, timestamp_ms=1).get(timeout=20)
    after = int(time.time() * 1000)
    (record,) = read_partition(broker, topic, 1)
    assert before <= record.timestamp <= after, record
    probe.equal((record.timestamp_type, written.timestamp), (1, record.timestamp))


def test_keys_choose_partitions(broker):
    topic = new_topic(broker, 4)
    with producer(broker) as p:
        for i in range(100):
            key = f"key-{i}".encode()
            probe.equal(p.send(topic, b"v", key).get(timeout=20).partition, probe.murmur2_partition(key, 4))


def test_message_at_limit(broker):
    topic = new_topic(broker, **{"max.message.bytes": "100000"})
    fits = b"x" * (100000 - probe.SINGLE_RECORD_OVERHEAD)
    probe.equal(produce(broker, topic, [fits]), [0])
    with probe.raises(MessageSizeTooLargeError):
        produce(broker, topic, [fits + b"x"])
    probe.equal([r.value for r in read_partition(broker, topic, 1)], [fits])


def test_message_of_default_limit(broker):
    topic = new_topic(broker)
    big = bytes(range(256)) * 4090
    probe.equal(produce(broker, topic, [big], max_request_size=2_000_000), [0])
    with probe.raises(MessageSizeTooLargeError):
        produce(broker, topic, [big + b"x" * 8192], max_request_size=2_000_000)
    probe.equal([r.value for r in read_partition(broker, topic, 1)], [big])


def test_order_with_many_in_flight(broker):
    topic = new_topic(broker)
    values = numbered(3000)
    probe.equal(produce(broker, topic, values, batch_size=200), list(range(3000)))
    probe.equal([r.value for r in read_partition(broker, topic, 3000)], values)


def test_missing_topic_created(broker):
    topic = probe.name("topic")
    with producer(broker) as p:
        probe.equal(p.send(topic, b"first").get(timeout=20).offset, 0)
    with admin(broker) as client:
        assert topic in client.list_topics()


def test_producer_reconnects(broker):
    topic = new_topic(broker)
    with producer(broker) as p:
        for i, value in enumerate(numbered(30)):
            if i % 10 == 5:
                assert probe.cut_connections(broker) > 0
            probe.equal(p.send(topic, value, partition=0).get(timeout=20).offset, i)
    probe.equal([r.value for r in read_partition(broker, topic, 30)], numbered(30))


# --- consuming

def test_seek(broker):
    topic = new_topic(broker)
    produce(broker, topic, numbered(100))
    tp = TopicPartition(topic, 0)
    with consumer(broker, max_poll_records=10) as c:
        c.assign([tp])
        c.seek(tp, 42)
        probe.equal(read(c, 10)[0].value, numbered(43)[42])
        probe.equal(c.position(tp), 52)
        c.seek_to_beginning(tp)
        probe.equal((c.position(tp), read(c, 10)[0].offset), (0, 0))
        c.seek_to_end(tp)
        probe.equal(c.position(tp), 100)
        probe.equal((c.beginning_offsets([tp]), c.end_offsets([tp])), ({tp: 0}, {tp: 100}))
        produce(broker, topic, [b"one more"])
        probe.equal([(r.offset, r.value) for r in read(c, 1)], [(100, b"one more")])


def test_offsets_for_times(broker):
    topic = new_topic(broker, 2)
    with producer(broker) as p:
        for i in range(50):
            p.send(topic, b"v", partition=0, timestamp_ms=1_600_000_000_000 + i * 1000).get(timeout=20)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer(broker) as c:
        found = c.offsets_for_times({p0: 1_600_000_030_001, p1: 0})
        probe.equal((found[p0].offset, found[p0].timestamp), (31, 1_600_000_031_000))
        probe.equal(found[p1], None)
        probe.equal(c.offsets_for_times({p0: 1_700_000_000_000}), {p0: None})


def test_out_of_range_resets(broker):
    topic = new_topic(broker)
    produce(broker, topic, numbered(5))
    tp = TopicPartition(topic, 0)
    for policy, want in (("earliest", 0), ("latest", 5)):
        with consumer(broker, auto_offset_reset=policy) as c:
            c.assign([tp])
            c.seek(tp, 99)
            probe.await_until(lambda: c.poll(timeout_ms=200) or c.position(tp) == want, f"a reset to {want}")
            if policy == "latest":
                produce(broker, topic, [b"new"])
                probe.equal([r.offset for r in read(c, 1)], [5])


def test_pause_resume(broker):
    topic = new_topic(broker, 2)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer(broker) as c:
        c.assign([p0, p1])
        c.pause(p0)
        produce(broker, topic, numbered(5), 0)
        produce(broker, topic, numbered(5), 1)
        probe.equal({r.partition for r in read(c, 5)}, {1})
        probe.equal(c.poll(timeout_ms=400), {})
        c.resume(p0)
        probe.equal([(r.partition, r.value) for r in read(c, 5)], [(0, v) for v in numbered(5)])


def test_small_fetches(broker):
    topic = new_topic(broker)
    values = [bytes([65 + i]) * 50_000 for i in range(10)]
    produce(broker, topic, values)
    with consumer(broker, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) as c:
        c.assign([TopicPartition(topic, 0)])
        probe.equal([r.value for r in read(c, 10)], values)


def test_waiting_fetch_sees_new_record(broker):
    topic = new_topic(broker)
    with consumer(broker, fetch_max_wait_ms=20_000) as c:
        c.assign([TopicPartition(topic, 0)])
        c.poll(timeout_ms=500)
        started = time.monotonic()
        produce(broker, topic, [b"now"])
        probe.equal(read(c, 1)[0].value, b"now")
        assert time.monotonic() - started < 10, "the fetch waited for fetch_max_wait_ms"


def test_consumer_reconnects(broker):
    topic = new_topic(broker)
    with consumer(broker, topic, group_id=probe.name("group")) as c:
        for i in range(3):
            produce(broker, topic, [f"round {i}".encode()])
            probe.equal([r.value for r in read(c, 1)], [f"round {i}".encode()])
            c.commit()
            assert probe.cut_connections(broker) > 0


def test_topics_of_consumer(broker):
    topic = new_topic(broker, 3)
    with consumer(broker) as c:
        assert topic in c.topics()
        probe.equal(c.partitions_for_topic(topic), {0, 1, 2})


# --- groups

class Member:
    """A member of a group that polls in a thread of its own and keeps what it read.

    A poll has to be longer than a rebalance takes: kafka-python 3.0.12 loses an assignment that arrives between two polls.
    """

    def __init__(self, broker, group, *topics, **config):
        self.consumer = None
        self.records, self.assigned, self.error = [], set(), None
        self._stop = threading.Event()

        def body():
            try:
                with consumer(broker, *topics, group_id=group, auto_commit_interval_ms=200, **config) as c:
                    self.consumer = c
                    while not self._stop.is_set():
                        for batch in c.poll(timeout_ms=1000).values():
                            self.records += batch
                        self.assigned = {tp.partition for tp in c.assignment()}
            except Exception as e:
                self.error = e

        self._thread = threading.Thread(target=body, daemon=True)
        self._thread.start()

    def leave(self):
        self._stop.set()
        self._thread.join(probe.PATIENCE)
        probe.equal(self.error, None, "error of a member")


def share(members, partitions):
    """Waits until the members have the partitions between them, none of them idle."""
    def settled():
        held = [p for m in members for p in m.assigned]
        return sorted(held) == list(range(partitions)) and all(m.assigned for m in members)
    probe.await_until(settled, f"{len(members)} members sharing {partitions} partitions")


def test_group_resumes_after_commit(broker):
    topic, group = new_topic(broker), probe.name("group")
    produce(broker, topic, numbered(10))
    tp = TopicPartition(topic, 0)
    for first, count in ((0, 4), (4, 6)):
        with consumer(broker, topic, group_id=group, enable_auto_commit=False, max_poll_records=count) as c:
            records = read(c, count)
            probe.equal([r.offset for r in records], list(range(first, first + count)))
            c.commit({tp: OffsetAndMetadata(first + count, f"after {count}", -1)})
            probe.equal(c.committed(tp, metadata=True)[:2], (first + count, f"after {count}"))
    with consumer(broker, topic, group_id=group) as c:
        probe.equal(c.poll(timeout_ms=1000), {})
        probe.equal(c.position(tp), 10)


def test_group_commits_async(broker):
    topic, group = new_topic(broker), probe.name("group")
    produce(broker, topic, numbered(10))
    answers = []
    with consumer(broker, topic, group_id=group, enable_auto_commit=False) as c:
        read(c, 10)
        c.commit_async(callback=lambda offsets, answer: answers.append(answer))
        probe.await_until(lambda: c.poll(timeout_ms=50) or answers, "the callback of commit_async")
        assert not isinstance(answers[0], Exception), answers
        probe.equal(c.committed(TopicPartition(topic, 0)), 10)


def test_group_commits_by_itself(broker):
    topic, group = new_topic(broker), probe.name("group")
    produce(broker, topic, numbered(10))
    with consumer(broker, topic, group_id=group) as c:
        read(c, 10)
    with consumer(broker, group_id=group) as c:
        probe.equal(c.committed(TopicPartition(topic, 0)), 10)


def test_group_without_offset(broker):
    topic = new_topic(broker)
    produce(broker, topic, numbered(3))
    with consumer(broker, topic, group_id=probe.name("group"), auto_offset_reset="latest") as c:
        probe.await_until(lambda: c.poll(timeout_ms=1000) == {} and c.assignment(), "an assignment")
        probe.equal(c.position(TopicPartition(topic, 0)), 3)
        probe.equal(c.committed(TopicPartition(topic, 0)), None)
    with consumer(broker, topic, group_id=probe.name("group"), auto_offset_reset="none") as c:
        with probe.raises(NoOffsetForPartitionError):
            while True:
                probe.equal(c.poll(timeout_ms=200), {})


def test_group_rebalances(broker):
    topic, group = new_topic(broker, 6), probe.name("group")
    members = [Member(broker, group, topic)]
    share(members, 6)
    members.append(Member(broker, group, topic))
    share(members, 6)
    members.append(Member(broker, group, topic))
    share(members, 6)
    probe.equal(sorted(len(m.assigned) for m in members), [2, 2, 2])
    with producer(broker) as p:
        for i in range(60):
            p.send(topic, b"%d" % i, partition=i % 6)
        p.flush()
    probe.await_until(lambda: sum(len(m.records) for m in members) >= 60, "60 records")
    probe.equal(sorted(int(r.value) for m in members for r in m.records), list(range(60)))
    members.pop(0).leave()
    share(members, 6)
    members.pop(0).leave()
    share(members, 6)
    members.pop(0).leave()
    with admin(broker) as client:
        committed = client.list_group_offsets(group)[group]
        probe.equal({tp.partition: o.offset for tp, o in committed.items()}, {p: 10 for p in range(6)})


def test_group_listener(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    calls = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            calls.append(("revoked", sorted(tp.partition for tp in revoked)))

        def on_partitions_assigned(self, assigned):
            calls.append(("assigned", sorted(tp.partition for tp in assigned)))

    with consumer(broker, group_id=group) as c:
        c.subscribe([topic], listener=Listener())
        probe.await_until(lambda: c.poll(timeout_ms=1000) or ("assigned", [0, 1]) in calls, "both partitions")
        other = Member(broker, group, topic)
        probe.await_until(lambda: c.poll(timeout_ms=1000) or len(c.assignment()) == 1, "one partition")
        assert ("revoked", [0, 1]) in calls, calls
        other.leave()


def test_group_static_member(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    stays = Member(broker, group, topic, group_instance_id="stays")
    goes = Member(broker, group, topic, group_instance_id="goes")
    share([stays, goes], 2)
    held, generation = goes.assigned, stays.consumer.group_metadata().generation_id
    goes.leave()  # a static member says no goodbye
    back = Member(broker, group, topic, group_instance_id="goes")
    probe.await_until(lambda: back.assigned == held, "the same partitions as before")
    probe.equal(stays.consumer.group_metadata().generation_id, generation, "generation")
    back.leave()
    stays.leave()


def test_group_member_too_slow(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    with consumer(broker, topic, group_id=group, max_poll_interval_ms=1500, session_timeout_ms=6000) as slow:
        probe.await_until(lambda: slow.poll(timeout_ms=1000) == {} and len(slow.assignment()) == 2, "both partitions")
        other = Member(broker, group, topic)
        share([other], 2)  # slow does not poll, so its share is taken away
        probe.await_until(lambda: slow.poll(timeout_ms=1000) == {} and len(slow.assignment()) == 1, "a place in the group again")
        probe.await_until(lambda: slow.poll(timeout_ms=1000) == {} and len(other.assigned) == 1, "the other member to give a partition back")
        other.leave()


def test_group_pattern(broker):
    prefix = probe.name("pattern")
    with admin(broker) as client:
        new = lambda name: client.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
        new(f"{prefix}-a")
        new(f"other-{prefix}")
        produce(broker, f"{prefix}-a", [b"a"])
        with consumer(broker, group_id=probe.name("group"), metadata_max_age_ms=500) as c:
            c.subscribe(pattern=f"^{prefix}-.*")
            probe.equal([r.value for r in read(c, 1)], [b"a"])
            new(f"{prefix}-b")
            produce(broker, f"{prefix}-b", [b"b"])
            probe.equal([r.value for r in read(c, 1)], [b"b"])
            probe.equal(c.subscription(), {f"{prefix}-a", f"{prefix}-b"})


def test_groups_listed_described_deleted(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    member = Member(broker, group, topic, client_id="the-client")
    share([member], 2)
    with admin(broker) as client:
        (listed,) = [g for g in client.list_groups() if g["group_id"] == group]
        probe.equal((listed["protocol_type"], listed["group_state"]), ("consumer", "Stable"))
        probe.equal([g for g in client.list_groups(states_filter=["Empty"]) if g["group_id"] == group], [])
        described = client.describe_groups([group])[group]
        (one,) = described["members"]
        probe.equal((described["group_state"], described["protocol_data"], one["client_id"]), ("Stable", "range", "the-client"))
        probe.equal(client.delete_groups([group]), {group: "NonEmptyGroupError"})
        member.leave()
        probe.equal(client.describe_groups([group])[group]["group_state"], "Empty")
        probe.equal(client.delete_groups([group]), {group: "OK"})
        probe.equal([g for g in client.list_groups() if g["group_id"] == group], [])
        probe.equal(client.delete_groups([group]), {group: "GroupIdNotFoundError"})


def test_group_offsets_managed(broker):
    topic, group = new_topic(broker, 2), probe.name("group")
    produce(broker, topic, numbered(10), 0)
    produce(broker, topic, numbered(10), 1)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with admin(broker) as client:
        committed = lambda: {tp.partition: o.offset for tp, o in client.list_group_offsets(group)[group].items()}
        wanted = {p0: OffsetAndMetadata(3, "", -1), p1: OffsetAndMetadata(8, "by hand", -1)}
        probe.equal(client.alter_group_offsets(group, wanted), {p0: NoError, p1: NoError})
        probe.equal(committed(), {0: 3, 1: 8})
        with consumer(broker, topic, group_id=group, enable_auto_commit=False) as c:
            probe.equal(sorted((r.partition, r.offset) for r in read(c, 9)), [(0, i) for i in range(3, 10)] + [(1, 8), (1, 9)])
        client.reset_group_offsets(group, {p0: OffsetSpec.EARLIEST, p1: OffsetSpec.LATEST})
        probe.equal(committed(), {0: 0, 1: 10})
        probe.equal(client.delete_group_offsets(group, [p1]), {p1: NoError})
        probe.equal(committed(), {0: 0})
        with probe.raises(GroupIdNotFoundError):
            client.delete_group_offsets(probe.name("group"), [p0])
        member = Member(broker, group, topic)
        share([member], 2)
        assert client.alter_group_offsets(group, {p0: OffsetAndMetadata(1, "", -1)})[p0] is not NoError
        assert client.delete_group_offsets(group, [p0])[p0] is not NoError
        member.leave()


if __name__ == "__main__":
    probe.main()
