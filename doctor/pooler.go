package doctor

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/conns"
)

// poolerProbes is how often the session id of a handle is read that is no *pgx.Conn.
const poolerProbes = 8

// checkPooler checks the doctor's own connection. Workers report about theirs.
func checkPooler(ctx context.Context, db pawl.DB) ([]Finding, error) {
	between, err := changesSession(ctx, db)
	if !between {
		return nil, err
	}
	return []Finding{{What: "one connection is served by several sessions: a pooler in transaction or statement mode is in between",
		Why: "a presence lock and LISTEN last as long as a session: without them the jobs of a killed process wait for their lease, and new ones for the next poll",
		Fix: "give workers a direct URL for their presence connection, or leave presence off; all else works through such a pooler"}}, err
}

// changesSession reports whether several sessions serve db.
func changesSession(ctx context.Context, db pawl.DB) (bool, error) {
	if conn, ok := db.(*pgx.Conn); ok {
		_, err := conns.CheckPooler(ctx, conn, func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn.Config()) })
		if errors.Is(err, conns.ErrPooler) {
			return true, nil
		}
		return false, err
	}
	if _, inTx := db.(pawl.Tx); inTx {
		return false, nil // a transaction always keeps its session
	}
	var first int
	for i := range poolerProbes {
		var pid int
		if err := db.QueryRow(ctx, "select pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
			return false, err
		}
		if i == 0 {
			first = pid
		}
		if pid != first {
			return true, nil
		}
	}
	return false, nil
}
