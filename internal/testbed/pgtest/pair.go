package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/postgres"
)

// A Pair is a server and its synchronous standby.
type Pair struct {
	Primary, Standby *postgres.Server

	tb testing.TB
	// admin is the superuser's connection to the primary. Its own commits do not wait for the
	// standby.
	admin *pgx.Conn
}

// NewPair starts a pair, applies tpl to database postgres of the primary, and then makes commits
// wait for the standby. Both servers end with the test.
func NewPair(tb testing.TB, tpl Template) *Pair {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	primary, err := postgres.Start(ctx, postgres.Options{RAM: true, Settings: map[string]string{"max_connections": "200"}})
	must(err)
	tb.Cleanup(func() { _ = primary.Stop() })
	p := &Pair{Primary: primary, tb: tb}
	p.admin, err = pgx.Connect(ctx, p.URL())
	must(err)
	tb.Cleanup(func() { _ = p.admin.Close(context.Background()) })
	if tpl.Apply != nil {
		must(tpl.Apply(ctx, p.admin))
	}
	p.Standby, err = primary.Standby(ctx, "pair")
	must(err)
	tb.Cleanup(func() { _ = p.Standby.Stop() })
	p.Exec("set synchronous_commit = local")
	p.Synchronous("pair")
	p.Until("select exists (select from pg_stat_replication as r where r.sync_state = 'sync')")
	return p
}

// URL returns the primary's connection string, StandbyURL the standby's.
func (p *Pair) URL() string        { return p.Primary.URL("postgres") }
func (p *Pair) StandbyURL() string { return p.Standby.URL("postgres") }

// Exec runs statements on the primary without waiting for the standby.
func (p *Pair) Exec(statements ...string) {
	p.tb.Helper()
	for _, statement := range statements {
		if _, err := p.admin.Exec(context.Background(), statement); err != nil {
			p.tb.Fatalf("%s: %v", statement, err)
		}
	}
}

// Synchronous sets synchronous_standby_names.
func (p *Pair) Synchronous(names string) {
	p.tb.Helper()
	p.Exec("alter system set synchronous_standby_names = '"+names+"'", "select pg_reload_conf()")
}

// Cut stops the standby from receiving WAL, Join resumes it, and Promote makes it a primary.
func (p *Pair) Cut()     { p.tb.Helper(); p.do(p.Standby.Cut) }
func (p *Pair) Join()    { p.tb.Helper(); p.do(p.Standby.Join) }
func (p *Pair) Promote() { p.tb.Helper(); p.do(p.Standby.Promote) }

func (p *Pair) do(what func(context.Context) error) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := what(ctx); err != nil {
		p.tb.Fatal(err)
	}
}

// Waiting counts the backends whose COMMIT waits for the standby.
func (p *Pair) Waiting() (n int) {
	p.tb.Helper()
	err := p.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity as a where a.wait_event = 'SyncRep'").Scan(&n)
	if err != nil {
		p.tb.Fatal(err)
	}
	return n
}

// Patient is the application_name of connections that CancelWaiting does not cancel.
const Patient = "patient"

// CancelWaiting cancels all waiting commits, as an operator might do with backends that look stuck,
// and returns their number. The transactions become visible although they are not replicated.
func (p *Pair) CancelWaiting() (n int) {
	p.tb.Helper()
	err := p.admin.QueryRow(context.Background(),
		"select count(pg_cancel_backend(a.pid)) from pg_stat_activity as a where a.wait_event = 'SyncRep' and a.application_name <> $1", Patient).Scan(&n)
	if err != nil {
		p.tb.Fatal(err)
	}
	return n
}

// Until queries the primary until the result is true.
func (p *Pair) Until(question string) {
	p.tb.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(poll) {
		var is bool
		if err := p.admin.QueryRow(context.Background(), question).Scan(&is); err != nil {
			p.tb.Fatalf("%s: %v", question, err)
		}
		if is {
			return
		}
		if time.Now().After(deadline) {
			p.tb.Fatalf("still not: %s", question)
		}
	}
}
