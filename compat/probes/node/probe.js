'use strict'
// Runs the tests of a probe program and prints one JSON line for each.
//
// A probe program calls main with an object of async functions, which get the broker's address. A test passes when its
// promise is fulfilled. It gets topics and groups of its own, so that tests do not disturb each other, and may be run again
// on the same broker.

const testPatience = 40_000 // milliseconds that one test may take
const patience = 20_000 // milliseconds that one wait within a test may take
const detailLines = 12

let names = 0
const run = `${process.pid}-${Date.now()}`

// main runs the tests named on the command line, or all of them, against the broker at --broker.
async function main (tests) {
  const args = process.argv.slice(2)
  const at = args.indexOf('--broker')
  const broker = at < 0 ? '127.0.0.1:9092' : args.splice(at, 2)[1]
  const unknown = args.filter(name => !tests[name])
  if (unknown.length > 0) {
    console.error(`no test is called ${unknown.join(', ')}; there are ${Object.keys(tests).join(', ')}`)
    process.exit(2)
  }
  // A client may reject promises of its own that nobody awaits, or throw in a callback; that is no reason to end.
  for (const event of ['unhandledRejection', 'uncaughtException']) process.on(event, error => console.error(`${event}:`, error))
  for (const [test, body] of Object.entries(tests)) {
    if (args.length > 0 && !args.includes(test)) continue
    const outcome = await runOne(test, body, broker)
    await new Promise(resolve => process.stdout.write(JSON.stringify(outcome) + '\n', resolve))
  }
  process.exit(0) // a test that hung has left connections behind
}

async function runOne (test, body, broker) {
  const started = Date.now()
  const cleanups = []
  const outcome = { test, status: 'passed', detail: '' }
  let timer
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${testPatience} ms`)), testPatience)
  })
  try {
    await Promise.race([body(broker, cleanup => cleanups.push(cleanup)), late])
  } catch (error) {
    outcome.status = 'failed'
    outcome.detail = String(error.stack ?? error).split('\n').slice(0, detailLines).join('\n')
  }
  clearTimeout(timer)
  await Promise.race([Promise.allSettled(cleanups.reverse().map(async cleanup => cleanup())), sleep(5000)])
  return { ...outcome, took_ms: Date.now() - started }
}

// name is a name for a topic or group that no other test and no earlier run has.
const name = kind => `${kind}-${++names}-${run}`

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// until calls the condition until it returns something true, and returns that.
async function until (condition, what) {
  const deadline = Date.now() + patience
  while (Date.now() < deadline) {
    const done = await condition()
    if (done) return done
    await sleep(50)
  }
  throw new Error(`waited ${patience} ms in vain for: ${what}`)
}

// cutConnections ends every TCP connection of this process to the broker, behind the client's back; it returns how many.
function cutConnections (broker) {
  const port = Number(broker.split(':').pop())
  const sockets = process._getActiveHandles().filter(handle => handle.remotePort === port && !handle.destroyed)
  for (const socket of sockets) socket.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }))
  return sockets.length
}

// numbered are count values in an order that can be told.
const numbered = count => Array.from({ length: count }, (_, i) => String(i).padStart(10, '0'))

// singleRecordOverhead is what a batch of one record adds to a value between 8,193 and 1,048,575 bytes without key and
// headers: the batch's header, then the record's length (3 bytes), attributes, two deltas and the absent key (4), the
// value's length (3), no headers (1).
const singleRecordOverhead = 61 + 3 + 4 + 3 + 1

module.exports = { main, name, sleep, until, cutConnections, numbered, singleRecordOverhead }
