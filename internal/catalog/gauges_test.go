package catalog_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/catalog"
	"github.com/pawl-go/pawl/pawltest"
)

// most bounds the rows of one answer.
const most = 1000

// A bed is one database.
type bed struct {
	*testing.T
	pool *pgxpool.Pool
}

func setup(t *testing.T) *bed {
	t.Helper()
	return &bed{t, pawltest.DB(t)}
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(statement string, args ...any) {
	b.Helper()
	_, err := b.pool.Exec(b.Context(), statement, args...)
	b.must(err)
}

// JobCounts counts by queue and status, with the age of the oldest job.
func TestJobCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, status, created_at)
select 'q' || g % 2, 'k', '', (array['pending', 'dead_letter', 'cancelled'])[1 + g % 3], now() - g * interval '1 minute'
  from generate_series(1, 12) as g`)
	counts, err := catalog.JobCounts(b.Context(), b.pool, most)
	b.must(err)
	if len(counts) != 6 {
		t.Fatalf("%d pairs, want 6: %+v", len(counts), counts)
	}
	for _, c := range counts {
		want := map[string]map[string]int{ // minutes since the oldest of the pair
			"pending": {"q1": 9, "q0": 12}, "dead_letter": {"q1": 7, "q0": 10}, "cancelled": {"q0": 8, "q1": 11}}[c.Status][c.Queue]
		if age := c.ReadAt.Sub(c.Oldest); c.Jobs != 2 || int(age.Minutes()) != want {
			t.Errorf("%+v: %v old, want 2 jobs and %d minutes", c, age, want)
		}
	}
}

// JobDue returns the job that has been due longest, at any priority. A job with a later time is not
// overdue, and jobs that wait or have ended do not count.
func TestQueuesDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if due, err := catalog.JobDue(b.Context(), b.pool, most); err != nil || len(due) != 0 {
		t.Fatalf("in an empty database: %v, %v", due, err)
	}
	b.exec(`insert into pawl.job (queue, kind, payload, status, priority, available_at)
select d.queue, 'k', '', d.status, d.priority, now() - d.minutes * interval '1 minute'
  from (values ('a', 'pending', 1, 5), ('a', 'pending', 4, 30), ('a', 'pending', 2, 20), ('b', 'pending', 3, -10), ('c', 'dead_letter', 1, 50),
               ('Z', 'pending', 2, 1), ('d', 'cancelled', 2, 70)) as d (queue, status, priority, minutes)`)
	queues, err := catalog.JobDue(b.Context(), b.pool, most)
	b.must(err)
	var names []string
	for _, q := range queues {
		names = append(names, q.Queue)
		want := map[string]float64{"Z": 1, "a": 30, "b": 0}[q.Queue]
		if got := max(0, q.ReadAt.Sub(q.Due)).Minutes(); got < want || got > want+1 {
			t.Errorf("%s is overdue for %v minutes, want %v", q.Queue, got, want)
		}
	}
	if !slices.Equal(names, []string{"Z", "a", "b"}) {
		t.Errorf("queues %v", names)
	}
}

// DeadCounts counts dead letters, and each lane that one blocks once.
func TestDeadCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, status, lane_id, position, lane_head)
select d.queue, 'k', '', d.status, d.lane, d.lane, d.head
  from (values ('a', 'dead_letter', 1, true), ('a', 'dead_letter', 2, true), ('a', 'dead_letter', 2, false), ('a', 'dead_letter', null, false),
               ('a', 'unknown', 3, true), ('a', 'pending', 4, true), ('b', 'cancelled', 5, false), ('b', 'dead_letter', null, false))
       as d (queue, status, lane, head)`)
	got, err := catalog.DeadCounts(b.Context(), b.pool, most)
	b.must(err)
	want := []catalog.DeadCountRow{{Queue: "a", Status: "dead_letter", Jobs: 4, Heads: 2}, {Queue: "a", Status: "unknown", Jobs: 1, Heads: 1}, {Queue: "b", Status: "dead_letter", Jobs: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A worker is alive until its own lease expires.
func TestCountWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("select pawl_v1.worker_register('here')")
	b.exec(`insert into pawl.worker (name, seen_at, lease)
values ('slow', now() - interval '1 hour', '2 hours'), ('gone', now() - interval '1 hour', '30 seconds')`)
	b.exec(`insert into pawl.worker (name, report, seen_at) values ('on', '{"wakeups": "on"}', now()), ('off', '{"wakeups": "off"}', now()),
('gone, too', '{"wakeups": "on"}', now() - interval '1 hour')`)
	if n, err := catalog.WorkerCounts(b.Context(), b.pool); err != nil || n != (catalog.WorkerCount{All: 6, Alive: 4, Wakeable: 1}) {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestCountStaleCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.command (scope, key, hash, status, lease_expires_at, expires_at)
select 's', g, sha256(''), d.status, now() + d.minutes * interval '1 minute', now() + interval '1 day'
  from (values ('unknown', -5), ('unknown', 5), ('processing', -5), ('processing', 5), ('succeeded', null)) as d (status, minutes),
       generate_series(1, 1) as one, lateral (select d.status || coalesce(d.minutes, 0)) as n (g)`)
	if unknown, overdue, err := catalog.StaleCommandCounts(b.Context(), b.pool); err != nil || unknown != 2 || overdue != 1 {
		t.Errorf("%d unknown, %d overdue, %v", unknown, overdue, err)
	}
}

// Reads that dashboards repeat use their index and do not scan most of the table.
func TestGauges_GoThroughTheirIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, priority, status)
select 'q' || n % 20, 'k', '', 1 + n % 4, case when n % 1000 = 0 then 'dead_letter' else 'pending' end from generate_series(1, 40000) as n`)
	b.exec(`insert into pawl.command (scope, key, hash, status, lease_expires_at, expires_at)
select 's', n, sha256(''), case when n % 1000 = 0 then 'unknown' else 'succeeded' end, case when n % 1000 = 0 then now() end, now() + interval '1 day'
  from generate_series(1, 40000) as n`)
	b.exec("analyze pawl.job, pawl.command")
	for name, c := range map[string]struct {
		read  func(context.Context, pawl.DB) error
		index string
		reads int64 // entries, at most
	}{
		"due":  {func(ctx context.Context, db pawl.DB) error { _, err := catalog.JobDue(ctx, db, most); return err }, "job_claim", 5*20 + 2},
		"dead": {func(ctx context.Context, db pawl.DB) error { _, err := catalog.DeadCounts(ctx, db, most); return err }, "job_dead", 40},
		"commands": {func(ctx context.Context, db pawl.DB) error {
			_, _, err := catalog.StaleCommandCounts(ctx, db)
			return err
		}, "command_stale", 40},
	} {
		err := pgx.BeginFunc(b.Context(), b.pool, func(tx pgx.Tx) error {
			before := b.scans(tx)
			if err := c.read(b.Context(), tx); err != nil {
				return err
			}
			for table, after := range b.scans(tx) {
				scans, reads := after.scans-before[table].scans, after.reads-before[table].reads
				if scans > 0 != (table == c.index) || table == c.index && reads > c.reads {
					t.Errorf("%s scanned %s %d times and read %d entries", name, table, scans, reads)
				}
			}
			return nil
		})
		b.must(err)
	}
}

// A scanned counts what a transaction has read of a table or index.
type scanned struct{ scans, reads int64 }

// scans returns the scans of the job and command tables and their indexes since the session began,
// and the rows they read.
func (b *bed) scans(tx pgx.Tx) map[string]scanned {
	b.Helper()
	rows, err := tx.Query(b.Context(), `select c.relname, pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid)
  from pg_class as c
 where c.oid in ('pawl.job'::regclass, 'pawl.command'::regclass)
    or c.oid in (select i.indexrelid from pg_index as i where i.indrelid in ('pawl.job'::regclass, 'pawl.command'::regclass))`)
	b.must(err)
	all, table, one := map[string]scanned{}, "", scanned{}
	_, err = pgx.ForEachRow(rows, []any{&table, &one.scans, &one.reads}, func() error { all[table] = one; return nil })
	b.must(err)
	return all
}

// reads counts the rows and index entries that read takes from the job and command tables.
func (b *bed) reads(read func(pgx.Tx)) (n int64) {
	b.Helper()
	b.must(pgx.BeginFunc(b.Context(), b.pool, func(tx pgx.Tx) error {
		before := b.scans(tx)
		read(tx)
		for table, after := range b.scans(tx) {
			n += after.reads - before[table].reads
		}
		return nil
	}))
	b.Logf("it reads %d entries", n)
	return n
}
