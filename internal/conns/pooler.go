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
// several server sessions. Session locks, LISTEN and named prepared statements do not work there.
var ErrPooler = errors.New("the connection goes through a pooler in transaction or statement mode, which changes its session between statements")

// poolerRounds is how often the sessions are compared, because another client of the pooler may
// take the session that the probe waits for.
const poolerRounds = 3

// probeLimit bounds the probe of a connection that goes through a pooler.
const probeLimit = 5 * time.Second

// Session returns the process id of the session that answers. It uses no prepared statement, so it
// works behind any pooler.
func Session(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	answer, err := simple(ctx, conn, "select pg_catalog.pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	if len(answer) != 1 || len(answer[0].Rows) != 1 {
		return 0, errors.New("the server did not tell its process id")
	}
	n, err := strconv.ParseUint(string(answer[0].Rows[0][0]), 10, 32)
	return uint32(n), err
}

// simple sends one query in the simple protocol. pgx's simple mode would require client_encoding
// UTF8 and standard_conforming_strings on.
func simple(ctx context.Context, conn *pgx.Conn, text string) ([]*pgconn.Result, error) {
	return conn.PgConn().Exec(ctx, text).ReadAll()
}

// CheckPooler returns the session of conn, or [ErrPooler]. conn must not be in a transaction. A
// direct connection costs one query: the session that answers is the one from the connection's
// startup. A pooler reports another process id at startup.
//
// Then connect opens a second connection, whose open transaction occupies the session that conn has
// just used. In session mode, the second connection gets another session and conn keeps its own. If
// the second connection cannot be opened within 5 s, CheckPooler assumes that conn keeps its
// session.
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
	defer second.Close(context.WithoutCancel(ctx))
	for range poolerRounds {
		shared, err := shares(probing, conn, second)
		if shared {
			return 0, ErrPooler
		}
		if err != nil {
			return session, ctx.Err()
		}
	}
	return session, nil
}

// shares reports whether conn changes its session while second has an open transaction.
func shares(ctx context.Context, conn, second *pgx.Conn) (bool, error) {
	before, err := Session(ctx, conn)
	if err != nil {
		return false, err
	}
	if _, err := simple(ctx, second, "begin"); err != nil {
		return false, err
	}
	defer simple(context.WithoutCancel(ctx), second, "rollback")
	kept, err := Session(ctx, second)
	if err != nil {
		return false, err
	}
	after, err := Session(ctx, conn)
	return err == nil && (kept == before || after != before), err
}
