package lock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/lock"
)

// One transaction at a time closes a merchant's day. Your own row records that it is closed.
func ExampleTryLock() {
	ctx := context.Background()
	pool, drop := database("create table closed_day (merchant text, day date, primary key (merchant, day))")
	defer drop()
	closeDay := func(ctx context.Context, tx pgx.Tx) (string, error) {
		locked, err := lock.TryLock(ctx, tx, "close day", "merchant 7, 2024-05-01")
		if err != nil || !locked {
			return "another transaction closes it", err
		}
		added, err := tx.Exec(ctx, "insert into closed_day values ('7', '2024-05-01') on conflict do nothing")
		if err == nil && added.RowsAffected() == 0 {
			return "was closed before", nil
		}
		return "closed", err
	}

	first, second := must(pool.Begin(ctx)), must(pool.Begin(ctx))
	fmt.Println(closeDay(ctx, first))
	fmt.Println(closeDay(ctx, second))
	fmt.Println(first.Commit(ctx))
	fmt.Println(closeDay(ctx, second))
	fmt.Println(second.Commit(ctx))
	// Output:
	// closed <nil>
	// another transaction closes it <nil>
	// <nil>
	// was closed before <nil>
	// <nil>
}

// Attempt 1 of job 17 stalled, and attempt 2 has written. The late write of attempt 1 is refused.
func ExampleAcceptFence() {
	ctx := context.Background()
	pool, drop := database("create table report (id int primary key, body text)")
	defer drop()
	write := func(fence int64, body string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := lock.AcceptFence(ctx, tx, "job 17 report", fence); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "insert into report values (17, $1) on conflict (id) do update set body = excluded.body", body)
			return err
		})
	}

	fmt.Println(write(2, "complete"))
	err := write(1, "half")
	fmt.Println(errors.Is(err, pawl.ErrFenceLost), err)
	// Output:
	// <nil>
	// true fence.accept: P4020 fence lost: this attempt no longer holds its work: resource job 17 report has seen fence 2, this attempt has 1, superseded (a newer attempt owns this resource; drop this one)
}
