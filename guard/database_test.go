package guard_test

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/pawltest"
)

// database is pawltest.DB for examples.
func database(schema string) (pool *pgxpool.Pool, drop func()) {
	e := &pgtest.Example{}
	return pawltest.DB(e, schema), e.End
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
