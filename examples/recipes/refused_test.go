package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/examples/recipes"
	"github.com/pawl-go/pawl/pawltest"
)

// handles make what each library gives to pawl.SQL.
var handles = map[string]func(*testing.T, *sql.DB) pawl.Queryer{
	"sql.DB":         func(_ *testing.T, db *sql.DB) pawl.Queryer { return db },
	"sql.Conn":       func(t *testing.T, db *sql.DB) pawl.Queryer { return ready(t, (*sql.Conn).Close)(db.Conn(t.Context())) },
	"GORM":           func(t *testing.T, db *sql.DB) pawl.Queryer { return onGorm(t, db, false).Statement.ConnPool },
	"GORM, prepared": func(t *testing.T, db *sql.DB) pawl.Queryer { return onGorm(t, db, true).Statement.ConnPool },
	"bun":            func(_ *testing.T, db *sql.DB) pawl.Queryer { return recipes.OpenBun(db).DB },
	"sqlx":           func(_ *testing.T, db *sql.DB) pawl.Queryer { return recipes.OpenSqlx(db) },
}

// transactions are the same for transactions. With ent and sqlc you pass the *sql.Tx.
var transactions = map[string]func(*testing.T, *sql.DB) pawl.Queryer{
	"sql.Tx":         func(t *testing.T, db *sql.DB) pawl.Queryer { return begin(t, db) },
	"GORM":           func(t *testing.T, db *sql.DB) pawl.Queryer { return begun(t, onGorm(t, db, false)) },
	"GORM, prepared": func(t *testing.T, db *sql.DB) pawl.Queryer { return begun(t, onGorm(t, db, true)) },
	"GORM, prepared on the way": func(t *testing.T, db *sql.DB) pawl.Queryer {
		return onGorm(t, begin(t, db), true).Statement.ConnPool
	},
	"GORM, lent": func(t *testing.T, db *sql.DB) pawl.Queryer {
		return recipes.GormOn(t.Context(), onGorm(t, db, true), begin(t, db)).Statement.ConnPool
	},
	"bun": func(t *testing.T, db *sql.DB) pawl.Queryer {
		return ready(t, bun.Tx.Rollback)(recipes.OpenBun(db).BeginTx(t.Context(), nil)).Tx
	},
	"sqlx": func(t *testing.T, db *sql.DB) pawl.Queryer {
		return ready(t, (*sqlx.Tx).Rollback)(recipes.OpenSqlx(db).BeginTxx(t.Context(), nil))
	},
}

// ready returns a function that fails the test on an error and undoes the rest at its end.
func ready[T any](t *testing.T, undo func(T) error) func(T, error) T {
	return func(made T, err error) T {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = undo(made) })
		return made
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	return ready(t, (*sql.Tx).Rollback)(db.BeginTx(t.Context(), nil))
}

func onGorm(t *testing.T, on gorm.ConnPool, prepare bool) *gorm.DB {
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: on}), &gorm.Config{PrepareStmt: prepare, DisableAutomaticPing: true})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func begun(t *testing.T, g *gorm.DB) pawl.Queryer {
	tx := g.Begin()
	return ready(t, func(tx *gorm.DB) error { return tx.Rollback().Error })(tx, tx.Error).Statement.ConnPool
}

// If the database refuses a statement of Pawl, its error comes back through the handle of each
// library. GORM with PrepareStmt prepares the statement first. If that fails, its QueryRowContext
// returns an empty row, whose Scan panics.
func TestHandles_ReturnTheDatabasesError(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	send := func(t *testing.T, pool *pgxpool.Pool, statement string, args ...any) {
		if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	for name, failure := range map[string]struct {
		ctx        context.Context
		attack     func(*testing.T, *pgxpool.Pool, pawl.Queryer)
		want       pawl.Code
		everywhere bool // also outside of a transaction
	}{
		"a missing schema": {t.Context(), func(t *testing.T, pool *pgxpool.Pool, _ pawl.Queryer) {
			send(t, pool, "drop schema if exists pawl_v1 cascade")
		}, "3F000", true},
		"a cancelled context": {ended, func(*testing.T, *pgxpool.Pool, pawl.Queryer) {}, "", true},
		"an aborted transaction": {t.Context(), func(t *testing.T, _ *pgxpool.Pool, on pawl.Queryer) {
			if rows, err := on.QueryContext(t.Context(), "select 1 / 0"); err == nil {
				_ = rows.Close()
				t.Fatal("the transaction is not aborted")
			}
		}, "25P02", false},
		"a lost connection": {t.Context(), func(t *testing.T, pool *pgxpool.Pool, on pawl.Queryer) {
			var pid int
			if err := pawl.SQL(on).QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
				t.Fatal(err)
			}
			send(t, pool, "select pg_terminate_backend($1, 60000)", pid)
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pawltest.DB(t)
			refused := func(library string, handle func(*testing.T, *sql.DB) pawl.Queryer) {
				t.Run(library, func(t *testing.T) {
					on := handle(t, stdlib.OpenDBFromPool(pool))
					failure.attack(t, pool, on)
					if _, err := recipes.Ship.Enqueue(failure.ctx, pawl.SQL(on), order); err == nil || failure.want != "" && pawl.CodeOf(err) != failure.want {
						t.Errorf("%v", err)
					}
				})
			}
			for library, handle := range transactions {
				refused(library+", transaction", handle)
			}
			for library, handle := range handles {
				if failure.everywhere {
					refused(library, handle)
				}
			}
		})
	}
}

// A statement may fail after its first row. The error comes back even if the rest is not read.
func TestHandles_ReturnLateErrors(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	const late = "select 1 / (2 - n) from generate_series(1, 2) as n"
	for _, kind := range []map[string]func(*testing.T, *sql.DB) pawl.Queryer{handles, transactions} {
		for library, handle := range kind {
			t.Run(library, func(t *testing.T) {
				on := pawl.SQL(handle(t, stdlib.OpenDBFromPool(pool)))
				var n int
				if err := on.QueryRow(t.Context(), "select 1 where false").Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
					t.Errorf("no row: %v", err)
				}
				rows, err := on.Query(t.Context(), "select n from generate_series(1, 2) as n")
				if err != nil {
					t.Fatal(err)
				}
				if rows.Close(); rows.Err() != nil {
					t.Error(rows.Err())
				}
				// refused outside of a transaction
				if rows, err = on.Query(t.Context(), "savepoint s"); err == nil {
					rows.Close()
				}
				if err := on.QueryRow(t.Context(), late).Scan(&n); pawl.CodeOf(err) != "22012" {
					t.Errorf("one row: %v", err)
				}
				if rows, err = on.Query(t.Context(), "rollback to savepoint s"); err == nil {
					rows.Close()
				}
				if rows, err = on.Query(t.Context(), late); err != nil {
					t.Fatal(err)
				}
				if rows.Close(); pawl.CodeOf(rows.Err()) != "22012" {
					t.Errorf("rows: %v", rows.Err())
				}
			})
		}
	}
}
