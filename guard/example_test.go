package guard_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/guard"
)

// An order is shipped once. A second message finds it completed. A failure is stored in the row.
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

// A label is printed by another system, so no transaction is open meanwhile. Commit then completes
// the row, together with the label's number. Here the message of an old order was lost, so the
// sweeper drives the row. When the message comes after all, there is nothing left to do.
func ExampleRows_Claim() {
	ctx, stop := context.WithCancel(context.Background())
	pool, drop := database(`create table orders (id int primary key, status text not null default 'pending', claimed_at timestamptz,
  completed_at timestamptz, last_error text, attempt_count int not null default 0, created_at timestamptz, label text);
insert into orders (id, created_at) values (1, now() - interval '1 hour')`)
	defer drop()
	rows := must(guard.New(pool, guard.Table{Name: "orders", Result: "label", CreatedAt: "created_at"}))
	// the other system
	printLabel := func(context.Context) (number string, err error) { return "label 7", nil }
	handle := func(ctx context.Context, id any) error {
		claimed, err := rows.Claim(ctx, id)
		if err != nil {
			return err
		}
		number, err := printLabel(ctx)
		if err != nil {
			return claimed.Fail(ctx, err)
		}
		return claimed.Commit(ctx, func(context.Context, pgx.Tx) (any, error) { return number, nil })
	}
	driven := make(chan error, 1)
	sweeper := must(rows.Sweeper(guard.SweeperConfig{}, func(ctx context.Context, id string) error {
		err := handle(ctx, id)
		driven <- err
		return err
	}))
	ended := make(chan error)
	go func() { ended <- sweeper.Run(ctx) }() // Claim needs it

	fmt.Println(<-driven)
	fmt.Println(errors.Is(handle(ctx, 1), pawl.ErrAlreadyHandled)) // acknowledge the message
	var status, number string
	fmt.Println(pool.QueryRow(ctx, "select status, label from orders where id = 1").Scan(&status, &number), status, number)
	stop()
	fmt.Println(<-ended)
	// Output:
	// <nil>
	// true
	// <nil> completed label 7
	// <nil>
}
