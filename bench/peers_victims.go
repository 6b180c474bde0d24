package main

import (
	"context"
	"os/exec"
	"time"
)

// What is left of Pawl's and River's jobs: all but those that succeeded.
const (
	pawlLeft  = "select (convert_from(j.payload, 'UTF8')::jsonb ->> 'at')::bigint as job from pawl.job as j"
	riverLeft = "select (j.args ->> 'at')::bigint as job from river_job as j where j.state <> 'completed'"
	loopLeft  = "select j.id as job from todo as j"
)

// Queues for Node that take over within seconds. pg-boss counts an expired job as a try, of which it allows two by default.
var (
	killedGraphile = graphile.on("graphile", map[string]any{"worker": map[string]any{"concurrentJobs": killInHand, "maxPoolSize": killInHand + 1,
		"localQueue": map[string]any{"size": killInHand + 1}, "minResetLockedInterval": 1000, "maxResetLockedInterval": 1000}})
	pgbossExpiry = map[string]any{"expireInSeconds": 1, "retryLimit": 25, "retryDelay": 0}
	pgbossWatch  = map[string]any{"superviseIntervalSeconds": 1, "monitorIntervalSeconds": 1}
	killedPgboss = pgboss.on("pgboss_kill", map[string]any{"queue": pgbossExpiry, "boss": pgbossWatch,
		"work": map[string]any{"batchSize": killInHand / 2, "localConcurrency": 2}})
	killedPgbossTx = pgboss.on("pgboss_kill", map[string]any{"queue": pgbossExpiry, "boss": pgbossWatch,
		"work": map[string]any{"batchSize": killInHand / 2, "localConcurrency": 2, "transactional": true}})
)

func peersKill() plan {
	const frozen = "; a stopped process keeps its lock, so it is left stopped for 5 s"
	return plan{
		Row: Row{ID: "peers-kill", Title: "Peers: rows too many and jobs lost after SIGKILL and SIGSTOP of workers", Unit: "rows", Less: true,
			Bars: []Bar{{Who: "Pawl", Factor: 0, Meaning: "0 rows"}}}, rounds: 1,
		entries: []entry{
			{who("Pawl", "HandleTx; lease 1 s"), pawlSystem, kill(inGo("kill/pawl/tx", pawlLeft))},
			{who("Pawl, batch", "HandleManyTx of 5; lease 1 s"), pawlSystem, kill(inGo("kill/pawl/batch", pawlLeft))},
			{who("Pawl, pool", "Handle, the row through the pool; lease 1 s"), pawlSystem, kill(inGo("kill/pawl/pool", pawlLeft))},
			{who("River", "JobCompleteTx as in its example; rescue after 1 s"), riverSystem, kill(inGo("kill/river/tx", riverLeft))},
			{who("River, pool", "the row through the pool; rescue after 1 s; it stores completions up to 250 ms later, in batches"), riverSystem, kill(inGo("kill/river/pool", riverLeft))},
			{inGraphile("the row through its pool; it unlocks after 4 h, which cannot be set: locks of dead processes are made 5 h older by SQL, and looked for every second"),
				killedGraphile, kill(inNode(graphile))},
			{inPgboss("pg-boss", "the batch's rows through a pool; expire and supervise after 1 s"), killedPgboss, kill(inNode(pgboss))},
			{inPgboss("pg-boss, tx", "transactional; expire and supervise after 1 s"), killedPgbossTx, kill(inNode(pgboss))},
			{inWatermill("the row in the subscriber's transaction, 10 messages in one" + frozen), watermillSystem,
				kill(inGo("kill/watermill/tx", watermillLeft).patient(5 * time.Second))},
			{who("watermill-sql, pool", "the row through a pool, 10 messages in one transaction"+frozen), watermillSystem,
				kill(inGo("kill/watermill/pool", watermillLeft).patient(5 * time.Second))},
			{who("loop, lease", "lease of 1 s in a column, delete by id"), loopSystem, kill(inGo("kill/loop/lease", loopLeft).patient(10 * time.Second))},
			{who("loop, delete first", "the job is deleted when it is taken"), loopSystem, kill(inGo("kill/loop/delete", loopLeft).patient(10 * time.Second))},
		},
	}
}

// inGo is a victim whose processes are this program, with one of the variants of peers_worker.go.
func inGo(variant, left string) victim {
	return victim{left: left, spawn: func(ctx context.Context, b *bed) (*worker, error) {
		z, err := raise(ctx, variant, b.url)
		if err != nil {
			return nil, err
		}
		return &worker{z.cmd.Process, buryOnce(z.cmd, func() { _ = z.in.Close() })}, nil
	}}
}

// inNode is a victim whose processes are Node's.
func inNode(l nodeLibrary) victim {
	return victim{left: l.left, age: l.age, spawn: func(ctx context.Context, b *bed) (*worker, error) {
		c, err := b.contender.(*nodeQueue).start(ctx)
		if err != nil {
			return nil, err
		}
		w := &worker{c.cmd.Process, buryOnce(c.cmd, func() {})}
		if err := c.work(ctx, task{form: effect, ended: func(int) {}}, true); err != nil {
			w.bury()
			return nil, err
		}
		return w, nil
	}}
}

func buryOnce(cmd *exec.Cmd, after func()) func() {
	return func() {
		if cmd.ProcessState != nil {
			return
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		after()
	}
}

// patient is the victim with another patience, where the frozen process holds a lock of the database, so that waiting longer changes nothing.
func (v victim) patient(d time.Duration) victim { v.patience = d; return v }
