package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/migrate"
)

const queue, kind = "bench", "bench"

var pawlSystem = system{"pawl", installPawl, func(pool *pgxpool.Pool) (contender, error) { return &pawlQueue{pool: pool}, nil }}

func installPawl(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = migrate.Up(ctx, conn.Conn(), nil)
	return err
}

type pawlQueue struct{ pool *pgxpool.Pool }

func (q *pawlQueue) enqueue(ctx context.Context, p payload) error {
	_, err := job.Enqueue(ctx, q.pool, job.Request{Queue: queue, Kind: kind, Value: p})
	return err
}

func (q *pawlQueue) enqueueIn(ctx context.Context, tx pgx.Tx, p payload) error {
	_, err := job.Enqueue(ctx, tx, job.Request{Queue: queue, Kind: kind, Value: p})
	return err
}

func (q *pawlQueue) enqueueMany(ctx context.Context, n int, p payload) error {
	args, err := json.Marshal(p)
	if err != nil {
		return err
	}
	requests := make([]job.Request, n)
	for i := range requests {
		requests[i] = job.Request{Queue: queue, Kind: kind, Payload: args}
	}
	_, err = job.EnqueueMany(ctx, q.pool, requests)
	return err
}

func (q *pawlQueue) waiting(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from pawl.job").Scan(&n)
	return n, err
}

func (q *pawlQueue) work(ctx context.Context, t task) (stop func(), err error) {
	config := job.Config{
		Lease:    t.lease,
		Presence: job.Presence{Off: t.lease > 0 || t.deaf},
		Queues:   []job.Queue{{Name: queue, Concurrency: pawlConcurrency(t)}},
		Handlers: []job.Handler{pawlHandler(t)},
		Hooks:    pawlHooks(t),
	}
	worker, err := job.NewWorker(q.pool, config)
	if err != nil {
		return nil, err
	}
	return working(ctx, "pawl", worker.Run), nil
}

// running runs a function until stop is called. stop returns its error.
func running(ctx context.Context, run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceValue(func() error { cancel(); return <-ended })
}

// working is running for a program that logs its error at once.
func working(ctx context.Context, what string, run func(context.Context) error) (stop func()) {
	wait := running(ctx, func(ctx context.Context) error {
		err := run(ctx)
		if err != nil {
			slog.Error(what, "err", err)
		}
		return err
	})
	return func() { _ = wait() }
}

// pawlConcurrency returns the concurrency with the best figures, unless the task is polite.
func pawlConcurrency(t task) int {
	switch {
	case t.polite:
		return t.inHand
	case t.form == noop:
		return 1000
	case t.form == effect:
		return inFlight
	}
	return 4 * batchSize
}

func pawlHandler(t task) job.Handler {
	started := func(p payload) {
		if t.started != nil {
			t.started(p)
		}
	}
	switch t.form {
	case noop:
		kind := kind
		if t.strange {
			kind = "strange"
		}
		return job.Handle(kind, func(_ context.Context, j job.Task[payload]) error { started(j.Value); return nil })
	case effect:
		return job.HandleTx(kind, func(ctx context.Context, tx pgx.Tx, j job.Task[payload]) error {
			_, err := tx.Exec(ctx, insertEffect, j.ID)
			return err
		})
	}
	return job.HandleManyTx(kind, func(ctx context.Context, tx pgx.Tx, js []job.Task[payload]) error {
		if t.form == noopBatch {
			return nil
		}
		ids := make([]int64, len(js))
		for i, j := range js {
			ids[i] = j.ID
		}
		_, err := tx.Exec(ctx, insertEffects, ids)
		return err
	}).With(job.ManyPolicy{BatchSize: batchSize})
}

// pawlHooks counts ended jobs and logs events that should not happen in a benchmark.
func pawlHooks(t task) pawl.Hooks {
	return pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
		switch e.Kind {
		case pawl.EventSucceeded:
			t.ended(max(1, e.Count))
		case pawl.EventWoken, pawl.EventPolled:
		default:
			slog.Warn("pawl", "event", fmt.Sprintf("%s %s: %v", e.Kind, e.Op, e.Err))
		}
	}}
}
