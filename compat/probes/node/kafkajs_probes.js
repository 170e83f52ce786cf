'use strict'
// What an application does with KafkaJS, whose package has no tests.

const assert = require('node:assert')
const zlib = require('node:zlib')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel, AssignerProtocol } = require('kafkajs')
const lz4 = require('lz4-napi')
const { main, name, sleep, until, cutConnections, numbered, singleRecordOverhead } = require('./probe')

// KafkaJS brings gzip; other codecs are plugged in.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer)
})
if (zlib.zstdCompressSync) {
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
    decompress: async buffer => zlib.zstdDecompressSync(buffer)
  })
}

const kafka = (broker, config = {}) => new Kafka({
  brokers: [broker], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 5 }, ...config
})

// started is a connected client, which the end of the test disconnects.
async function started (client, defer) {
  defer(() => client.disconnect())
  await client.connect()
  return client
}

const admin = (broker, defer) => started(kafka(broker).admin(), defer)
const producer = (broker, defer, config) => started(kafka(broker).producer(config), defer)

async function newTopic (broker, defer, numPartitions = 1, configs = {}) {
  const topic = name('topic')
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const client = await admin(broker, defer)
  assert.equal(await client.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] }), true)
  return topic
}

// produce writes the values, each as one record, in one batch.
async function produce (broker, defer, topic, values, partition = 0, options = {}) {
  const client = await producer(broker, defer)
  return client.send({ topic, messages: values.map(value => ({ value, partition })), ...options })
}

// reader is a member of a group that keeps what it reads. Its offsets are committed by itself unless config says otherwise.
async function reader (broker, defer, topics, { group = name('group'), client = {}, run = {}, ...config } = {}) {
  const consumer = kafka(broker, client).consumer({ groupId: group, heartbeatInterval: 200, maxWaitTimeInMs: 200, rebalanceTimeout: 3000, ...config })
  const r = { consumer, group, records: [], assigned: [], joins: 0, crashes: [] }
  consumer.on(consumer.events.GROUP_JOIN, event => {
    r.joins++
    r.assigned = Object.values(event.payload.memberAssignment).flat()
  })
  consumer.on(consumer.events.CRASH, event => r.crashes.push(event.payload.error))
  defer(() => consumer.disconnect())
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ topic, partition, message }) => { r.records.push({ topic, partition, ...message }) },
    ...run
  })
  return r
}

async function read (r, count) {
  await until(() => r.records.length >= count || r.crashes.length > 0, `${count} records`)
  assert.deepEqual(r.crashes, [])
  assert.equal(r.records.length, count)
  return r.records
}

const text = records => records.map(r => r.value && r.value.toString())

// readTopic reads a topic of one partition from its beginning, which has count records.
async function readTopic (broker, defer, topic, count) {
  const r = await reader(broker, defer, [topic])
  const records = await read(r, count)
  assert.deepEqual(records.map(m => Number(m.offset)), Array.from({ length: count }, (_, i) => Number(records[0].offset) + i))
  await r.consumer.disconnect()
  return records
}

// rejected awaits a rejection whose error is of this type of Kafka's.
async function rejected (promise, type) {
  await assert.rejects(promise, error => {
    const found = [error, error.cause, ...(error.errors ?? [])].map(e => e?.type)
    assert.ok(found.includes(type), `got ${error.name}: ${error.message} (${found}), want ${type}`)
    return true
  })
}

async function roundtrip (broker, defer, options) {
  const topic = await newTopic(broker, defer)
  const values = numbered(500).map((v, i) => v + ' the same again'.repeat(i % 50))
  const [written] = await produce(broker, defer, topic, values, 0, options)
  assert.equal(written.baseOffset, '0')
  assert.deepEqual(text(await readTopic(broker, defer, topic, 500)), values)
}

// sharing waits until the readers have the partitions between them, none of them idle.
async function sharing (readers, partitions) {
  await until(() => {
    const held = readers.flatMap(r => r.assigned).sort((a, b) => a - b)
    return held.length === partitions && new Set(held).size === partitions && readers.every(r => r.assigned.length > 0)
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
    const { topics: [described] } = await client.fetchTopicMetadata({ topics: [topic] })
    assert.deepEqual(described.partitions.map(p => p.partitionId).sort(), [0, 1, 2])
    assert.ok(described.partitions.every(p => p.leader >= 0 && p.isr.length === 1 && p.replicas[0] === p.isr[0]))
    assert.equal(await client.createTopics({ topics: [{ topic }] }), false, 'it is there already')
    await client.deleteTopics({ topics: [topic] })
    await until(async () => !(await client.listTopics()).includes(topic), 'the end of the topic')
    await rejected(client.deleteTopics({ topics: [topic], timeout: 1000 }), 'UNKNOWN_TOPIC_OR_PARTITION')
  },

  async topic_create_refused (broker, defer) {
    const client = await admin(broker, defer)
    const create = topic => client.createTopics({ topics: [{ topic: name('topic'), numPartitions: 1, replicationFactor: 1, ...topic }] })
    await rejected(create({ numPartitions: 0 }), 'INVALID_PARTITIONS')
    await rejected(create({ replicationFactor: 9 }), 'INVALID_REPLICATION_FACTOR')
    await rejected(create({ topic: 'not/a/name' }), 'INVALID_TOPIC_EXCEPTION')
    await rejected(create({ configEntries: [{ name: 'retention.ms', value: 'soon' }] }), 'INVALID_CONFIG')
    const only = name('topic')
    await client.createTopics({ validateOnly: true, waitForLeaders: false, topics: [{ topic: only }] })
    assert.ok(!(await client.listTopics()).includes(only))
  },

  async partitions_grow (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const client = await admin(broker, defer)
    await client.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    await until(async () => (await client.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 5, '5 partitions')
    await rejected(client.createPartitions({ topicPartitions: [{ topic, count: 3 }] }), 'INVALID_PARTITIONS')
    const [written] = await produce(broker, defer, topic, ['last'], 4)
    assert.equal(written.baseOffset, '0')
  },

  async configs_of_topic (broker, defer) {
    const topic = await newTopic(broker, defer, 1, { 'retention.ms': '3600000' })
    const client = await admin(broker, defer)
    const value = async configName => {
      const { resources: [r] } = await client.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: [configName] }] })
      assert.equal(r.configEntries.length, 1)
      return r.configEntries[0].configValue
    }
    assert.equal(await value('retention.ms'), '3600000')
    const alter = configEntries => client.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
    await alter([{ name: 'max.message.bytes', value: '65536' }])
    assert.equal(await value('max.message.bytes'), '65536')
    assert.equal(await value('retention.ms'), '604800000', 'AlterConfigs replaces the whole')
    await rejected(alter([{ name: 'max.message.bytes', value: '-7' }]), 'INVALID_CONFIG')
    const { resources: [all] } = await client.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
    assert.ok(all.configEntries.length > 20, 'all the configs of a topic')
  },

  async cluster_described (broker, defer) {
    const client = await admin(broker, defer)
    const { brokers: [node], controller, clusterId } = await client.describeCluster()
    assert.equal(`${node.host}:${node.port}`, broker)
    assert.equal(controller, node.nodeId)
    assert.ok(clusterId)
  },

  async records_deleted (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(20))
    const client = await admin(broker, defer)
    await client.fetchTopicOffsets(topic) // deleteTopicRecords wants to have heard of the topic
    await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '7' }] })
    assert.deepEqual(await client.fetchTopicOffsets(topic), [{ partition: 0, offset: '20', high: '20', low: '7' }])
    const records = await readTopic(broker, defer, topic, 13)
    assert.deepEqual(text(records), numbered(20).slice(7))
    await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] })
    assert.deepEqual(await client.fetchTopicOffsets(topic), [{ partition: 0, offset: '20', high: '20', low: '20' }])
  },

  async offsets_by_time (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer)
    for (const second of [10, 30, 20]) {
      await client.send({ topic, messages: [{ value: 'v', timestamp: String(1_700_000_000_000 + second * 1000) }] })
    }
    const a = await admin(broker, defer)
    assert.deepEqual(await a.fetchTopicOffsetsByTimestamp(topic, 1_700_000_015_000), [{ partition: 0, offset: '1' }])
    assert.deepEqual(await a.fetchTopicOffsetsByTimestamp(topic, 1_700_000_099_000), [{ partition: 0, offset: '3' }])
  },

  // --- producing

  produce_uncompressed: (broker, defer) => roundtrip(broker, defer),
  produce_gzip: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.GZIP }),
  produce_snappy: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.Snappy }),
  produce_lz4: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.LZ4 }),
  produce_zstd: (broker, defer) => roundtrip(broker, defer, { compression: CompressionTypes.ZSTD }),
  produce_acks_leader: (broker, defer) => roundtrip(broker, defer, { acks: 1 }),

  async produce_acks_none (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer)
    for (const value of numbered(20)) await client.send({ topic, acks: 0, messages: [{ value }] })
    assert.deepEqual(text(await readTopic(broker, defer, topic, 20)), numbered(20))
  },

  async produce_idempotent (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer, { idempotent: true, maxInFlightRequests: 1 })
    const values = numbered(200)
    for (const [i, value] of values.entries()) {
      const [written] = await client.send({ topic, messages: [{ value }] })
      assert.equal(written.baseOffset, String(i))
    }
    assert.deepEqual(text(await readTopic(broker, defer, topic, 200)), values)
  },

  async record_parts (broker, defer) {
    const topic = await newTopic(broker, defer)
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    const client = await producer(broker, defer)
    await client.send({
      topic,
      messages: [
        { key: 'key', value: 'value', headers: { h: ['1', '2'], empty: '' }, timestamp: '1600000000123' },
        { value: 'no key', timestamp: '1600000000124' },
        { key: 'no value', value: null, headers: { ü: bytes }, timestamp: '1600000000125' },
        { key: '', value: '', timestamp: '1600000000126' }
      ]
    })
    const [first, second, third, fourth] = await readTopic(broker, defer, topic, 4)
    assert.deepEqual([first.key.toString(), first.value.toString(), first.timestamp], ['key', 'value', '1600000000123'])
    assert.deepEqual(first.headers.h.map(String), ['1', '2'])
    assert.equal(first.headers.empty.length, 0)
    assert.deepEqual([second.key, second.value.toString(), second.headers], [null, 'no key', {}])
    assert.deepEqual([third.key.toString(), third.value, third.headers.ü], ['no value', null, bytes])
    assert.deepEqual([fourth.key.length, fourth.value.length, fourth.timestamp], [0, 0, '1600000000126'])
  },

  async log_append_time (broker, defer) {
    const topic = await newTopic(broker, defer, 1, { 'message.timestamp.type': 'LogAppendTime' })
    const client = await producer(broker, defer)
    const before = Date.now()
    const [written] = await client.send({ topic, messages: [{ value: 'v', timestamp: '1' }] })
    const [record] = await readTopic(broker, defer, topic, 1)
    assert.ok(Number(record.timestamp) >= before && Number(record.timestamp) <= Date.now(), record.timestamp)
    assert.equal(written.logAppendTime, record.timestamp)
  },

  async keys_choose_partitions (broker, defer) {
    const topic = await newTopic(broker, defer, 4)
    const client = await producer(broker, defer)
    const chosen = new Map()
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < 40; i++) {
        const [{ partition }] = await client.send({ topic, messages: [{ key: `key-${i}`, value: 'v' }] })
        if (round > 0) assert.equal(partition, chosen.get(i))
        chosen.set(i, partition)
      }
    }
    assert.equal(new Set(chosen.values()).size, 4)
  },

  async many_topics_in_one_send (broker, defer) {
    const topics = [await newTopic(broker, defer, 2), await newTopic(broker, defer, 1)]
    const client = await producer(broker, defer)
    const written = await client.sendBatch({
      topicMessages: topics.map(topic => ({ topic, messages: numbered(10).map(value => ({ value, partition: 0 })) }))
    })
    assert.deepEqual(written.map(w => [w.topicName, w.baseOffset]).sort(), topics.map(topic => [topic, '0']).sort())
    const r = await reader(broker, defer, topics)
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
    const client = await producer(broker, defer)
    const [written] = await client.send({ topic, messages: [{ value: 'first' }] })
    assert.equal(written.baseOffset, '0')
    assert.ok((await (await admin(broker, defer)).listTopics()).includes(topic))
  },

  async missing_topic_not_created (broker, defer) {
    const topic = name('topic')
    const client = await producer(broker, defer, { allowAutoTopicCreation: false, retry: { retries: 1, initialRetryTime: 50 } })
    await rejected(client.send({ topic, messages: [{ value: 'never' }] }), 'UNKNOWN_TOPIC_OR_PARTITION')
    assert.ok(!(await (await admin(broker, defer)).listTopics()).includes(topic))
  },

  async producer_reconnects (broker, defer) {
    const topic = await newTopic(broker, defer)
    const client = await producer(broker, defer, { idempotent: true })
    for (const [i, value] of numbered(30).entries()) {
      if (i % 10 === 5) assert.ok(cutConnections(broker) > 0)
      const [written] = await client.send({ topic, messages: [{ value }] })
      assert.equal(written.baseOffset, String(i))
    }
    assert.deepEqual(text(await readTopic(broker, defer, topic, 30)), numbered(30))
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

  async from_the_end (broker, defer) {
    const topic = await newTopic(broker, defer)
    await produce(broker, defer, topic, numbered(5))
    const consumer = await started(kafka(broker).consumer({ groupId: name('group'), maxWaitTimeInMs: 200 }), defer)
    const got = []
    const joined = new Promise(resolve => consumer.on(consumer.events.FETCH, resolve))
    await consumer.subscribe({ topic, fromBeginning: false })
    await consumer.run({ eachMessage: async ({ message }) => { got.push(message) } })
    await joined
    await produce(broker, defer, topic, ['new'])
    await until(() => got.length > 0, 'the new record')
    assert.deepEqual(got.map(m => [m.offset, m.value.toString()]), [['5', 'new']])
  },

  async pause_resume (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const r = await reader(broker, defer, [topic])
    await sharing([r], 2)
    r.consumer.pause([{ topic, partitions: [0] }])
    assert.deepEqual(r.consumer.paused(), [{ topic, partitions: [0] }])
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
    const r = await reader(broker, defer, [topic], {
      run: {
        eachMessage: undefined,
        eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
          assert.equal(batch.highWatermark, '100')
          for (const message of batch.messages) {
            seen.push(message.value.toString())
            resolveOffset(message.offset)
          }
          await heartbeat()
        }
      }
    })
    await until(() => seen.length >= 100 || r.crashes.length > 0, '100 records')
    assert.deepEqual(r.crashes, [])
    assert.deepEqual(seen, numbered(100))
  },

  async small_fetches (broker, defer) {
    const topic = await newTopic(broker, defer)
    const values = Array.from({ length: 10 }, (_, i) => String.fromCharCode(65 + i).repeat(50_000))
    for (const value of values) await produce(broker, defer, topic, [value])
    const r = await reader(broker, defer, [topic], { maxBytesPerPartition: 60_000, maxBytes: 60_000 })
    assert.deepEqual(text(await read(r, 10)), values)
  },

  async waiting_fetch_sees_new_record (broker, defer) {
    const topic = await newTopic(broker, defer)
    const r = await reader(broker, defer, [topic], { maxWaitTimeInMs: 15_000 })
    await sharing([r], 1)
    await sleep(500)
    const before = Date.now()
    await produce(broker, defer, topic, ['now'])
    assert.deepEqual(text(await read(r, 1)), ['now'])
    assert.ok(Date.now() - before < 10_000, 'the fetch waited for maxWaitTimeInMs')
  },

  async consumer_reconnects (broker, defer) {
    const topic = await newTopic(broker, defer)
    const r = await reader(broker, defer, [topic])
    for (let i = 0; i < 3; i++) {
      await produce(broker, defer, topic, [`round ${i}`])
      await until(() => r.records.some(m => m.value.toString() === `round ${i}`), `round ${i}`)
      assert.ok(cutConnections(broker) > 0)
    }
  },

  // --- groups

  async group_resumes_after_commit (broker, defer) {
    const topic = await newTopic(broker, defer)
    const group = name('group')
    await produce(broker, defer, topic, numbered(10))
    const client = await admin(broker, defer)
    const first = await reader(broker, defer, [topic], { group, run: { autoCommit: false } })
    await read(first, 10)
    await first.consumer.commitOffsets([{ topic, partition: 0, offset: '4', metadata: 'four' }])
    await first.consumer.disconnect()
    const [{ partitions: [committed] }] = await client.fetchOffsets({ groupId: group, topics: [topic] })
    assert.deepEqual(committed, { partition: 0, offset: '4', metadata: 'four' })
    const second = await reader(broker, defer, [topic], { group })
    assert.deepEqual(text(await read(second, 6)), numbered(10).slice(4))
    await second.consumer.disconnect()
    assert.deepEqual(await offsetsOf(client, group, topic), { 0: 10 })
  },

  async group_rebalances (broker, defer) {
    const topic = await newTopic(broker, defer, 6)
    const group = name('group')
    const readers = []
    for (const share of [6, 3, 2]) {
      readers.push(await reader(broker, defer, [topic], { group }))
      await sharing(readers, 6)
      assert.equal(Math.max(...readers.map(r => r.assigned.length)), share)
    }
    const client = await producer(broker, defer)
    for (let i = 0; i < 60; i++) await client.send({ topic, messages: [{ value: String(i), partition: i % 6 }] })
    await until(() => readers.flatMap(r => r.records).length >= 60, '60 records')
    const got = readers.flatMap(r => r.records).map(m => Number(m.value)).sort((a, b) => a - b)
    assert.deepEqual([...new Set(got)], Array.from({ length: 60 }, (_, i) => i))
    while (readers.length > 1) {
      await readers.shift().consumer.disconnect()
      await sharing(readers, 6)
    }
    await readers[0].consumer.disconnect()
    assert.deepEqual(Object.values(await offsetsOf(await admin(broker, defer), group, topic)), Array(6).fill(10))
  },

  async group_member_dies (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const group = name('group')
    const lives = await reader(broker, defer, [topic], { group })
    let stuck = false
    const dies = await reader(broker, defer, [topic], {
      group,
      sessionTimeout: 2000,
      run: { eachMessage: async () => { stuck = true; await sleep(8000) } } // no heartbeat meanwhile
    })
    await sharing([lives, dies], 2)
    await produce(broker, defer, topic, ['for the one'], dies.assigned[0])
    await until(() => stuck, 'a record for the member that dies')
    await until(() => lives.assigned.length === 2, 'both partitions')
    assert.deepEqual(text(await read(lives, 1)), ['for the one'])
  },

  async group_pattern (broker, defer) {
    const prefix = name('pattern')
    const client = await admin(broker, defer)
    const create = topic => client.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })
    await create(`${prefix}-a`)
    await create(`${prefix}-b`)
    await create(`other-${prefix}`)
    for (const topic of [`${prefix}-a`, `${prefix}-b`, `other-${prefix}`]) await produce(broker, defer, topic, [topic])
    const r = await reader(broker, defer, [new RegExp(`^${prefix}-.*`)])
    assert.deepEqual(text(await read(r, 2)).sort(), [`${prefix}-a`, `${prefix}-b`])
  },

  async group_sees_new_partitions (broker, defer) {
    const topic = await newTopic(broker, defer, 1)
    const r = await reader(broker, defer, [topic], { metadataMaxAge: 500 })
    await sharing([r], 1)
    const client = await admin(broker, defer)
    await client.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    await produce(broker, defer, topic, ['wake up'])
    await sharing([r], 3)
    await produce(broker, defer, topic, ['new'], 2)
    await until(() => r.records.some(m => m.partition === 2), 'a record of the new partition')
  },

  async group_of_own_assigner (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const group = name('group')
    const lastMemberGetsAll = () => ({
      name: 'LastGetsAll',
      version: 1,
      async assign ({ members }) {
        const ids = members.map(m => m.memberId).sort()
        return ids.map((memberId, i) => ({
          memberId,
          memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 1, assignment: i === ids.length - 1 ? { [topic]: [0, 1] } : {} })
        }))
      },
      protocol: ({ topics }) => ({ name: 'LastGetsAll', metadata: AssignerProtocol.MemberMetadata.encode({ version: 1, topics, userData: Buffer.from('hello') }) })
    })
    const readers = [await reader(broker, defer, [topic], { group, partitionAssigners: [lastMemberGetsAll] })]
    readers.push(await reader(broker, defer, [topic], { group, partitionAssigners: [lastMemberGetsAll] }))
    await until(() => readers.map(r => r.assigned.length).sort().join() === '0,2', 'one member with both partitions')
    const { groups: [described] } = await (await admin(broker, defer)).describeGroups([group])
    assert.deepEqual([described.state, described.protocol, described.members.length], ['Stable', 'LastGetsAll', 2])
    for (const member of described.members) {
      assert.equal(AssignerProtocol.MemberMetadata.decode(member.memberMetadata).userData.toString(), 'hello')
    }
  },

  async groups_listed_described_deleted (broker, defer) {
    const topic = await newTopic(broker, defer, 2)
    const r = await reader(broker, defer, [topic], { client: { clientId: 'the-client' } })
    await sharing([r], 2)
    const client = await admin(broker, defer)
    const { groups } = await client.listGroups()
    assert.equal(groups.find(g => g.groupId === r.group).protocolType, 'consumer')
    const describe = async () => (await client.describeGroups([r.group])).groups[0]
    const described = await describe()
    assert.deepEqual([described.state, described.members.length, described.members[0].clientId], ['Stable', 1, 'the-client'])
    await rejected(client.deleteGroups([r.group]).catch(error => { throw error.groups[0].error }), 'NON_EMPTY_GROUP')
    await r.consumer.disconnect()
    assert.equal((await describe()).state, 'Empty')
    await client.deleteGroups([r.group])
    assert.ok(!(await client.listGroups()).groups.some(g => g.groupId === r.group))
    assert.equal((await describe()).state, 'Dead')
  },

  async group_offsets_managed (broker, defer) {
    const topic = await newTopic(broker, defer)
    const group = name('group')
    await produce(broker, defer, topic, numbered(10))
    const client = await admin(broker, defer)
    assert.deepEqual(await offsetsOf(client, group, topic), { 0: -1 })
    await client.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '7' }] })
    assert.deepEqual(await offsetsOf(client, group, topic), { 0: 7 })
    const r = await reader(broker, defer, [topic], { group })
    assert.deepEqual(text(await read(r, 3)), numbered(10).slice(7))
    await assert.rejects(client.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '1' }] }), /must have no running instances/)
    await r.consumer.disconnect()
    await client.resetOffsets({ groupId: group, topic, earliest: true })
    assert.deepEqual(await offsetsOf(client, group, topic), { 0: -2 }) // KafkaJS commits the name of the place, not the offset
  },

  // --- transactions

  async transaction (broker, defer) {
    const topic = await newTopic(broker, defer)
    const group = name('group')
    const client = await producer(broker, defer, { transactionalId: name('transaction'), idempotent: true, maxInFlightRequests: 1, retry: { retries: 2 } })
    const write = async (value, end) => {
      const transaction = await client.transaction()
      await transaction.send({ topic, messages: [{ value }] })
      if (end === 'commit') await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: '5' }] }] })
      await transaction[end]()
    }
    await write('kept', 'commit')
    await write('dropped', 'abort')
    await write('kept too', 'commit')
    const committed = await reader(broker, defer, [topic], { readUncommitted: false })
    assert.deepEqual(text(await read(committed, 2)), ['kept', 'kept too'])
    const all = await reader(broker, defer, [topic], { readUncommitted: true })
    assert.deepEqual(text(await read(all, 3)), ['kept', 'dropped', 'kept too'])
    assert.deepEqual(await offsetsOf(await admin(broker, defer), group, topic), { 0: 5 })
  }
})
