package standbytest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// limit bounds each start.
const limit = 2 * time.Minute

// servers are a primary and its synchronous standby.
type servers struct {
	primary, standby *postgres.Server

	tb testing.TB
	// admin is the superuser's connection to the primary. Its own commits do not wait for the
	// standby.
	admin *pgx.Conn
}

// newServers starts both, applies a schema to database postgres of the primary, and then makes
// commits wait for the standby. Both servers end with the test.
func newServers(tb testing.TB, apply func(ctx context.Context, conn *pgx.Conn) error) *servers {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	primary, err := postgres.Start(ctx, postgres.Options{RAM: true, Settings: settings})
	must(tb, err)
	tb.Cleanup(func() { _ = primary.Stop() })
	p := &servers{primary: primary, tb: tb, admin: connect(tb, primary.URL("postgres"))}
	must(tb, apply(ctx, p.admin))
	p.standby = startStandby(tb, primary, "pair")
	p.Exec("set synchronous_commit = local")
	p.Synchronous("pair")
	p.Until("select exists (select from pg_stat_replication as r where r.sync_state = 'sync')")
	return p
}

// URL returns the primary's connection string, StandbyURL the standby's.
func (p *servers) URL() string        { return p.primary.URL("postgres") }
func (p *servers) StandbyURL() string { return p.standby.URL("postgres") }

// Exec runs statements on the primary without waiting for the standby.
func (p *servers) Exec(statements ...string) {
	p.tb.Helper()
	execute(p.tb, p.admin, statements...)
}

// Synchronous sets synchronous_standby_names.
func (p *servers) Synchronous(names string) {
	p.tb.Helper()
	p.Exec("alter system set synchronous_standby_names = '"+names+"'", "select pg_reload_conf()")
}

// Waiting counts the backends whose COMMIT waits for the standby.
func (p *servers) Waiting() (n int) {
	p.tb.Helper()
	must(p.tb, p.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity as a where a.wait_event = 'SyncRep'").Scan(&n))
	return n
}

// patientName is the application_name of connections that CancelWaiting does not cancel.
const patientName = "patient"

// CancelWaiting cancels all waiting commits, as an operator might do with backends that look stuck,
// and returns their number. The transactions become visible although they are not replicated.
func (p *servers) CancelWaiting() (n int) {
	p.tb.Helper()
	must(p.tb, p.admin.QueryRow(context.Background(),
		"select count(pg_cancel_backend(a.pid)) from pg_stat_activity as a where a.wait_event = 'SyncRep' and a.application_name <> $1", patientName).Scan(&n))
	return n
}

// Until queries the primary until the result is true.
func (p *servers) Until(question string) {
	p.tb.Helper()
	patience.Row(p.tb, p.admin, question, question)
}

func execute(tb testing.TB, conn *pgx.Conn, statements ...string) {
	tb.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
