// graphile-worker. Settings for speed are those of https://worker.graphile.org/docs/performance: 24 jobs at once, 25 connections, a local queue
// of 500, and completions in batches. It has no way to complete a job in the handler's transaction: the row goes through its pool.
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker'

const logger = new Logger(() => (level, message) => { if (level === 'error' || level === 'warning') console.error(`graphile-worker: ${message}`) })

export async function open(connectionString, options) {
  const shared = { connectionString, logger, noHandleSignals: true }
  let utils, runner
  const client = async () => (utils ??= await makeWorkerUtils({ ...shared, maxPoolSize: 20 }))
  return {
    install: () => runMigrations(shared),
    enqueue: async (job) => { await (await client()).addJob('bench', job) },
    enqueueMany: async (jobs) => { await (await client()).addJobs(jobs.map((payload) => ({ identifier: 'bench', payload }))) },
    work: async (task, handle) => {
      runner = await run({
        ...shared,
        taskList: { bench: (payload, helpers) => handle([payload], (text, values) => helpers.query(text, values)) },
        preset: { worker: task.polite ? {} : { ...fast, ...options.worker } },
      })
    },
    stop: () => runner.stop(),
  }
}

const fast = { concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }
