package drivertest

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/ngrok/sqlmw"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/command"
	"github.com/pawl-go/pawl/command/httpkey"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

func init() {
	sql.Register("wrapped-pgx", sqlmw.Driver(&stdlib.Driver{}, sqlmw.NullInterceptor{}))
	sql.Register("wrapped-postgres", sqlmw.Driver(&pq.Driver{}, sqlmw.NullInterceptor{}))
}

// doors are the entry points for database/sql. Each does something that succeeds with pgx.
var doors = map[string]func(ctx context.Context, db *sql.DB) error{
	"OnceSQL": func(ctx context.Context, db *sql.DB) error {
		intent := pawl.Intent{Scope: "s", Key: "k", Fingerprint: pawl.FingerprintOf()}
		_, err := command.OnceSQL(ctx, db, intent, command.Options{}, func(context.Context, *sql.Tx) (int, error) { return 1, nil })
		return err
	},
	"httpkey.OnceSQL": func(_ context.Context, db *sql.DB) (err error) {
		defer func() {
			if said, panicked := recover().(string); panicked {
				err = &pawl.Error{Op: "httpkey", Code: pawl.CodeArgumentInvalid, Err: errors.New(said)}
			}
		}()
		httpkey.OnceSQL(db, func(*http.Request) (string, error) { return "t", nil }, httpkey.Options{}, func(http.ResponseWriter, *http.Request, *sql.Tx) error { return nil })
		return nil
	},
	"SQL": func(ctx context.Context, db *sql.DB) error {
		_, err := job.Enqueue(ctx, pawl.SQL(db), job.Request{Queue: "q", Kind: "k"})
		return err
	},
	"SQLTx": func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := job.Enqueue(ctx, pawl.SQLTx(tx), job.Request{Queue: "q", Kind: "k"}); err != nil {
			return err
		}
		return pawl.SQLTx(tx).Commit(ctx)
	},
	// The driver behind a *sql.Conn is unknown until the server returns an error.
	"SQL of a Conn, an error": func(ctx context.Context, db *sql.DB) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		var n int
		if err = pawl.SQL(conn).QueryRow(ctx, "select 1 / 0").Scan(&n); pawl.CodeOf(err) == "22012" {
			return nil // Pawl recognised the error
		}
		return err
	},
}

// Every entry point refuses lib/pq, also in a wrapper, with an error that names the import to use.
// It accepts pgx, also in the same wrapper.
func TestDoors_RefuseForeignDrivers(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	for driver, foreign := range map[string]bool{"postgres": true, "pgx": false, "wrapped-pgx": false, "wrapped-postgres": true} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(driver, url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			for door, use := range doors {
				err := use(t.Context(), db)
				switch {
				case !foreign && err != nil:
					t.Errorf("%s refuses %s: %v", door, driver, err)
				case foreign && (!errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "pgx/v5/stdlib")):
					t.Errorf("%s takes %s: %v", door, driver, err)
				}
			}
		})
	}
}
