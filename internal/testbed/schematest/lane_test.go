package schematest_test

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
)

const (
	intoLane = `select e.outcome from pawl_v1.job_enqueue('q', 'k', '', '{"lane": "l"}') as e`
	inLane   = "select j.id, j.status, j.lane_head from pawl.job as j order by j.position"
)

// Ids are drawn before a transaction waits, so they are not in commit order (trap T19). Positions
// are drawn under the lane's lock, so a job enqueued behind an open transaction comes after it.
func TestT19_PositionsFollowTheLane(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	first, second := b.open("first"), b.open("second")
	first.Do("begin")
	b.same(first.Do(intoLane), "enqueued")
	b.same(second.Do(intoLane), blocked)
	b.same(first.Do(intoLane), "enqueued") // id 3, while 2 waits
	first.Do("commit")
	b.same(second.Wait(), "enqueued")
	b.is(inLane, "1 pending true, 3 waiting false, 2 waiting false")
	for _, want := range []string{"1", "3", "2"} {
		b.is("select c.id from pawl_v1.job_claim('q', null, 10) as c", want)
		b.do("select pawl_v1.job_finish(" + want + ", 1)")
	}
}

// A foreign transaction, of any age, with or without an xid and a snapshot, does not stop a lane
// (trap T20).
func TestT20_AForeignTransactionStopsNoLane(t *testing.T) {
	t.Parallel()
	b := setup(t, "create table foreign_work (n int)")
	foreign := b.open("foreign")
	foreign.Do("begin isolation level repeatable read")
	foreign.Do("insert into foreign_work values (1)")
	b.do(intoLane)
	b.do(intoLane)
	b.is("select c.id from pawl_v1.job_claim('q', null) as c", "1")
	b.is("select f.detail::text from pawl_v1.job_finish(1, 1) as f", `{"promoted": 1}`)
	b.is("select c.id from pawl_v1.job_claim('q', null) as c", "2")
}

// Transaction ids and WAL positions are meaningless after a restore (trap T21). No table stores
// one, and no lane function reads one.
func TestT21_NothingOrdersByTransactionIDs(t *testing.T) {
	t.Parallel()
	none(t, `select a.attrelid::regclass || '.' || a.attname
  from pg_attribute as a
  join pg_class as c on c.oid = a.attrelid
 where c.relnamespace = 'pawl'::regnamespace
   and a.attnum > 0
   and a.atttypid in ('xid'::regtype, 'xid8'::regtype, 'pg_lsn'::regtype, 'pg_snapshot'::regtype, 'txid_snapshot'::regtype)
union all
select p.proname
  from pg_proc as p
 where p.pronamespace = 'pawl_v1'::regnamespace
   and p.proname ~ 'lane|job_claim|enqueue'
   and p.prosrc ~* 'xmin|xact_id|txid|snapshot|wal_lsn'`)
}

// A job whose transaction began before others and committed after them is neither skipped nor
// purged with its lane (trap T22), because no function uses created_at.
func TestT22_ALateCommitKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t, intoLane+"; select pawl_v1.job_claim('q', null)")
	late := b.open("late")
	late.Do("begin")
	late.Do(intoLane)
	b.is("select f.detail ? 'skipped' from pawl_v1.job_finish(1, 1) as f", "true")
	b.is("select p.purged from pawl_v1.lane_purge() as p", "0")
	late.Do("commit")
	b.is("select s.promoted from pawl_v1.lane_sweep() as s", "1")
	b.is("select c.id from pawl_v1.job_claim('q', null) as c", "2")
}

// pagesOf counts the pages that a call reads, and rolls it back.
func pagesOf(t *testing.T, conn *pgx.Conn, call string) (pages int) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "vacuum analyze pawl.job"); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	explain := "explain (analyze, buffers, format json) select from " + call
	for range 2 { // the first run fills the session's caches
		var text string
		if err := tx.QueryRow(t.Context(), explain).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal([]byte(text), &plans); err != nil {
			t.Fatal(err)
		}
		pages = plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return pages
}
