package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"github.com/pawl-go/pawl/doctor"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/testbed/postgres"
	"github.com/pawl-go/pawl/migrate"
)

// clinic is a healthy server. Unlike the server of the other tests, it syncs its commits, and it
// allows prepared transactions.
var clinic = sync.OnceValues(func() (*postgres.Server, error) {
	s, err := postgres.Start(context.Background(), postgres.Options{RAM: true, Durable: true, Settings: map[string]string{"max_prepared_transactions": "2"}})
	if err != nil {
		return nil, err
	}
	in := func(database string, do func(ctx context.Context, conn *pgx.Conn) error) error {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, s.URL(database))
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, conn), conn.Close(ctx))
	}
	err = in("postgres", func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create role passer_by login")
		_, err2 := conn.Exec(ctx, "create database well")
		return errors.Join(err, err2)
	})
	if err == nil {
		err = in("well", func(ctx context.Context, conn *pgx.Conn) error {
			_, err := migrate.Up(ctx, conn, nil)
			return err
		})
	}
	return s, err
})

// A patient is a database of that server.
type patient struct {
	*testing.T
	url  string
	conn *pgx.Conn
}

func admit(t *testing.T, name string) *patient {
	t.Helper()
	s, err := clinic()
	if err != nil {
		t.Fatal(err)
	}
	p := &patient{T: t, url: s.URL("postgres")}
	admin := p.connect(p.url)
	p.exec(admin, "drop database if exists "+name+" with (force)") // of the last -count
	p.exec(admin, "create database "+name+" template well")
	p.url = s.URL(name)
	p.conn = p.connect(p.url)
	return p
}

func (p *patient) connect(url string) *pgx.Conn {
	p.Helper()
	conn, err := pgx.Connect(p.Context(), url)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (p *patient) exec(conn *pgx.Conn, script string) {
	p.Helper()
	if _, err := conn.Exec(p.Context(), script); err != nil {
		p.Fatalf("%s: %v", script, err)
	}
}

// healthy fails the test if the doctor finds anything.
func (p *patient) healthy(db pawl.DB, l doctor.Limits) {
	p.Helper()
	d, err := doctor.Diagnose(p.Context(), db, l)
	if err != nil || len(d.Findings) > 0 || len(d.Unchecked) > 0 {
		p.Errorf("%+v, %v", d, err)
	}
}

// has fails the test unless there is one finding, whose texts contain the given parts.
func (p *patient) has(db pawl.DB, l doctor.Limits, check string, parts ...string) {
	p.Helper()
	d, err := doctor.Diagnose(p.Context(), db, l)
	if err != nil || len(d.Findings) != 1 || d.Findings[0].Check != check || d.Findings[0].Why == "" || d.Findings[0].Fix == "" {
		p.Fatalf("want one finding of %s: %+v, %v", check, d, err)
	}
	for _, part := range parts {
		if !strings.Contains(d.Findings[0].What+"\n"+d.Findings[0].Fix, part) {
			p.Errorf("no %q in %+v", part, d.Findings[0])
		}
	}
}

// Each check finds its problem, and nothing on a healthy server. The tests of one server run one
// after the other, because open transactions are visible to its other databases.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		check, make, cure string
		limits            doctor.Limits
		parts             []string
	}{
		{"contract", "update pawl.migration set api_hash = 'x'", "", doctor.Limits{}, []string{"functions", "pawl migrate up"}},
		{"durability", "alter database this_database set synchronous_commit = off", "alter database this_database reset synchronous_commit", doctor.Limits{},
			[]string{"synchronous_commit is off for database", "alter database"}},
		{"timeouts", "alter database this_database set statement_timeout = '2s'", "alter database this_database set statement_timeout = '1min'", doctor.Limits{},
			[]string{"statement_timeout is 2s for database", "alter database", "reset statement_timeout"}},
		{"timeouts", "alter database this_database set idle_in_transaction_session_timeout = 900", "alter database this_database reset idle_in_transaction_session_timeout", doctor.Limits{},
			[]string{"idle_in_transaction_session_timeout is 900 for database"}},
		{"timeouts", "alter role current_user in database this_database set idle_session_timeout = '1s'", "alter role current_user in database this_database reset idle_session_timeout", doctor.Limits{},
			[]string{"idle_session_timeout is 1s for role", "in database", "reset idle_session_timeout"}},
		{"prepared", "begin; insert into pawl.fence (resource, fence) values ('r', 1); prepare transaction 'forgotten'", "rollback prepared 'forgotten'", doctor.Limits{},
			[]string{"'forgotten'", "rollback prepared 'forgotten'"}},
		{"vacuum", "alter table pawl.job set (autovacuum_enabled = off)", "alter table pawl.job reset (autovacuum_enabled)", doctor.Limits{},
			[]string{"off for pawl.job", "reset (autovacuum_enabled)"}},
		{"vacuum", `alter table pawl.inbox set (autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0); insert into pawl.inbox (consumer, key, hash, processed_at) select 'c', n::text, sha256(''), now() from generate_series(1, 2000) as n; delete from pawl.inbox; select pg_stat_force_next_flush()`, "vacuum pawl.inbox; select pg_stat_force_next_flush()", doctor.Limits{DeadRows: 1000}, []string{"pawl.inbox has about 2000 dead rows", "vacuum pawl.inbox"}},
		{"indexes", "update pg_index set indisvalid = false where indexrelid = 'pawl.job_claim'::regclass", "reindex index pawl.job_claim", doctor.Limits{},
			[]string{"index pawl.job_claim is invalid", "reindex index pawl.job_claim"}},
		{"collations", "update pg_database set datcollversion = '0.1' where datname = current_database()", "update pg_database set datcollversion = null where datname = current_database()", doctor.Limits{},
			[]string{"version 0.1", "reindex database"}},
		{"collations", "alter table pawl.audit alter target type text collate \"en-x-icu\"", "alter table pawl.audit alter target type pawl.name", doctor.Limits{},
			[]string{"audit.target", "en-x-icu"}},
		{"contract", "insert into pawl.schedule (name, queue, kind, payload, every_ms, next_at, fence) values ('s', 'q', 'k', '', 60000, now() + interval '1 hour', 5000)", "delete from pawl.schedule", doctor.Limits{},
			[]string{"pawl.fence_seq would assign numbers again", "pawl migrate up"}},
		{"path", "grant create on schema public to public", "revoke create on schema public from public", doctor.Limits{},
			[]string{"PUBLIC may create objects in schema public", "revoke create on schema public from public"}},
		{"row_security", "grant select on pawl.job to public; alter table pawl.job enable row level security", "create policy pawl on pawl.job using (true)", doctor.Limits{},
			[]string{"hides the rows of pawl.job from PUBLIC", "alter table pawl.job disable row level security", "create policy pawl on pawl.job"}},
		{"row_security", "grant select, insert on pawl.job to pg_monitor; alter table pawl.job enable row level security; create policy r on pawl.job for select using (true)", "revoke insert on pawl.job from pg_monitor", doctor.Limits{},
			[]string{"hides the rows of pawl.job from pg_monitor"}},
		{"row_security", "grant select on pawl.job to pg_monitor; alter table pawl.job enable row level security; create policy a on pawl.job using (true); create policy b on pawl.job as restrictive using (queue <> 'q')", "drop policy b on pawl.job", doctor.Limits{},
			[]string{"hides the rows of pawl.job from pg_monitor"}},
		{"workers", `insert into pawl.worker (name, seen_at) values ('w1', now() - interval '1 hour'); insert into pawl.job (queue, kind, payload, status, claimed_by) values ('q', 'k', '', 'processing', 1)`, "delete from pawl.job", doctor.Limits{}, []string{"(w1) has been silent", "holds 1 job", "start a worker"}},
		{"workers", `insert into pawl.worker (name, presence, seen_at, lease) values ('w1', true, now() - interval '6 seconds', '1 hour'); insert into pawl.job (queue, kind, payload, status, claimed_by) values ('q', 'k', '', 'processing', 1)`,
			"update pawl.worker set seen_at = now() - interval '2 seconds'", doctor.Limits{}, []string{"(w1) has been silent", "its presence lock is free", "holds 1 job"}},
		{"workers", `insert into pawl.worker (name, presence, seen_at, lease) values ('w1', true, now() - interval '6 seconds', '1 hour'); insert into pawl.job (queue, kind, payload, status, claimed_by) values ('q', 'k', '', 'processing', 1)`,
			"select pg_advisory_lock(1885435757, 1)", doctor.Limits{}, []string{"(w1) has been silent"}},
		{"waiting", "insert into pawl.job (queue, kind, payload, available_at) values ('q', 'unheard of', '', now() - interval '1 hour')", "delete from pawl.job", doctor.Limits{},
			[]string{"1 due job of kind unheard of in queue q", "no worker that runs serves queue q"}},
		{"crashes", "insert into pawl.job (queue, kind, payload, crashes) values ('q', 'k', '', 3)", "delete from pawl.job", doctor.Limits{}, []string{"one of them 3 times", "raise Lease"}},
		{"rows", `select pawl_v1.rollup_add('consumer', '{guard/shop.orders}', '{final_rows}', '{3}', '{"levels": true}')`,
			"update pawl.rollup set value = 0", doctor.Limits{}, []string{"3 rows of table shop.orders with a final error", "attempt_count to 0"}},
		{"rows", `insert into pawl.rollup (span, at, kind, source, scope, name, value) values ('minute', now() - interval '3 minutes', 'level', 'consumer', 'guard/b', 'final_rows', 7), ('minute', now() - interval '2 minutes', 'level', 'consumer', 'guard/b', 'final_rows', 1001)`,
			"insert into pawl.rollup (span, at, kind, source, scope, name, value) values ('minute', now(), 'level', 'consumer', 'guard/b', 'final_rows', 0)", doctor.Limits{}, []string{"more than 1000 rows of table b"}},
		{"retention", `insert into pawl.command (scope, key, hash, status, created_at, expires_at)
values ('s', 'k', sha256(''), 'succeeded', now() - interval '30 days', now() - interval '29 days')`, "select pawl_v1.command_purge()", doctor.Limits{},
			[]string{"pawl.command has rows", "pawl purge --table command --reason hourly --yes"}},
		{"retention", old("fourteen", 23) + "; select pawl_v1.consumer_report('fourteen', 14 * 86400000)", "select pawl_v1.inbox_purge('fourteen', 14 * 86400000::bigint)", doctor.Limits{},
			[]string{"consumer fourteen", "pawl purge --table inbox --consumer fourteen --older-than 337h --reason retention --yes"}},
		{"retention", old("silent", 36), "delete from pawl.inbox", doctor.Limits{}, []string{"to silent, which has never reported", "consumer_report"}},
		{"redelivery", `select pawl_v1.consumer_report('c', 86400000, '{"horizon_ms": 1209600000}')`, "select pawl_v1.consumer_report('c', 1209600000)", doctor.Limits{},
			[]string{"c remembers for 24 hours, and its source may deliver for 336 hours", "raise the Retention"}},
		{"redelivery", `insert into pawl.job (queue, kind, payload, status, last_errors) values ('inbox/c', 'delivery', '', 'dead_letter', '[{"code": "P4051"}]')`, "delete from pawl.job", doctor.Limits{},
			[]string{"older than the memory window, and not run: 1 delivery to queue inbox/c", "pawl dlq list --queue inbox/c"}},
		{"schedules", "insert into pawl.schedule (name, next_at, every_ms, queue, kind, payload) values ('nightly', now() - interval '1 hour', 1000, 'q', 'k', '')",
			"update pawl.schedule set paused = true", doctor.Limits{}, []string{"schedule nightly should have ticked", "pawl schedules pause nightly"}},
		{"paused", "select pawl_v1.rollup_add('consumer', '{orders}', '{receive_paused}', '{1000}'); insert into pawl.job (queue, kind, payload, status) values ('inbox/orders', 'delivery', '', 'dead_letter')",
			"update pawl.rollup set at = at - interval '3 minutes' where span = 'minute'", doctor.Limits{}, []string{"consumer orders has paused its receiving", "1 dead letter", "pawl dlq list --queue inbox/orders"}},
		{"paused", `select pawl_v1.queue_set('q', '{"mode": "paused"}', 'ann', 'the bank is away')` + "; insert into pawl.job (queue, kind, payload, available_at) values ('q', 'k', '', now() - interval '8 days')",
			"delete from pawl.job", doctor.Limits{}, []string{"queue q is paused, with 1 due job", "ann did it at ", ": the bank is away", "pawl queues resume q"}},
		{"handlers", "insert into pawl.worker (name, lease, silence) values ('w1', '30 seconds', '16 seconds')", "delete from pawl.worker", doctor.Limits{},
			[]string{"(w1) was silent for 16.0 s of its lease of 30.0 s", "raise Lease"}},
		{"handlers", works(`"runs": 20, "p99_ms": 8000, "timeout_ms": 10000`), "update pawl.worker set report = jsonb_set(report, '{handlers,k,p99_ms}', '7999')", doctor.Limits{},
			[]string{"handler of k in worker 1 (w1) takes 8000 ms (p99), and is cut off at 10000 ms", "raise its Timeout"}},
		{"handlers", works(`"runs": 20, "p99_ms": 25000, "timeout_ms": 60000`), "update pawl.worker set seen_at = now() - interval '1 hour'", doctor.Limits{},
			[]string{"takes 25000 ms (p99), and is cut off in a deploy after 25000 ms", "raise ShutdownTimeout"}},
		{"wakeups", reports("on"), "delete from pawl.worker", doctor.Limits{}, []string{"max_prepared_transactions is 2", "job.Kick"}},
		{"wakeups", reports("off"), "delete from pawl.worker", doctor.Limits{}, []string{"(w1): Presence.Off is set", "Presence.URL"}},
		{"wakeups", reports("none"), "update pawl.worker set seen_at = now() - interval '1 hour'", doctor.Limits{}, []string{"(w1): it has no presence connection", "worker.presence"}},
		{"pooler", `insert into pawl.worker (name, report) values ('w1', '{"wakeups": "none", "pooled": true}')`, "delete from pawl.worker", doctor.Limits{}, []string{"through a pooler", "Presence.URL"}},
		{"waiting", "insert into pawl.worker (name) values ('w1')" + waits("k", "q"), "delete from pawl.job", doctor.Limits{}, []string{"run a worker with queue q and a handler for k"}},
		{"waiting", works("") + waits("unheard of", "q"), "delete from pawl.job", doctor.Limits{}, []string{"the workers of queue q have no handler for unheard of"}},
		{"waiting", works("") + waits("k", "elsewhere"), "delete from pawl.job", doctor.Limits{}, []string{"no worker that runs serves queue elsewhere"}},
		{"waiting", works("") + waits("k", "q"), "delete from pawl.job", doctor.Limits{}, []string{"all are busy"}},
	} {
		t.Run(c.check, func(t *testing.T) {
			p := admit(t, fmt.Sprintf("clinic_%d", i))
			do := func(script string) {
				for _, s := range strings.Split(script, "; ") {
					p.exec(p.conn, strings.ReplaceAll(s, "this_database", fmt.Sprintf("clinic_%d", i)))
				}
			}
			p.healthy(p.conn, c.limits)
			do(c.make)
			p.has(p.conn, c.limits, c.check, c.parts...)
			if d, err := doctor.Diagnose(t.Context(), p.conn, doctor.Limits{Skip: []string{c.check}}); err != nil || len(d.Findings) > 0 || slices.Contains(d.Checked, c.check) {
				t.Errorf("skipped: %+v, %v", d, err)
			}
			if c.cure != "" {
				do(c.cure)
				p.healthy(p.conn, c.limits)
			}
		})
	}
}

// The doctor checks transaction_timeout, which PostgreSQL 15 lacks. It must be longer than the
// longest handler timeout of a worker plus 5 s.
func TestDiagnose_TransactionTimeout(t *testing.T) {
	t.Parallel()
	p := admit(t, "clinic_transaction_timeout")
	var version int
	if err := p.conn.QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&version); err != nil || version < 170000 {
		return // the setting is new in PostgreSQL 17
	}
	p.exec(p.conn, works(`"runs": 1, "p99_ms": 10, "timeout_ms": 60000`))
	p.exec(p.conn, "alter database clinic_transaction_timeout set transaction_timeout = '1min'")
	p.has(p.conn, doctor.Limits{}, "timeouts", "transaction_timeout is 1min for database", "65000 ms")
	p.exec(p.conn, "alter database clinic_transaction_timeout set transaction_timeout = '65s'")
	p.healthy(p.conn, doctor.Limits{})
}

// reports returns SQL for a worker that reports whether enqueues wake it.
func reports(wakeups string) string {
	return `insert into pawl.worker (name, report) values ('w1', '{"wakeups": "` + wakeups + `"}')`
}

// works returns SQL for a worker that reports one handler, for kind k in queue q.
func works(handler string) string {
	return `insert into pawl.worker (name, report) values ('w1', '{"queues": ["q"], "drain_ms": 25000, "handlers": {"k": {` + handler + `}}}')`
}

// waits returns SQL for a job that has been due for an hour.
func waits(kind, queue string) string {
	return fmt.Sprintf("; insert into pawl.job (queue, kind, payload, available_at) values ('%s', '%s', '', now() - interval '1 hour')", queue, kind)
}

// old returns SQL for a delivery that arrived the given number of days ago.
func old(consumer string, days int) string {
	return fmt.Sprintf("insert into pawl.inbox (consumer, key, hash, processed_at, received_at) values ('%s', 'm', sha256(''), now(), now() - interval '%d days')", consumer, days)
}

// The finding about a transaction that was left open names its session and the command to end it.
func TestDiagnose_Snapshots(t *testing.T) {
	t.Parallel()
	p := admit(t, "clinic_snapshots")
	other := p.connect(p.url + "&application_name=report")
	p.exec(other, "begin isolation level repeatable read; select from pawl.job")
	p.healthy(p.conn, doctor.Limits{}) // younger than five minutes
	young := doctor.Limits{Transaction: time.Millisecond}
	p.has(p.conn, young, "snapshots", "(report) has had a transaction open", fmt.Sprintf("pg_terminate_backend(%d)", other.PgConn().PID()))
	p.exec(other, "rollback")
	p.healthy(p.conn, young)

	passer := p.connect(as(t, p.url, "passer_by"))
	p.exec(p.conn, "grant usage on schema pawl, pawl_v1 to passer_by; grant select on all tables in schema pawl, pawl_v1 to passer_by; grant execute on function pawl_v1.stale_classify(text, jsonb), pawl_v1._check_options(jsonb, text[]), pawl_v1._refuse_options(jsonb, text[]), pawl_v1._int_option(jsonb, text, bigint, bigint, bigint), pawl_v1._int_given(jsonb, text, bigint, bigint), pawl_v1._dead_letter_advice(pawl.job), pawl_v1._steps_of_job(pawl.job), pawl_v1._step_doubts(pawl.step), pawl_v1._presence(bigint) to passer_by")
	d, err := doctor.Diagnose(t.Context(), passer, doctor.Limits{})
	if err != nil || len(d.Findings) > 0 || len(d.Unchecked) != 1 || !strings.Contains(d.Unchecked[0].Why, "pg_monitor") {
		t.Errorf("%+v, %v", d, err)
	}
}

func as(t *testing.T, database, user string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	return u.String()
}

// A pooler in transaction mode runs each statement in another session.
func TestDiagnose_Pooler(t *testing.T) {
	t.Parallel()
	p := admit(t, "clinic_pooler")
	p.has(&pooler{sessions: []*pgx.Conn{p.conn, p.connect(p.url)}}, doctor.Limits{}, "pooler", "several sessions", "direct URL")
	tx, err := p.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.healthy(tx, doctor.Limits{})
}

// A pooler switches between real sessions, as a pooler in transaction mode does.
type pooler struct {
	sessions []*pgx.Conn
	next     int
}

func (p *pooler) take() *pgx.Conn {
	p.next++
	return p.sessions[p.next%len(p.sessions)]
}

func (p *pooler) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.take().Query(ctx, sql, args...)
}

func (p *pooler) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.take().QueryRow(ctx, sql, args...)
}

func (p *pooler) Begin(ctx context.Context) (pgx.Tx, error) { return p.take().Begin(ctx) }

// A queue that was paused only recently is no finding: an operator wants it to wait.
func TestDiagnose_PausedQueue(t *testing.T) {
	t.Parallel()
	p := admit(t, "clinic_paused")
	p.exec(p.conn, "insert into pawl.job (queue, kind, payload, available_at) values ('q', 'k', '', now() - interval '1 hour'); insert into pawl.queue (name, mode) values ('q', 'paused')")
	p.healthy(p.conn, doctor.Limits{})
}

// If the schema is missing, that is the only finding, and no other check runs.
func TestDiagnose_NoSchema(t *testing.T) {
	t.Parallel()
	p := admit(t, "clinic_bare")
	p.exec(p.conn, "drop schema pawl, pawl_v1 cascade")
	d, err := doctor.Diagnose(t.Context(), p.conn, doctor.Limits{})
	if err != nil || len(d.Findings) != 1 || !strings.Contains(d.Findings[0].Fix, "pawl migrate up") || len(d.Unchecked) != 1 || len(d.Checked) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := doctor.Diagnose(t.Context(), p.conn, doctor.Limits{Skip: []string{"luck"}}); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("%v", err)
	}
}
