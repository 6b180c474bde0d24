package pawl_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl"
)

// Errors of a missing schema or grant, or of a pooler, name the next step. Others do not.
func TestWrap_NamesTheNextStepOfASetup(t *testing.T) {
	t.Parallel()
	for message, want := range map[string][2]string{
		`schema "pawl_v1" does not exist`:                             {"3F000", "pawl migrate up"},
		`relation "pawl.migration" does not exist`:                    {"42P01", "pawl migrate up"},
		`function pawl_v1.inbox_store(text) does not exist`:           {"42883", "pawl migrate up"},
		`permission denied for schema pawl_v1`:                        {"42501", "grant pawl_app"},
		`cannot execute INSERT in a read-only transaction`:            {"25006", "default_transaction_read_only"},
		`new row violates row-level security policy for table "job"`:  {"42501", "row level security confines"},
		`prepared statement "stmtcache_1" already exists`:             {"42P05", "default_query_exec_mode=exec"},
		`prepared statement "stmtcache_1" does not exist`:             {"26000", "default_query_exec_mode=exec"},
		`bind message supplies 1 parameters, but prepared statement…`: {"08P01", "default_query_exec_mode=exec"},
		`relation "orders" does not exist`:                            {"42P01", ""},
		`duplicate key value`:                                         {"23505", ""},
	} {
		err := pawl.Wrap("job.enqueue", &pgconn.PgError{Severity: "ERROR", Code: want[0], Message: message})
		if text := err.Error(); !strings.Contains(text, want[1]) || want[1] == "" && strings.Contains(text, "pawl ") {
			t.Errorf("%s: %s", message, text)
		}
	}
}
