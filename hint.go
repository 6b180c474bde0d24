package pawl

import (
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Next steps for errors of PostgreSQL that come of a setup in which Pawl cannot work.
const (
	hintPooler = "if the URL leads through a pooler in transaction mode, add default_query_exec_mode=exec to it, or connect directly; " +
		"migrations and presence need a direct connection"
	hintDropped = "if code on this connection says DEALLOCATE ALL or DISCARD ALL, leave it out; " + hintPooler
	hintSchema  = "run: pawl migrate up, on this database"
	hintLocks   = "raise max_locks_per_transaction, which takes a restart of the server; or do less in one transaction: each key that it claims holds a lock until its end"
	hintRead    = "if the server is a standby, connect to its primary; otherwise default_transaction_read_only is on for the server, the database, the login or the session: set it off"
	hintHidden  = "row level security confines this role: if the table is one of Pawl's, disable it there, or give each of them a policy using (true), see pawl doctor; otherwise the row, or the role, breaks your policy"
	hintGrant   = "if this transaction has set another role (SET ROLE), call Pawl before that or after RESET ROLE, and grant that role nothing of Pawl's; " +
		"otherwise, if the object is one of Pawl's, grant pawl_app to the login, pawl_operator if it uses the operator's verbs; pawl migrate up --roles makes these roles"
)

// readingHints are next steps where a setting of the session keeps the driver from reading or writing
// text, by what its error says.
var readingHints = [][2]string{
	{"invalid hex format", hintText("bytea_output", "hex")},
	{"invalid PostgreSQL date/time value", hintText("DateStyle", "ISO")},
	{"must be run with client_encoding=UTF8", hintText("client_encoding", "UTF8")},
	{"must be run with standard_conforming_strings=on", hintText("standard_conforming_strings", "on")},
}

func hintText(setting, needed string) string {
	return setting + " is not " + needed + " here, which pgx needs where it sends or reads text (default_query_exec_mode exec and simple_protocol): " +
		"alter database ... set " + setting + " = " + needed + ", or add " + setting + "=" + needed + " to the URL"
}

// readingHint returns the next step for what the driver could not read or write, else "".
func readingHint(err error) string {
	for _, h := range readingHints {
		if strings.Contains(err.Error(), h[0]) {
			return h[1]
		}
	}
	return ""
}

// setupHint returns the next step for an error of PostgreSQL that a missing schema, a missing grant or a pooler explains, else "".
func setupHint(pg *pgconn.PgError) string {
	switch pg.Code {
	case "42P05": // a named statement exists already
		return hintPooler
	case "26000": // it does not exist
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
		if strings.Contains(pg.Message, "shared memory") || pg.Hint != "" { // of locks, and not of one backend
			return hintLocks
		}
	}
	return ""
}
