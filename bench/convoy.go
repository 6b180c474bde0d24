package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// committers are callers that enqueue and commit at the same time. Each has a connection of its own.
const committers = 64

// A storm is what they do, and who works off what they enqueue.
type storm struct {
	workers int
	deaf    bool   // the workers have no presence connection, and poll
	strange bool   // the workers handle another kind, and are always idle
	sql     string // in place of the contender's call
}

// notifyAlways is an enqueue that notifies in each transaction, as a trigger would.
const notifyAlways = `select e.job_id, pg_notify('pawl_jobs', '1') from pawl_v1.job_enqueue('bench', 'bench', '{}') as e`

// convoy measures how many jobs are enqueued by callers that commit all the time, beside workers that are woken. Transactions that notify
// commit one at a time.
func convoy(st storm) measure {
	return func(ctx context.Context, b *bed, s scale) (r Round, err error) {
		call, closed, err := b.committer(ctx, st)
		if err != nil {
			return r, err
		}
		defer closed()
		for range st.workers {
			stop, err := b.work(ctx, task{form: noop, strange: st.strange, deaf: st.deaf, ended: func(int) {}})
			if err != nil {
				return r, err
			}
			defer stop()
		}
		time.Sleep(s.idle) // they sleep
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, err
		}
		var (
			calls  atomic.Int64
			failed atomic.Pointer[error]
			all    sync.WaitGroup
			start  = time.Now()
		)
		for range committers {
			all.Go(func() {
				for time.Since(start) < s.enqueue && failed.Load() == nil {
					if err := call(ctx); err != nil {
						failed.Store(&err)
						return
					}
					calls.Add(1)
				}
			})
		}
		all.Wait()
		if err := failed.Load(); err != nil {
			return r, *err
		}
		r.Value = float64(calls.Load()) / time.Since(start).Seconds()
		return r, m.charge(ctx, &r, int(calls.Load()))
	}
}

// committer returns a call that enqueues one job, on a pool that is large enough for all callers.
func (b *bed) committer(ctx context.Context, st storm) (call func(context.Context) error, closed func(), err error) {
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = committers
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	if st.sql != "" {
		return func(ctx context.Context) error { _, err := pool.Exec(ctx, st.sql); return err }, pool.Close, nil
	}
	var on contender = &pawlQueue{pool: pool}
	if _, is := b.contender.(*riverQueue); is {
		on, err = openRiver(pool)
	}
	return func(ctx context.Context) error { return on.enqueue(ctx, payload{}) }, pool.Close, err
}

func convoyPlan() plan {
	return plan{
		Row: Row{ID: "convoy", Title: "Enqueue, one job a call, 64 callers, beside workers that are woken", Unit: perSec,
			Bars: []Bar{{Who: "Pawl", Of: "NOTIFY always", Factor: 2}, {Who: "Pawl, 4 workers", Of: "Pawl, 4 poll", Factor: 0.9},
				{Who: "Pawl, strange", Of: "Pawl, alone", Factor: 0.9}}},
		entries: []entry{
			{who("Pawl", "Enqueue; one worker, 1,000 in hand"), pawlSystem, convoy(storm{workers: 1})},
			{base("Insert; one client, 2,000 workers. It notifies once in 100 ms"), riverSystem, convoy(storm{workers: 1})},
			{who("Pawl, 4 workers", "the same, 4 workers"), pawlSystem, convoy(storm{workers: 4})},
			{who("Pawl, 4 poll", "the same without presence, so that none is woken"), pawlSystem, convoy(storm{workers: 4, deaf: true})},
			{who("Pawl, alone", "no worker: nothing is claimed"), pawlSystem, convoy(storm{})},
			{who("Pawl, strange", "an idle worker of another kind: it is woken in vain"), pawlSystem, convoy(storm{workers: 1, strange: true})},
			{who("NOTIFY always", "Pawl's SQL, and pg_notify in each transaction; one worker"), pawlSystem, convoy(storm{workers: 1, sql: notifyAlways})},
		},
	}
}
