package conns

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrPooler means that a pooler in transaction or statement mode serves this connection with
// several server sessions. Session locks and LISTEN do not work there.
var ErrPooler = errors.New("the connection goes through a pooler in transaction or statement mode, which changes its session between statements")

// poolerRounds is the number of tries. A try fails to detect a pooler if another client of it takes
// the session that conn had.
const poolerRounds = 3

const (
	probeLimit = 5 * time.Second // bounds the probe of a connection through a pooler
	closeLimit = time.Second     // bounds the end of the probe's connection
)

// Session returns the process id of the session that answers. It uses no prepared statement, so it
// works behind any pooler.
func Session(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	results, err := simple(ctx, conn, "select pg_catalog.pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return 0, errors.New("the server did not tell its process id")
	}
	n, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	return uint32(n), err
}

// simple sends one query in the simple protocol. pgx's simple mode refuses sessions without
// client_encoding UTF8 and standard_conforming_strings, which a login may have.
func simple(ctx context.Context, conn *pgx.Conn, text string) ([]*pgconn.Result, error) {
	return conn.PgConn().Exec(ctx, text).ReadAll()
}

// CheckPooler returns the process id of conn's session, or [ErrPooler]. conn must not be in a
// transaction. Other errors are those of conn's first query and of ctx.
//
// A direct connection costs one query, because the session that answers has the process id of the
// connection's startup. A pooler announces another process id at startup. If the ids differ,
// connect opens a second connection, and begins a transaction on it. In session mode the second
// connection gets another session, and conn keeps its own. In transaction mode the two may get the
// same session, or conn moves to another. In statement mode the pooler refuses the transaction.
//
// The probe takes at most 5 s. If it fails, CheckPooler assumes that conn keeps its session.
func CheckPooler(ctx context.Context, conn *pgx.Conn, connect func(context.Context) (*pgx.Conn, error)) (session uint32, err error) {
	session, err = Session(ctx, conn)
	if err != nil || session == conn.PgConn().PID() {
		return session, err
	}
	probing, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	second, err := connect(probing)
	if err != nil {
		return session, ctx.Err()
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_, _ = simple(closing, second, "rollback") // or a pooler closes the session as well
		_ = second.Close(closing)
	}()
	for range poolerRounds {
		moves, err := movesSession(probing, conn, second)
		if moves {
			return 0, ErrPooler
		}
		if err != nil {
			return session, ctx.Err()
		}
	}
	return session, nil
}

// movesSession reports whether conn may move to another session while second has an open
// transaction.
func movesSession(ctx context.Context, conn, second *pgx.Conn) (bool, error) {
	before, err := Session(ctx, conn)
	if err != nil {
		return false, err
	}
	if _, err := simple(ctx, second, "begin"); err != nil {
		return refusesTransactions(err), err
	}
	taken, err := Session(ctx, second)
	if err != nil {
		return false, err
	}
	if taken == before {
		return true, nil // without asking conn, which waits if the pooler has no other session
	}
	after, err := Session(ctx, conn)
	if err != nil || after != before {
		return err == nil, err
	}
	_, err = simple(ctx, second, "rollback")
	return false, err
}

// refusesTransactions reports whether BEGIN failed with protocol_violation, as PgBouncer answers it
// in statement mode. PostgreSQL does not answer BEGIN so.
func refusesTransactions(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01"
}
