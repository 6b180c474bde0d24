package main

import (
	"context"
	"time"
)

// Peers are other queues on PostgreSQL, each set up for speed as its documentation says; their scripts and files name the page. The rates
// stand beside what kills do to the same contender: a rate counts little if work is lost or done twice.
//
// Que and good_job are left out: they are gems for Ruby, and Debian has no package of either.

const graphileHow, pgbossHow = "24 at once, local queue of 500, batched completion", "batches of 500, 4 workers, burst"

var (
	graphileSystem = graphile.on("graphile", map[string]any{})
	pgbossSystem   = pgboss.on("pgboss", map[string]any{})
	pgbossTx       = pgboss.on("pgboss", map[string]any{"work": map[string]any{"transactional": true}})
	pgbossNotify   = pgboss.on("pgboss_notify", map[string]any{"boss": map[string]any{"useListenNotify": true}, "queue": map[string]any{"notify": true}})
)

func inGraphile(how string) Line {
	return who("graphile-worker", nodeVersion("graphile-worker")+": "+how)
}
func inPgboss(name, how string) Line { return who(name, nodeVersion("pg-boss")+": "+how) }
func inWatermill(how string) Line {
	return who("watermill-sql", "watermill-sql "+version("github.com/ThreeDotsLabs/watermill-sql/v3")+": "+how)
}

// peerPlans are the rows that set Pawl beside other queues on PostgreSQL.
func peerPlans() []plan {
	return []plan{
		{Row: Row{ID: "peers-enqueue-1", Title: "Peers: enqueue, one job a call, 1 caller", Unit: perSec}, entries: peersEnqueue(1)},
		{Row: Row{ID: "peers-enqueue-16", Title: "Peers: enqueue, one job a call, 16 callers", Unit: perSec}, entries: peersEnqueue(16)},
		{Row: Row{ID: "peers-enqueue-many", Title: "Peers: enqueue, 1,000 jobs a call", Unit: perSec},
			entries: []entry{
				{who("Pawl", "EnqueueMany"), pawlSystem, enqueueBatched},
				{base("InsertManyFast (COPY)"), riverSystem, enqueueBatched},
				{inGraphile("addJobs"), graphileSystem, enqueueInPeer(1, manySize)},
				{inPgboss("pg-boss", "insert"), pgbossSystem, enqueueInPeer(1, manySize)},
				{inWatermill("Publish of 1,000"), watermillSystem, enqueueBatched},
			}},
		{Row: Row{ID: "peers-noop", Title: "Peers: jobs that do nothing, one process", Unit: perSec},
			entries: []entry{
				{who("Pawl", "Handle"), pawlSystem, drain(noop, 40_000)},
				{who("Pawl, batch", "HandleManyTx of 100"), pawlSystem, drain(noopBatch, 50_000)},
				{base("2,000 workers, fetch every 2 ms"), riverSystem, drain(noop, 30_000)},
				{inGraphile(graphileHow), graphileSystem, drain(noop, 20_000)},
				{inPgboss("pg-boss", pgbossHow), pgbossSystem, drain(noop, 20_000)},
				{inWatermill("1 subscriber, batches of 1,000"), watermillSystem, drain(noop, 40_000)},
			}},
		{Row: Row{ID: "peers-effect", Title: "Peers: jobs that write one row, one process", Unit: perSec},
			entries: []entry{
				{who("Pawl", "HandleTx: the row in the transaction that ends the job"), pawlSystem, drain(effect, 12_000)},
				{who("Pawl, batch", "HandleManyTx of 100, the same"), pawlSystem, drain(effectBatch, 50_000)},
				{base("JobCompleteTx, the same"), riverSystem, drain(effect, 6_000)},
				{inGraphile(graphileHow + "; it has no completion in a transaction, so the row goes through its pool before the job ends"), graphileSystem, drain(effect, 8_000)},
				{inPgboss("pg-boss", pgbossHow+"; the batch's rows go through a pool before the jobs end"), pgbossSystem, drain(effect, 20_000)},
				{inPgboss("pg-boss, tx", pgbossHow+"; transactional: the batch's rows in the transaction that ends its jobs"), pgbossTx, drain(effect, 20_000)},
				{inWatermill("the row in the transaction that moves the offset, 1,000 messages in one"), watermillSystem, drain(effect, 20_000)},
			}},
		{Row: Row{ID: "peers-pickup", Title: "Peers: enqueue to handler, idle, default settings", Unit: ms, Less: true}, rounds: 1, abreast: true,
			entries: []entry{
				{who("Pawl", "woken"), pawlSystem, pickupIdle(pickup{})},
				{base("LISTEN/NOTIFY"), riverSystem, pickupIdle(pickup{})},
				{inGraphile("LISTEN/NOTIFY"), graphileSystem, pickupIdle(pickup{})},
				{inPgboss("pg-boss", "poll every 2 s"), pgbossSystem, pickupIdle(pickup{})},
				{inPgboss("pg-boss, notify", "useListenNotify and a queue with notify, which are not the default"), pgbossNotify, pickupIdle(pickup{})},
				{inWatermill("poll every second"), watermillSystem, pickupIdle(pickup{})},
			}},
		peersKill(),
	}
}

func peersEnqueue(callers int) []entry {
	return []entry{
		{who("Pawl", "Enqueue"), pawlSystem, enqueueSingle(callers)},
		{base("Insert"), riverSystem, enqueueSingle(callers)},
		{inGraphile("addJob, pool of 20"), graphileSystem, enqueueInPeer(callers, 1)},
		{inPgboss("pg-boss", "send, pool of 20"), pgbossSystem, enqueueInPeer(callers, 1)},
		{inWatermill("Publish"), watermillSystem, enqueueSingle(callers)},
	}
}

// enqueueInPeer is enqueueLoop in a process of its own.
func enqueueInPeer(callers, each int) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		q := b.contender.(*nodeQueue)
		if _, _, err := q.enqueueFor(ctx, callers, each, 50*time.Millisecond); err != nil { // connects, and prepares statements
			return r, err
		}
		if err := b.ready(ctx); err != nil {
			return r, err
		}
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		calls, took, err := q.enqueueFor(ctx, callers, each, s.enqueue)
		if err != nil {
			return r, err
		}
		r.Value = float64(calls*each) / took.Seconds()
		return r, m.charge(ctx, &r, calls*each)
	}
}
