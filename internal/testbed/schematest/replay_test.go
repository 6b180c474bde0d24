package schematest_test

import (
	"fmt"
	"testing"
)

// keep stores a delivery as a consumer does, with the options with which it would be stored as a
// job.
func keep(id, semantic string) string {
	return fmt.Sprintf(`select pawl_v1.delivery_keep('c', '%s', '{"n": 1}', jsonb_build_object('headers', '{"type": "t"}'::jsonb, 'hash', encode(sha256('p'), 'hex'),
  'stored_as', jsonb_strip_nulls(jsonb_build_object('queue', 'q', 'kind', 'k', 'max_attempts', 3, 'headers', '{"pawl-inbox-key": "%s"}'::jsonb, 'semantic', %s))));`, id, id, semantic)
}

const replay = "select r.outcome, r.job_id, r.detail ->> 'status' from pawl_v1.inbox_replay('c', '%s', 'ann', 'a reason') as r"

// A delivery that took effect is never replayed. Another one is retried from its job or from the
// kept delivery, and each replay is audited. Meanwhile a redelivery is a duplicate.
func TestInboxReplay(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.inbox_claim('c', 'done', sha256('p'));"+keep("done", "null")+`
begin; select pawl_v1.inbox_claim('c', 'dead', sha256('p')); select pawl_v1.inbox_store('c', 'dead', 'q', 'k', '', '{"dead": true}');`+keep("dead", "null")+`commit;
begin; select pawl_v1.inbox_claim('c', 'unkept', sha256('p')); select pawl_v1.inbox_store('c', 'unkept', 'q', 'k', '', '{"dead": true}'); commit`)
	b.is(fmt.Sprintf(replay, "none"), "absent <nil> <nil>")
	b.is(fmt.Sprintf(replay, "done"), "refused <nil> <nil>")
	b.is("select r.detail ? 'processed_at', r.detail ->> 'hint' like 'it has taken effect%' from pawl_v1.inbox_replay('c', 'done', 'ann', 'r') as r", "true true")

	const dry = "select r.outcome, r.job_id, r.detail ->> 'status' from pawl_v1.inbox_replay('c', '%s', 'ann', 'r', '{\"dry_run\": true}') as r"
	b.is(fmt.Sprintf(dry, "dead"), "would_replay 1 dead_letter")
	b.is("select j.status, j.fence from pawl.job as j where j.id = 1", "dead_letter 0")
	b.is(fmt.Sprintf(replay, "dead"), "replayed 1 dead_letter")
	// A new generation.
	b.is("select j.status, j.fence, j.attempts from pawl.job as j where j.id = 1", "pending 1 0")
	b.is("select pawl_v1.job_finish(1, 0)", "P4020") // an older attempt is refused
	b.is("select string_agg(a.verb || ' ' || a.actor, ', ' order by a.id) from pawl.audit as a", "job_retry ann, inbox_replay ann")
	b.is("select c.outcome from pawl_v1.inbox_claim('c', 'dead', sha256('p')) as c", "duplicate_ignored")
	b.do("select pawl_v1.job_claim('q', null)")
	b.is(fmt.Sprintf(replay, "dead"), "refused 1 processing")
	b.is(fmt.Sprintf(dry, "dead"), "refused 1 processing")

	// Its job was discarded, so it has not taken effect and will not until a new job is created
	// from the kept delivery.
	b.do("select pawl_v1.job_fail(1, 2, '{\"error\": \"no\"}', '{\"final\": true}'); select pawl_v1.job_discard(1, 'ann', 'r'), pawl_v1.job_discard(2, 'ann', 'r')")
	b.is(fmt.Sprintf(replay, "unkept"), "refused 2 <nil>")
	b.is(fmt.Sprintf(dry, "dead"), "would_replay <nil> <nil>")
	b.is(fmt.Sprintf(replay, "dead"), "replayed 3 <nil>")
	b.is("select j.queue, j.kind, convert_from(j.payload, 'UTF8'), j.max_attempts, j.attempts, j.headers ->> 'pawl-inbox-key', j.headers -> 'attributes' ->> 'type' from pawl.job as j",
		`q k {"n": 1} 3 0 dead t`)
	b.is("select i.job_id, i.processed_at is null from pawl.inbox as i where i.key = 'dead'", "3 true")
	b.is("select c.outcome from pawl_v1.inbox_claim('c', 'dead', sha256('p')) as c", "duplicate_ignored")
	for call, want := range map[string]string{"'', 'm', 'a', 'r'": "P4000", "'c', '', 'a', 'r'": "P4001", "'c', 'm', '', 'r'": "P4004", "'c', 'm', 'a', ''": "P4004",
		`'c', 'm', 'a', 'r', '{"force": true}'`: "P4004"} {
		b.is("select pawl_v1.inbox_replay("+call+")", want)
	}
}

// A delivery that an operator has forgotten is replayed from the kept delivery, also under its
// semantic key. One that is older than the retention is not, because its outcome is unknown.
func TestInboxReplay_AfterForgetting(t *testing.T) {
	t.Parallel()
	b := setup(t, "select pawl_v1.inbox_claim('c', 'm', sha256('p')), pawl_v1.inbox_claim('c', 'pawl/semantic/s', sha256(''), '{\"result_ref\": \"m\"}');"+keep("m", "'pawl/semantic/s'")+
		"select pawl_v1.inbox_claim('c', 'repeated', sha256('p'));"+keep("repeated", "'pawl/semantic/s'")+
		"select pawl_v1.inbox_claim('c', 'old', sha256('p'));"+keep("old", "null")+"update pawl.inbox set received_at = clock_timestamp() - interval '30 days' where key = 'old'")
	b.do("select pawl_v1.inbox_purge('c', 86400000 * 14::bigint)")
	b.is(fmt.Sprintf(replay, "old"), "refused <nil> <nil>")
	b.is("select r.detail ->> 'hint' like 'no operator forgot it%' from pawl_v1.inbox_replay('c', 'old', 'ann', 'r') as r", "true")

	b.is("select f.outcome from pawl_v1.inbox_forget('c', 'repeated', 'ann', 'r') as f", "forgotten")
	// Under it another delivery took effect.
	b.is("select count(*) from pawl.inbox as i where i.key = 'pawl/semantic/s'", "1")
	b.is("select f.outcome from pawl_v1.inbox_forget('c', 'm', 'ann', 'r') as f", "forgotten")
	b.is("select count(*) from pawl.inbox as i where i.key = 'pawl/semantic/s'", "0")
	b.is(fmt.Sprintf(replay, "m"), "replayed 1 <nil>")
	b.is("select i.hash = sha256('p'), i.job_id, i.processed_at is null from pawl.inbox as i where i.key = 'm'", "true 1 true")
	b.is(fmt.Sprintf(replay, "m"), "replayed 1 pending")
	b.is("select count(*) from pawl.job", "1")
	// The sender sends it again.
	b.is("select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('p')) as c", "duplicate_ignored")
}

// Two concurrent replays create one job. If the sender's redelivery is claimed meanwhile, a replay
// finds that.
func TestInboxReplay_AtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, patient+"select pawl_v1.inbox_claim('c', 'm', sha256('p'));"+keep("m", "null")+"select pawl_v1.inbox_forget('c', 'm', 'ann', 'r')")
	one, two := b.open("one"), b.open("two")
	one.Do("begin")
	b.same(one.Do(fmt.Sprintf(replay, "m")), "replayed 1 <nil>")
	if got := two.Do(fmt.Sprintf(replay, "m")); got != blocked {
		t.Fatalf("it did not wait: %s", got)
	}
	one.Do("commit")
	b.same(two.Wait(), "replayed 1 pending")
	b.is("select count(*) from pawl.job", "1")

	b.do("select pawl_v1.job_discard(1, 'ann', 'r'); select pawl_v1.inbox_forget('c', 'm', 'ann', 'r')")
	sender := b.open("sender")
	sender.Do("begin")
	b.same(sender.Do("select c.outcome from pawl_v1.inbox_claim('c', 'm', sha256('p')) as c"), "processed")
	if got := two.Do(fmt.Sprintf(replay, "m")); got != blocked {
		t.Fatalf("it did not wait: %s", got)
	}
	sender.Do("commit")
	b.same(two.Wait(), "refused <nil> <nil>")
	b.is("select count(*) from pawl.job", "0")
}

// A replay waits for an attempt that is ending, and sees its result. The attempt does not wait for
// the replay.
func TestInboxReplay_WaitsForTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, patient+"begin; select pawl_v1.inbox_claim('c', 'm', sha256('p')); select pawl_v1.inbox_store('c', 'm', 'q', 'k', ''); "+keep("m", "null")+"commit; select pawl_v1.job_claim('q', null)")
	attempt := b.open("attempt")
	attempt.Do("begin")
	attempt.Do("select pawl_v1.job_hold(1, 1)")
	operator := b.open("operator")
	if got := operator.Do(fmt.Sprintf(replay, "m")); got != blocked {
		t.Fatalf("it did not wait: %s", got)
	}
	for _, step := range []string{"select pawl_v1.inbox_settle('c', 'm', 1)", "select pawl_v1.job_finish(1, 1)", "commit"} {
		if got := attempt.Do(step); got == blocked {
			t.Fatalf("the attempt waits at %s", step)
		}
	}
	b.same(operator.Wait(), "refused 1 <nil>")
	b.is("select i.processed_at is not null, (select count(*) from pawl.job) from pawl.inbox as i", "true 0")
}
