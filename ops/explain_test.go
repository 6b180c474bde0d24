package ops_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// A story is ordered by time, including the future. For an unknown key it says where it searched.
func TestExplain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`select pawl_v1.job_enqueue('q', 'k', 'secret', '{"key": "k-1"}')`)
	j := b.claim()
	b.exec(`select pawl_v1.job_fail($1, $2, '{"error": "out of stock"}', '{"retry_in_ms": 3600000}')`, j.ID, j.Fence)
	s, err := ops.Explain(t.Context(), b.pool, "k-1", "")
	b.must(err)
	var events []string
	for i, m := range s.Moments {
		events = append(events, m.Kind+" "+m.Event)
		if i > 0 && m.At.Before(s.Moments[i-1].At) {
			t.Errorf("%s is out of order", m.Event)
		}
		if strings.Contains(string(m.Detail), "secret") {
			t.Errorf("a payload is shown: %s", m.Detail)
		}
	}
	if got := strings.Join(events, ", "); got != "enqueue_key taken, job enqueued, job failed, job pending, job due, enqueue_key memory_ends" {
		t.Error(got)
	}
	if due := s.Moments[4].At; !due.After(s.ReadAt) || !s.Known() || s.Moments[1].Scope != "q" || s.Moments[1].Key != "1" {
		t.Errorf("%+v", s)
	}
	if s, err = ops.Explain(t.Context(), b.pool, "never", ""); err != nil || s.Known() || len(s.Beyond) != 0 || s.Looked[2] != "enqueue keys of 1 queues" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = ops.Explain(t.Context(), b.pool, "k-1", "other"); err != nil || s.Known() || !strings.Contains(s.Looked[0], "of other") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err = ops.Explain(t.Context(), b.pool, "", ""); !errors.Is(err, pawl.ErrKeyInvalid) {
		t.Errorf("%v", err)
	}
}

// An overview shows each queue, each worker and everything that needs an operator.
func TestLook(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, status := range ops.JobStatuses() {
		b.in(status)
	}
	b.exec("update pawl.job set available_at = clock_timestamp() - interval '1 minute' where status = 'pending'")
	b.exec("update pawl.job set lane_id = 9, position = 1, lane_head = true where status = 'dead_letter'")
	b.exec("select pawl_v1.worker_register('gone'); update pawl.worker set seen_at = now() - interval '1 hour' where name = 'gone'")
	b.exec("select pawl_v1.outbox_append('billing', 'OrderPlaced', null, null, '')")
	b.exec("select pawl_v1.command_claim('s', 'k', sha256('')), pawl_v1.command_claim('s', 'stale', sha256(''))")
	b.exec("update pawl.command set status = 'unknown' where key = 'k'")
	b.exec("update pawl.command set lease_expires_at = now() where key = 'stale'")
	tx := b.begin()
	_, err := tx.Exec(t.Context(), "set transaction isolation level repeatable read; select from pawl.job")
	b.must(err)
	o, err := ops.Look(t.Context(), b.pool)
	b.must(err)
	if len(o.Queues) != 2 {
		t.Fatalf("%+v", o.Queues)
	}
	q := o.Queues[1]
	if q.Name != "q" || q.Begun != 1 || q.Due != 1 || q.Later != 0 || q.Waiting != 1 || q.Processing != 1 || q.Dead != 1 || q.Unknown != 1 || q.Cancelled != 1 || q.LanesBlocked != 1 || q.DueSince.IsZero() {
		t.Errorf("%+v", q)
	}
	if len(o.Workers) != 2 || o.Workers[0].Name != "gone" || o.Workers[0].State != "silent" || o.Workers[1].State != "alive" || o.Workers[1].Held != 1 {
		t.Errorf("%+v", o.Workers)
	}
	if o.UnknownCommands != 1 || o.StaleCommands != 1 || len(o.Outbox) != 1 || o.OldestSnapshot.IsZero() {
		t.Errorf("%+v", o)
	}
}

// A dead letter's time is that of its last error, not of the query.
func TestExplain_DatesADeadLetterByItsLastError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, status, created_at, last_errors) values ('q', 'k', '', 'dead_letter', now() - interval '3 days',
  jsonb_build_array(jsonb_build_object('at', now() - interval '2 days', 'error', 'no')))`)
	story, err := ops.Explain(t.Context(), b.pool, "1", "")
	if err != nil || len(story.Moments) != 3 {
		t.Fatalf("%+v, %v", story, err)
	}
	last := story.Moments[2]
	if age := story.ReadAt.Sub(last.At); last.Event != "dead_letter" || age < 47*time.Hour || age > 49*time.Hour {
		t.Errorf("%s %v ago", last.Event, age)
	}
}
