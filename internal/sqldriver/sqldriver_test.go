package sqldriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/internal/pgtest"
	"github.com/pawl-go/pawl/internal/sqldriver"
)

// wrapping is a driver around pgx's. If it hides errors, as a driver of another make does, they have an SQLSTATE and are no pgconn.PgError.
type wrapping struct {
	connector driver.Connector
	hides     bool
}

type hidden struct{ error }

func (hidden) SQLState() string { return "22012" }

func (w wrapping) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return conn{c, w.hides}, nil
}
func (w wrapping) Driver() driver.Driver            { return w }
func (w wrapping) Open(string) (driver.Conn, error) { return nil, errors.New("not used") }

type conn struct {
	driver.Conn
	hides bool
}

func (c conn) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

func (c conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if c.hides && err != nil {
		err = hidden{errors.New(err.Error())}
	}
	return r, err
}

// pgx's driver is taken, and one that wraps it; one whose errors are its own is refused by name.
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
		"a wrapper":           {sql.OpenDB(wrapping{connector, false}), false},
		"a driver of its own": {sql.OpenDB(wrapping{connector, true}), true},
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
