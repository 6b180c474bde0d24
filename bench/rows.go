package main

import (
	"context"
	"slices"
	"time"
)

// A measure takes one round on a new bed.
type measure func(ctx context.Context, b *bed, s scale) (Round, error)

// A plan is a row before its measurement.
type plan struct {
	Row
	entries []entry
	rounds  int  // bounds the run's rounds, if not zero
	many    int  // multiplies the run's rounds, if not zero: for lines that lie close together
	slow    bool // not with -quick
	abreast bool // the entries run concurrently, because they leave the machine idle
}

// An entry is one line of a plan.
type entry struct {
	Line
	on      system
	measure measure
}

// A scale sets the durations and counts of a run.
type scale struct {
	name     string
	rounds   int
	work     float64       // multiplies the jobs of a drain
	drain    time.Duration // limit of a drain
	enqueue  time.Duration // of each enqueue measurement
	pickups  int           // timed jobs
	idle     time.Duration // least pause before each
	warm     time.Duration // before a rate is measured
	clean    time.Duration // over which a rate is measured
	held     time.Duration // with a held snapshot, saturated
	half     time.Duration // with a held snapshot, at half load
	settled  time.Duration // how long a successor runs before the first kill
	kills    int
	waiting  int           // jobs, when memory is measured
	straggle time.Duration // how long transactions stay open
	blocked  int           // jobs
	command  time.Duration // of each row of commands
	calm     time.Duration // longest wait of a round until others are quiet
}

var scales = map[string]scale{
	"full": {name: "full", rounds: 5, work: 2, drain: 15 * time.Second, enqueue: 3 * time.Second,
		pickups: 100, idle: 700 * time.Millisecond, warm: 3 * time.Second, clean: 10 * time.Second,
		held: time.Minute, half: 5 * time.Minute, settled: 6 * time.Second, kills: 20,
		waiting: 1_000_000, straggle: 30 * time.Second, blocked: 100_000, command: 3 * time.Second},
	"quick": {name: "quick", rounds: 2, work: 0.6, drain: 1500 * time.Millisecond, enqueue: 600 * time.Millisecond,
		pickups: 8, idle: 700 * time.Millisecond, warm: time.Second, clean: 2 * time.Second,
		held: 7 * time.Second, settled: 6 * time.Second, kills: 4,
		waiting: 200_000, straggle: 3 * time.Second, blocked: 100_000, command: 1500 * time.Millisecond},
	"tiny": {name: "tiny", rounds: 1, work: 0.005, drain: 5 * time.Second, enqueue: 100 * time.Millisecond,
		pickups: 2, warm: 300 * time.Millisecond, clean: 500 * time.Millisecond,
		held: time.Second, half: time.Second, settled: 6 * time.Second, kills: 1,
		waiting: 100_000, straggle: 500 * time.Millisecond, blocked: 1000, command: 100 * time.Millisecond},
}

const perSec, commandsPerSec, messagesPerSec, ms = "jobs/s", "commands/s", "messages/s", "ms"

func who(name, how string) Line { return Line{Who: name, How: how} }

func base(how string) Line { return Line{Who: "River", How: how, Base: true} }

func floor(how string) Line { return Line{Who: "pgbench", How: how, Floor: true} }

func times(who string, factor float64) Bar { return Bar{Who: who, Of: "River", Factor: factor} }

// allPlans returns the rows in the order in which they run.
func allPlans() []plan {
	return slices.Concat(enqueuePlans(), drainPlans(), pickupPlans(), heldPlans(), deathPlans(),
		inboxPlans(), outboxPlans(), commandPlans(), httpPlans(), []plan{guardPlan()})
}

func enqueuePlans() []plan {
	return []plan{
		{Row: Row{ID: "enqueue-1", Title: "Enqueue, one job a call, 1 caller", Unit: perSec, Bars: []Bar{times("Pawl", 2)}},
			entries: singles(1)},
		{Row: Row{ID: "enqueue-16", Title: "Enqueue, one job a call, 16 callers", Unit: perSec, Bars: []Bar{times("Pawl", 2)}},
			entries: singles(16)},
		{Row: Row{ID: "enqueue-many", Title: "Enqueue, 1,000 jobs a call", Unit: perSec, Bars: []Bar{{Who: "Pawl", Of: "River, rows", Factor: 1.5}}},
			entries: []entry{
				{who("Pawl", "EnqueueMany"), pawlSystem, enqueueBatched},
				{base("InsertManyFast (COPY)"), riverSystem, enqueueBatched},
				{who("River, rows", "InsertMany"), riverSystem, enqueueInserted},
				{who("loop", "insert … unnest"), loopSystem, enqueueBatched},
				{floor("insert … generate_series"), pawlSystem, floorFor(insertMany, 1, manySize)},
			}},
	}
}

func drainPlans() []plan {
	return []plan{
		{Row: Row{ID: "noop", Title: "Jobs that do nothing: claim to finish, one process", Unit: perSec,
			Bars: []Bar{times("Pawl", 2.5), times("Pawl, batch", 2)}},
			entries: []entry{
				{who("Pawl", "Handle"), pawlSystem, drain(noop, 40_000)},
				{base("2,000 workers, fetch every 2 ms"), riverSystem, drain(noop, 30_000)},
				{who("Pawl, batch", "HandleManyTx of 100"), pawlSystem, drain(noopBatch, 50_000)},
				{who("loop", "100 a transaction, 4 loops"), loopSystem, drain(noop, 80_000)},
				{floor("job_claim 100, job_finish_many; 4 clients"), pawlSystem, floorDrain(noopSQL, 4, batchSize, 50_000)},
			}},
		{Row: Row{ID: "step", Title: "Jobs that write one row exactly once, each in a transaction, 32 in flight", Unit: perSec,
			Bars: []Bar{times("Pawl", 3)}},
			entries: []entry{
				{who("Pawl", "HandleTx"), pawlSystem, drain(effect, 12_000)},
				{base("JobCompleteTx"), riverSystem, drain(effect, 6_000)},
				{who("loop", "1 a transaction, 32 loops"), loopSystem, drain(effect, 15_000)},
				{floor("the loop's SQL, 32 clients"), loopSystem, floorDrain(loopSQL, inFlight, 1, 15_000)},
			}},
		{Row: Row{ID: "effect-batch", Title: "The same, 100 in a transaction", Unit: perSec, Bars: []Bar{times("Pawl, batch", 25)}},
			entries: []entry{
				{who("Pawl, batch", "HandleManyTx of 100"), pawlSystem, drain(effectBatch, 50_000)},
				{base("JobCompleteTx, per item: it has no batches"), riverSystem, drain(effect, 6_000)},
				{who("loop", "100 a transaction, 4 loops"), loopSystem, drain(effectBatch, 80_000)},
				{floor("Pawl's SQL, 4 clients"), pawlSystem, floorDrain(batchSQL, 4, batchSize, 40_000)},
			}},
		convoyPlan(),
		busyPlan(),
	}
}

func pickupPlans() []plan {
	return []plan{
		{Row: Row{ID: "pickup", Title: "Enqueue to handler, idle, default settings", Unit: ms, Less: true,
			Bars: []Bar{{Who: "Pawl", Factor: 5, Meaning: "p50 ≤ 5 ms"}, {Who: "Pawl", Factor: 20, P99: true, Meaning: "p99 ≤ 20 ms"},
				{Who: "Pawl, psql", Factor: 5, Meaning: "p50 ≤ 5 ms"}, {Who: "Pawl, psql", Factor: 20, P99: true, Meaning: "p99 ≤ 20 ms"}}}, rounds: 1, abreast: true,
			entries: []entry{
				{who("Pawl", "Enqueue; woken"), pawlSystem, pickupIdle(pickup{})},
				{base("LISTEN/NOTIFY"), riverSystem, pickupIdle(pickup{})},
				{who("Pawl, psql", "job_enqueue by a psql that stays open, so that its session is warm; woken"), pawlSystem, pickupIdle(pickup{open: byPsql})},
				{who("Pawl, no presence", "poll every 500 ms"), pawlSystem, pickupIdle(pickup{deaf: true})},
				{who("loop", "poll every 500 ms"), loopSystem, pickupIdle(pickup{})},
			}},
		storedAndScheduledPlan(),
		{Row: Row{ID: "pickup-half", Title: "Enqueue to handler at half load", Unit: ms, Less: true}, rounds: 1,
			entries: contenders("set up for speed", pickupHalf)},
	}
}

// heldPlans measure beside old snapshots and blocked lanes.
func heldPlans() []plan {
	return []plan{
		{Row: Row{ID: "held", Title: "An idle snapshot held, saturated: rate at the end", Unit: perSec,
			Bars: []Bar{{Who: "Pawl", Factor: 0.8, Meaning: "≥ 80 % of its clean rate"}}}, rounds: 1,
			entries: contenders("set up for speed", heldSaturated)},
		{Row: Row{ID: "held-half", Title: "An idle snapshot held for 5 minutes, half load: rate at the end", Unit: perSec,
			Bars: []Bar{{Who: "Pawl", Factor: 0.95, Meaning: "≥ 95 % of what is offered"}}}, rounds: 1, slow: true,
			// For the loop, see held.
			entries: []entry{{who("Pawl", "set up for speed"), pawlSystem, heldHalf}, {base("set up for speed"), riverSystem, heldHalf}}},
		{Row: Row{ID: "blocked", Title: "Jobs that do nothing, beside 100,000 blocked in lanes", Unit: perSec,
			Bars: []Bar{{Who: "Pawl", Factor: 0.8, Meaning: "≥ 80 % of its clean rate"}}},
			entries: []entry{{who("Pawl", "1,000 lanes behind a dead letter each"), pawlSystem, blocked(20_000)}}},
	}
}

// deathPlans measure after a stall or a SIGKILL, and the memory of a worker.
func deathPlans() []plan {
	return []plan{
		{Row: Row{ID: "straggler", Title: "A job whose transaction stayed open: COMMIT to handler", Unit: ms, Less: true,
			Bars: []Bar{{Who: "Pawl", Factor: 1000, P99: true, Meaning: "p99 ≤ 1 s"}}}, rounds: 1, abreast: true,
			entries: contenders("set up for speed", straggle)},
		{Row: Row{ID: "crash", Title: "SIGKILL of a worker to its job's next run (River's default: an hour)", Unit: ms, Less: true,
			Bars: []Bar{{Who: "Pawl", Factor: 3000, P99: true, Meaning: "p99 ≤ 3 s"}, {Who: "Pawl, lease", Factor: 4000, P99: true, Meaning: "p99 ≤ 4 s"}}},
			rounds: 1, abreast: true,
			entries: []entry{
				{who("Pawl", "default settings: presence, lease 30 s"), pawlSystem, crash("pawl/crash", task{})},
				{who("Pawl, lease", "no presence, lease 3 s"), pawlSystem, crash("pawl/crash by lease", task{lease: crashLease})},
				{who("loop", "row lock, no lease; poll every 500 ms"), loopSystem, crash("loop/lock", task{})},
			}},
		{Row: Row{ID: "memory", Title: "Largest resident set of a worker process", Unit: "MiB", Less: true,
			Bars: []Bar{{Who: "Pawl", Factor: 64, Meaning: "≤ 64 MiB"}}}, rounds: 1,
			entries: []entry{
				{who("Pawl", "1,000 in hand"), pawlSystem, memory("pawl/memory")},
				{base("2,000 workers"), riverSystem, memory("river/memory")},
			}},
		zombies(),
	}
}

func singles(callers int) []entry {
	return []entry{
		{who("Pawl", "Enqueue"), pawlSystem, enqueueSingle(callers)},
		{base("Insert"), riverSystem, enqueueSingle(callers)},
		{who("loop", "insert"), loopSystem, enqueueSingle(callers)},
		{who("pgx", "the same insert by pgx, without a function: the floor of a client in Go"), pawlSystem, enqueueBare(callers)},
		{floor("insert into pawl.job"), pawlSystem, floorFor(insertOne, callers, 1)},
	}
}

func contenders(how string, m measure) []entry {
	return []entry{{who("Pawl", how), pawlSystem, m}, {base(how), riverSystem, m}, {who("loop", how), loopSystem, m}}
}

func zombies() plan {
	one := func(who string) Bar { return Bar{Who: who, Factor: 1, Meaning: "1 effect"} }
	return plan{
		Row: Row{ID: "zombie", Title: "A worker frozen past its lease wakes and commits: rows of one job", Unit: "rows", Less: true,
			Bars: []Bar{one("Pawl"), one("Pawl, own tx"), one("Pawl, no Hold")}},
		rounds: 1, abreast: true,
		entries: []entry{
			{who("Pawl", "HandleTx"), pawlSystem, zombie("pawl/tx")},
			{who("Pawl, own tx", "Hold first, then the row, then Finish"), pawlSystem, zombie("pawl/hold")},
			{who("Pawl, no Hold", "the row, then Finish"), pawlSystem, zombie("pawl/finish")},
			{who("River", "JobCompleteTx as in its example"), riverSystem, zombie("river/example")},
			{who("River, detached", "JobCompleteTx, deadline not passed on"), riverSystem, zombie("river/detached")},
			{who("loop", "row lock, no lease"), loopSystem, zombie("loop/lock")},
			{who("loop, lease", "lease in a column, delete by id"), loopSystem, zombie("loop/lease")},
		},
	}
}
