package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A system can be installed in a database and opened there.
type system struct {
	name    string // part of the name of its template
	install func(ctx context.Context, pool *pgxpool.Pool) error
	open    func(pool *pgxpool.Pool) (contender, error)
}

// A contender is one queue in its own database.
type contender interface {
	// enqueue stores one job in its own transaction.
	enqueue(ctx context.Context, p payload) error
	// enqueueIn stores one job in the caller's transaction.
	enqueueIn(ctx context.Context, tx pgx.Tx, p payload) error
	// enqueueMany stores n jobs in one call.
	enqueueMany(ctx context.Context, n int, p payload) error
	// work starts the workers of one process, tuned for speed unless the task says otherwise.
	work(ctx context.Context, t task) (stop func(), err error)
	// waiting counts the unfinished jobs.
	waiting(ctx context.Context) (int, error)
}

// payload is the payload of every job.
type payload struct {
	At int64 `json:"at"` // time of the enqueue, in nanoseconds
}

// A form is what a handler does and how its job is finished.
type form int

const (
	noop        form = iota + 1 // nothing; the job is finished after the handler
	noopBatch                   // nothing, for a batch that is finished in one transaction
	effect                      // one row, in the transaction that finishes the job
	effectBatch                 // one row each, in the transaction that finishes the batch
)

// A task configures workers.
type task struct {
	form    form
	polite  bool            // default settings of an application instead of speed
	inHand  int             // concurrent jobs, if not zero
	strange bool            // Pawl: handles another kind than is enqueued
	deaf    bool            // Pawl: no presence connection
	lease   time.Duration   // Pawl: no presence, this lease; if not zero
	rescue  time.Duration   // River: time until a job counts as stuck; zero: default
	started func(p payload) // called by each handler, if not nil
	ended   func(n int)     // called when jobs have ended
}

const (
	inFlight  = 32  // concurrent jobs, if each is an item of its own
	batchSize = 100 // jobs per transaction
	manySize  = 1000
	poolConns = 40
)

// insertEffect is a handler's effect for one job, insertEffects for many.
const (
	insertEffect  = "insert into effect (job, by) values ($1, 'bench')"
	insertEffects = "insert into effect (job, by) select j.id, 'bench' from unnest($1::bigint[]) as j (id)"
	createEffect  = "create table effect (job bigint not null, by text not null)"
)
