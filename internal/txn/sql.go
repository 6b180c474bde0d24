package txn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pawl-go/pawl/internal/watched"
)

// CommitSQL is [Commit] for database/sql on pgx's driver, of a transaction on conn. It has no
// deadline, because *sql.Tx.Commit takes none.
func CommitSQL(op string, conn *sql.Conn, tx *sql.Tx) error {
	heard := listenSQL(conn)
	err := tx.Commit()
	if err == nil && heard.Cancelled() {
		return unknown(op, errCancelled)
	}
	return classify(op, err)
}

// listenSQL is [watched.Begin] for a connection of database/sql. It returns nil if the driver is
// not pgx's.
func listenSQL(conn *sql.Conn) (heard *watched.Statement) {
	_ = conn.Raw(func(driver any) error {
		if c, is := driver.(interface{ Conn() *pgx.Conn }); is {
			heard, _ = watched.Begin(c.Conn().PgConn())
		}
		return nil
	})
	return heard
}

// Guard is [Opened.Guard] for database/sql, of a transaction on conn.
func (s Session) Guard(ctx context.Context, conn *sql.Conn, tx *sql.Tx, limit time.Duration, fn func(context.Context, *sql.Tx) error) error {
	if _, err := tx.ExecContext(ctx, keepRole+"; "+setSavepoint); err != nil {
		return errors.Join(ErrLost, err)
	}
	failure := Run(ctx, limit, func(ctx context.Context) error { return fn(ctx, tx) })
	if failure == nil {
		restore := append(s.restore(SessionOf(conn).settings), releaseSavepoint)
		// without arguments, a text may hold several statements
		if _, failure = tx.ExecContext(ctx, strings.Join(restore, "; ")); failure == nil {
			return nil
		}
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := control(back, tx, returnSavepoint)
	switch {
	case err == nil:
		return failure
	case errors.Is(err, sql.ErrTxDone), endedText(err):
		return endedByText(failure)
	}
	if errors.Is(err, driver.ErrBadConn) { // database/sql returns no details
		err = errBadConn
	}
	return errors.Join(ErrLost, failure, err)
}

// errBadConn explains the usual causes of [driver.ErrBadConn] after user code.
var errBadConn = fmt.Errorf("%w: look for what ends the handler's session; transaction_timeout and idle_in_transaction_session_timeout are usual", driver.ErrBadConn)

// control sends one statement about the transaction, as a query. Exec without arguments would use
// the simple protocol, in which a text may hold several statements.
func control(ctx context.Context, tx *sql.Tx, statement string) error {
	rows, err := tx.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

// A Session holds the settings that the server reported for a connection. It is empty if pgx's
// driver is wrapped.
type Session struct{ settings }

// SessionOf returns the session of conn.
func SessionOf(conn *sql.Conn) (s Session) {
	_ = conn.Raw(func(dc any) error {
		if c, ours := dc.(*stdlib.Conn); ours {
			s.settings = settingsOf(c.Conn().PgConn())
		}
		return nil
	})
	return s
}

// Release returns a connection whose transaction has ended, or closes it if user code has changed
// its session. Returning ErrBadConn alone would not do: over a pgxpool, the driver returns a bad
// connection to that pool unchanged.
func (s Session) Release(conn *sql.Conn) {
	if SessionOf(conn) != s {
		_ = conn.Raw(func(dc any) error {
			if c, ours := dc.(*stdlib.Conn); ours {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = c.Conn().Close(ctx)
			}
			return driver.ErrBadConn
		})
	}
	_ = conn.Close()
}
