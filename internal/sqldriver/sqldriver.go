// Package sqldriver tells whether a database/sql handle runs on pgx. Pawl reads PostgreSQL's error codes out of pgx's errors and passes arrays as
// pgx takes them. On another driver a refusal looks like a lost connection, and is tried again.
package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// Hint is what to do about an error of Check.
const Hint = `import _ "github.com/jackc/pgx/v5/stdlib" and call sql.Open("pgx", url), or stdlib.OpenDBFromPool`

// wrapped has the handles whose driver is not pgx's own and was found to behave as it does.
var wrapped sync.Map

// Foreign says that a driver is not pgx's, nor a wrapper that hands on what pgx says.
type Foreign struct{ Driver string }

func (f *Foreign) Error() string {
	return fmt.Sprintf("the database/sql driver is %s, and not pgx", f.Driver)
}

// Check returns a *Foreign if db does not run on pgx. pgx's own driver is known by its type. Another may wrap it, as those that trace do: it is
// asked once for each handle, with two statements. Another error is that of the database.
func Check(ctx context.Context, db *sql.DB) error {
	if _, own := db.Driver().(*stdlib.Driver); own {
		return nil
	}
	if _, known := wrapped.Load(db); known {
		return nil
	}
	foreign := &Foreign{fmt.Sprintf("%T", db.Driver())}
	var n int
	failed := db.QueryRowContext(ctx, "select 1 / 0").Scan(&n)
	var pg *pgconn.PgError
	switch {
	case errors.As(failed, &pg) && pg.Code == "22012": // division_by_zero
	case errors.As(failed, &pg):
		return failed
	case errors.As(failed, new(interface{ SQLState() string })), failed == nil:
		return foreign
	default:
		return failed // it could not be asked
	}
	if err := db.QueryRowContext(ctx, "select cardinality($1::text[])", []string{"a", "b"}).Scan(&n); err != nil || n != 2 {
		return foreign
	}
	wrapped.Store(db, true)
	return nil
}
