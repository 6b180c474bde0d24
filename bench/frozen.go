package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// runFrozen is the program of the process to freeze. It works on one queue with one handler, which
// stops at pauseHere until released. It never returns by itself.
func runFrozen(variant, url string) error {
	ctx := context.Background()
	pool, err := openPool(ctx, url)
	if err != nil {
		return err
	}
	switch variant {
	case "pawl/tx", "pawl/hold", "pawl/finish":
		return frozenPawl(ctx, pool, variant)
	case "river/example", "river/detached":
		return frozenRiver(ctx, pool, variant == "river/detached")
	case "pawl/crash":
		return crashingPawl(ctx, pool, job.Config{})
	case "pawl/crash by lease":
		return crashingPawl(ctx, pool, job.Config{Lease: crashLease, Presence: job.Presence{Off: true}})
	case "pawl/memory", "river/memory":
		return roomyWorker(ctx, pool, variant == "pawl/memory")
	case "loop/lock":
		return lockOnce(ctx, pool)
	case "loop/lease":
		leaseLoop(ctx, pool, pauseHere, func(int) { say("committed") })
	}
	return fmt.Errorf("no variant %q", variant)
}

// pauseHere reports to the parent that the handler is at this point, and waits until released.
func pauseHere() {
	fmt.Println("inside")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// say reports the outcome of the handler's transaction to the parent.
func say(what string) { fmt.Println("said", strings.ReplaceAll(what, "\n", "; ")) }

func sayHow(err error) {
	if err != nil {
		say(fmt.Sprintf("was refused: %v", err))
		return
	}
	say("committed")
}

func frozenPawl(ctx context.Context, pool *pgxpool.Pool, variant string) error {
	handlers := map[string]job.Handler{
		"pawl/tx": job.HandleTx(kind, func(ctx context.Context, tx pgx.Tx, t job.Task[payload]) error {
			_, err := tx.Exec(ctx, insertEffect, t.ID)
			pauseHere()
			return err
		}),
		"pawl/hold":   job.Handle(kind, func(_ context.Context, t job.Task[payload]) error { return ownTx(ctx, pool, t, true) }),
		"pawl/finish": job.Handle(kind, func(_ context.Context, t job.Task[payload]) error { return ownTx(ctx, pool, t, false) }),
	}
	worker, err := job.NewWorker(pool, job.Config{
		Queues: []job.Queue{{Name: queue, Concurrency: 1}}, Handlers: []job.Handler{handlers[variant]},
		Lease: zombieLease, Timeout: zombieLease,
		Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) {
			switch {
			case variant != "pawl/tx" || strings.HasPrefix(e.Op, "worker"):
			case e.Kind == pawl.EventSucceeded:
				say("committed")
			default:
				sayHow(fmt.Errorf("%s: %v", e.Kind, e.Err))
			}
		}},
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// crashingPawl works with default settings until it is killed.
func crashingPawl(ctx context.Context, pool *pgxpool.Pool, c job.Config) error {
	c.Queues = []job.Queue{{Name: queue, Concurrency: 1}}
	c.Handlers = []job.Handler{job.Handle(kind, func(context.Context, job.Task[payload]) error { pauseHere(); return nil })}
	worker, err := job.NewWorker(pool, c)
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

// roomyWorker works at full speed until it is killed.
func roomyWorker(ctx context.Context, pool *pgxpool.Pool, pawl bool) error {
	on := riverSystem
	if pawl {
		on = pawlSystem
	}
	c, err := on.open(pool)
	if err != nil {
		return err
	}
	if _, err := c.work(ctx, task{form: noop, ended: func(int) {}}); err != nil {
		return err
	}
	fmt.Println("inside")
	select {}
}

// ownTx finishes the job in the handler's own transaction, on a context without a deadline, which
// is the worst case. Without hold it is frozen between the insert and Finish. With hold it calls
// Hold before the insert, as documented, and is frozen before Hold.
func ownTx(ctx context.Context, pool *pgxpool.Pool, t job.Task[payload], hold bool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if hold {
			pauseHere()
			if err := t.Hold(ctx, tx); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, insertEffect, t.ID); err != nil {
			return err
		}
		if !hold {
			pauseHere()
		}
		return t.Finish(ctx, tx)
	})
	sayHow(err)
	return err
}

// frozenRiver works like River's example of JobCompleteTx. If detached, its handler drops its
// context's deadline.
func frozenRiver(ctx context.Context, pool *pgxpool.Pool, detached bool) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, j *river.Job[payload]) error {
		if detached {
			ctx = context.WithoutCancel(ctx)
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertEffect, j.ID); err != nil {
				return err
			}
			pauseHere()
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
			return err
		})
		sayHow(err)
		return err
	}))
	config := riverConfig(task{polite: true, rescue: zombieLease}, workers)
	config.LeaderElectionDisabled = true // the successor is the leader and rescues
	config.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: 1}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	select {}
}

// lockOnce is the loop's transaction, frozen in the middle.
func lockOnce(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, "select t.id from todo as t order by t.id limit 1 for update skip locked").Scan(&id); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertEffect, id); err != nil {
			return err
		}
		pauseHere()
		_, err := tx.Exec(ctx, "delete from todo where id = $1", id)
		return err
	})
	sayHow(err)
	select {}
}

// leaseLoop is a common handwritten loop with a lease in a column, so that long work holds no
// transaction. It ignores the row count of the final delete.
func leaseLoop(ctx context.Context, pool *pgxpool.Pool, pause func(), ended func(int)) {
	for ctx.Err() == nil {
		var id int64
		err := pool.QueryRow(ctx, `
			update todo as t set locked_until = now() + $1 * interval '1 millisecond'
			 where t.id = (select c.id from todo as c where c.locked_until < now() order by c.id limit 1 for update skip locked)
			returning t.id`, zombieLease.Milliseconds()).Scan(&id)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertEffect, id); err != nil {
				return err
			}
			pause()
			_, err := tx.Exec(ctx, "delete from todo where id = $1", id)
			return err
		})
		if err != nil {
			slog.Error("loop", "err", err)
			continue
		}
		ended(1)
	}
}
