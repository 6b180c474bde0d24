// Package pgtest creates a PostgreSQL database for each test in milliseconds.
//
// A test passes a [Template]: a schema and a function that applies it. The first test that needs
// the template builds its database. Every test gets a clone, which takes 6 ms in memory. Tests run
// in parallel, commit, LISTEN and lock as in production, and do not see each other.
//
//	func setup(t *testing.T) *pgx.Conn {
//		url := pgtest.URL(t, pgtest.Template{Name: "orders_" + hash, Apply: migrate})
//		...
//	}
//
// The first test starts a private server (package internal/testbed/postgres) for the test binary.
// No TestMain is needed, because the server ends with the process.
//
// PAWL_TEST_DATABASE_URL names an existing server to use instead. Its role must be allowed to
// create databases. All packages then share the server and its templates. It must be a direct
// connection: the template is built under a session lock, which a transaction pooler would lose.
//
// Templates stay on a shared server, one per schema. Remove an outdated one with
//
//	alter database pawl_template_NAME is_template false;
//	drop database pawl_template_NAME;
//
// Without PostgreSQL, the test fails with the command that installs it. No test is skipped.
package pgtest
