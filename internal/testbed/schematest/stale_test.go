package schematest_test

import "testing"

// With a limit, the oldest of each class are returned, so that ten thousand of one class do not
// hide the others. Without advice, all other columns are returned.
func TestStaleClassify_Options(t *testing.T) {
	t.Parallel()
	b := setup(t, `insert into pawl.job (queue, kind, payload, status, available_at)
select 'q', 'k', '', (array['dead_letter', 'dead_letter', 'unknown', 'cancelled', 'pending'])[1 + n % 5], clock_timestamp() from generate_series(1, 100) as n;
insert into pawl.job (queue, kind, payload, status, claimed_by, lease_expires_at) select 'q', 'k', '', 'processing', 0, clock_timestamp() - n * interval '1 second' from generate_series(1, 7) as n;
insert into pawl.command (scope, key, hash, status, updated_at, expires_at, lease_expires_at, claimed_by)
select 's', n::text, sha256(''), (array['unknown', 'processing'])[1 + n % 2], clock_timestamp() - n * interval '1 second', clock_timestamp() + interval '1 day', clock_timestamp() - interval '1 day', 'w' from generate_series(1, 20) as n`)
	counts := func(options string) string {
		return "select string_agg(format('%s %s %s', s.kind, s.class, s.n), ', ' order by s.kind, s.class) from (select s.kind, s.class, count(*) as n from pawl_v1.stale_classify(null, '" +
			options + "') as s group by 1, 2) as s"
	}
	b.is(counts("{}"), "command abandoned 10, command unknown 10, job abandoned 7, job dead_letter 40, job unknown 20")
	b.is(counts(`{"limit": 8}`), "command abandoned 8, command unknown 8, job abandoned 7, job dead_letter 8, job unknown 8")
	b.is(counts(`{"advice": false}`), "command abandoned 10, command unknown 10, job abandoned 7, job dead_letter 40, job unknown 20")
	b.is(`select string_agg(s.key, ' ' order by s.key::int) from pawl_v1.stale_classify('job', '{"limit": 3}') as s where s.class = 'dead_letter'`, "1 5 6")
	b.is(`select string_agg(s.key, ' ' order by s.key::int) from pawl_v1.stale_classify('command', '{"limit": 2}') as s where s.class = 'unknown'`, "18 20")
	b.is("select count(*) filter (where s.advice is null), count(*) from pawl_v1.stale_classify() as s", "0 87")
	b.is(`select count(s.advice), count(s.reason) from pawl_v1.stale_classify(null, '{"advice": false}') as s`, "0 87")
	for _, options := range []string{`{"limit": 0}`, `{"limit": -1}`, `{"limits": 3}`} {
		b.is("select pawl_v1.stale_classify(null, '"+options+"')", "P4004")
	}
}
