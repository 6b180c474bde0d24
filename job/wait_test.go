package job_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// fails claims the job, due or not, and fails it with an error.
func (b *bed) fails(cause error) job.Failed {
	b.Helper()
	b.exec("update pawl.job set available_at = clock_timestamp()")
	failed, err := b.claim().Fail(b.Context(), b.pool, cause, job.Backoff{})
	b.must(err)
	return failed
}

// earlier moves the last error of the job into the past.
func (b *bed) earlier(by string) {
	b.Helper()
	b.exec(`update pawl.job set last_errors = jsonb_set(last_errors, '{-1,at}', to_jsonb((last_errors -> -1 ->> 'at')::timestamptz - interval '` + by + `'))`)
}

// A job that waits is not charged, however often it looks, and says once what it waits for. After
// the limit it is a dead letter that names it.
func TestWaitFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k", MaxAttempts: 2})
	waits := job.WaitFor("the payment of order 17", time.Minute, time.Hour)
	for range 5 {
		if failed := b.fails(waits); failed.Status != "pending" {
			t.Fatalf("%+v", failed)
		}
	}
	const row = "select count(*) from pawl.job as j where j.status = '%' and j.attempts = "
	b.wantCount(strings.Replace(row, "%", "pending", 1)+"0 and jsonb_array_length(j.last_errors) = 1", 1)
	b.wantCount("select count(*) from pawl.job as j, pawl_v1.explain(j.id::text) as e where e.kind = 'job' and e.event = 'failed' and e.detail ->> 'error' = 'waits for the payment of order 17'", 1)

	// It is due again at the limit at the latest.
	b.earlier("59 minutes 30 seconds")
	if failed := b.fails(waits); failed.Status != "pending" || time.Until(failed.AvailableAt) > 50*time.Second {
		t.Errorf("%+v", failed)
	}
	b.earlier("31 seconds")
	if failed := b.fails(waits); failed.Status != "dead_letter" {
		t.Errorf("%+v", failed)
	}
	b.wantCount(strings.Replace(row, "%", "dead_letter", 1)+"0 and j.last_errors -> -1 ->> 'error' like 'waits for the payment of order 17: since 20__-%Z, longer than 3600.000 s'", 1)

	// An operator who retries it gives it another hour.
	b.exec("select pawl_v1.job_retry(j.id, 'ann', 'the payment is on its way') from pawl.job as j")
	b.wantCount(strings.Replace(row, "%", "pending", 1)+"0", 1)
	if failed := b.fails(waits); failed.Status != "pending" {
		t.Errorf("%+v", failed)
	}
	b.mustFinish(func() job.Job { b.exec("update pawl.job set available_at = clock_timestamp()"); return b.claim() }())
}

// A failure in between is charged and begins another wait, as does another prerequisite.
func TestWaitFor_AfterAnotherError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k", MaxAttempts: 2})
	payment, address := job.WaitFor("the payment", time.Minute, time.Hour), job.WaitFor("the address", time.Minute, time.Hour)
	for _, c := range []struct {
		cause error
		want  string
	}{
		{payment, "pending"}, {errors.New("boom"), "pending"}, {payment, "pending"}, {address, "pending"}, {payment, "pending"}, {errors.New("boom"), "dead_letter"},
	} {
		if failed := b.fails(c.cause); failed.Status != c.want {
			t.Fatalf("%v: %+v, want %s", c.cause, failed, c.want)
		}
		b.earlier("2 hours")
	}
	b.wantCount("select count(*) from pawl.job as j where j.attempts = 2 and jsonb_array_length(j.last_errors) = 6", 1)
}

// Only the holder's attempt waits.
func TestWaitFor_IsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(job.Request{Queue: "q", Kind: "k"})
	late := b.claim()
	b.dieAndSweep("k")
	b.exec("update pawl.job set available_at = clock_timestamp()")
	b.claim()
	if _, err := late.Fail(t.Context(), b.pool, job.WaitFor("the payment", time.Minute, time.Hour), job.Backoff{}); !errors.Is(err, pawl.ErrFenceLost) {
		t.Errorf("%v", err)
	}
	b.wantCount("select count(*) from pawl.job as j where j.status = 'processing' and j.last_errors::text not like '%payment%'", 1)
}
