// Package watched detects that a COMMIT stopped waiting for its synchronous standby. The server
// reports that in a notice, which only a callback in the connection's configuration receives. So
// users install the callback, with pawl.Watch.
package watched

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// CommitTimeout is the default wait for the answer to COMMIT.
const CommitTimeout = 15 * time.Second

// key is where a connection keeps its state in CustomData.
const key = "github.com/pawl-go/pawl"

// ReadOn is SQL for a text: the server that reads, if it has synchronous standbys, else empty. Rows
// that were read may be visible there and not yet replicated. A COMMIT on the same server proves
// that they are replicated. A COMMIT on another server proves nothing, because that server may have
// been promoted without the rows. The server's name is its start time, which differs between a
// restarted primary and its standbys. pawl_v1._unreplicated returns the same name.
const ReadOn = `case when pg_catalog.current_setting('synchronous_standby_names') operator(pg_catalog.=) '' then ''
       else ` + Server + ` end`

// Server is SQL for the name of the server, a text.
const Server = `extract(epoch from pg_catalog.pg_postmaster_start_time())::pg_catalog.text`

// Run is SQL for a text that changes when the server starts, and also when it restarts itself after
// a session crashed. A restart after a crash keeps the start time but resets the statistics, so the
// text has both.
const Run = Server + ` operator(pg_catalog.||) ' ' operator(pg_catalog.||)
       coalesce(extract(epoch from pg_catalog.pg_stat_get_bgwriter_stat_reset_time())::pg_catalog.text, '')`

// A state belongs to one connection. Like the connection, only one goroutine at a time may use it.
type state struct {
	patience time.Duration
	current  *Statement
}

// A Statement records notices while one statement runs, above all COMMIT.
type Statement struct{ cancelled bool }

// Cancelled reports whether the server stopped waiting for its synchronous standbys. Then the
// commit may not be replicated.
func (s *Statement) Cancelled() bool { return s != nil && s.cancelled }

// Install makes connections of this configuration watched, in addition to existing callbacks.
// A patience of 0 means [CommitTimeout].
func Install(config *pgconn.Config, patience time.Duration) {
	if patience <= 0 {
		patience = CommitTimeout
	}
	connected, noticed := config.AfterConnect, config.OnNotice
	config.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		c.CustomData()[key] = &state{patience: patience}
		if connected != nil {
			return connected(ctx, c)
		}
		return nil
	}
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if s := of(c); s != nil && s.current != nil && cancelsWait(n) {
			s.current.cancelled = true
		}
		if noticed != nil {
			noticed(c, n)
		}
	}
}

// cancelsWait recognises the warnings of SyncRepWaitForLSN by their source. Their texts are
// translated, and triggers may raise 01000 too.
func cancelsWait(n *pgconn.Notice) bool {
	return n.Routine == "SyncRepWaitForLSN" || n.File == "syncrep.c"
}

// Begin starts recording for a statement that is about to be sent on c. If the connection is not
// watched, s is nil.
func Begin(c *pgconn.PgConn) (s *Statement, patience time.Duration) {
	is := of(c)
	if is == nil {
		return nil, CommitTimeout
	}
	is.current = &Statement{}
	return is.current, is.patience
}

// Is reports whether c is watched.
func Is(c *pgconn.PgConn) bool { return of(c) != nil }

func of(c *pgconn.PgConn) *state {
	s, _ := c.CustomData()[key].(*state)
	return s
}
