package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
	"github.com/pawl-go/pawl/migrate"
)

// A deploy migrates before it starts the new workers. A worker only checks.
func ExampleUp() {
	ctx := context.Background()
	e := &pgtest.Example{}
	defer e.End()
	// yours, as the owner of the database
	conn, err := pgx.Connect(ctx, pgtest.URL(e, pgtest.Template{Name: "empty"}))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	fmt.Println(errors.Is(migrate.Check(ctx, conn), pawl.ErrSchemaMismatch))
	for range 2 {
		applied, err := migrate.Up(ctx, conn, nil)
		fmt.Println(len(applied) > 0, err)
	}
	fmt.Println(migrate.Check(ctx, conn))
	// Output:
	// true
	// true <nil>
	// false <nil>
	// <nil>
}
