package guard_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
)

// The day of a merchant is closed by one transaction at a time; that it is closed is a row of yours.
func ExampleTryLock() {
	ctx := context.Background()
	pool, drop := database("create table closed_day (merchant text, day date, primary key (merchant, day))")
	defer drop()
	closeDay := func(ctx context.Context, tx pgx.Tx) (string, error) {
		locked, err := guard.TryLock(ctx, tx, "close day", "merchant 7, 2024-05-01")
		if err != nil || !locked {
			return "being closed by somebody else", err
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
	// being closed by somebody else <nil>
	// <nil>
	// was closed before <nil>
	// <nil>
}

// Attempt 2 of job 17 has written. Attempt 1, which was asleep, is refused.
func ExampleAcceptFence() {
	ctx := context.Background()
	pool, drop := database("create table report (id int primary key, body text)")
	defer drop()
	write := func(fence int64, body string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := guard.AcceptFence(ctx, tx, "job 17 report", fence); err != nil {
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
	// true fence.accept: P4020 fence lost: a newer attempt owns this work: resource job 17 report has seen fence 2, this attempt has 1, superseded (a newer attempt owns this resource; drop this one)
}

// An order is shipped by whoever comes first; the second message finds it done, and a failure is kept in the row.
func ExampleRows_Once() {
	ctx := context.Background()
	pool, drop := database(`create table orders (id int primary key, status text not null default 'pending', claimed_at timestamptz,
  completed_at timestamptz, last_error text, attempt_count int not null default 0);
insert into orders (id) values (1), (2)`)
	defer drop()
	rows := must(guard.New(pool, guard.Table{Name: "orders"}))
	ship := func(id int, err error) error {
		return rows.Once(ctx, id, func(ctx context.Context, tx pgx.Tx) (any, error) {
			return nil, err // here the work would write its rows through tx
		})
	}

	fmt.Println(ship(1, nil))
	fmt.Println(errors.Is(ship(1, nil), pawl.ErrAlreadyHandled))
	fmt.Println(errors.Is(ship(2, errors.New("out of stock")), pawl.ErrFailureRecorded))
	var status, why string
	fmt.Println(pool.QueryRow(ctx, "select status, last_error from orders where id = 2").Scan(&status, &why), status, why)
	// Output:
	// <nil>
	// true
	// true
	// <nil> error out of stock
}
