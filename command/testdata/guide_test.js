
// Runs the code of docs/guides/node.md, which stands before this: node guide.js URL.

const assert = require('node:assert')
const { Pool } = require('pg')

const pool = new Pool({ connectionString: process.argv[2] })
const ask = async (statement) => String(Object.values((await pool.query(statement)).rows[0])[0])

async function once_() {
  const [a, b] = await orderTwice(pool)
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

once_().then(jobs).then(queue).then(() => pool.end()).catch((error) => { console.error(error); process.exit(1) })
