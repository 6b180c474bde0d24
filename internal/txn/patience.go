package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/verdict"
	"github.com/pawl-go/pawl/internal/watched"
)

var (
	errPatience  = errors.New("COMMIT was not answered in time, and is left waiting")
	errCancelled = errors.New("the server stopped waiting for its synchronous standby: the transaction is visible, and may not be replicated")
)

// patiently sends a COMMIT and waits for its reply until the connection's commit timeout. A
// caller's deadline does not cut the wait short, because the outcome of a cancelled COMMIT is
// unknown.
//
// After the timeout, the caller gets an unknown outcome and the COMMIT keeps running. Closing the
// connection instead would make pgx send a cancel request, and a COMMIT that waits for a
// synchronous standby would become visible without being replicated. Before it returns, patiently
// calls leave, after which the transaction must not be used. If leave returns false, the reply has
// just arrived, and patiently reads it.
//
// The connection returns to the pool when the reply arrives, so no more backends wait than the
// pool has connections. It is closed once the server no longer waits for a standby.
func patiently(ctx context.Context, op string, conn *pgx.Conn, commit func(context.Context) error, leave func() bool) error {
	heard, patience := watched.Begin(conn.PgConn())
	config, pid := conn.Config, conn.PgConn().PID()
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	reply := make(chan error, 1)
	go func() {
		defer cancel()
		reply <- commit(waiting)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case err = <-reply:
	case <-timer.C:
		if leave() {
			go untilReplicated(waiting, cancel, config(), pid, patience)
			return unknown(op, fmt.Errorf("%w: %v", errPatience, patience))
		}
		err = <-reply
	}
	if err == nil && heard.Cancelled() {
		return unknown(op, errCancelled)
	}
	return classify(op, err)
}

// untilReplicated lets a COMMIT wait as long as the server reports that it waits for a standby.
// Then it cancels the COMMIT's context.
func untilReplicated(waiting context.Context, cancel func(), config *pgx.ConnConfig, pid uint32, every time.Duration) {
	defer cancel()
	for waitsForStandby(waiting, config, pid) {
		select {
		case <-waiting.Done():
			return
		case <-time.After(every):
		}
	}
}

// waitsForStandby asks the server on a connection of its own. If the server does not answer, a
// cancel request would not reach it either.
func waitsForStandby(ctx context.Context, config *pgx.ConnConfig, pid uint32) (waits bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return pawl.CodeOf(err) == verdict.TooManyConns // the server is up and full
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_stat_activity as a where a.pid operator(pg_catalog.=) $1 and a.wait_event operator(pg_catalog.=) 'SyncRep')", int64(pid)).Scan(&waits)
	return waits && err == nil
}
