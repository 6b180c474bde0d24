package schematest_test

import (
	"testing"
)

const (
	appendKeyed = `select a.outcome, a.event_id, a.job_id from pawl_v1.outbox_append('s', 'Placed', 'order', '17', 'p', '{"scope": "orders", "key": "k"}') as a`
	appendNext  = "select a.outcome from pawl_v1.outbox_append('s', 'Paid', 'order', '17', 'q') as a"
)

// If two transactions append one event, the second waits. Then its event is a duplicate, or is
// appended if the first rolled back.
func TestOutbox_TheSecondWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{"commit": "duplicate 6:orders1:k6:Placed 1", "rollback": "appended 6:orders1:k6:Placed 2"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "")
			first, second := b.open("first"), b.open("second")
			first.Do("begin")
			b.same(first.Do(appendKeyed), "appended 6:orders1:k6:Placed 1")
			b.same(second.Do(appendKeyed), blocked)
			first.Do(end)
			b.same(second.Wait(), want)
			b.is("select count(*) from pawl_v1.outbox_pending", "1")
		})
	}
}

// An event is a job of its sink's queue in the lane of its aggregate, and the views show it as an
// event.
func TestOutbox_AnEventIsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.do(appendKeyed)
	b.do(appendNext)
	b.is("select j.queue, j.kind, j.lane, j.status from pawl_v1.jobs as j order by j.id",
		"outbox/s event 5:order2:17 pending, outbox/s event 5:order2:17 waiting")
	b.do("select pawl_v1.job_claim('outbox/s', null), pawl_v1.job_fail(1, 1, '{\"error\": \"no\"}', '{\"final\": true}')")
	b.is("select p.sink, p.event_type, p.aggregate_type, p.aggregate_id, p.status, p.attempt_count, p.published_at is null from pawl_v1.outbox_pending as p order by p.job_id",
		"s Placed order 17 dead_letter 1 true, s Paid order 17 waiting 0 true")
	b.is("select l.sink, l.event_type, l.pending, l.dead, l.lag is null from pawl_v1.outbox_lag as l order by l.event_type", "s Paid 1 0 false, s Placed 0 1 true")
	b.is("select h.event_type, h.lane, h.policy, h.status, h.waiting, h.last_error from pawl_v1.outbox_heads as h", "Placed 5:order2:17 block dead_letter 1 no")
	b.do("select pawl_v1.job_enqueue('outbox', 'event', ''), pawl_v1.job_enqueue('outbox0', 'event', ''), pawl_v1.job_enqueue('outbox/s', 'other', '')")
	b.is("select count(*) from pawl_v1.outbox_pending", "2")
}
