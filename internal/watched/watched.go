// Package watched sees what a server says beside its answers: that a COMMIT stopped waiting for its
// synchronous standby. Only a callback of the connection's configuration hears it, so package pawl
// lets users install it (pawl.Watch).
package watched

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// CommitTimeout is how long COMMIT is waited for where nothing else was said.
const CommitTimeout = 15 * time.Second

// key under which a connection carries its state.
const key = "github.com/pawl-go/pawl"

// ReadOn is SQL for a text: the server that reads, if it has synchronous standbys, else ”. What was
// read may be visible there and not replicated; a COMMIT on that very server proves that it is. One
// on another server proves nothing: that one may have been promoted without it. The name of a
// server is the time at which it started, which a restarted primary and its standbys do not share.
// pawl_v1._unproved answers the same name.
const ReadOn = `case when pg_catalog.current_setting('synchronous_standby_names') operator(pg_catalog.=) '' then ''
       else ` + Server + ` end`

// Server is SQL for the name of the server, a text.
const Server = `extract(epoch from pg_catalog.pg_postmaster_start_time())::pg_catalog.text`

// A state belongs to one connection, and like it to one goroutine at a time.
type state struct {
	patience time.Duration
	current  *Statement
}

// A Statement is what is heard while one statement runs, COMMIT above all.
type Statement struct{ cancelled bool }

// Cancelled reports whether the server stopped waiting for its synchronous standbys: what was committed may not be replicated.
func (s *Statement) Cancelled() bool { return s != nil && s.cancelled }

// Install makes connections of this configuration watched, beside the callbacks that are there. patience 0 is [CommitTimeout].
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

// cancelsWait recognises the warnings of SyncRepWaitForLSN by where they come from: their texts are translated, and 01000 is also
// what a trigger raises.
func cancelsWait(n *pgconn.Notice) bool {
	return n.Routine == "SyncRepWaitForLSN" || n.File == "syncrep.c"
}

// Begin listens for one statement that is about to be sent on c. On a connection that is not watched nothing will be heard.
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
