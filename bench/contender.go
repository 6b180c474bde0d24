package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A system can be installed in a database and opened there.
type system struct {
	name    string // as templates are named
	install func(ctx context.Context, pool *pgxpool.Pool) error
	open    func(pool *pgxpool.Pool) (contender, error)
}

// A contender is one queue in a database of its own.
type contender interface {
	// enqueue stores one job in a call of its own.
	enqueue(ctx context.Context, p payload) error
	// enqueueIn is enqueue in the caller's transaction.
	enqueueIn(ctx context.Context, tx pgx.Tx, p payload) error
	// enqueueMany stores n jobs in one call.
	enqueueMany(ctx context.Context, n int, p payload) error
	// work starts one process's worth of workers, set up for speed unless the task says otherwise.
	work(ctx context.Context, t task) (stop func(), err error)
	// waiting counts the jobs that are not done.
	waiting(ctx context.Context) (int, error)
}

// payload is what every job carries.
type payload struct {
	At int64 `json:"at"` // when it was enqueued, in nanoseconds
}

// A form is what handlers do, and how a job ends.
type form int

const (
	noop        form = iota + 1 // nothing, and the job ends after it
	noopBatch                   // nothing, for a batch that ends in one transaction
	effect                      // one row, in the transaction that ends the job
	effectBatch                 // one row each, in the transaction that ends the batch
)

// A task is what workers are to do.
type task struct {
	form    form
	polite  bool            // default settings, as an application would leave them, instead of speed
	inHand  int             // jobs at a time, if not zero
	strange bool            // Pawl: of another kind than what is enqueued
	deaf    bool            // Pawl: without a presence connection
	lease   time.Duration   // Pawl: by the lease alone, if not zero
	rescue  time.Duration   // River: after how long a job counts as stuck; zero leaves its default
	started func(p payload) // called by each handler, if not nil
	ended   func(n int)     // called after jobs have ended
}

const (
	inFlight  = 32  // jobs in hand, per item
	batchSize = 100 // jobs in one transaction
	manySize  = 1000
	poolConns = 40
)

// insertEffect is what a handler with an effect does for one job, insertEffects for many.
const (
	insertEffect  = "insert into effect (job, by) values ($1, 'bench')"
	insertEffects = "insert into effect (job, by) select j.id, 'bench' from unnest($1::bigint[]) as j (id)"
	createEffect  = "create table effect (job bigint not null, by text not null)"
)
