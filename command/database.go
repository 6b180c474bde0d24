package command

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/txn"
)

// A database is the way into the database. X is the type of transaction that handlers get.
type database[X any] interface {
	// db runs single statements, each in a transaction of its own.
	db() pawl.DB
	// replicated waits until everything read on the server readOn is replicated.
	replicated(ctx context.Context, readOn string) error
	// open begins a transaction and opens the command in it.
	open(ctx context.Context, i pawl.Intent, level pgx.TxIsoLevel, idle time.Duration) (opened[X], contract.CommandRow, error)
}

// An opened transaction holds the key, unless the row that open returned says why not.
type opened[X any] interface {
	db() pawl.DB
	guard(ctx context.Context, limit time.Duration, fn func(context.Context, X) error) error
	// close ends the command and commits.
	close(ctx context.Context, op string, args contract.CommandCloseArgs) error
	commit(ctx context.Context, op string) error
	rollback(ctx context.Context)
}

type pgxDatabase struct{ pool *pgxpool.Pool }

func (d pgxDatabase) db() pawl.DB { return d.pool }

func (d pgxDatabase) replicated(ctx context.Context, readOn string) error {
	return txn.Replicated(ctx, d.pool, readOn)
}

func (d pgxDatabase) open(ctx context.Context, i pawl.Intent, level pgx.TxIsoLevel, idle time.Duration) (opened[pgx.Tx], contract.CommandRow, error) {
	var row contract.CommandRow
	tx, err := txn.Open(ctx, d.pool, "command.claim", level, 0, contract.CommandOpenStep(i, idle, &row))
	if err != nil {
		return nil, row, err
	}
	return pgxTx{tx}, row, nil
}

type pgxTx struct{ tx *txn.Opened }

func (t pgxTx) db() pawl.DB                                 { return t.tx }
func (t pgxTx) commit(ctx context.Context, op string) error { return txn.Commit(ctx, op, t.tx) }
func (t pgxTx) close(ctx context.Context, op string, args contract.CommandCloseArgs) error {
	return t.tx.CommitWith(ctx, op, contract.CommandCloseStep(args))
}
func (t pgxTx) rollback(ctx context.Context) { txn.Rollback(ctx, t.tx) }
func (t pgxTx) guard(ctx context.Context, limit time.Duration, fn func(context.Context, pgx.Tx) error) error {
	return t.tx.Guard(ctx, limit, fn)
}

type sqlDatabase struct{ handle *sql.DB }

func (d sqlDatabase) db() pawl.DB { return pawl.SQL(d.handle) }

func (d sqlDatabase) replicated(ctx context.Context, readOn string) error {
	return txn.ReplicatedSQL(ctx, d.handle, readOn)
}

// open begins a transaction that does not end with ctx: database/sql would roll it back unasked.
func (d sqlDatabase) open(ctx context.Context, i pawl.Intent, level pgx.TxIsoLevel, idle time.Duration) (opened[*sql.Tx], contract.CommandRow, error) {
	var row contract.CommandRow
	conn, err := d.handle.Conn(ctx) // waits at most until ctx ends
	if err != nil {
		return nil, row, pawl.Wrap("command.begin", err)
	}
	session := txn.SessionOf(conn)
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: standardLevels[level]})
	if err != nil {
		_ = conn.Close()
		return nil, row, pawl.Wrap("command.begin", err)
	}
	t := sqlTx{tx, conn, session}
	if row, err = contract.CommandOpen(ctx, t.db(), i, idle); err != nil {
		conns.LeaveStandby(conn, err)
		t.rollback(ctx)
		return nil, row, pawl.Wrap("command.claim", err)
	}
	return t, row, nil
}

var standardLevels = map[pgx.TxIsoLevel]sql.IsolationLevel{
	pgx.ReadUncommitted: sql.LevelReadUncommitted, pgx.ReadCommitted: sql.LevelReadCommitted,
	pgx.RepeatableRead: sql.LevelRepeatableRead, pgx.Serializable: sql.LevelSerializable,
}

type sqlTx struct {
	tx      *sql.Tx
	conn    *sql.Conn // of the transaction; released when that ends
	session txn.Session
}

func (t sqlTx) db() pawl.DB { return pawl.SQLTx(t.tx) }

func (t sqlTx) close(ctx context.Context, op string, args contract.CommandCloseArgs) error {
	if err := contract.CommandClose(ctx, t.db(), args); err != nil {
		return txn.Refusal(err)
	}
	return t.commit(ctx, op)
}

func (t sqlTx) commit(_ context.Context, op string) error {
	defer t.session.Release(t.conn)
	return txn.CommitSQL(op, t.conn, t.tx)
}

func (t sqlTx) rollback(context.Context) {
	_ = t.tx.Rollback()
	t.session.Release(t.conn)
}

func (t sqlTx) guard(ctx context.Context, limit time.Duration, fn func(context.Context, *sql.Tx) error) error {
	return t.session.Guard(ctx, t.conn, t.tx, limit, fn)
}
