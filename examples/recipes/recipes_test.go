package recipes_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/consumer"
	"github.com/pawl-go/pawl/examples/recipes"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

type write = func(context.Context, *sql.Tx, recipes.Order) error

// libraries write an order, each with a handle on the same pool.
func libraries(tb testing.TB, pool *pgxpool.Pool) map[string]write {
	db := stdlib.OpenDBFromPool(pool)
	return map[string]write{
		"GORM":                      recipes.InsertGorm(openGorm(tb, db)),
		"GORM, prepared on the way": recipes.InsertGormPrepared,
		"ent":                       recipes.InsertEnt,
		"bun":                       recipes.InsertBun(recipes.OpenBun(db)),
		"sqlx":                      recipes.InsertSqlx,
		"sqlc":                      recipes.InsertSqlc,
	}
}

func openGorm(tb testing.TB, db *sql.DB) *gorm.DB {
	g, err := recipes.OpenGorm(db)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

var order = recipes.Order{ID: "o1", Cents: 4200}

// names are the keys of libraries.
var names = []string{"GORM", "GORM, prepared on the way", "ent", "bun", "sqlx", "sqlc"}

// Wherever the process dies, the order exists once, with its job. This holds in a consumer and in a
// worker, with every library.
func TestRecipes_CrashEverywhere(t *testing.T) {
	t.Parallel()
	payload, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	placed := func(tb testing.TB, pool *pgxpool.Pool) { wantOrder(tb, pool, 1) }
	for _, name := range names {
		t.Run(name+", message", func(t *testing.T) {
			t.Parallel()
			pawltest.CrashEverywhere(t, pawltest.HandlerTest{Schema: []string{recipes.Schema}, Delivery: pawl.Delivery{Key: "m1", Payload: payload}, Check: placed,
				Make: func(pool *pgxpool.Pool) consumer.Handler { return recipes.OnMessage(libraries(t, pool)[name]) }})
		})
		t.Run(name+", job", func(t *testing.T) {
			t.Parallel()
			pawltest.CrashEverywhere(t, pawltest.JobTest{Schema: []string{recipes.Schema}, Jobs: []job.Request{recipes.Import.Request(order)}, Check: placed,
				Make: func(pool *pgxpool.Pool) job.Handler { return recipes.OnJob(libraries(t, pool)[name]) }})
		})
	}
}

// In your own transaction the order and its job commit together or not at all.
func TestRecipes_OwnTransaction(t *testing.T) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, recipes.Schema)
			db := stdlib.OpenDBFromPool(pool)
			place := func() *sql.Tx {
				tx, err := db.BeginTx(t.Context(), nil)
				if err == nil {
					err = recipes.Place(t.Context(), tx, order, libraries(t, pool)[name])
				}
				if err != nil {
					t.Fatal(err)
				}
				return tx
			}
			if err := place().Rollback(); err != nil {
				t.Fatal(err)
			}
			wantOrder(t, pool, 0)
			if err := place().Commit(); err != nil {
				t.Fatal(err)
			}
			wantOrder(t, pool, 1)
		})
	}
}

// The order and its job also commit together in a transaction that the library begins.
func TestRecipes_TheLibrarysTransaction(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(*sql.DB, recipes.Order) error{
		"GORM": func(db *sql.DB, o recipes.Order) error {
			return recipes.PlaceWithGorm(t.Context(), openGorm(t, db), o)
		},
		"bun": func(db *sql.DB, o recipes.Order) error {
			return recipes.PlaceWithBun(t.Context(), recipes.OpenBun(db), o)
		},
		"sqlx": func(db *sql.DB, o recipes.Order) error {
			return recipes.PlaceWithSqlx(t.Context(), recipes.OpenSqlx(db), o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t, recipes.Schema)
			db := stdlib.OpenDBFromPool(pool)
			if err := place(db, order); err != nil {
				t.Fatal(err)
			}
			wantOrder(t, pool, 1)
			other := order
			// another payload under the job's key: Enqueue fails, and the row is rolled back
			other.Cents++
			if err := place(db, other); !errors.Is(err, pawl.ErrKeyReused) {
				t.Errorf("%v", err)
			}
			wantOrder(t, pool, 1)
		})
	}
}

// A worker, a consumer, GORM, bun and sqlx share one pool and open no other connections.
func TestRecipes_OnePool(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, recipes.Schema)
	handles := libraries(t, pool)
	for _, write := range handles {
		if _, err := recipes.Import.Enqueue(t.Context(), pool, order); err != nil {
			t.Fatal(err)
		}
		pawltest.Drain(t, pool, job.Config{Handlers: []job.Handler{recipes.OnJob(write)}})
	}
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from recipe_order").Scan(&n); err != nil || n != len(handles) {
		t.Errorf("%d orders, want %d (%v)", n, len(handles), err)
	}
	// pgxpool checks idle ones meanwhile
	patience.Until(t, "no connection is in use", func() bool { return pool.Stat().AcquiredConns() == 0 })
}

// wantOrder checks the numbers of orders and jobs.
func wantOrder(tb testing.TB, pool *pgxpool.Pool, want int) {
	tb.Helper()
	var orders, jobs int
	err := pool.QueryRow(tb.Context(), `select (select count(*) from recipe_order as o where o.id = 'o1' and o.cents = 4200),
  (select count(*) from pawl.job as j where j.kind = 'ship' and j.queue = 'shipping')`).Scan(&orders, &jobs)
	if err != nil || orders != want || jobs != want {
		tb.Errorf("%d orders and %d jobs, want %d (%v)", orders, jobs, want, err)
	}
}
