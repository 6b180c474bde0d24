package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

var riverSystem = system{"river", installRiver, openRiver}

func installRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: silent})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// loud logs what should not happen in a benchmark.
var loud = slog.New(slog.NewTextHandler(stderr{}, &slog.HandlerOptions{Level: slog.LevelWarn}))

func (payload) Kind() string { return kind }

type riverQueue struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts only
	copies bool                  // enqueueMany uses COPY, which returns only a count
}

func openRiver(pool *pgxpool.Pool) (contender, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: loud})
	return &riverQueue{pool: pool, client: client, copies: true}, err
}

func (q *riverQueue) enqueue(ctx context.Context, p payload) error {
	_, err := q.client.Insert(ctx, p, nil)
	return err
}

func (q *riverQueue) enqueueIn(ctx context.Context, tx pgx.Tx, p payload) error {
	_, err := q.client.InsertTx(ctx, tx, p, nil)
	return err
}

func (q *riverQueue) enqueueMany(ctx context.Context, n int, p payload) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = p
	}
	if q.copies {
		_, err := q.client.InsertManyFast(ctx, params)
		return err
	}
	_, err := q.client.InsertMany(ctx, params)
	return err
}

func (q *riverQueue) waiting(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from river_job where state <> 'completed'").Scan(&n)
	return n, err
}

func (q *riverQueue) work(ctx context.Context, t task) (stop func(), err error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{pool: q.pool, task: t})
	client, err := river.NewClient(riverpgxv5.New(q.pool), riverConfig(t, workers))
	if err != nil {
		return nil, err
	}
	// Job events come after the job's end is stored. River's own benchmark counts them too.
	events, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 200_000,
		Kinds: []river.EventKind{river.EventKindJobCompleted}})
	go func() {
		for range events {
			t.ended(1)
		}
	}()
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() { _ = client.Stop(context.WithoutCancel(ctx)); unsubscribe() }, nil
}

// riverConfig has the settings of River's own benchmark (its package riverbench), or its defaults.
// If each job takes a connection, 2,000 workers only compete for those of the pool. There the
// default of 100 was twice as fast.
func riverConfig(t task, workers *river.Workers) *river.Config {
	c := &river.Config{Logger: loud, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}}
	if !t.polite {
		c.FetchCooldown, c.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
		if t.form == noop {
			c.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: 2000}
		}
	}
	if t.rescue > 0 {
		c.JobTimeout, c.RescueStuckJobsAfter = t.rescue, t.rescue
	}
	return c
}

type riverWorker struct {
	river.WorkerDefaults[payload]
	pool *pgxpool.Pool
	task task
}

func (w *riverWorker) Work(ctx context.Context, j *river.Job[payload]) error {
	if w.task.started != nil {
		w.task.started(j.Args)
	}
	if w.task.form == noop {
		return nil
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertEffect, j.ID); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
		return err
	})
}
