package pawl

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Next steps for PostgreSQL errors that come from a setup in which Pawl cannot work.
const (
	hintPooler = "if the URL leads through a pooler in transaction mode, add default_query_exec_mode=exec to it, or connect directly; " +
		"migrations and presence need a direct connection"
	hintDropped = "if code on this connection runs DEALLOCATE ALL or DISCARD ALL, remove that; " + hintPooler
	hintSchema  = "run: pawl migrate up, on this database"
	hintLocks   = "raise max_locks_per_transaction (needs a server restart), or do less in one transaction: each key that it claims holds a lock until its end"
	hintRead    = "if the server is a standby, connect to its primary; otherwise default_transaction_read_only is on for the server, the database, the login or the session: turn it off"
	hintHidden  = "row level security confines this role: if the table is one of Pawl's, disable it there, or give each of them a policy using (true), see pawl doctor; otherwise your policy forbids the row or the role"
	hintGrant   = "if this transaction ran SET ROLE, call Pawl before it or after RESET ROLE, and grant that role no privileges on Pawl's objects; " +
		"otherwise, if the object is one of Pawl's, grant pawl_app to the login, and pawl_operator if it uses package ops; pawl migrate up --roles creates these roles"
)

// readingHints maps driver errors that a session setting causes to the next step.
var readingHints = [][2]string{
	{"invalid hex format", hintText("bytea_output", "hex")},
	{"invalid PostgreSQL date/time value", hintText("DateStyle", "ISO")},
	{"must be run with client_encoding=UTF8", hintText("client_encoding", "UTF8")},
	{"must be run with standard_conforming_strings=on", hintText("standard_conforming_strings", "on")},
}

func hintText(setting, needed string) string {
	return setting + " is not " + needed + " in this session, and pgx needs that to send or read text (default_query_exec_mode exec and simple_protocol): " +
		"alter database ... set " + setting + " = " + needed + ", or add " + setting + "=" + needed + " to the URL"
}

// readingHint returns the next step if the driver could not read or write a value, else "".
func readingHint(err error) string {
	for _, h := range readingHints {
		if strings.Contains(err.Error(), h[0]) {
			return h[1]
		}
	}
	return ""
}

// setupHint returns the next step for a missing schema, a missing grant or a pooler, else "".
func setupHint(pg *pgconn.PgError) string {
	switch pg.Code {
	case "42P05": // the named statement exists already
		return hintPooler
	case "26000": // the named statement does not exist
		return hintDropped
	case "08P01":
		if strings.Contains(pg.Message, "prepared statement") {
			return hintPooler
		}
	case "3F000", "42P01", "42883": // no such schema, table, function
		if strings.Contains(pg.Message, "pawl.") || strings.Contains(pg.Message, "pawl_v1") || strings.Contains(pg.Message, `"pawl"`) {
			return hintSchema
		}
	case "25006":
		return hintRead
	case "42501":
		if strings.Contains(pg.Message, "row-level security") {
			return hintHidden
		}
		return hintGrant
	case "53200":
		// Out of locks, not a backend out of memory.
		if strings.Contains(pg.Message, "shared memory") || pg.Hint != "" {
			return hintLocks
		}
	}
	return ""
}
