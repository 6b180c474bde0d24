package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// peerWorkers are the programs of the processes in Go that peers_kill.go kills, by variant: a contender, and where its handler writes its row.
// "tx" is the transaction that ends the job; "pool" is a connection of its own, before the job ends.
var peerWorkers = map[string]func(context.Context, *pgxpool.Pool) error{
	"kill/pawl/tx": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedPawl(ctx, pool, job.HandleTx(kind, func(ctx context.Context, tx pgx.Tx, t job.Task[payload]) error {
			return heldEffect(ctx, tx, t.Value.At)
		}))
	},
	"kill/pawl/batch": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedPawl(ctx, pool, job.HandleManyTx(kind, func(ctx context.Context, tx pgx.Tx, ts []job.Task[payload]) error {
			numbers := make([]int64, len(ts))
			for i, t := range ts {
				numbers[i] = t.Value.At
			}
			time.Sleep(heldFor(numbers[0]))
			_, err := tx.Exec(ctx, insertEffects, numbers)
			time.Sleep(heldFor(numbers[0]))
			return err
		}).With(job.Policy{BatchSize: killInHand / 2}))
	},
	"kill/pawl/pool": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedPawl(ctx, pool, job.Handle(kind, func(ctx context.Context, t job.Task[payload]) error {
			return heldEffect(ctx, pool, t.Value.At)
		}))
	},
	"kill/river/tx": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedRiver(ctx, pool, func(ctx context.Context, j *river.Job[payload]) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := heldEffect(ctx, tx, j.Args.At); err != nil {
					return err
				}
				_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
				return err
			})
		})
	},
	"kill/river/pool": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedRiver(ctx, pool, func(ctx context.Context, j *river.Job[payload]) error { return heldEffect(ctx, pool, j.Args.At) })
	},
	"kill/watermill/tx": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedWatermill(ctx, pool, func(ctx context.Context, n int64) error {
			tx, _ := watermillsql.TxFromContext(ctx)
			time.Sleep(heldFor(n))
			_, err := tx.ExecContext(ctx, insertEffect, n)
			time.Sleep(heldFor(n))
			return err
		})
	},
	"kill/watermill/pool": func(ctx context.Context, pool *pgxpool.Pool) error {
		return killedWatermill(ctx, pool, func(ctx context.Context, n int64) error { return heldEffect(ctx, pool, n) })
	},
	"kill/loop/lease": func(ctx context.Context, pool *pgxpool.Pool) error {
		for range killInHand {
			go leaseLoop(ctx, pool, func() { time.Sleep(heldFor(1)) }, func(int) {})
		}
		return working()
	},
	"kill/loop/delete": func(ctx context.Context, pool *pgxpool.Pool) error {
		for range killInHand {
			go deletingLoop(ctx, pool)
		}
		return working()
	},
}

// working tells the parent that workers have been started, and leaves them to their work.
func working() error {
	fmt.Println("inside")
	select {}
}

// heldEffect writes the row of a job and takes its time before and after.
func heldEffect(ctx context.Context, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, number int64) error {
	time.Sleep(heldFor(number))
	_, err := on.Exec(ctx, insertEffect, number)
	time.Sleep(heldFor(number))
	return err
}

// killedPawl keeps Pawl's presence, by which a kill is noticed, and shortens the lease, by which a stop is.
func killedPawl(ctx context.Context, pool *pgxpool.Pool, h job.Handler) error {
	worker, err := job.NewWorker(pool, job.Config{Queues: []job.Queue{{Name: queue, Concurrency: killInHand}}, Handlers: []job.Handler{h},
		Lease: killLease, Timeout: killLease, Hooks: pawl.Hooks{OnEvent: func(context.Context, pawl.Event) {}}})
	if err != nil {
		return err
	}
	fmt.Println("inside")
	return worker.Run(ctx)
}

func killedRiver(ctx context.Context, pool *pgxpool.Pool, handle func(context.Context, *river.Job[payload]) error) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(handle))
	config := riverConfig(task{form: effect, rescue: killLease}, workers)
	config.Logger = silent
	config.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: killInHand}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	return working()
}

func killedWatermill(ctx context.Context, pool *pgxpool.Pool, handle func(context.Context, int64) error) error {
	subscriber, err := watermillSubscriber(stdlib.OpenDBFromPool(pool), killInHand, 10*time.Millisecond)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, watermillTopic)
	if err != nil {
		return err
	}
	fmt.Println("inside")
	for m := range messages {
		var p numbered
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			return err
		}
		settle(m, handle(m.Context(), p.N))
	}
	return nil
}

// deletingLoop takes a job by deleting it, so that a kill loses it.
func deletingLoop(ctx context.Context, pool *pgxpool.Pool) {
	for ctx.Err() == nil {
		var id int64
		err := pool.QueryRow(ctx, `delete from todo as t where t.id = (select c.id from todo as c order by c.id limit 1 for update skip locked) returning t.id`).Scan(&id)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err := heldEffect(ctx, pool, id); err != nil {
			slog.Error("loop", "err", err)
		}
	}
}

// settle is what Watermill's router does after a handler.
func settle(m *message.Message, err error) {
	if err != nil {
		m.Nack()
		return
	}
	m.Ack()
}
