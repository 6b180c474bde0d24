package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A nodeLibrary is a queue for Node: which script drives it, and what a user would ask the database about it.
type nodeLibrary struct {
	script string
	left   string // the numbers of the jobs that are not done: waiting, in hand, or given up
	age    string // makes the locks of dead processes old, where the library offers no other way; see peers_kill.go
}

var (
	graphile = nodeLibrary{script: "graphile",
		left: "select (j.payload ->> 'n')::bigint as job from graphile_worker._private_jobs as j",
		age:  "update graphile_worker._private_jobs as j set locked_at = j.locked_at - interval '5 hours' where j.locked_at is not null"}
	pgboss = nodeLibrary{script: "pgboss",
		left: "select (j.data ->> 'n')::bigint as job from pgboss.job as j where j.name = 'bench' and j.state <> 'completed'"}
)

// on is the library as a contender, with options for its script. Contenders of one name share a template, so options that change what
// is installed need a name of their own.
func (l nodeLibrary) on(name string, options map[string]any) system {
	text, err := json.Marshal(options)
	if err != nil {
		panic(err) // a literal in this program
	}
	open := func(pool *pgxpool.Pool) *nodeQueue {
		return &nodeQueue{pool: pool, library: l, options: string(text)}
	}
	return system{name: name,
		install: func(ctx context.Context, pool *pgxpool.Pool) error {
			q := open(pool)
			defer q.Close()
			return q.ask(ctx, "install", nil, nil)
		},
		open: func(pool *pgxpool.Pool) (contender, error) { return open(pool), nil },
	}
}

type nodeQueue struct {
	pool    *pgxpool.Pool
	library nodeLibrary
	options string
	client  *child
}

// Close ends the contender's process.
func (q *nodeQueue) Close() error {
	if q.client != nil {
		q.client.end()
	}
	return nil
}

func (q *nodeQueue) start(ctx context.Context) (*child, error) {
	return startChild(ctx, q.library.script, q.options, q.pool.Config().ConnString())
}

// own is the contender's process, which enqueues and works as a contender in Go does in this one. It is started at first use.
func (q *nodeQueue) own(ctx context.Context) (c *child, err error) {
	if q.client == nil {
		q.client, err = q.start(ctx)
	}
	return q.client, err
}

func (q *nodeQueue) ask(ctx context.Context, name string, args map[string]any, result any) error {
	c, err := q.own(ctx)
	if err != nil {
		return err
	}
	return c.call(ctx, name, args, result)
}

// enqueue ignores the payload: the process sets the time itself, without the way to it.
func (q *nodeQueue) enqueue(ctx context.Context, _ payload) error {
	return q.ask(ctx, "enqueue", nil, nil)
}

func (q *nodeQueue) enqueueMany(ctx context.Context, n int, _ payload) error {
	return q.ask(ctx, "enqueueMany", map[string]any{"count": n}, nil)
}

var errOtherProcess = errors.New("this contender enqueues in a process of its own, which has no part in the caller's transaction")

func (q *nodeQueue) enqueueIn(context.Context, pgx.Tx, payload) error { return errOtherProcess }

func (q *nodeQueue) waiting(ctx context.Context) (n int, err error) {
	err = q.pool.QueryRow(ctx, "select count(*) from ("+q.library.left+") as l").Scan(&n)
	return n, err
}

func (q *nodeQueue) work(ctx context.Context, t task) (stop func(), err error) {
	c, err := q.own(ctx)
	if err != nil {
		return nil, err
	}
	return func() { _ = c.call(context.WithoutCancel(ctx), "stop", nil, nil) }, c.work(ctx, t, false)
}

// enqueueFor enqueues for some time, so many a call, and returns how many calls the time was enough for.
func (q *nodeQueue) enqueueFor(ctx context.Context, callers, each int, d time.Duration) (calls int, took time.Duration, err error) {
	var got struct {
		Calls int
		Ms    float64
	}
	err = q.ask(ctx, "enqueueFor", map[string]any{"callers": callers, "each": each, "ms": d.Milliseconds()}, &got)
	return got.Calls, time.Duration(got.Ms * float64(time.Millisecond)), err
}
