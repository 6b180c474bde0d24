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

// A Conn is a connection that was taken from a pool, for statements whose start must be known.
type Conn struct {
	*pgxpool.Conn
	pool *pgxpool.Pool
}

// Acquire takes a connection of a pool.
func Acquire(ctx context.Context, pool *pgxpool.Pool) (*Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, pool}, nil
}

// LeaveStandby makes the connections of a pool anew after a statement was refused on one of them
// because it is read-only, as those to a standby are: after a failover that keeps connections they
// would stay for their whole life. The next ones find the primary. on is where the statement was
// sent: a pool, a [Conn], a transaction that names its pool, or a handle of database/sql. A
// connection or transaction of the user's is left alone.
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
	case *sql.Conn: // a transaction may be open on it, so database/sql finds out later
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

// DropIdle closes the idle connections of a database/sql handle, or the one that is used next if it
// says that none is idle, as one over a pgxpool does.
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

// hangUp closes what stands under a connection of database/sql. To call that one bad alone would
// not do: over a pgxpool the driver gives a bad connection back to that pool as it is.
func hangUp(driverConn any) {
	if c, is := driverConn.(interface{ Conn() *pgx.Conn }); is {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Conn().Close(ctx)
	}
}
