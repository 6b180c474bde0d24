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
