'use strict'
// What an application does with Confluent's JavaScript client: librdkafka underneath, an API like KafkaJS's above. librdkafka
// has tests of its own, which are another suite; these look at what the binding adds and what its users do.

const assert = require('node:assert')
const { KafkaJS: { Kafka, CompressionTypes, ErrorCodes, logLevel } } = require('@confluentinc/kafka-javascript')
const { main, name, sleep, until, numbered, singleRecordOverhead } = require('./probe')

const kafka = (broker, config = {}) => new Kafka({ kafkaJS: { brokers: [broker], logLevel: logLevel.NOTHING, ...config } })

// started is a connected client, which the end of the test disconnects.
async function started (client, defer) {
  await client.connect()
  let gone = false
  const disconnect = client.disconnect.bind(client)
  client.disconnect = async () => { if (!gone) { gone = true; await disconnect() } }
  defer(() => client.disconnect())
  return client
}

const admin = (broker, defer) => started(kafka(broker).admin(), defer)
const producer = (broker, defer, config = {}, rdkafka = {}) => started(kafka(broker).producer({ kafkaJS: config, 'linger.ms': 5, ...rdkafka }), defer)

async function newTopic (broker, defer, numPartitions = 1, configs = {}) {
  const topic = name('topic')
  const client = await admin(broker, defer)
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  assert.equal(await client.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] }), true)
  return topic
}

async function produce (broker, defer, topic, values, partition = 0, config = {}) {
  const client = await producer(broker, defer, config)
  return client.send({ topic, messages: values.map(value => ({ value, partition })) })
}

// reader is a member of a group that keeps what it reads.
async function reader (broker, defer, topics, { group = name('group'), autoCommit = true, run = {}, rdkafka = {} } = {}) {
  const consumer = kafka(broker).consumer({
    kafkaJS: { groupId: group, fromBeginning: true, autoCommit, autoCommitInterval: 200, sessionTimeout: 6000, heartbeatInterval: 200 },
    'fetch.wait.max.ms': 100,
    ...rdkafka
  })
  const r = { consumer, group, records: [] }
  await started(consumer, defer)
  await consumer.subscribe({ topics })
  await consumer.run({ eachMessage: async ({ topic, partition, message }) => { r.records.push({ topic, partition, ...message }) }, ...run })
  return r
}

async function read (r, count) {
  await until(() => r.records.length >= count, `${count} records`)
  assert.equal(r.records.length, count)
  return r.records
}

const text = records => records.map(r => r.value && r.value.toString())

async function readTopic (broker, defer, topic, count) {
  const r = await reader(broker, defer, [topic])
  const records = await read(r, count)
  assert.deepEqual(records.map(m => Number(m.offset)), Array.from({ length: count }, (_, i) => Number(records[0].offset) + i))
  await r.consumer.disconnect()
  return records
}

// rejected awaits a rejection with this code of librdkafka's, which are Kafka's where it has one.
async function rejected (promise, code) {
  await assert.rejects(promise, error => {
    assert.equal(error.code ?? error.errors?.[0]?.code, code, `${error.message}`)
    return true
  })
}

async function roundtrip (broker, defer, config) {
  const topic = await newTopic(broker, defer)
  const values = numbered(500).map((v, i) => v + ' the same again'.repeat(i % 50))
  await produce(broker, defer, topic, values, 0, config)
  assert.deepEqual(text(await readTopic(broker, defer, topic, 500)), values)
}

const assigned = r => r.consumer.assignment().map(tp => tp.partition)

async function sharing (readers, partitions) {
  await until(() => {
    const held = readers.flatMap(assigned).sort((a, b) => a - b)
    return held.length === partitions && new Set(held).size === partitions && readers.every(r => assigned(r).length > 0)
  }, `${readers.length} members sharing ${partitions} partitions`)
}

const offsetsOf = async (client, groupId, topic) => {
  const [{ partitions }] = await client.fetchOffsets({ groupId, topics: [topic] })
  return Object.fromEntries(partitions.map(p => [p.partition, Number(p.offset)]))
}

main({
  // --- administration

  async topic_create_describe_delete (broker, defer) {
    const topic = await newTopic(broker, defer, 3)
    const client = await admin(broker, defer)
    assert.ok((await client.listTopics()).includes(topic))
    const [described] = await client.fetchTopicMetadata({ topics: [topic] })
    assert.deepEqual(described.partitions.map(p => p.partitionId).sort(), [0, 1, 2])
    assert.equal(await client.createTopics({ topics: [{ topic }] }), false, 'it is there already')
    await client.deleteTopics({ topics: [topic] })
    await until(async () => !(await client.listTopics()).includes(topic), 'the end of the topic')
    await rejected(client.deleteTopics({ topics: [topic] }), ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART)
  },

  async topic_create_refused (broker, defer) {
    const client = await admin(broker, defer)
    const create = topic => client.createTopics({ topics: [{ topic: name('topic'), numPartitions: 1, replicationFactor: 1, ...topic }] })
    await rejected(create({ replicationFactor: 9 }), ErrorCodes.ERR_INVALID_REPLICATION_FACTOR)
    await rejected(create({ topic: 'not/a/name' }), ErrorCodes.ERR_TOPIC_EXCEPTION)
    await rejected(create({ configEntries: [{ name: 'retention.ms', value: 'soon' }] }), ErrorCodes.ERR_INVALID_CONFIG)
  },

  async records_deleted (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(20))
    const client = await admin(broker, defer)
    const [deleted] = await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '7' }] })
    assert.equal(deleted.lowWatermark, 7)
    const [{ low, high }] = await client.fetchTopicOffsets(topic)
    assert.deepEqual([low, high], ['7', '20'])
    assert.deepEqual(text(await readTopic(broker, defer, topic, 13)), numbered(20).slice(7))
  },

  async offsets_by_time (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer)
    for (const second of [10, 30, 20]) {
      await client.send({ topic, messages: [{ value: 'v', timestamp: String(1_700_000_000_000 + second * 1000) }] })
    }
    const a = await admin(broker, defer)
    const at = async timestamp => (await a.fetchTopicOffsetsByTimestamp(topic, timestamp))[0].offset
    assert.equal(Number(await at(1_700_000_015_000)), 1)
    assert.equal(Number(await at(1_700_000_099_000)), 3)
  },

  // --- producing

  produce_uncompressed: (broker, defer) => roundtrip(broker, defer),
  produce_gzip: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.GZIP }),
  produce_snappy: (broker, defer) => roundtrip(broker, defer, { compression: 'snappy' }),
  produce_lz4: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.LZ4 }),
  produce_zstd: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.ZSTD }),
  produce_acks_leader: (broker, defer) => roundtrip(broker, defer, { acks: 1 }),
  produce_acks_none: (broker, defer) => roundtrip(broker, defer, { acks: 0 }),
  produce_idempotent: (broker, defer) => roundtrip(broker, defer, { idempotent: true }),

  async record_parts (broker, defer) {
    const topic = await newTopic(broker, defer)
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    const client = await producer(broker, defer)
    await client.send({
      topic,
      messages: [
        { key: 'key', value: 'value', headers: { h: ['1', '2'], empty: '' }, timestamp: '1600000000123' },
        { value: 'no key', timestamp: '1600000000124' },
        { key: 'no value', value: null, headers: { b: bytes }, timestamp: '1600000000125' }
      ]
    })
    const [first, second, third] = await readTopic(broker, defer, topic, 3)
    assert.deepEqual([first.key.toString(), first.value.toString(), first.timestamp], ['key', 'value', '1600000000123'])
    assert.deepEqual(first.headers.h.map(String), ['1', '2'])
    assert.equal(first.headers.empty.length, 0)
    assert.deepEqual([second.key ?? null, second.value.toString()], [null, 'no key'])
    assert.deepEqual([third.key.toString(), third.value, third.headers.b], ['no value', null, bytes])
  },

  async message_at_limit (broker, defer) {
    const topic = await newTopic(broker, defer, 1, { 'max.message.bytes': '100000' })
    const fits = 'x'.repeat(100000 - singleRecordOverhead)
    await produce(broker, defer, topic, [fits])
    await rejected(produce(broker, defer, topic, [fits + 'x']), ErrorCodes.ERR_MSG_SIZE_TOO_LARGE)
    assert.deepEqual(text(await readTopic(broker, defer, topic, 1)), [fits])
  },

  async order_with_many_in_flight (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer, { idempotent: true }, { 'batch.num.messages': 10 })
    const values = numbered(3000)
    await Promise.all(values.map(value => client.send({ topic, messages: [{ value }] })))
    assert.deepEqual(text(await readTopic(broker, defer, topic, 3000)), values)
  },

  async missing_topic_created (broker, defer) {
    const topic = name('topic')
    const client = await producer(broker, defer)
    const [written] = await client.send({ topic, messages: [{ value: 'first' }] })
    assert.equal(Number(written.baseOffset), 0)
    assert.ok((await (await admin(broker, defer)).listTopics()).includes(topic))
  },

  async missing_topic_not_created (broker, defer) {
    const topic = name('topic')
    const client = await producer(broker, defer, { allowAutoTopicCreation: false }, { 'topic.metadata.propagation.max.ms': 1000 })
    await rejected(client.send({ topic, messages: [{ value: 'never' }] }), ErrorCodes.ERR_UNKNOWN_TOPIC_OR_PART)
    assert.ok(!(await (await admin(broker, defer)).listTopics()).includes(topic))
  },

  // --- consuming

  async seek (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(100))
    const r = await reader(broker, defer, [topic])
    await read(r, 100)
    r.consumer.seek({ topic, partition: 0, offset: '42' })
    await read(r, 158)
    assert.deepEqual(text(r.records.slice(100)), numbered(100).slice(42))
  },

  async pause_resume (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const r = await reader(broker, defer, [topic])
    await sharing([r], 2)
    r.consumer.pause([{ topic, partitions: [0] }])
    await produce(broker, defer, topic, numbered(5), 0)
    await produce(broker, defer, topic, numbered(5), 1)
    await read(r, 5)
    await sleep(500)
    assert.deepEqual([...new Set(r.records.map(m => m.partition))], [1])
    r.consumer.resume([{ topic, partitions: [0] }])
    await read(r, 10)
  },

  async batches (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(100))
    const seen = []
    await reader(broker, defer, [topic], {
      run: {
        eachMessage: undefined,
        eachBatch: async ({ batch, resolveOffset }) => {
          for (const message of batch.messages) {
            seen.push(message.value.toString())
            resolveOffset(message.offset)
          }
        }
      }
    })
    await until(() => seen.length >= 100, '100 records')
    assert.deepEqual(seen, numbered(100))
  },

  async small_fetches (broker, defer) {
    const topic = await newTopic(broker, defer)
    const values = Array.from({ length: 10 }, (_, i) => String.fromCharCode(65 + i).repeat(50_000))
    for (const value of values) await produce(broker, defer, topic, [value])
    const r = await reader(broker, defer, [topic], { rdkafka: { 'fetch.message.max.bytes': 1000, 'max.partition.fetch.bytes': 1000 } })
    assert.deepEqual(text(await read(r, 10)), values)
  },

  // --- groups

  async group_resumes_after_commit (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(10))
    const client = await admin(broker, defer)
    const first = await reader(broker, defer, [topic], { autoCommit: false })
    await read(first, 10)
    await first.consumer.commitOffsets([{ topic, partition: 0, offset: '4', metadata: 'four' }])
    await first.consumer.disconnect()
    const [{ partitions: [committed] }] = await client.fetchOffsets({ groupId: first.group, topics: [topic] })
    assert.deepEqual([Number(committed.offset), committed.metadata], [4, 'four'])
    const second = await reader(broker, defer, [topic], { group: first.group })
    assert.deepEqual(text(await read(second, 6)), numbered(10).slice(4))
    await second.consumer.disconnect()
    assert.deepEqual(await offsetsOf(client, first.group, topic), { 0: 10 })
  },

  async group_rebalances (broker, defer) {
    const topic = await newTopic(broker, defer, 6)
    const group = name('group')
    const readers = []
    for (const share of [6, 3, 2]) {
      readers.push(await reader(broker, defer, [topic], { group }))
      await sharing(readers, 6)
      assert.equal(Math.max(...readers.map(r => assigned(r).length)), share)
    }
    const client = await producer(broker, defer)
    for (let i = 0; i < 60; i++) await client.send({ topic, messages: [{ value: String(i), partition: i % 6 }] })
    const got = () => new Set(readers.flatMap(r => r.records).map(m => Number(m.value)))
    await until(() => got().size === 60, 'each of 60 records')
    while (readers.length > 1) {
      await readers.shift().consumer.disconnect()
      await sharing(readers, 6)
    }
    await readers[0].consumer.disconnect()
    assert.deepEqual(Object.values(await offsetsOf(await admin(broker, defer), group, topic)), Array(6).fill(10))
  },

  async group_cooperative (broker, defer) {
    const topic = await newTopic(broker, defer, 4)
    const group = name('group')
    const rdkafka = { 'partition.assignment.strategy': 'cooperative-sticky' }
    const readers = [await reader(broker, defer, [topic], { group, rdkafka })]
    await sharing(readers, 4)
    readers.push(await reader(broker, defer, [topic], { group, rdkafka }))
    await sharing(readers, 4)
    assert.deepEqual(readers.map(r => assigned(r).length), [2, 2])
    await readers.pop().consumer.disconnect()
    await sharing(readers, 4)
  },

  async group_static_member (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const group = name('group')
    const member = id => reader(broker, defer, [topic], { group, rdkafka: { 'group.instance.id': id } })
    const stays = await member('stays')
    const goes = await member('goes')
    await sharing([stays, goes], 2)
    const held = [assigned(stays), assigned(goes)]
    await goes.consumer.disconnect() // a static member says no goodbye
    const back = await member('goes')
    await until(() => assigned(back).length > 0, 'a partition for the member that came back')
    assert.deepEqual([assigned(stays), assigned(back)], held)
  },

  async group_pattern (broker, defer) {
    const prefix = name('pattern')
    const client = await admin(broker, defer)
    for (const topic of [`${prefix}-a`, `${prefix}-b`, `other-${prefix}`]) {
      await client.createTopics({ topics: [{ topic, numPartitions: 1 }] })
      await produce(broker, defer, topic, [topic])
    }
    const r = await reader(broker, defer, [new RegExp(`^${prefix}-.*`)])
    assert.deepEqual(text(await read(r, 2)).sort(), [`${prefix}-a`, `${prefix}-b`])
  },

  async groups_listed_described_deleted (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const r = await reader(broker, defer, [topic], { rdkafka: { 'client.id': 'the-client' } })
    await sharing([r], 2)
    const client = await admin(broker, defer)
    const listed = async () => (await client.listGroups()).groups.find(g => g.groupId === r.group)
    assert.equal((await listed()).protocolType, 'consumer')
    const { groups: [described] } = await client.describeGroups([r.group])
    assert.deepEqual([described.members.length, described.members[0].clientId], [1, 'the-client'])
    assert.deepEqual(described.members[0].assignment.topicPartitions.map(tp => tp.partition).sort(), [0, 1])
    const [refused] = await client.deleteGroups([r.group]).catch(error => error.groups)
    assert.equal(refused.errorCode ?? refused.error?.code, ErrorCodes.ERR_NON_EMPTY_GROUP)
    await r.consumer.disconnect()
    await client.deleteGroups([r.group])
    assert.equal(await listed(), undefined)
  },

  // --- transactions

  async transaction (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer, { transactionalId: name('transaction'), transactionTimeout: 10_000 })
    for (const [value, end] of [['kept', 'commit'], ['dropped', 'abort'], ['kept too', 'commit']]) {
      const transaction = await client.transaction()
      await transaction.send({ topic, messages: [{ value }] })
      await transaction[end]()
    }
    const committed = await reader(broker, defer, [topic], { rdkafka: { 'isolation.level': 'read_committed' } })
    assert.deepEqual(text(await read(committed, 2)), ['kept', 'kept too'])
    const all = await reader(broker, defer, [topic], { rdkafka: { 'isolation.level': 'read_uncommitted' } })
    assert.deepEqual(text(await read(all, 3)), ['kept', 'dropped', 'kept too'])
  }
})
