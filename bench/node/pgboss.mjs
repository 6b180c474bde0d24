// pg-boss. Settings for speed are from https://pgboss.io/api/workers: batches, several workers of one process (localConcurrency), and
// burstWhenBatchFull, without which a worker waits half a second at least between two fetches. The page names no sizes: of those tried, 500 and
// 4 took the least processor time at the highest rate. With "transactional", a batch completes in the transaction that its handler writes in;
// without it, rows go through a pool of their own.
import pg from 'pg'
import { PgBoss } from 'pg-boss'

export async function open(connectionString, options) {
  const boss = new PgBoss({ connectionString, max: 20, ...options.boss })
  boss.on('error', (error) => console.error(`pg-boss: ${error.message}`))
  const rows = new pg.Pool({ connectionString, max: 10 })
  await boss.start()
  return {
    install: () => boss.createQueue('bench', options.queue),
    enqueue: async (job) => { await boss.send('bench', job) },
    enqueueMany: async (jobs) => { await boss.insert('bench', jobs.map((data) => ({ data }))) },
    work: async (task, handle) => {
      const how = task.polite ? {} : { ...fast, ...options.work }
      await boss.work('bench', how, (jobs, tx) => handle(jobs.map((j) => j.data),
        (text, values) => (tx ? tx.executeSql(text, values) : rows.query(text, values))))
    },
    stop: () => boss.stop(),
  }
}

const fast = { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
