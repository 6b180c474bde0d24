package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/guard"
)

const rowsPerSec = "rows/s"

// createDocuments is a table of the user, with the columns of both contenders.
const createDocuments = `create table document (
  id            bigint primary key,
  status        text not null default 'pending',
  claim_token   uuid,
  claimed_at    timestamptz,
  completed_at  timestamptz,
  last_error    text,
  attempt_count int not null default 0,
  losses        int not null default 0
) with (fillfactor = 50)`

// A rowWorker claims a pending row, commits that, and completes the row under the token of the
// claim, in the transaction that writes one row more.
type rowWorker func(ctx context.Context, id int64) error

// guarded measures rows that are claimed and completed by 16 goroutines. open returns the worker
// and what ends it.
func guarded(open func(ctx context.Context, b *bed) (work rowWorker, stop func(), err error)) measure {
	return func(ctx context.Context, b *bed, s scale) (Round, error) {
		s.enqueue = s.command
		rows := int64(10_000 + 20_000*s.command.Seconds()) // more than can be done in that time
		if _, err := b.pool.Exec(ctx, createDocuments); err != nil {
			return Round{}, err
		}
		if _, err := b.pool.Exec(ctx, "insert into document (id) select n from generate_series(1, $1::bigint) as n", rows); err != nil {
			return Round{}, err
		}
		work, stop, err := open(ctx, b)
		if err != nil {
			return Round{}, err
		}
		defer stop()
		var next atomic.Int64
		r, err := enqueueLoop(commandCallers, 1, func(ctx context.Context, _ *bed) error { return work(ctx, next.Add(1)) })(ctx, b, s)
		if err != nil {
			return r, err
		}
		var completed, effects int64
		err = b.pool.QueryRow(ctx, "select (select count(*) from document where status = 'completed'), (select count(*) from effect)").Scan(&completed, &effects)
		if err == nil && (completed != effects || completed != next.Load()) {
			err = fmt.Errorf("%d rows worked on, %d completed, %d effects", next.Load(), completed, effects)
		}
		return r, err
	}
}

// byGuard works with Pawl's guard. A claim requires a running sweeper, which makes no passes here.
func byGuard(ctx context.Context, b *bed) (rowWorker, func(), error) {
	documents, err := guard.New(b.pool, guard.Table{Name: "document"})
	if err != nil {
		return nil, nil, err
	}
	sweeper, err := documents.Sweeper(guard.SweeperConfig{Every: -time.Second, Hooks: quiet}, func(context.Context, string) error { return nil })
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- sweeper.Run(ctx) }()
	<-sweeper.Ready()
	work := func(ctx context.Context, id int64) error {
		claimed, err := documents.Claim(ctx, id)
		if err != nil {
			return err
		}
		return claimed.Commit(ctx, func(ctx context.Context, tx pgx.Tx) (any, error) {
			_, err := tx.Exec(ctx, insertEffect, id)
			return nil, err
		})
	}
	return work, func() { cancel(); <-ended }, nil
}

var errLate = errors.New("the claim was taken back")

// byToken is the same in plain pgx, with the statements of docs/guides/plpgsql.md. It cannot find
// out the outcome of a lost COMMIT, restarts no lost race and reports nothing.
func byToken(_ context.Context, b *bed) (rowWorker, func(), error) {
	work := func(ctx context.Context, id int64) error {
		var token string
		err := b.pool.QueryRow(ctx, `update document set status = 'processing', claim_token = gen_random_uuid(), claimed_at = clock_timestamp()
 where id = $1 and status = 'pending' returning claim_token::text`, id).Scan(&token)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, "update document set status = 'completed', completed_at = clock_timestamp() where id = $1 and status = 'processing' and claim_token = $2", id, token)
			if err == nil && tag.RowsAffected() == 0 {
				err = errLate
			}
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, insertEffect, id)
			return err
		})
	}
	return work, func() {}, nil
}

func guardPlan() plan {
	return plan{
		Row: Row{ID: "guard", Title: "Rows with a status, claimed in one transaction and completed in another, 16 callers", Unit: rowsPerSec,
			Bars: []Bar{{Who: "Pawl", Of: "by hand", Factor: 0.8}}},
		entries: []entry{
			{who("Pawl", "guard: Claim, then Commit with one row"), pawlSystem, guarded(byGuard)},
			{Line{Who: "by hand", How: "a token in the row, plain pgx", Floor: true}, loopSystem, guarded(byToken)},
		},
	}
}
