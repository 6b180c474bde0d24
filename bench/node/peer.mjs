// Drives one queue library for the benchmark. Requests come on stdin and replies go to stdout, one JSON object a line; a reply has the
// id of its request. Lines without an id are reports: {"ended": jobs} and {"started": nanoseconds since the job was enqueued}.
// The process ends when stdin does.
//
//   node peer.mjs LIBRARY OPTIONS     PAWL_BENCH_URL names the database
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const [name, options] = process.argv.slice(2)
const library = await (await import(`./${name}.mjs`)).open(process.env.PAWL_BENCH_URL, JSON.parse(options))

const tell = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const now = () => (performance.timeOrigin + performance.now()) * 1e6

// Each job has a number of its own, which its row carries.
let last = 0
const job = () => ({ at: Math.round(now()), n: ++last })

// Ends are reported together, at most every 2 ms, so that a report costs nothing beside the job.
let ended = 0
function end(jobs) {
  if (ended === 0) setTimeout(() => { tell({ ended }); ended = 0 }, 2)
  ended += jobs
}

const insertEffect = "insert into effect (job, by) values ($1, 'bench')"
const insertEffects = "insert into effect (job, by) select j.id, 'bench' from unnest($1::bigint[]) as j (id)"

// handler does what the task says for a batch of jobs. It writes rows through query: that of the library's transaction if it has one.
// With hold, it waits before the row and after it, for as long as heldFor in Go: a kill then hits between the steps.
function handler(task) {
  const hold = async (jobs) => { if (task.hold) await sleep(5 + (jobs[0].n * 7) % 16) }
  return async (jobs, query) => {
    if (task.started) for (const j of jobs) tell({ started: Math.round(now() - j.at) })
    await hold(jobs)
    if (task.form === 'effect') {
      await (jobs.length === 1 ? query(insertEffect, [jobs[0].n]) : query(insertEffects, [jobs.map((j) => j.n)]))
    }
    await hold(jobs)
    end(jobs.length)
  }
}

const requests = {
  install: () => library.install(),
  enqueue: () => library.enqueue(job()),
  enqueueMany: ({ count }) => library.enqueueMany(Array.from({ length: count }, job)),
  enqueueFor,
  work: (task) => library.work(task, handler(task)),
  stop: () => library.stop(),
}

// enqueueFor enqueues for some time from some callers at once, so that no call pays for the way to this process.
async function enqueueFor({ callers, each, ms }) {
  const start = performance.now()
  let calls = 0
  const caller = async () => {
    for (; performance.now() - start < ms; calls++) {
      await (each === 1 ? requests.enqueue() : requests.enqueueMany({ count: each }))
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  return { calls, ms: performance.now() - start }
}

createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, call, ...args } = JSON.parse(line)
  try {
    tell({ id, result: (await requests[call](args)) ?? null })
  } catch (error) {
    tell({ id, error: String(error?.stack ?? error) })
  }
}).on('close', () => process.exit(0))
