package sqldriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/internal/sqldriver"
	"github.com/pawl-go/pawl/internal/testbed/pgtest"
)

// wrapping is a driver around pgx's. If hides is set, its errors have an SQLSTATE but are not
// *pgconn.PgError, like those of another driver.
type wrapping struct {
	connector driver.Connector
	hides     bool
	queries   *atomic.Int32
}

type hidden struct{ error }

func (hidden) SQLState() string { return "22012" }

func (w wrapping) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn{c, w.hides, w.queries}, nil
}
func (w wrapping) Driver() driver.Driver            { return w }
func (w wrapping) Open(string) (driver.Conn, error) { return nil, errors.New("not used") }

type conn struct {
	driver.Conn
	hides   bool
	queries *atomic.Int32
}

func (c conn) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

func (c conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return wrappedTx{tx}, err
}

// wrappedTx has one type for all drivers behind it.
type wrappedTx struct{ driver.Tx }

func (c conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.queries.Add(1)
	r, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if c.hides && err != nil {
		err = hidden{errors.New(err.Error())}
	}
	return r, err
}

// pgx's driver and a wrapper of it are accepted. A driver with errors of its own is refused by
// name.
func TestCheck(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.URL(t, pgtest.Template{Name: "empty"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	connector := stdlib.GetPoolConnector(pool)
	for name, c := range map[string]struct {
		db      *sql.DB
		foreign bool
	}{
		"pgx":                 {stdlib.OpenDBFromPool(pool), false},
		"a wrapper":           {sql.OpenDB(wrapping{connector, false, new(atomic.Int32)}), false},
		"a driver of its own": {sql.OpenDB(wrapping{connector, true, new(atomic.Int32)}), true},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = c.db.Close() }()
			for range 2 {
				err := sqldriver.Check(t.Context(), c.db)
				if foreign := errors.As(err, new(*sqldriver.Foreign)); foreign != c.foreign || !c.foreign && err != nil {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// A transaction is judged by its *sql.DB. Another driver in the same wrapper is refused in any
// order, and an accepted one is not tested again.
func TestCheck_TransactionsOfOneWrapper(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.URL(t, pgtest.Template{Name: "empty"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 2 {
		for _, foreign := range []bool{true, false, true} {
			w := wrapping{stdlib.GetPoolConnector(pool), foreign, new(atomic.Int32)}
			db := sql.OpenDB(w)
			var asked [2]int32
			for i := range asked {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				err = sqldriver.Check(t.Context(), tx)
				if is := errors.As(err, new(*sqldriver.Foreign)); is != foreign || !foreign && err != nil {
					t.Errorf("foreign %v: %v", foreign, err)
				}
				var n int
				if err := tx.QueryRowContext(t.Context(), "select 1").Scan(&n); err != nil {
					t.Errorf("the transaction is not usable: %v", err)
				}
				_ = tx.Rollback()
				asked[i] = w.queries.Load() - 1
				w.queries.Store(0)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if asked[0] == 0 || (asked[1] == 0) == foreign {
				t.Errorf("foreign %v: asked %v times", foreign, asked)
			}
		}
	}
}

// Handles that cannot be map keys are tested each time. A *sql.DB that was tested counts for its
// transactions too.
func TestCheck_OtherHandles(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.URL(t, pgtest.Template{Name: "empty"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := wrapping{stdlib.GetPoolConnector(pool), false, new(atomic.Int32)}
	db := sql.OpenDB(w)
	defer func() { _ = db.Close() }()
	type odd struct {
		*sql.DB
		tags []string
	}
	for range 2 {
		w.queries.Store(0)
		if err := sqldriver.Check(t.Context(), odd{db, nil}); err != nil || w.queries.Load() == 0 {
			t.Errorf("%v, %d queries", err, w.queries.Load())
		}
	}
	if err := sqldriver.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	w.queries.Store(0)
	if err := sqldriver.Check(t.Context(), tx); err != nil || w.queries.Load() != 0 {
		t.Errorf("%v, %d queries", err, w.queries.Load())
	}
}
