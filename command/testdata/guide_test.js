
// Runs the code of docs/guides/node.md, which stands before this: node guide.js URL WHAT [ARGUMENT...].
// With DIE_AT=N in the environment the process kills itself at the Nth place: before and after each statement.

const assert = require('node:assert')
const { Client, Pool } = require('pg')

const at = Number(process.env.DIE_AT ?? 0)
let passed = 0
function place_() {
  if (++passed === at) {
    process.kill(process.pid, 'SIGKILL')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0) // until it arrives
  }
}

const query = Client.prototype.query
Client.prototype.query = function (...args) {
  const text = typeof args[0] === 'string' ? args[0] : args[0].text
  if (text.includes('worker_heartbeat')) return query.apply(this, args)
  place_()
  const callback = args.at(-1)
  if (typeof callback === 'function') {
    args[args.length - 1] = (...answer) => { place_(); callback(...answer) }
    return query.apply(this, args)
  }
  return query.apply(this, args).then((answer) => { place_(); return answer })
}

const pool = new Pool({ connectionString: process.argv[2] })
const ask = async (statement) => String(Object.values((await pool.query(statement)).rows[0])[0])

async function once_() {
  const place = async (client) => {
    const { rows } = await client.query(`insert into orders (body) values ('one') returning id`)
    return { id: Number(rows[0].id) }
  }
  const [a, b] = [await once(pool, 'orders', 'key-1', 'one', place), await once(pool, 'orders', 'key-1', 'one', place)]
  assert(!a.replayed && b.replayed && a.value.id === b.value.id, JSON.stringify([a, b]))
}

async function jobs() {
  const first = await inTransaction(pool, (client) => enqueue(client, 'mail', 'greet', { name: 'ada' }, 'greet-ada'))
  await inTransaction(pool, async (client) => {
    assert.strictEqual(await enqueue(client, 'mail', 'greet', { name: 'ada' }, 'greet-ada'), first)
    await enqueue(client, 'mail', 'never', {})
  })
  await assert.rejects(inTransaction(pool, async (client) => {
    await enqueue(client, 'mail', 'greet', { name: 'rolled back' })
    throw new Error('rolled back')
  }))
  let tries = 0
  const handlers = {
    greet: async (client, payload) => {
      await client.query('insert into orders (body) values ($1)', ['hello ' + payload.name])
      if (++tries === 1) throw new Error('the first try fails after it has written')
    },
    never: async () => { throw new Final('no retry can help') },
  }
  // A process claims the job and dies: its lease is moved into the past, and the job is taken back.
  await pool.query(`select count(*) from pawl_v1.job_claim('mail', null, 1, '{"kinds": ["greet"]}')`)
  await pool.query(`update pawl.job set lease_expires_at = clock_timestamp() - interval '1 second' where kind = 'greet'`)
  await sweep(pool, Object.keys(handlers))
  assert.strictEqual(await ask(`select count(*) from pawl.job where status = 'pending'`), '2')
  for (let round = 0; round < 10; round++) {
    await pool.query(`update pawl.job set available_at = clock_timestamp() where status = 'pending'`)
    while (await workOne(pool, 'mail', handlers));
  }
  assert.strictEqual(tries, 2)
  assert.strictEqual(await ask(`select count(*) from orders where body = 'hello ada'`), '1')
  assert.strictEqual(await ask(`select string_agg(kind || ' ' || status, ', ') from pawl.job`), 'never dead_letter')
}

// As much of an SQS client as the guide uses: every message is received again until it is deleted.
class Queue {
  messages = new Map()
  async sendMessage({ MessageBody, MessageAttributes }) { this.messages.set(String(this.messages.size), { Body: MessageBody, MessageAttributes }) }
  async receiveMessage() { return { Messages: [...this.messages].map(([ReceiptHandle, m]) => ({ ...m, ReceiptHandle })).slice(0, 10) } }
  async deleteMessage({ ReceiptHandle }) { this.messages.delete(ReceiptHandle) }
}

async function queue() {
  let client = new Queue(), url = 'orders'
  if (process.env.AWS_ENDPOINT_URL) {
    const { SQS } = require('@aws-sdk/client-sqs')
    client = new SQS()
    url = (await client.createQueue({ QueueName: 'guide-node' })).QueueUrl
    console.log('with @aws-sdk/client-sqs')
  }
  const send = (key, body) => client.sendMessage({ QueueUrl: url, MessageBody: JSON.stringify({ body }),
    MessageAttributes: { 'Idempotency-Key': { DataType: 'String', StringValue: key } } })
  for (const [key, body] of [['a', 'a'], ['a', 'a'], ['a', 'a'], ['b', 'b'], ['a', 'another'], ['c', 'bad']]) await send(key, body)
  const failed = []
  for (let round = 0; round < 3 && failed.length < 2; round++) {
    failed.push(...await consume(pool, client, url, 'orders', async (client, message) => {
      await client.query('insert into orders (body) values ($1)', [message.body])
      if (message.body === 'bad') throw new Error('bad')
    }))
  }
  assert(failed.length >= 2 && failed.some((e) => e.code === 'P4002'), failed.join())
  assert.strictEqual(await ask(`select string_agg(body, ',' order by body) from orders where body in ('a', 'b', 'another', 'bad')`), 'a,b')
}

const effect = (client, what) => client.query('insert into effects (what) values ($1)', [what])

const recipes = {
  async all() {
    await once_()
    await jobs()
    await queue()
  },
  async order(...keys) {
    for (const key of keys) {
      const { value, replayed } = await createOrderOnce(pool, 'acme', key, { orderNo: key, cents: 5 })
      console.log(JSON.stringify(value), replayed)
    }
  },
  async mail(...keys) {
    for (const key of keys) await applyOnce(pool, 'mails', key, '{"body": "mail"}', (client) => effect(client, key))
  },
  async webhook(header, body) {
    const secrets = { old: 'another secret of it', new: 'the secret of the test' }
    console.log(await receiveWebhook(pool, 'stripe', header, Buffer.from(body), secrets, (client, event) => effect(client, event.id)))
  },
  async charge(bank, ...orders) {
    for (const id of orders) {
      console.log(await chargeOrder(pool, new Bank(bank, 60000), id, 5).then(JSON.stringify, (error) => error.constructor.name))
    }
  },
  async reconcile(bank) {
    console.log([...(await reconcile(pool, new Bank(bank, 60000))).values()].map((error) => error.constructor.name).sort().join(' '))
  },
  // Summarizes documents. In mode deaf the work goes on until a line is read, in mode broken it fails.
  async documents(mode, ...ids) {
    const summarize = async (body) => {
      if (mode === 'deaf') {
        console.log('working')
        await new Promise((resolve) => process.stdin.once('data', resolve))
      }
      if (mode === 'broken') throw new Error('no summary')
      return body.toUpperCase()
    }
    for (const id of ids) {
      console.log(await summarizeOnce(pool, id, summarize, (client) => effect(client, id)).catch((error) => error.message))
    }
    process.stdin.unref?.()
  },
  async reap() {
    console.log((await reap(pool)).join(' '))
  },
  // Runs one job of each queue. In mode slow its handler works until the lease is lost, in mode deaf until a line is read.
  async worker(mode, leaseS, ...queues) {
    for (const name of queues) {
      const stop = new AbortController()
      const handle = async (payload, check) => {
        if (mode !== 'quick') console.log('working')
        while (mode === 'slow') {
          try {
            check()
          } catch (error) {
            console.log('stopped')
            stop.abort()
            throw error
          }
          await new Promise((resolve) => setTimeout(resolve, 10))
        }
        if (mode === 'deaf') await new Promise((resolve) => process.stdin.once('data', resolve))
        stop.abort()
        return (client) => effect(client, payload.what)
      }
      await work(pool, name, { long: handle }, stop.signal, leaseS * 1000)
    }
    console.log('ended')
    process.stdin.unref?.()
  },
}

const [what, ...args] = process.argv.slice(3)
recipes[what](...args).then(() => pool.end()).catch((error) => { console.error(error); process.exit(1) })
