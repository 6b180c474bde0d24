package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// loopSystem is the usual handwritten queue: rows are locked by FOR UPDATE SKIP LOCKED and deleted
// in the transaction of the work. It has no lease, no retries and no dead letters. A frozen process
// keeps its rows while it is connected.
var loopSystem = system{"loop", installLoop, func(pool *pgxpool.Pool) (contender, error) { return &loopQueue{pool}, nil }}

const createLoop = `
create table todo (
  id           bigint generated always as identity primary key,
  args         jsonb not null,
  created_at   timestamptz not null default now(),
  locked_until timestamptz not null default '-infinity' -- only the variant with a lease uses it
)`

func installLoop(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, createLoop+createKeys)
	return err
}

type loopQueue struct{ pool *pgxpool.Pool }

func (q *loopQueue) enqueue(ctx context.Context, p payload) error {
	_, err := q.pool.Exec(ctx, "insert into todo (args) values ($1)", p)
	return err
}

func (q *loopQueue) enqueueIn(ctx context.Context, tx pgx.Tx, p payload) error {
	_, err := tx.Exec(ctx, "insert into todo (args) values ($1)", p)
	return err
}

func (q *loopQueue) enqueueMany(ctx context.Context, n int, p payload) error {
	all := make([]payload, n)
	for i := range all {
		all[i] = p
	}
	_, err := q.pool.Exec(ctx, "insert into todo (args) select a.args from unnest($1::jsonb[]) as a (args)", all)
	return err
}

func (q *loopQueue) waiting(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from todo").Scan(&n)
	return n, err
}

func (q *loopQueue) work(ctx context.Context, t task) (stop func(), err error) {
	loops, limit := 4, batchSize
	if t.form == effect {
		loops, limit = inFlight, 1
	}
	pause := 5 * time.Millisecond
	if t.polite {
		loops, limit, pause = 1, cmp.Or(t.inHand, 10), 500*time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for range loops {
		running.Go(func() { q.loop(ctx, t, limit, pause) })
	}
	return func() { cancel(); running.Wait() }, nil
}

func (q *loopQueue) loop(ctx context.Context, t task, limit int, pause time.Duration) {
	for ctx.Err() == nil {
		n, err := q.some(ctx, t, limit)
		if err != nil && !errors.Is(err, context.Canceled) {
			slog.Error("loop", "err", err)
		}
		if n > 0 {
			t.ended(n)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// some runs one transaction that takes, does and deletes some jobs.
func (q *loopQueue) some(ctx context.Context, t task, limit int) (n int, err error) {
	// A cancelled COMMIT may still happen and would be counted as not done.
	ctx = context.WithoutCancel(ctx)
	err = pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		ids, err := q.take(ctx, tx, t, limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		n = len(ids)
		if err := q.do(ctx, tx, t, ids); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "delete from todo where id = any ($1)", ids)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (q *loopQueue) take(ctx context.Context, tx pgx.Tx, t task, limit int) (ids []int64, err error) {
	rows, err := tx.Query(ctx, "select t.id, t.args from todo as t order by t.id limit $1 for update skip locked", limit)
	if err != nil {
		return nil, err
	}
	var id int64
	var p payload
	_, err = pgx.ForEachRow(rows, []any{&id, &p}, func() error {
		if t.started != nil {
			t.started(p)
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

func (q *loopQueue) do(ctx context.Context, tx pgx.Tx, t task, ids []int64) (err error) {
	switch t.form {
	case effect:
		_, err = tx.Exec(ctx, insertEffect, ids[0])
	case effectBatch:
		_, err = tx.Exec(ctx, insertEffects, ids)
	}
	return err
}
