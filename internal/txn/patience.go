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

// patiently sends a COMMIT and waits for its answer, for as long as the connection's patience; a caller's deadline never cuts it
// short, because a cancelled COMMIT is an unknown one.
//
// After that the caller is told that the outcome is unknown, and the COMMIT goes on: to give up its connection, pgx would send a cancel
// request, and a COMMIT that waits for a synchronous standby would become visible unreplicated. leave is called in that case,
// before the return: nothing else may use the transaction, unless it says that the answer came this moment. Its connection is the pool's again when the answer comes, so that no
// more backends wait than the pool has connections; or it is closed, once the server no longer waits for a standby.
func patiently(ctx context.Context, op string, conn *pgx.Conn, commit func(context.Context) error, leave func() bool) error {
	heard, patience := watched.Begin(conn.PgConn())
	config, pid := conn.Config, conn.PgConn().PID()
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	answer := make(chan error, 1)
	go func() {
		defer cancel()
		answer <- commit(waiting)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case err = <-answer:
	case <-timer.C:
		if leave() {
			go untilReplicated(waiting, cancel, config(), pid, patience)
			return unknown(op, fmt.Errorf("%w: %v", errPatience, patience))
		}
		err = <-answer
	}
	if err == nil && heard.Cancelled() {
		return unknown(op, errCancelled)
	}
	return classify(op, err)
}

// untilReplicated lets a COMMIT wait as long as the server says that it waits for a standby, and cancels its context otherwise.
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

// waitsForStandby asks the server on a connection of its own. Where it does not answer, no cancel request would reach it either.
func waitsForStandby(ctx context.Context, config *pgx.ConnConfig, pid uint32) (waits bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return pawl.CodeOf(err) == verdict.TooManyConns // it is there, and full
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_stat_activity as a where a.pid operator(pg_catalog.=) $1 and a.wait_event operator(pg_catalog.=) 'SyncRep')", int64(pid)).Scan(&waits)
	return waits && err == nil
}
