package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/testbed/checker"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
	"github.com/pawl-go/pawl/outbox"
)

const (
	connectLimit = 10 * time.Second // unless the URL has a connect_timeout
	cleanLimit   = 20 * time.Second // of removing our rows from the user's database
)

// A database is the database of a run: the observer's connection, and the data to remove
// afterwards.
type database struct {
	url string
	// of the business tables; also the consumer's name and the prefix of the workers' names
	schema    string
	directory string // data directory of a private server, if it is kept
	conn      *pgx.Conn
	stop      func()          // stops the private server
	ended     <-chan struct{} // closed when the private server has ended; nil if there is none
	clean     bool            // remove our data at the end
	display   Display
}

// A StartError means that the private server did not start.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// openDatabase starts or connects to the database and creates the business tables. The schema's
// name is new in every run, even with the same seed. Two runs with one inbox would treat each
// other's orders as duplicates.
func openDatabase(ctx context.Context, o Options, display Display) (*database, error) {
	d := &database{url: o.DatabaseURL, schema: fmt.Sprintf("pawl_demo_%d_%s", o.Seed, strings.ToLower(rand.Text()[:8])),
		stop: func() {}, clean: o.DatabaseURL != "" && !o.Keep, display: display}
	if o.DatabaseURL == "" {
		if err := d.startServer(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := d.prepare(ctx, o.DatabaseURL == ""); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// startServer starts a private server with PostgreSQL's own, durable settings.
func (d *database) startServer(ctx context.Context, o Options) error {
	options := postgres.Options{Durable: true, Log: d.display.Note,
		// sessions of killed workers linger
		Settings: map[string]string{"max_connections": fmt.Sprint(20 + 3*o.Workers*connsAWorker)}}
	parent := ""
	if o.Keep {
		var err error
		if parent, err = os.MkdirTemp("", "pawl-demo-"); err != nil {
			return err
		}
		options.DataDir = filepath.Join(parent, "postgres")
	}
	d.display.Note("starting a private PostgreSQL")
	server, err := postgres.Start(ctx, options)
	if err != nil {
		if parent != "" {
			_ = os.RemoveAll(parent)
		}
		return &StartError{err}
	}
	if o.Keep {
		d.directory = options.DataDir
		d.display.Note("the data will stay in " + d.directory)
	}
	d.url, d.stop, d.ended = server.URL("postgres"), func() { _ = server.Stop() }, server.Done()
	return nil
}

// prepare connects the observer and creates the tables of the run. It installs Pawl's schema in a
// private database. In the user's database it only checks the schema, because migrations run only
// on request.
func (d *database) prepare(ctx context.Context, private bool) (err error) {
	if d.conn, err = d.connect(ctx); err != nil {
		return err
	}
	if private {
		_, err = migrate.Up(ctx, d.conn, nil)
	} else {
		err = migrate.Check(ctx, d.conn)
	}
	if err == nil {
		_, err = d.conn.Exec(ctx, inSchema(tables, d.schema))
	}
	if err != nil {
		return errors.Join(err, d.conn.Close(ctx))
	}
	return nil
}

func (d *database) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		return nil, err
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectLimit)
	config.RuntimeParams["application_name"] = "pawl demo"
	return pgx.ConnectConfig(ctx, config)
}

// queues are the queues of the run's jobs: stored deliveries and events.
func (d *database) queues() []string {
	return []string{"inbox/" + d.schema, "inbox/" + shipping(d.schema), outbox.QueueOf(d.schema)}
}

// waiting counts stored deliveries that wait for a retry, and unpublished events.
func (d *database) waiting(ctx context.Context) (n int, err error) {
	err = d.conn.QueryRow(ctx, "select pg_catalog.count(*) from pawl.job as j where j.queue operator(pg_catalog.=) any ($1) and j.status operator(pg_catalog.<>) 'dead_letter'",
		d.queues()).Scan(&n)
	return n, err
}

// unknown counts the calls whose outcome was unknown until the asker settled them.
func (d *database) unknown(ctx context.Context) (n int, err error) {
	err = d.conn.QueryRow(ctx, "select pg_catalog.count(*) from pawl.audit as a where a.verb operator(pg_catalog.=) 'step_settle' and a.actor operator(pg_catalog.=) $1", d.schema).Scan(&n)
	return n, err
}

// history reads the business rows and the dead letters with plain SQL.
func (d *database) history(ctx context.Context) (h checker.History, err error) {
	h.Balances, h.DeadLetters = map[string]int64{}, map[string]checker.Order{}
	query := func(text string, args ...any) pgx.Rows {
		rows, _ := d.conn.Query(ctx, inSchema(text, d.schema), args...) // the error is also in rows
		return rows
	}
	var orders, ledger, shipments, balances, letters error
	h.Orders, orders = pgx.CollectRows(query("select o.key, o.customer, o.cents from SCHEMA.orders as o order by o.id"), pgx.RowToStructByPos[checker.Order])
	h.Ledger, ledger = pgx.CollectRows(query("select l.key, l.cents from SCHEMA.ledger as l order by l.id"), pgx.RowToStructByPos[checker.LedgerEntry])
	h.Shipments, shipments = pgx.CollectRows(query("select s.key, s.customer, s.cents from SCHEMA.shipments as s"), pgx.RowToStructByPos[checker.Order])
	var customer string
	var cents int64
	_, balances = pgx.ForEachRow(query("select b.customer, b.cents from SCHEMA.balance as b"), []any{&customer, &cents}, func() error {
		h.Balances[customer] = cents
		return nil
	})
	var body []byte
	_, letters = pgx.ForEachRow(query("select d.payload from pawl_v1.dead_letters as d where d.queue operator(pg_catalog.=) $1", "inbox/"+d.schema), []any{&body}, func() error {
		o, err := orderOf(body)
		h.DeadLetters[o.ID] = checker.Order{Key: o.ID, Customer: o.Customer, Cents: o.Cents}
		return err
	})
	return h, cmp.Or(orders, ledger, shipments, balances, letters)
}

// close disconnects the observer, and stops the private server or removes our data from the user's
// database.
func (d *database) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	_ = d.conn.Close(ctx)
	if d.clean {
		if err := d.removeTraces(ctx); err != nil {
			d.display.Note(fmt.Sprintf("could not remove schema %s and its inbox rows: %s", d.schema,
				strings.Join(strings.Fields(err.Error()), " ")))
		}
	}
	d.stop()
}

// removeTraces uses a new connection, because an interrupt may have broken the observer's during a
// query. The server may still run the last statement of a killed worker, so it waits until those
// sessions have ended.
func (d *database) removeTraces(ctx context.Context) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for busy := true; busy; time.Sleep(20 * time.Millisecond) {
		err := conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_stat_activity as a where a.application_name operator(pg_catalog.=) $1)", d.schema).Scan(&busy)
		if err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, inSchema("drop schema SCHEMA cascade", d.schema)); err != nil {
		return err
	}
	consumers, event := []string{d.schema, shipping(d.schema)}, outbox.QueueOf(d.schema)
	queues := append(d.queues(), letterQueue(d.schema))
	scopes := []string{"inbox/" + d.schema, "job/" + letterQueue(d.schema)}
	for _, made := range []struct {
		in string
		by any
	}{
		{"pawl.inbox as t where t.consumer operator(pg_catalog.=) any ($1)", consumers},
		{"pawl.delivery as t where t.consumer operator(pg_catalog.=) any ($1)", consumers},
		{"pawl.job as t where t.queue operator(pg_catalog.=) any ($1)", queues},
		{"pawl.job_key as t where t.queue operator(pg_catalog.=) $1", event},
		{"pawl.lane as t where t.queue operator(pg_catalog.=) $1", event},
		{"pawl.step_call as t where t.scope operator(pg_catalog.=) any ($1)", scopes},
		{"pawl.step as t where t.scope operator(pg_catalog.=) any ($1)", scopes},
		{"pawl.audit as t where t.actor operator(pg_catalog.=) $1", d.schema},
		{"pawl.worker as t where t.queues operator(pg_catalog.?|) $1", queues},
	} {
		if _, err := conn.Exec(ctx, "delete from "+made.in, made.by); err != nil {
			return err
		}
	}
	return nil
}
