package ops_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/ops"
)

// Each verb has the effect on each status that the package documentation shows.
func TestVerbs_EachStatus(t *testing.T) {
	t.Parallel()
	const gone = ops.Status("")
	for name, c := range map[string]struct {
		verb verb
		done ops.Outcome
		into map[ops.Status]ops.Status // a status that is missing here is refused
	}{
		"job_retry": {ops.JobRef.Retry, ops.Retried, map[ops.Status]ops.Status{
			ops.StatusPending: ops.StatusPending, ops.StatusDeadLetter: ops.StatusPending, ops.StatusCancelled: ops.StatusPending}},
		"job_cancel": {ops.JobRef.Cancel, ops.Cancelled, map[ops.Status]ops.Status{
			ops.StatusPending: ops.StatusCancelled, ops.StatusWaiting: ops.StatusCancelled, ops.StatusProcessing: ops.StatusCancelled}},
		"job_discard": {ops.JobRef.Discard, ops.Discarded, map[ops.Status]ops.Status{
			ops.StatusPending: gone, ops.StatusWaiting: gone, ops.StatusDeadLetter: gone, ops.StatusCancelled: gone}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for _, status := range ops.JobStatuses() {
				id := b.in(status)
				after, taken := c.into[status]
				if !taken {
					if r := b.do(c.verb, id, ops.Refused); r.Was != string(status) {
						t.Errorf("%s: was %q", status, r.Was)
					}
					b.wantUntouched(id, status)
					continue
				}
				if r := b.do(c.verb, id, c.done); r.Was != string(status) {
					t.Errorf("%s: was %q", status, r.Was)
				}
				b.wantRow(id, after)
				b.wantAudit(id, name, status, after)
			}
			b.do(c.verb, 999, ops.Absent)
			b.wantCount("select count(*) from pawl.audit", len(c.into))
		})
	}
}

func (b *bed) wantUntouched(id int64, status ops.Status) {
	b.Helper()
	if !one[bool](b, `select j.status = $2 and j.fence = 5 and j.attempts = 3 and j.crashes = 2 and j.available_at > now()
  from pawl.job as j
 where j.id = $1`, id, string(status)) {
		b.Errorf("a refused verb changed job %d (%s)", id, status)
	}
}

// wantRow checks a job that in created, after a verb. An empty status means that the job is gone.
func (b *bed) wantRow(id int64, status ops.Status) {
	b.Helper()
	d, err := ops.JobRef{ID: id}.Get(b.Context(), b.pool)
	found := !errors.Is(err, pawl.ErrNotFound)
	if found {
		b.must(err)
	}
	if found != (status != "") {
		b.Fatalf("job %d: found %v, want %q", id, found, status)
	}
	if !found {
		return
	}
	if d.Status != status || d.Fence != 6 || !d.LeaseExpiresAt.IsZero() || string(d.Payload) != "payload" || d.LastError != "boom" {
		b.Errorf("job %d: %+v, want %s with fence 6 and its history", id, d, status)
	}
	if fresh := d.Attempts == 0 && d.Crashes == 0 && !d.AvailableAt.After(d.ReadAt); fresh != (status == ops.StatusPending) {
		b.Errorf("job %d: %d attempts, %d crashes, due %v", id, d.Attempts, d.Crashes, d.AvailableAt)
	}
}

// wantAudit checks the audit record of a change: complete, and without the payload.
func (b *bed) wantAudit(id int64, verb string, before, after ops.Status) {
	b.Helper()
	sum := sha256.Sum256([]byte("payload"))
	if !one[bool](b, `select count(*) = 1
   and bool_and(a.actor = 'ann' and a.verb = $2 and a.reason = $3
   and a.before @> jsonb_build_object('id', $1::bigint, 'status', $4::text, 'fence', 5, 'attempts', 3, 'payload_octets', 7, 'payload_sha256', $6::text)
   and a.before -> 'last_errors' -> 0 ->> 'error' = 'boom'
   and not a.before ? 'payload' and not coalesce(a.after ? 'payload', false)
   and coalesce(a.after ->> 'status', '') = $5
   and coalesce((a.after ->> 'fence')::int, 6) = 6)
  from pawl.audit as a
 where a.target = 'job ' || $1::bigint`, id, verb, by.Reason, string(before), string(after), hex.EncodeToString(sum[:])) {
		b.Errorf("audit of job %d: %v", id, one[*string](b, "select jsonb_agg(a)::text from pawl.audit as a where a.target = 'job ' || $1::bigint", id))
	}
}

// The change and its audit record share a transaction: a rollback undoes both.
func TestVerbs_AuditSharesTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, v := range map[string]verb{"retry": ops.JobRef.Retry, "cancel": ops.JobRef.Cancel, "discard": ops.JobRef.Discard} {
		id := b.in(ops.StatusPending)
		tx := b.begin()
		if r, err := v(ops.JobRef{ID: id}, t.Context(), tx, by); err != nil || !r.Changed() {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		b.must(tx.Rollback(t.Context()))
		b.wantUntouched(id, ops.StatusPending)
	}
	b.wantCount("select count(*) from pawl.audit", 0)
}

// A verb restricted to some statuses leaves a job in another status alone, for example after
// another operator's change.
func TestVerbs_TakeWhatTheRefSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.in(ops.StatusPending)
	dead := ops.JobRef{ID: id, Statuses: []ops.Status{ops.StatusDeadLetter, ops.StatusUnknown}}
	for name, v := range map[string]verb{"retry": ops.JobRef.Retry, "cancel": ops.JobRef.Cancel, "discard": ops.JobRef.Discard} {
		r, err := v(dead, t.Context(), b.pool, by)
		if err != nil || r.Outcome != ops.Refused || !strings.Contains(r.Hint, "dead_letter or unknown only") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	b.wantUntouched(id, ops.StatusPending)
	b.exec("update pawl.job set status = 'dead_letter'")
	if r, err := dead.Discard(t.Context(), b.pool, by); err != nil || r.Outcome != ops.Discarded {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestVerbs_RefuseBadArguments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.in(ops.StatusDeadLetter)
	for name, bad := range map[string]ops.By{
		"no actor":    {Reason: "r"},
		"long actor":  {Actor: strings.Repeat("a", 256), Reason: "r"},
		"no reason":   {Actor: "a"},
		"long reason": {Actor: "a", Reason: strings.Repeat("r", 4001)},
	} {
		for _, v := range []verb{ops.JobRef.Retry, ops.JobRef.Cancel, ops.JobRef.Discard} {
			_, err := v(ops.JobRef{ID: id}, t.Context(), b.pool, bad)
			var e *pawl.Error
			if !errors.Is(err, pawl.ErrArgumentInvalid) || !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("%s: %v, want P4004 with a hint", name, err)
			}
		}
	}
	b.wantUntouched(id, ops.StatusDeadLetter)
	widest := ops.By{Actor: strings.Repeat("a", 255), Reason: strings.Repeat("r", 4000)}
	if _, err := (ops.JobRef{ID: id, Statuses: []ops.Status{"dead"}}).Retry(t.Context(), b.pool, widest); !errors.Is(err, pawl.ErrArgumentInvalid) {
		t.Errorf("an unknown status: %v", err)
	}
	if r, err := (ops.JobRef{ID: id}).Retry(t.Context(), b.pool, widest); err != nil || !r.Changed() {
		t.Errorf("%+v, %v", r, err)
	}
}
