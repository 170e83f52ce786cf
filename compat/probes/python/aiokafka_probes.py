"""What an application does with aiokafka, whose package has no tests."""
import asyncio
import contextlib
import time

import probe
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, MessageSizeTooLargeError, NoOffsetForPartitionError, TopicAlreadyExistsError
from aiokafka.structs import OffsetAndMetadata

OK, TOPIC_EXISTS, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_REPLICATION, INVALID_CONFIG, UNKNOWN_TOPIC = 0, 36, 17, 37, 38, 40, 3


@contextlib.asynccontextmanager
async def started(client):
    """A client between its start and its stop."""
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def admin(broker):
    return started(AIOKafkaAdminClient(bootstrap_servers=broker))


def producer(broker, **config):
    return started(AIOKafkaProducer(bootstrap_servers=broker, **config))


def consumer(broker, *topics, **config):
    config = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, "heartbeat_interval_ms": 200} | config
    return started(AIOKafkaConsumer(*topics, bootstrap_servers=broker, **config))


async def new_topic(broker, partitions=1, **configs):
    topic = probe.name("topic")
    async with admin(broker) as client:
        answer = await client.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        probe.equal(codes(answer), [OK])
    return topic


def codes(answer):
    """The error codes of an answer about topics."""
    return [entry[1] for entry in (answer.topic_errors if hasattr(answer, "topic_errors") else answer.topic_error_codes)]


async def produce(broker, topic, values, partition=0, **config):
    """Writes the values and returns the offsets that the broker gave them."""
    async with producer(broker, **config) as p:
        sent = [await p.send(topic, value, partition=partition) for value in values]
        return [metadata.offset for metadata in await asyncio.gather(*sent)]


async def read(c, count):
    """The next count records of a consumer."""
    records = []
    async with asyncio.timeout(probe.PATIENCE):
        while len(records) < count:
            for batch in (await c.getmany(timeout_ms=300, max_records=count - len(records))).values():
                records += batch
    return records


async def read_partition(broker, topic, count, partition=0, **config):
    """The first count records of a partition, and a check that there is not one more."""
    tp = TopicPartition(topic, partition)
    async with consumer(broker, **config) as c:
        c.assign([tp])
        records = await read(c, count)
        probe.equal(await c.position(tp), (await c.end_offsets([tp]))[tp], "position at the end")
        return records


async def until(condition, what):
    """Waits until the condition, a function or a coroutine function, returns something true."""
    deadline = time.monotonic() + probe.PATIENCE
    while time.monotonic() < deadline:
        done = condition()
        if done := (await done if asyncio.iscoroutine(done) else done):
            return done
        await asyncio.sleep(0.05)
    raise AssertionError(f"waited {probe.PATIENCE} s in vain for: {what}")


def numbered(count, size=10):
    return [f"{i:0{size}d}".encode() for i in range(count)]


# --- administration

async def test_topic_create_describe_delete(broker):
    topic = await new_topic(broker, 3)
    async with admin(broker) as client:
        assert topic in await client.list_topics()
        (described,) = await client.describe_topics([topic])
        probe.equal(sorted(p["partition"] for p in described["partitions"]), [0, 1, 2])
        assert all(p["leader"] >= 0 and p["isr"] == p["replicas"] for p in described["partitions"]), described
        probe.equal(codes(await client.delete_topics([topic])), [OK])

        async def gone():
            return topic not in await client.list_topics()
        await until(gone, "the end of the topic")
        probe.equal(codes(await client.delete_topics([topic])), [UNKNOWN_TOPIC])


async def test_topic_create_refused(broker):
    topic = await new_topic(broker)
    async with admin(broker) as client:
        for spec, code in (
            (NewTopic(topic, 1, 1), TOPIC_EXISTS),
            (NewTopic(probe.name("topic"), 0, 1), INVALID_PARTITIONS),
            (NewTopic(probe.name("topic"), 1, 9), INVALID_REPLICATION),
            (NewTopic("not/a/name", 1, 1), INVALID_TOPIC),
            (NewTopic(probe.name("topic"), 1, 1, topic_configs={"retention.ms": "soon"}), INVALID_CONFIG),
        ):
            try:
                probe.equal(codes(await client.create_topics([spec])), [code])
            except TopicAlreadyExistsError:
                probe.equal(code, TOPIC_EXISTS)
            assert spec.name == topic or spec.name not in await client.list_topics()


async def test_partitions_grow(broker):
    topic = await new_topic(broker, 2)
    async with admin(broker) as client:
        probe.equal(codes(await client.create_partitions({topic: NewPartitions(5)})), [OK])

        async def grown():
            return len((await client.describe_topics([topic]))[0]["partitions"]) == 5
        await until(grown, "5 partitions")
        with probe.raises(InvalidPartitionsError):
            await client.create_partitions({topic: NewPartitions(3)})
    probe.equal(await produce(broker, topic, [b"last"], partition=4), [0])


async def test_configs_of_topic(broker):
    topic = await new_topic(broker, **{"retention.ms": "3600000"})
    resource = lambda configs=None: ConfigResource(ConfigResourceType.TOPIC, topic, configs)
    async with admin(broker) as client:
        async def value(name):
            (answer,) = await client.describe_configs([resource({name: None})])
            ((_code, _message, _type, _topic, entries),) = answer.resources
            return {entry[0]: entry[1] for entry in entries}[name]
        probe.equal(await value("retention.ms"), "3600000")
        (answer,) = await client.alter_configs([resource({"max.message.bytes": "65536"})])
        probe.equal(answer.resources[0][0], OK)
        probe.equal(await value("max.message.bytes"), "65536")
        probe.equal(await value("retention.ms"), "604800000", "what was not named again")  # AlterConfigs replaces the whole


async def test_records_deleted(broker):
    topic = await new_topic(broker)
    await produce(broker, topic, numbered(20))
    tp = TopicPartition(topic, 0)
    async with admin(broker) as client:
        probe.equal(await client.delete_records({tp: RecordsToDelete(7)}), {tp: 7})
    probe.equal([r.value for r in await read_partition(broker, topic, 13)], numbered(20)[7:])


# --- producing

async def roundtrip(broker, **config):
    """Writes records in batches and reads each back as it was."""
    topic = await new_topic(broker)
    values = [f"{i:04d}".encode() + b" the same again" * (i % 50) for i in range(500)]
    probe.equal(await produce(broker, topic, values, linger_ms=20, **config), list(range(500)))
    records = await read_partition(broker, topic, 500)
    probe.equal([r.value for r in records], values)
    probe.equal([r.offset for r in records], list(range(500)))


async def test_produce_uncompressed(broker):
    await roundtrip(broker)


async def test_produce_gzip(broker):
    await roundtrip(broker, compression_type="gzip")


async def test_produce_snappy(broker):
    await roundtrip(broker, compression_type="snappy")


async def test_produce_lz4(broker):
    await roundtrip(broker, compression_type="lz4")


async def test_produce_zstd(broker):
    await roundtrip(broker, compression_type="zstd")


async def test_produce_idempotent(broker):
    await roundtrip(broker, enable_idempotence=True)


async def test_produce_acks_all(broker):
    await roundtrip(broker, acks="all")


async def test_produce_acks_none(broker):
    topic = await new_topic(broker)
    async with producer(broker, acks=0) as p:
        for value in numbered(100):
            await p.send(topic, value, partition=0)
        await p.flush()
    probe.equal([r.value for r in await read_partition(broker, topic, 100)], numbered(100))


async def test_produce_own_batch(broker):
    topic = await new_topic(broker)
    async with producer(broker) as p:
        batch = p.create_batch()
        for value in numbered(10):
            assert batch.append(key=b"k", value=value, timestamp=1_600_000_000_000) is not None
        batch.close()
        sent = await p.send_batch(batch, topic, partition=0)
        probe.equal((await sent).offset, 0)
    probe.equal([(r.key, r.value, r.timestamp) for r in await read_partition(broker, topic, 10)],
                [(b"k", v, 1_600_000_000_000) for v in numbered(10)])


async def test_record_parts(broker):
    topic = await new_topic(broker)
    sent = [
        (b"key", b"value", [("h", b"1"), ("h", b"2"), ("empty", b"")], 1_600_000_000_123),
        (None, b"no key", [], 1_600_000_000_124),
        (b"no value", None, [("ü", bytes(range(256)))], 1_600_000_000_125),
        (b"", b"", [], 1_600_000_000_126),
    ]
    async with producer(broker) as p:
        for key, value, headers, when in sent:
            await p.send_and_wait(topic, value, key, partition=0, timestamp_ms=when, headers=headers)
    records = await read_partition(broker, topic, 4)
    probe.equal([(r.key, r.value, list(r.headers), r.timestamp) for r in records], sent)


async def test_log_append_time(broker):
    topic = await new_topic(broker, **{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    async with producer(broker) as p:
        written = await p.send_and_wait(topic, b"v", partition=0, timestamp_ms=1)
    after = int(time.time() * 1000)
    (record,) = await read_partition(broker, topic, 1)
    assert before <= record.timestamp <= after, record
    probe.equal((record.timestamp_type, written.timestamp), (1, record.timestamp))


async def test_keys_choose_partitions(broker):
    topic = await new_topic(broker, 4)
    async with producer(broker) as p:
        for i in range(100):
            key = f"key-{i}".encode()
            probe.equal((await p.send_and_wait(topic, b"v", key)).partition, probe.murmur2_partition(key, 4))


async def test_message_at_limit(broker):
    topic = await new_topic(broker, **{"max.message.bytes": "100000"})
    fits = b"x" * (100000 - probe.SINGLE_RECORD_OVERHEAD)
    probe.equal(await produce(broker, topic, [fits]), [0])
    with probe.raises(MessageSizeTooLargeError):
        await produce(broker, topic, [fits + b"x"])
    probe.equal([r.value for r in await read_partition(broker, topic, 1)], [fits])


async def test_order_with_many_in_flight(broker):
    topic = await new_topic(broker)
    values = numbered(3000)
    probe.equal(await produce(broker, topic, values, max_batch_size=300, enable_idempotence=True), list(range(3000)))
    probe.equal([r.value for r in await read_partition(broker, topic, 3000)], values)


async def test_missing_topic_created(broker):
    topic = probe.name("topic")
    async with producer(broker) as p:
        probe.equal((await p.send_and_wait(topic, b"first")).offset, 0)
    async with admin(broker) as client:
        assert topic in await client.list_topics()


async def test_producer_reconnects(broker):
    topic = await new_topic(broker)
    async with producer(broker, enable_idempotence=True) as p:
        for i, value in enumerate(numbered(30)):
            if i % 10 == 5:
                assert probe.cut_connections(broker) > 0
            probe.equal((await p.send_and_wait(topic, value, partition=0)).offset, i)
    probe.equal([r.value for r in await read_partition(broker, topic, 30)], numbered(30))


# --- consuming

async def test_seek(broker):
    topic = await new_topic(broker)
    await produce(broker, topic, numbered(100))
    tp = TopicPartition(topic, 0)
    async with consumer(broker) as c:
        c.assign([tp])
        c.seek(tp, 42)
        probe.equal((await read(c, 10))[0].value, numbered(43)[42])
        probe.equal(await c.position(tp), 52)
        await c.seek_to_beginning(tp)
        probe.equal((await c.position(tp), (await read(c, 10))[0].offset), (0, 0))
        await c.seek_to_end(tp)
        probe.equal(await c.position(tp), 100)
        probe.equal((await c.beginning_offsets([tp]), await c.end_offsets([tp])), ({tp: 0}, {tp: 100}))
        await produce(broker, topic, [b"one more"])
        probe.equal([(r.offset, r.value) for r in await read(c, 1)], [(100, b"one more")])


async def test_offsets_for_times(broker):
    topic = await new_topic(broker, 2)
    async with producer(broker) as p:
        for i in range(50):
            await p.send_and_wait(topic, b"v", partition=0, timestamp_ms=1_600_000_000_000 + i * 1000)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with consumer(broker) as c:
        found = await c.offsets_for_times({p0: 1_600_000_030_001, p1: 0})
        probe.equal((found[p0].offset, found[p0].timestamp, found[p1]), (31, 1_600_000_031_000, None))


async def test_out_of_range_resets(broker):
    topic = await new_topic(broker)
    await produce(broker, topic, numbered(5))
    tp = TopicPartition(topic, 0)
    for policy, want in (("earliest", 0), ("latest", 5)):
        async with consumer(broker, auto_offset_reset=policy) as c:
            c.assign([tp])
            c.seek(tp, 99)
            got = await c.getmany(timeout_ms=2000)
            probe.equal([r.offset for r in got.get(tp, [])], list(range(want, 5)))
            probe.equal(await c.position(tp), 5)


async def test_pause_resume(broker):
    topic = await new_topic(broker, 2)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with consumer(broker) as c:
        c.assign([p0, p1])
        c.pause(p0)
        await produce(broker, topic, numbered(5), 0)
        await produce(broker, topic, numbered(5), 1)
        probe.equal({r.partition for r in await read(c, 5)}, {1})
        probe.equal(await c.getmany(timeout_ms=400), {})
        c.resume(p0)
        probe.equal([(r.partition, r.value) for r in await read(c, 5)], [(0, v) for v in numbered(5)])


async def test_small_fetches(broker):
    topic = await new_topic(broker)
    values = [bytes([65 + i]) * 50_000 for i in range(10)]
    await produce(broker, topic, values)
    probe.equal([r.value for r in await read_partition(broker, topic, 10, max_partition_fetch_bytes=1000, fetch_max_bytes=1000)], values)


async def test_waiting_fetch_sees_new_record(broker):
    topic = await new_topic(broker)
    async with consumer(broker, fetch_max_wait_ms=15_000) as c:
        c.assign([TopicPartition(topic, 0)])
        probe.equal(await c.getmany(timeout_ms=500), {})
        started_at = time.monotonic()
        await produce(broker, topic, [b"now"])
        probe.equal((await read(c, 1))[0].value, b"now")
        assert time.monotonic() - started_at < 10, "the fetch waited for fetch_max_wait_ms"


async def test_consumer_reconnects(broker):
    topic = await new_topic(broker)
    async with consumer(broker, topic, group_id=probe.name("group")) as c:
        for i in range(3):
            await produce(broker, topic, [f"round {i}".encode()])
            probe.equal([r.value for r in await read(c, 1)], [f"round {i}".encode()])
            await c.commit()
            assert probe.cut_connections(broker) > 0


# --- groups

class Member:
    """A member of a group that reads in a task of its own and keeps what it read."""

    def __init__(self, broker, group, *topics, **config):
        self.records, self.assigned, self.client = [], set(), None
        self._stopping = False

        async def body():
            async with consumer(broker, *topics, group_id=group, auto_commit_interval_ms=200, **config) as c:
                self.client = c
                while not self._stopping:
                    for batch in (await c.getmany(timeout_ms=100)).values():
                        self.records += batch
                    self.assigned = {tp.partition for tp in c.assignment()}

        self._task = asyncio.create_task(body())

    async def leave(self):
        self._stopping = True
        await self._task


async def share(members, partitions):
    """Waits until the members have the partitions between them, none of them idle."""
    def settled():
        held = [p for m in members for p in m.assigned]
        return sorted(held) == list(range(partitions)) and all(m.assigned for m in members)
    await until(settled, f"{len(members)} members sharing {partitions} partitions")


async def test_group_resumes_after_commit(broker):
    topic, group = await new_topic(broker), probe.name("group")
    await produce(broker, topic, numbered(10))
    tp = TopicPartition(topic, 0)
    for first, count in ((0, 4), (4, 6)):
        async with consumer(broker, topic, group_id=group, enable_auto_commit=False) as c:
            probe.equal([r.offset for r in await read(c, count)], list(range(first, first + count)))
            await c.commit({tp: OffsetAndMetadata(first + count, "noted")})
            probe.equal(await c.committed(tp), first + count)
    async with consumer(broker, topic, group_id=group, enable_auto_commit=False) as c:
        probe.equal(await c.getmany(timeout_ms=500), {})
        probe.equal(await c.position(tp), 10)
    async with admin(broker) as client:
        probe.equal(await client.list_consumer_group_offsets(group), {tp: OffsetAndMetadata(10, "noted")})


async def test_group_commits_by_itself(broker):
    topic, group = await new_topic(broker), probe.name("group")
    await produce(broker, topic, numbered(10))
    async with consumer(broker, topic, group_id=group) as c:
        await read(c, 10)
    async with consumer(broker, group_id=group) as c:
        probe.equal(await c.committed(TopicPartition(topic, 0)), 10)


async def test_group_without_offset(broker):
    topic = await new_topic(broker)
    await produce(broker, topic, numbered(3))
    tp = TopicPartition(topic, 0)
    async with consumer(broker, topic, group_id=probe.name("group"), auto_offset_reset="latest") as c:
        probe.equal(await c.getmany(timeout_ms=500), {})
        probe.equal((await c.position(tp), await c.committed(tp)), (3, None))
    async with consumer(broker, topic, group_id=probe.name("group"), auto_offset_reset="none") as c:
        with probe.raises(NoOffsetForPartitionError):
            await c.getone()


async def test_group_rebalances(broker):
    topic, group = await new_topic(broker, 6), probe.name("group")
    members = []
    for count in (1, 2, 3):
        members.append(Member(broker, group, topic))
        await share(members, 6)
        probe.equal(max(len(m.assigned) for m in members), 6 // count)
    async with producer(broker) as p:
        for i in range(60):
            await p.send_and_wait(topic, b"%d" % i, partition=i % 6)
    await until(lambda: sum(len(m.records) for m in members) >= 60, "60 records")
    probe.equal(sorted(int(r.value) for m in members for r in m.records), list(range(60)))
    await members.pop(0).leave()
    await share(members, 6)
    await members.pop(0).leave()
    await share(members, 6)
    await members.pop(0).leave()
    async with admin(broker) as client:
        committed = await client.list_consumer_group_offsets(group)
        probe.equal({tp.partition: o.offset for tp, o in committed.items()}, {p: 10 for p in range(6)})


async def test_group_listener(broker):
    topic, group = await new_topic(broker, 2), probe.name("group")
    calls = []

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            calls.append(("revoked", sorted(tp.partition for tp in revoked)))

        async def on_partitions_assigned(self, assigned):
            calls.append(("assigned", sorted(tp.partition for tp in assigned)))

    async with consumer(broker, group_id=group) as c:
        c.subscribe([topic], listener=Listener())
        await until(lambda: ("assigned", [0, 1]) in calls, "both partitions")
        other = Member(broker, group, topic)
        await until(lambda: len(c.assignment()) == 1, "one partition")
        assert ("revoked", [0, 1]) in calls, calls
        await other.leave()


async def test_group_static_member(broker):
    topic, group = await new_topic(broker, 2), probe.name("group")
    stays = Member(broker, group, topic, group_instance_id="stays")
    goes = Member(broker, group, topic, group_instance_id="goes")
    await share([stays, goes], 2)
    held = goes.assigned
    generation = stays.client._coordinator.generation
    await goes.leave()  # a static member says no goodbye
    back = Member(broker, group, topic, group_instance_id="goes")
    await until(lambda: back.assigned == held, "the same partitions as before")
    probe.equal(stays.client._coordinator.generation, generation, "generation")
    await back.leave()
    await stays.leave()


async def test_group_member_too_slow(broker):
    topic, group = await new_topic(broker, 2), probe.name("group")
    async with consumer(broker, topic, group_id=group, max_poll_interval_ms=1000) as slow:
        await until(lambda: len(slow.assignment()) == 2, "both partitions")
        await produce(broker, topic, numbered(2))
        await slow.getone()
        other = Member(broker, group, topic)
        await asyncio.sleep(2.5)  # the time in which slow does not read is what is tested
        await until(lambda: len(other.assigned) >= 1, "partitions for the other member")
        await slow.getmany(timeout_ms=200)
        await other.leave()


async def test_group_pattern(broker):
    prefix = probe.name("pattern")
    async with admin(broker) as client:
        await client.create_topics([NewTopic(f"{prefix}-a", 1, 1), NewTopic(f"other-{prefix}", 1, 1)])
        await produce(broker, f"{prefix}-a", [b"a"])
        async with consumer(broker, group_id=probe.name("group"), metadata_max_age_ms=500) as c:
            c.subscribe(pattern=f"^{prefix}-.*")
            probe.equal([r.value for r in await read(c, 1)], [b"a"])
            await client.create_topics([NewTopic(f"{prefix}-b", 1, 1)])
            await produce(broker, f"{prefix}-b", [b"b"])
            probe.equal([r.value for r in await read(c, 1)], [b"b"])


async def test_groups_listed_described(broker):
    topic, group = await new_topic(broker, 2), probe.name("group")
    member = Member(broker, group, topic, client_id="the-client")
    await share([member], 2)
    async with admin(broker) as client:
        assert (group, "consumer") in [g[:2] for g in await client.list_consumer_groups()]
        (answer,) = await client.describe_consumer_groups([group])
        ((code, name, state, kind, assignor, members, *_),) = answer.groups
        probe.equal((code, name, state, kind, assignor, len(members)), (OK, group, "Stable", "consumer", "roundrobin", 1))
        assert members[0][1] == "the-client" or members[0][2] == "the-client", members
        await member.leave()
        (answer,) = await client.describe_consumer_groups([group])
        probe.equal(answer.groups[0][2], "Empty")


# --- transactions

async def test_transaction(broker):
    topic, group = await new_topic(broker), probe.name("group")
    tp = TopicPartition(topic, 0)
    async with producer(broker, transactional_id=probe.name("transaction")) as p:
        async with p.transaction():
            await p.send_and_wait(topic, b"kept", partition=0)
            await p.send_offsets_to_transaction({tp: 5}, group)
        with probe.raises(ZeroDivisionError):
            async with p.transaction():
                await p.send_and_wait(topic, b"dropped", partition=0)
                1 / 0
        async with p.transaction():
            await p.send_and_wait(topic, b"kept too", partition=0)
    async with consumer(broker, isolation_level="read_committed") as c:
        c.assign([tp])
        probe.equal([r.value for r in await read(c, 2)], [b"kept", b"kept too"])
    async with consumer(broker) as c:
        c.assign([tp])
        probe.equal([r.value for r in await read(c, 3)], [b"kept", b"dropped", b"kept too"])
    async with admin(broker) as client:
        probe.equal((await client.list_consumer_group_offsets(group))[tp].offset, 5)


if __name__ == "__main__":
    probe.main()
