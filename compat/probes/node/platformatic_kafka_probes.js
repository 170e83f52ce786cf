'use strict'
// What an application does with @platformatic/kafka, whose package has no tests.

const assert = require('node:assert')
const {
  Admin, Producer, Consumer, stringSerializers, CompressionAlgorithms, ConfigResourceTypes, FindCoordinatorKeyTypes,
  IncrementalAlterConfigOperationTypes, ListOffsetTimestamps, MessagesStreamModes, ProduceAcks
} = require('@platformatic/kafka')
const { main, name, sleep, until, cutConnections, numbered, singleRecordOverhead } = require('./probe')

const base = broker => ({ clientId: 'probe', bootstrapBrokers: [broker], retries: 5, retryDelay: 100 })

// closed has the end of the test close the client.
function closed (client, defer) {
  client.on('error', () => {}) // what matters comes as a rejection too
  defer(() => client instanceof Admin ? client.close() : client.close(true))
  return client
}

const admin = (broker, defer, config) => closed(new Admin({ ...base(broker), ...config }), defer)
const producer = (broker, defer, config) => closed(new Producer({ ...base(broker), autocreateTopics: false, serializers: stringSerializers, ...config }), defer)
const consumer = (broker, defer, config) => closed(new Consumer({
  ...base(broker), groupId: name('group'), maxWaitTime: 200, autocommit: 200, sessionTimeout: 6000, heartbeatInterval: 200, rebalanceTimeout: 6000, ...config
}), defer)

async function newTopic (broker, defer, partitions = 1, configs = {}) {
  const topic = name('topic')
  const [created] = await admin(broker, defer).createTopics({
    topics: [topic], partitions, replicas: 1, configs: Object.entries(configs).map(([name, value]) => ({ name, value }))
  })
  assert.deepEqual([created.name, created.partitions, created.replicas], [topic, partitions, 1])
  return topic
}

async function produce (broker, defer, topic, values, partition = 0, options = {}) {
  return producer(broker, defer).send({ messages: values.map(value => ({ topic, partition, value })), ...options })
}

// reading is a stream of a consumer that keeps what comes.
async function reading (consumer, topics, options = {}) {
  const stream = await consumer.consume({ topics, mode: MessagesStreamModes.EARLIEST, ...options })
  const r = { consumer, stream, records: [], errors: [] }
  stream.on('data', message => r.records.push(message))
  stream.on('error', error => r.errors.push(error))
  return r
}

async function read (r, count) {
  await until(() => r.records.length >= count || r.errors.length > 0, `${count} records`)
  assert.deepEqual(r.errors, [])
  assert.equal(r.records.length, count)
  return r.records
}

const text = records => records.map(r => r.value && r.value.toString())
const numbers = r => r.map(Number)

// readTopic reads a topic of one partition from its beginning, which has count records.
async function readTopic (broker, defer, topic, count) {
  const c = consumer(broker, defer)
  const r = await reading(c, [topic])
  const records = await read(r, count)
  assert.deepEqual(numbers(records.map(m => m.offset)), Array.from({ length: count }, (_, i) => Number(records[0].offset) + i))
  await r.stream.close()
  return records
}

// rejected awaits a rejection caused by this error of Kafka's.
async function rejected (promise, id) {
  await assert.rejects(promise, error => {
    const found = []
    const walk = e => {
      if (!e || found.includes(e)) return
      found.push(e)
      walk(e.cause);
      (e.errors ?? []).forEach(walk)
    }
    walk(error)
    assert.ok(found.some(e => e.apiId === id), `got ${error.message} (${found.map(e => e.apiId)}), want ${id}`)
    return true
  })
}

async function roundtrip (broker, defer, options) {
  const topic = await newTopic(broker, defer)
  const values = numbered(500).map((v, i) => v + ' the same again'.repeat(i % 50))
  const written = await produce(broker, defer, topic, values, 0, options)
  assert.deepEqual(written.offsets, [{ topic, partition: 0, offset: 0n }])
  assert.deepEqual(text(await readTopic(broker, defer, topic, 500)), values)
}

const assigned = c => (c.assignments ?? []).flatMap(a => a.partitions)

// sharing waits until the consumers have the partitions between them, none of them idle.
async function sharing (readers, partitions) {
  await until(() => {
    const held = readers.flatMap(r => assigned(r.consumer)).sort((a, b) => a - b)
    return held.length === partitions && new Set(held).size === partitions && readers.every(r => assigned(r.consumer).length > 0)
  }, `${readers.length} members sharing ${partitions} partitions`)
}

const offsetsOf = async (client, groupId, topic) => {
  const [group] = await client.listConsumerGroupOffsets({ groups: [groupId] })
  const found = group.topics.find(t => t.name === topic)
  return Object.fromEntries((found?.partitions ?? []).map(p => [p.partitionIndex, Number(p.committedOffset)]))
}

main({
  // --- administration

  async topic_create_describe_delete (broker, defer) {
    const topic = await newTopic(broker, defer, 3)
    const client = admin(broker, defer)
    assert.ok((await client.listTopics()).includes(topic))
    const metadata = await client.metadata({ topics: [topic], forceUpdate: true })
    const described = metadata.topics.get(topic)
    assert.equal(described.partitionsCount, 3)
    assert.ok(described.partitions.every(p => p.leader >= 0 && p.isr.length === 1 && p.replicas[0] === p.isr[0]))
    await rejected(client.createTopics({ topics: [topic], partitions: 1, replicas: 1 }), 'TOPIC_ALREADY_EXISTS')
    await client.deleteTopics({ topics: [topic] })
    await until(async () => !(await client.listTopics()).includes(topic), 'the end of the topic')
    await rejected(client.deleteTopics({ topics: [topic] }), 'UNKNOWN_TOPIC_OR_PARTITION')
  },

  async topic_create_refused (broker, defer) {
    const client = admin(broker, defer, { retries: 0 })
    const create = options => client.createTopics({ topics: [name('topic')], partitions: 1, replicas: 1, ...options })
    await rejected(create({ partitions: 0 }), 'INVALID_PARTITIONS')
    await rejected(create({ replicas: 9 }), 'INVALID_REPLICATION_FACTOR')
    await rejected(create({ topics: ['not/a/name'] }), 'INVALID_TOPIC_EXCEPTION')
    await rejected(create({ configs: [{ name: 'retention.ms', value: 'soon' }] }), 'INVALID_CONFIG')
  },

  async partitions_grow (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const client = admin(broker, defer, { retries: 0 })
    const [id] = (await client.metadata({ topics: [topic] })).brokers.keys()
    const grow = (count, places) => client.createPartitions({ topics: [{ name: topic, count, assignments: Array(places).fill({ brokerIds: [id] }) }] })
    await grow(5, 3)
    const partitions = async () => (await client.metadata({ topics: [topic], forceUpdate: true })).topics.get(topic).partitionsCount
    await until(async () => await partitions() === 5, '5 partitions')
    await rejected(grow(3, 1), 'INVALID_PARTITIONS')
    await rejected(grow(8, 1), 'INVALID_REPLICA_ASSIGNMENT')
    const { offsets } = await produce(broker, defer, topic, ['last'], 4)
    assert.deepEqual(offsets, [{ topic, partition: 4, offset: 0n }])
  },

  async configs_of_topic (broker, defer) {
    const topic = await newTopic(broker, defer, 1, { 'retention.ms': '3600000', 'cleanup.policy': 'compact' })
    const client = admin(broker, defer, { retries: 0 })
    const value = async (...configurationKeys) => {
      const [{ configs }] = await client.describeConfigs({
        resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys }], includeDocumentation: true
      })
      for (const config of configs) assert.ok(config.documentation, config.name)
      return Object.fromEntries(configs.map(c => [c.name, c.value]))
    }
    assert.deepEqual(await value('retention.ms', 'cleanup.policy'), { 'retention.ms': '3600000', 'cleanup.policy': 'compact' })
    const alter = configs => client.incrementalAlterConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }] })
    const { SET, DELETE, APPEND } = IncrementalAlterConfigOperationTypes
    await alter([
      { name: 'max.message.bytes', configOperation: SET, value: '65536' },
      { name: 'cleanup.policy', configOperation: APPEND, value: 'delete' },
      { name: 'retention.ms', configOperation: DELETE }
    ])
    const want = { 'max.message.bytes': '65536', 'cleanup.policy': 'compact,delete', 'retention.ms': '604800000' }
    assert.deepEqual(await value(...Object.keys(want)), want)
    await rejected(alter([{ name: 'max.message.bytes', configOperation: SET, value: '-7' }]), 'INVALID_CONFIG')
    await client.alterConfigs({ resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs: [{ name: 'segment.bytes', value: '2097152' }] }] })
    assert.deepEqual(await value('max.message.bytes', 'segment.bytes'), { 'max.message.bytes': '1048588', 'segment.bytes': '2097152' })
  },

  async configs_of_broker (broker, defer) {
    const client = admin(broker, defer)
    const metadata = await client.metadata({ topics: [] })
    const [{ configs }] = await client.describeConfigs({
      resources: [{ resourceType: ConfigResourceTypes.BROKER, resourceName: String([...metadata.brokers.keys()][0]) }]
    })
    const value = key => configs.find(c => c.name === key)?.value
    assert.equal(value('num.partitions'), '4')
    assert.equal(value('advertised.listeners'), `PLAINTEXT://${broker}`)
    assert.equal(value('auto.create.topics.enable'), 'true')
  },

  async log_dirs_described (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, ['x'.repeat(10_000)])
    const [{ results: [dir] }] = await admin(broker, defer).describeLogDirs({ topics: [{ name: topic, partitions: [0] }] })
    assert.equal(dir.topics[0].name, topic)
    assert.ok(Number(dir.topics[0].partitions[0].partitionSize) > 10_000)
    assert.ok(Number(dir.totalBytes) > 0)
  },

  async records_deleted (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(20))
    const client = admin(broker, defer)
    const remove = offset => client.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset }] }] })
    assert.deepEqual(await remove(7n), [{ name: topic, partitions: [{ partition: 0, lowWatermark: 7n }] }])
    assert.deepEqual(text(await readTopic(broker, defer, topic, 13)), numbered(20).slice(7))
    assert.deepEqual(await remove(-1n), [{ name: topic, partitions: [{ partition: 0, lowWatermark: 20n }] }])
  },

  async offsets_listed (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = producer(broker, defer)
    for (const second of [10, 30, 20]) {
      await client.send({ messages: [{ topic, value: 'v', timestamp: BigInt(1_700_000_000_000 + second * 1000) }] })
    }
    const a = admin(broker, defer)
    const at = async timestamp => {
      const [{ partitions: [p] }] = await a.listOffsets({ topics: [{ name: topic, partitions: [{ partitionIndex: 0, timestamp }] }] })
      return Number(p.offset)
    }
    assert.equal(await at(ListOffsetTimestamps.EARLIEST), 0)
    assert.equal(await at(ListOffsetTimestamps.LATEST), 3)
    assert.equal(await at(ListOffsetTimestamps.MAX), 1)
    assert.equal(await at(1_700_000_015_000n), 1)
    assert.equal(await at(1_700_000_099_000n), -1)
  },

  // --- producing

  produce_uncompressed: (broker, defer) => roundtrip(broker, defer),
  produce_gzip: (broker, defer) => roundtrip(broker, defer, { compression: CompressionAlgorithms.GZIP }),
  produce_snappy: (broker, defer) => roundtrip(broker, defer, { compression: CompressionAlgorithms.SNAPPY }),
  produce_lz4: (broker, defer) => roundtrip(broker, defer, { compression: CompressionAlgorithms.LZ4 }),
  produce_zstd: (broker, defer) => roundtrip(broker, defer, { compression: CompressionAlgorithms.ZSTD }),
  produce_acks_leader: (broker, defer) => roundtrip(broker, defer, { acks: ProduceAcks.LEADER }),

  async produce_acks_none (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = producer(broker, defer)
    for (const value of numbered(20)) await client.send({ acks: ProduceAcks.NO_RESPONSE, messages: [{ topic, value }] })
    assert.deepEqual(text(await readTopic(broker, defer, topic, 20)), numbered(20))
  },

  async produce_idempotent (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = producer(broker, defer, { idempotent: true })
    for (const [i, value] of numbered(100).entries()) {
      const { offsets } = await client.send({ messages: [{ topic, value }] })
      assert.deepEqual(offsets, [{ topic, partition: 0, offset: BigInt(i) }])
    }
    assert.deepEqual(text(await readTopic(broker, defer, topic, 100)), numbered(100))
  },

  async record_parts (broker, defer) {
    const topic = await newTopic(broker, defer)
    await producer(broker, defer).send({
      messages: [
        { topic, key: 'key', value: 'value', headers: { h: '1', empty: '' }, timestamp: 1_600_000_000_123n },
        { topic, value: 'no key', timestamp: 1_600_000_000_124n },
        { topic, key: 'no value', headers: { ü: 'ö' }, timestamp: 1_600_000_000_125n }
      ].map(m => ({ partition: 0, ...m }))
    })
    const [first, second, third] = await readTopic(broker, defer, topic, 3)
    const headers = m => [...m.headers].map(([k, v]) => [k.toString(), v.toString()])
    assert.deepEqual([first.key.toString(), first.value.toString(), first.timestamp], ['key', 'value', 1_600_000_000_123n])
    assert.deepEqual(headers(first), [['h', '1'], ['empty', '']])
    assert.deepEqual([second.key ?? null, second.value.toString(), headers(second)], [null, 'no key', []])
    assert.deepEqual([third.key.toString(), third.value ?? null, headers(third)], ['no value', null, [['ü', 'ö']]])
  },

  async keys_choose_partitions (broker, defer) {
    const topic = await newTopic(broker, defer, 4)
    const client = producer(broker, defer)
    const chosen = new Map()
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < 40; i++) {
        const { offsets: [{ partition }] } = await client.send({ messages: [{ topic, key: `key-${i}`, value: 'v' }] })
        if (round > 0) assert.equal(partition, chosen.get(i))
        chosen.set(i, partition)
      }
    }
    assert.equal(new Set(chosen.values()).size, 4)
  },

  async many_topics_in_one_send (broker, defer) {
    const topics = [await newTopic(broker, defer, 2), await newTopic(broker, defer, 1)]
    const messages = numbered(10).flatMap(value => topics.map(topic => ({ topic, partition: 0, value })))
    const { offsets } = await producer(broker, defer).send({ messages })
    assert.deepEqual(offsets.map(o => o.topic).sort(), [...topics].sort())
    const r = await reading(consumer(broker, defer), topics)
    await read(r, 20)
    for (const topic of topics) assert.deepEqual(text(r.records.filter(m => m.topic === topic)), numbered(10))
  },

  async message_at_limit (broker, defer) {
    const topic = await newTopic(broker, defer, 1, { 'max.message.bytes': '100000' })
    const fits = 'x'.repeat(100000 - singleRecordOverhead)
    await produce(broker, defer, topic, [fits])
    await rejected(produce(broker, defer, topic, [fits + 'x']), 'MESSAGE_TOO_LARGE')
    assert.deepEqual(text(await readTopic(broker, defer, topic, 1)), [fits])
  },

  async missing_topic_created (broker, defer) {
    const topic = name('topic')
    const { offsets } = await producer(broker, defer, { autocreateTopics: true }).send({ messages: [{ topic, partition: 0, value: 'first' }] })
    assert.deepEqual(offsets, [{ topic, partition: 0, offset: 0n }])
    assert.ok((await admin(broker, defer).listTopics()).includes(topic))
  },

  async missing_topic_not_created (broker, defer) {
    const topic = name('topic')
    await assert.rejects(producer(broker, defer, { retries: 1 }).send({ messages: [{ topic, value: 'never' }] }), /Unknown topic/)
    assert.ok(!(await admin(broker, defer).listTopics()).includes(topic))
  },

  async producer_reconnects (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = producer(broker, defer, { idempotent: true })
    for (const [i, value] of numbered(30).entries()) {
      if (i % 10 === 5) assert.ok(cutConnections(broker) > 0)
      const { offsets } = await client.send({ messages: [{ topic, value }] })
      assert.deepEqual(offsets, [{ topic, partition: 0, offset: BigInt(i) }])
    }
    assert.deepEqual(text(await readTopic(broker, defer, topic, 30)), numbered(30))
  },

  // --- consuming

  async from_an_offset (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(100))
    const r = await reading(consumer(broker, defer), [topic], { mode: MessagesStreamModes.MANUAL, offsets: [{ topic, partition: 0, offset: 42n }] })
    assert.deepEqual(text(await read(r, 58)), numbered(100).slice(42))
    await produce(broker, defer, topic, ['one more'])
    assert.deepEqual(text(await read(r, 59)).at(-1), 'one more')
  },

  async from_the_end (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(5))
    const r = await reading(consumer(broker, defer), [topic], { mode: MessagesStreamModes.LATEST })
    await new Promise(resolve => r.stream.once('fetch', resolve))
    await produce(broker, defer, topic, ['new'])
    const [record] = await read(r, 1)
    assert.deepEqual([record.offset, record.value.toString()], [5n, 'new'])
  },

  async offsets_for_times (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    await producer(broker, defer).send({
      messages: numbered(50).map((value, i) => ({ topic, partition: 0, value, timestamp: BigInt(1_600_000_000_000 + i * 1000) }))
    })
    const c = consumer(broker, defer)
    const found = await c.listOffsetsWithTimestamps({ topics: [topic], timestamp: 1_600_000_030_001n })
    assert.deepEqual(found.get(topic).get(0), { offset: 31n, timestamp: 1_600_000_031_000n })
    assert.deepEqual(await c.listOffsets({ topics: [topic] }), new Map([[topic, [50n, 0n]]]))
    assert.deepEqual(await c.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps.EARLIEST }), new Map([[topic, [0n, 0n]]]))
  },

  async pause_resume (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(5))
    const r = await reading(consumer(broker, defer), [topic])
    await read(r, 5)
    r.stream.pause()
    await produce(broker, defer, topic, numbered(5))
    await sleep(600)
    assert.equal(r.records.length, 5)
    r.stream.resume()
    await read(r, 10)
  },

  async small_fetches (broker, defer) {
    const topic = await newTopic(broker, defer)
    const values = Array.from({ length: 10 }, (_, i) => String.fromCharCode(65 + i).repeat(50_000))
    for (const value of values) await produce(broker, defer, topic, [value])
    const r = await reading(consumer(broker, defer, { maxBytes: 1000, maxBytesPerPartition: 1000 }), [topic])
    assert.deepEqual(text(await read(r, 10)), values)
  },

  async consumer_reconnects (broker, defer) {
    const topic = await newTopic(broker, defer)
    const r = await reading(consumer(broker, defer), [topic])
    for (let i = 0; i < 3; i++) {
      await produce(broker, defer, topic, [`round ${i}`])
      await until(() => r.records.some(m => m.value.toString() === `round ${i}`), `round ${i}`)
      assert.ok(cutConnections(broker) > 0)
    }
  },

  // --- groups

  async group_resumes_after_commit (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(10))
    const client = admin(broker, defer)
    const first = consumer(broker, defer, { autocommit: false })
    const r = await reading(first, [topic])
    await read(r, 10)
    await r.records[3].commit()
    assert.deepEqual(await first.listCommittedOffsets({ topics: [{ topic, partitions: [0] }] }), new Map([[topic, [4n]]]))
    await first.close(true)
    const second = consumer(broker, defer, { groupId: first.groupId })
    const again = await reading(second, [topic], { mode: MessagesStreamModes.COMMITTED })
    assert.deepEqual(text(await read(again, 6)), numbered(10).slice(4))
    await until(async () => (await offsetsOf(client, first.groupId, topic))[0] === 10, 'the commit by itself')
  },

  async group_rebalances (broker, defer) {
    const topic = await newTopic(broker, defer, 6)
    const groupId = name('group')
    const readers = []
    for (const share of [6, 3, 2]) {
      readers.push(await reading(consumer(broker, defer, { groupId }), [topic], { mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest' }))
      await sharing(readers, 6)
      assert.equal(Math.max(...readers.map(r => assigned(r.consumer).length)), share)
    }
    const client = producer(broker, defer)
    for (let i = 0; i < 60; i++) await client.send({ messages: [{ topic, value: String(i), partition: i % 6 }] })
    const got = () => new Set(readers.flatMap(r => r.records).map(m => Number(m.value)))
    await until(() => got().size === 60, 'each of 60 records')
    while (readers.length > 1) {
      await readers.shift().consumer.close(true)
      await sharing(readers, 6)
    }
    const a = admin(broker, defer)
    await until(async () => {
      const committed = Object.values(await offsetsOf(a, groupId, topic))
      return committed.length === 6 && committed.every(o => o === 10)
    }, 'the commits of all partitions')
  },

  async group_static_member (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const groupId = name('group')
    const stays = await reading(consumer(broker, defer, { groupId, groupInstanceId: 'stays' }), [topic])
    const goes = await reading(consumer(broker, defer, { groupId, groupInstanceId: 'goes' }), [topic])
    await sharing([stays, goes], 2)
    const client = admin(broker, defer)
    const described = (await client.describeGroups({ groups: [groupId] })).get(groupId)
    assert.deepEqual([...described.members.values()].map(m => m.groupInstanceId).sort(), ['goes', 'stays'])
  },

  async groups_listed_described_deleted (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const c = consumer(broker, defer, { clientId: 'the-client' })
    const r = await reading(c, [topic])
    await sharing([r], 2)
    const client = admin(broker, defer, { retries: 0 })
    const listed = (await client.listGroups({ states: ['STABLE'], types: ['classic'] })).get(c.groupId)
    assert.deepEqual([listed.protocolType, listed.state.toUpperCase(), listed.groupType], ['consumer', 'STABLE', 'classic'])
    const describe = async () => (await client.describeGroups({ groups: [c.groupId] })).get(c.groupId)
    const described = await describe()
    const [member] = described.members.values()
    assert.deepEqual([described.state.toUpperCase(), described.members.size, member.clientId], ['STABLE', 1, 'the-client'])
    assert.deepEqual(member.assignments.get(topic).partitions, [0, 1])
    await rejected(client.deleteGroups({ groups: [c.groupId] }), 'NON_EMPTY_GROUP')
    const [coordinator] = await client.findCoordinator({ keyType: FindCoordinatorKeyTypes.GROUP, keys: [c.groupId] })
    assert.equal(`${coordinator.host}:${coordinator.port}`, broker)
    await c.close(true)
    assert.equal((await describe()).state.toUpperCase(), 'EMPTY')
    await client.deleteGroups({ groups: [c.groupId] })
    assert.ok(!(await client.listGroups()).has(c.groupId))
  },

  async group_members_removed (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const c = consumer(broker, defer)
    const r = await reading(c, [topic])
    await sharing([r], 2)
    const rejoined = new Promise(resolve => c.once('consumer:group:join', resolve))
    await admin(broker, defer).removeMembersFromConsumerGroup({ groupId: c.groupId, members: null })
    await rejoined // a member that is thrown out comes back
    await sharing([r], 2)
  },

  async group_offsets_managed (broker, defer) {
    const topic = await newTopic(broker, defer)
    const groupId = name('group')
    await produce(broker, defer, topic, numbered(10))
    const client = admin(broker, defer, { retries: 0 })
    await client.alterConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 7n }] }] })
    assert.deepEqual(await offsetsOf(client, groupId, topic), { 0: 7 })
    const c = consumer(broker, defer, { groupId, autocommit: false })
    const r = await reading(c, [topic], { mode: MessagesStreamModes.COMMITTED })
    assert.deepEqual(text(await read(r, 3)), numbered(10).slice(7))
    await c.close(true)
    await client.deleteConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionIndexes: [0] }] })
    assert.deepEqual(await offsetsOf(client, groupId, topic), {})
  },

  async group_of_new_protocol (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    await produce(broker, defer, topic, numbered(5))
    const r = await reading(consumer(broker, defer, {
      groupProtocol: 'consumer', sessionTimeout: undefined, heartbeatInterval: undefined, rebalanceTimeout: undefined
    }), [topic])
    assert.deepEqual(text(await read(r, 5)), numbered(5))
  },

  // --- transactions

  async transaction (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = producer(broker, defer, { transactionalId: name('transaction'), idempotent: true, retries: 1 })
    for (const [value, end] of [['kept', 'commit'], ['dropped', 'abort'], ['kept too', 'commit']]) {
      const transaction = await client.beginTransaction()
      await transaction.send({ messages: [{ topic, value }] })
      await transaction[end]()
    }
    const committed = await reading(consumer(broker, defer, { isolationLevel: 1 }), [topic])
    assert.deepEqual(text(await read(committed, 2)), ['kept', 'kept too'])
    const all = await reading(consumer(broker, defer, { isolationLevel: 0 }), [topic])
    assert.deepEqual(text(await read(all, 3)), ['kept', 'dropped', 'kept too'])
  }
})
