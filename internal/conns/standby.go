package conns

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/verdict"
)

// A Conn is a connection taken from a pool. Its holder can distinguish an error before a statement
// was sent from one after.
type Conn struct {
	*pgxpool.Conn
	pool *pgxpool.Pool
}

// Acquire takes a connection from a pool.
func Acquire(ctx context.Context, pool *pgxpool.Pool) (*Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, pool}, nil
}

// LeaveStandby replaces a pool's connections if err says that a statement was refused because the
// server is read-only, as a standby is. After a failover that keeps connections, they would
// otherwise stay on the standby for their whole life; new ones find the primary. on is where the
// statement was sent: a pool, a [Conn], a transaction that names its pool, or a database/sql
// handle. A user's own connection or transaction is left alone.
func LeaveStandby(on any, err error) {
	if !ReadOnly(err) {
		return
	}
	switch on := on.(type) {
	case *pgxpool.Pool:
		on.Reset()
	case *Conn:
		on.pool.Reset()
	case interface{ Pool() *pgxpool.Pool }:
		on.Pool().Reset()
	case *sql.Conn: // a transaction may be open on it, so database/sql notices later
		_ = on.Raw(func(dc any) error { hangUp(dc); return nil })
	case *sql.DB:
		DropIdle(on)
	}
}

// ReadOnly reports whether a statement was refused because its transaction is read-only.
func ReadOnly(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && verdict.IsReadOnly(pg.Code)
}

// DropIdle closes the idle connections of a database/sql handle. If the handle reports none, as one
// over a pgxpool does, DropIdle closes the next connection it gets.
func DropIdle(db *sql.DB) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range max(1, db.Stats().Idle) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return
		}
		_ = conn.Raw(func(dc any) error {
			hangUp(dc)
			return driver.ErrBadConn
		})
		_ = conn.Close()
	}
}

// hangUp closes the connection under a database/sql connection. Returning ErrBadConn alone would
// not do: over a pgxpool, the driver returns a bad connection to that pool unchanged.
func hangUp(driverConn any) {
	if c, is := driverConn.(interface{ Conn() *pgx.Conn }); is {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Conn().Close(ctx)
	}
}
