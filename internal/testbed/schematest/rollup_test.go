package schematest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-go/pawl/pawltest"
)

const rolledUp = `select string_agg(format('%s %s %s/%s %s=%s', r.span, r.kind, r.source, r.scope, r.name, r.value), ', '
                          order by r.span, r.kind, r.source, r.scope, r.name)
  from pawl.rollup as r`

// Counts are added up per minute and per hour. For levels, the highest value is kept.
func TestRollupAdd(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	add := func(arguments, want string) {
		t.Helper()
		b.is("select a.outcome, a.sample from pawl_v1.rollup_add("+arguments+") as a", want)
	}
	sameMinute(b, func() {
		b.do("truncate pawl.rollup")
		add(`'queue', '{q,q,"",q}', '{succeeded,failed,succeeded,succeeded}', '{3,1,5,4}'`, "added true")
		add("'consumer', '{q}', '{succeeded}', '{1}'", "added false")
		add("'queue', '{q}', '{succeeded}', '{2}'", "added true")
		add("'queue', '{q,q}', '{due,due}', '{7,9}', '{\"levels\": true}'", "added false")
		add("'queue', '{q}', '{due}', '{4}', '{\"levels\": true}'", "added false")
		add("'queue', '{}', '{}', '{}'", "added false")
	})
	of := func(span string) string {
		return strings.ReplaceAll("S count consumer/q succeeded=1, S count queue/ succeeded=5, S count queue/q failed=1, S count queue/q succeeded=9, S level queue/q due=9", "S", span)
	}
	b.is(rolledUp, of("hour")+", "+of("minute"))
	b.is(`select bool_and(r.at = date_trunc(r.span, clock_timestamp() - interval '30 seconds') or r.at = date_trunc(r.span, clock_timestamp())) from pawl.rollup as r`, "true")
}

// sameMinute runs do again if a minute started meanwhile.
func sameMinute(b *bed, do func()) {
	b.Helper()
	minute := func() string {
		return b.main.Do("select extract(epoch from date_trunc('minute', clock_timestamp()))::bigint")
	}
	for before := ""; before != minute(); {
		before = minute()
		do()
	}
}

func TestRollupAdd_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for _, arguments := range []string{
		"'worker', '{q}', '{succeeded}', '{1}'", "null, '{q}', '{succeeded}', '{1}'",
		"'queue', '{q,r}', '{succeeded}', '{1}'", "'queue', '{q}', '{succeeded}', '{1,2}'", "'queue', null, null, null", "'queue', '{q}', null, '{1}'",
		"'queue', '{q}', '{Succeeded}', '{1}'", "'queue', '{q}', '{\"\"}', '{1}'", "'queue', '{q}', '{" + strings.Repeat("a", 41) + "}', '{1}'", "'queue', '{q}', '{null}', '{1}'",
		"'queue', '{q}', '{succeeded}', '{-1}'", "'queue', '{q}', '{succeeded}', '{1000000000001}'", "'queue', '{q}', '{succeeded}', '{null}'",
		"'queue', '{null}', '{succeeded}', '{1}'", "'queue', '{" + strings.Repeat("a", 256) + "}', '{succeeded}', '{1}'",
		"'queue', array_fill('q'::text, '{1001}'), array_fill('succeeded'::text, '{1001}'), array_fill(1, '{1001}')",
		"'queue', '{q}', '{succeeded}', '{1}', '{\"level\": true}'",
	} {
		b.is("select pawl_v1.rollup_add("+arguments+")", "P4004")
	}
	b.is("select count(*) from pawl.rollup", "0")
}

// The table is bounded for any set of scopes. Counts of scopes without room are added under no
// scope. Old rows are deleted.
func TestRollupAdd_IsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const many = "select (pawl_v1.rollup_add('queue', array_agg('q' || n), array_agg('succeeded'::text), array_agg(1))).outcome from generate_series(%d, %d) as n"
	sameMinute(b, func() {
		b.do("truncate pawl.rollup")
		b.is(fmt.Sprintf(many, 1, 1000), "added") // a single call may exceed the bound
		for n := range 5 {
			b.is(fmt.Sprintf(many, 900+n*1000, 1899+n*1000), "added")
		}
	})
	b.is("select count(*), sum(r.value)::bigint from pawl.rollup as r where r.span = 'hour'", "1001 6000")
	b.is("select count(*), sum(r.value)::bigint from pawl.rollup as r where r.span = 'minute'", "1001 6000")
	b.is("select r.value from pawl.rollup as r where r.span = 'hour' and r.scope = ''", "4899")

	b.do(`truncate pawl.rollup;
insert into pawl.rollup (span, at, kind, source, scope, name, value)
select s.span, date_trunc('hour', now()) - s.age, 'count', 'queue', 'q' || n, 'succeeded', 1
  from generate_series(1, 600) as n
 cross join (values ('minute', interval '25 hours'), ('minute', interval '22 hours'), ('hour', interval '169 hours'), ('hour', interval '166 hours')) as s (span, age)`)
	const left = "select string_agg(format('%s %s', r.span, r.n), ', ' order by r.span, r.n) from (select r.span, r.at, count(*) as n from pawl.rollup as r where r.scope <> 'now' group by 1, 2) as r"
	b.do("select pawl_v1.rollup_add('queue', '{now}', '{succeeded}', '{1}')")
	b.is(left, "hour 100, hour 600, minute 100, minute 600")
	b.do("select pawl_v1.rollup_add('queue', '{now}', '{succeeded}', '{1}')")
	b.is(left, "hour 600, minute 600")
}

// Many processes add to the same rows concurrently, in any order, without deadlocks or lost counts.
func TestRollupAdd_ManyAtOnce(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	conn := connect(t, url)
	const callers, calls = 8, 50
	var all sync.WaitGroup
	for i := range callers {
		own := connect(t, url)
		order := []string{"", "desc"}[i%2]
		all.Go(func() {
			for added := 0; added < calls; {
				_, err := own.Exec(t.Context(), fmt.Sprintf(`select pawl_v1.rollup_add('queue', array_agg('q' || n order by n %[1]s), array_agg('succeeded'::text order by n %[1]s), array_agg(1 order by n %[1]s))
  from generate_series(1, 20) as n`, order))
				var pg *pgconn.PgError
				switch {
				case err == nil:
					added++
				// It waits at most 2 s for a lock, and then adds nothing.
				case !asPgError(err, &pg) || pg.Code != "55P03":
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	var hours, minutes int
	if err := conn.QueryRow(t.Context(), "select sum(r.value) filter (where r.span = 'hour'), sum(r.value) filter (where r.span = 'minute') from pawl.rollup as r").Scan(&hours, &minutes); err != nil {
		t.Fatal(err)
	}
	if want := 20 * callers * calls; hours != want || minutes != want {
		t.Errorf("%d in hours and %d in minutes, want %d", hours, minutes, want)
	}
}
