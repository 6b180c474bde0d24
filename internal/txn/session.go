package txn

import "github.com/jackc/pgx/v5/pgconn"

// reported lists settings whose changes the server reports to the client without a query.
var reported = [...]string{"application_name", "client_encoding", "DateStyle", "default_transaction_read_only", "IntervalStyle",
	"search_path", "session_authorization", "standard_conforming_strings", "TimeZone"}

// settings holds the values of the reported settings; empty for those that this server version does
// not report.
type settings [len(reported)]string

func settingsOf(conn *pgconn.PgConn) (s settings) {
	for i, name := range reported {
		s[i] = conn.ParameterStatus(name)
	}
	return s
}
