package schematest_test

import (
	"strings"
	"testing"
)

// A refusal is recorded once, and the stories of its job and its command contain it.
func TestStaleWriteAdd(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.job_enqueue('q', 'k', ''), pawl_v1.command_claim('s', '1', sha256(''))")
	add := func(arguments, want string) {
		t.Helper()
		b.is("select a.outcome, a.detail ->> 'recorded' from pawl_v1.stale_write_add("+arguments+") as a", want)
	}
	add("'job', '{q,q,q}', '{1,1,77}', '{1,1,3}', '{a,b,a}'", "recorded 2")
	add("'job', '{q,q}', '{1,1}', '{2,1}', '{b,b}'", "recorded 1")
	add("'command', '{s}', '{1}', '{9}', '{c}'", "recorded 1")
	add("'command', '{other}', '{1}', '{9}', '{c}'", "recorded 1")
	add("'job', '{}', '{}', '{}', '{}'", "recorded 0")
	story := func(key string) string {
		return `select string_agg(format('%s %s %s %s', e.kind, e.key, e.detail ->> 'fence', e.detail ->> 'worker'), ', ' order by e.kind, e.detail ->> 'fence')
  from pawl_v1.explain('` + key + `') as e where e.event = 'stale_write_refused'`
	}
	b.is(story("1"), "command 1 9 c, job 1 1 a, job 1 2 b")
	b.is(story("77"), "job 77 3 a")
	b.is("select string_agg(e.event, ' ' order by e.event) from pawl_v1.explain('77') as e where e.kind = 'job'", "gone stale_write_refused")
}

func TestStaleWriteAdd_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	long := strings.Repeat("a", 256)
	for _, arguments := range []string{
		"'step', '{q}', '{1}', '{1}', '{w}'", "null, '{q}', '{1}', '{1}', '{w}'",
		"'job', '{q,q}', '{1}', '{1}', '{w}'", "'job', '{q}', '{}', '{1}', '{w}'", "'job', '{q}', '{1}', null, '{w}'", "'job', '{q}', '{1}', '{1}', '{w,w}'",
		"'job', null, null, null, null",
		"'job', '{\"\"}', '{1}', '{1}', '{w}'", "'job', '{q}', '{\"\"}', '{1}', '{w}'", "'job', '{q}', '{1}', '{1}', '{\"\"}'", "'job', '{q}', '{1}', '{-1}', '{w}'",
		"'job', '{null}', '{1}', '{1}', '{w}'", "'job', '{q}', '{null}', '{1}', '{w}'", "'job', '{q}', '{1}', '{null}', '{w}'", "'job', '{q}', '{1}', '{1}', '{null}'",
		"'job', '{" + long + "}', '{1}', '{1}', '{w}'", "'job', '{q}', '{" + long + "}', '{1}', '{w}'", "'job', '{q}', '{1}', '{1}', '{" + long + "}'",
		"'job', array_fill('q'::text, '{1001}'), array_fill('1'::text, '{1001}'), array_fill(1, '{1001}'), array_fill('w'::text, '{1001}')",
		"'job', '{q}', '{1}', '{1}', '{w}', '{\"levels\": true}'",
	} {
		b.is("select pawl_v1.stale_write_add("+arguments+")", "P4004")
	}
	b.is("select count(*) from pawl.stale_write", "0")
}

// An hour has room for a thousand records, and records older than seven days are deleted.
func TestStaleWriteAdd_IsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	const some = "select a.outcome, a.detail ->> 'recorded' from (select array_agg(n::text) as keys, array_agg(n) as fences, array_agg('w'::text) as names from generate_series(%d, %d) as n) as g, " +
		"lateral pawl_v1.stale_write_add('job', g.names, g.keys, g.fences, g.names) as a"
	b.is(strings.NewReplacer("%d, %d", "1, 600").Replace(some), "recorded 600")
	b.is(strings.NewReplacer("%d, %d", "601, 1200").Replace(some), "full 400")
	b.is(strings.NewReplacer("%d, %d", "1201, 1201").Replace(some), "full 0")
	b.is("select count(*) from pawl.stale_write", "1000")
	b.do("update pawl.stale_write set at = at - case when key::int <= 600 then interval '169 hours' else interval '167 hours' end")
	b.is(strings.NewReplacer("%d, %d", "2001, 2001").Replace(some), "recorded 1")
	b.is("select count(*) from pawl.stale_write", "501")
	b.is(strings.NewReplacer("%d, %d", "2002, 2002").Replace(some), "recorded 1")
	b.is("select count(*), min(key::int) from pawl.stale_write", "402 601")
}
