package txn

import "github.com/jackc/pgx/v5/pgconn"

// reported are the settings that the server reports when they change, at no cost.
var reported = [...]string{"application_name", "client_encoding", "DateStyle", "default_transaction_read_only", "IntervalStyle",
	"search_path", "session_authorization", "standard_conforming_strings", "TimeZone"}

// settings are the values of what is reported; empty for what this version of the server does not report.
type settings [len(reported)]string

func settingsOf(conn *pgconn.PgConn) (s settings) {
	for i, name := range reported {
		s[i] = conn.ParameterStatus(name)
	}
	return s
}
