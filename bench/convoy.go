package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// committers is the number of callers that enqueue and commit at the same time, each on its own
// connection.
const committers = 64

// A storm configures the callers and the workers.
type storm struct {
	callers int // committers, if zero
	workers int
	busy    bool   // the workers are busy before the measurement starts
	deaf    bool   // the workers have no presence connection and poll
	strange bool   // the workers handle another kind and are always idle
	sql     string // replaces the contender's call
}

// notifyAlways enqueues and notifies in each transaction, as a trigger would.
const notifyAlways = `select e.job_id, pg_notify('pawl_jobs', '1') from pawl_v1.job_enqueue('bench', 'bench', '{}') as e`

// convoy measures how many jobs concurrent callers enqueue while workers are woken. PostgreSQL
// commits notifying transactions one at a time.
func convoy(st storm) measure {
	st.callers = cmp.Or(st.callers, committers)
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
		time.Sleep(s.idle) // until the workers are idle
		calls, ended := committing(st.callers, func() error { return call(ctx) })
		if st.busy {
			time.Sleep(s.warm)
		}
		m, err := b.host.meter(ctx)
		if err != nil {
			return r, errors.Join(err, ended())
		}
		n, took := watched(ctx, s.enqueue, calls)
		r.Value = float64(n) / took.Seconds()
		return r, errors.Join(m.charge(ctx, &r, int(n)), ended())
	}
}

// committing makes callers call concurrently until ended is called. ended returns the first error
// of a call.
func committing(callers int, call func() error) (calls *atomic.Int64, ended func() error) {
	var (
		over   atomic.Bool
		failed atomic.Pointer[error]
		all    sync.WaitGroup
	)
	calls = &atomic.Int64{}
	for range callers {
		all.Go(func() {
			for !over.Load() && failed.Load() == nil {
				if err := call(); err != nil {
					failed.Store(&err)
					return
				}
				calls.Add(1)
			}
		})
	}
	return calls, func() error {
		over.Store(true)
		all.Wait()
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
}

// committer returns a call that enqueues one job, on a pool with a connection for each caller.
func (b *bed) committer(ctx context.Context, st storm) (call func(context.Context) error, closed func(), err error) {
	config, err := pgxpool.ParseConfig(b.url)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(st.callers)
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
			{who("Pawl, 4 workers", "the same, 4 workers, busy from the start"), pawlSystem, convoy(storm{workers: 4, busy: true})},
			{who("Pawl, 4 poll", "the same without presence, so that none is woken"), pawlSystem, convoy(storm{workers: 4, busy: true, deaf: true})},
			{who("Pawl, alone", "no worker: nothing is claimed"), pawlSystem, convoy(storm{})},
			{who("Pawl, strange", "an idle worker of another kind: it is woken in vain"), pawlSystem, convoy(storm{workers: 1, strange: true})},
			{who("NOTIFY always", "Pawl's SQL, and pg_notify in each transaction; one worker"), pawlSystem, convoy(storm{workers: 1, sql: notifyAlways})},
		},
	}
}

// busyPlan compares workers that are woken with workers that only poll, while both are always busy.
// Wake-ups must then delay nothing. The two differ by less than their rounds do, so there are more
// rounds.
func busyPlan() plan {
	return plan{
		Row: Row{ID: "enqueue-busy", Title: "Enqueue, one job a call, 16 callers, while a worker is busy", Unit: perSec,
			Bars: []Bar{{Who: "Pawl", Of: "Pawl, polls", Factor: 0.97}, {Who: "Pawl", Of: "Pawl, polls", Factor: 0.97, CPU: true}}},
		many: 3,
		entries: []entry{
			{who("Pawl", "one worker, 1,000 in hand, woken"), pawlSystem, convoy(storm{callers: 16, workers: 1, busy: true})},
			{who("Pawl, polls", "the same without presence, so that it is never woken"), pawlSystem, convoy(storm{callers: 16, workers: 1, busy: true, deaf: true})},
		},
	}
}
