// Package pgtest gives every test a PostgreSQL database of its own in milliseconds.
//
// A test names a [Template]: a schema and how to apply it. The first test that needs it builds one template database;
// every test gets a clone (6 ms in memory), so tests run in parallel, commit, LISTEN and lock as in production, and see
// nothing of each other.
//
//	func setup(t *testing.T) *pgx.Conn {
//		url := pgtest.URL(t, pgtest.Template{Name: "orders_" + hash, Apply: migrate})
//		...
//	}
//
// One private server (package internal/testbed/postgres) is started for the test binary when the first test asks. No TestMain is
// needed: the server ends with the process. PAWL_TEST_DATABASE_URL names a server to use instead, whose role may create
// databases; then all packages share it and its templates. It must be a direct connection, since the template is built
// under a session lock that a transaction pooler would lose.
//
// Templates stay on a shared server, one per schema; an outdated one is removed by
//
//	alter database pawl_template_NAME is_template false;
//	drop database pawl_template_NAME;
//
// A missing PostgreSQL fails the test with the line that installs it. Nothing is skipped.
package pgtest
