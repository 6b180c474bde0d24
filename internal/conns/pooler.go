package conns

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrPooler says that a pooler in transaction or statement mode serves one connection of its client
// with several sessions of the server. A session lock, LISTEN and a named prepared statement are
// lost there.
var ErrPooler = errors.New("the connection goes through a pooler in transaction or statement mode, which changes its session between statements")

// poolerRounds is how often the sessions are compared: another client of the pooler may take the session that the probe waits for.
const poolerRounds = 3

// probeLimit bounds the probe of a connection that does not lead to the server that greeted us.
const probeLimit = 5 * time.Second

// Session returns the process id of the session that answers. It asks without a prepared statement, so that any pooler answers.
func Session(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid, err
}

// CheckPooler returns the session of conn, or [ErrPooler]. conn must not be in a transaction. A direct connection costs one question:
// the session that answers is the one that greeted the client. A pooler greets in its own name. Then connect makes a second
// connection, whose open transaction keeps the session that conn has just used: in session mode it gets another one, and conn
// keeps its own. If the second connection cannot be had within 5 s, conn is believed to keep its session.
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

// shares reports whether conn changes its session while second has a transaction open.
func shares(ctx context.Context, conn, second *pgx.Conn) (bool, error) {
	before, err := Session(ctx, conn)
	if err != nil {
		return false, err
	}
	if _, err := second.Exec(ctx, "begin", pgx.QueryExecModeSimpleProtocol); err != nil {
		return false, err
	}
	defer second.Exec(context.WithoutCancel(ctx), "rollback", pgx.QueryExecModeSimpleProtocol)
	kept, err := Session(ctx, second)
	if err != nil {
		return false, err
	}
	after, err := Session(ctx, conn)
	return err == nil && (kept == before || after != before), err
}
