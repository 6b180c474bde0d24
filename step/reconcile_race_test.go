package step_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// Two reconcilers ask about call 1, which was not executed. One settles it, and the job makes call
// 2, which is executed without a reply. The slow reconciler's result is about call 1. It must not
// settle call 2, or the customer is charged twice.
func TestReconcile_AVerdictOnAnEarlierCallSettlesNoLaterOne(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.CutBefore, pawltest.CutAfter))
	// A provider without keys.
	b.client = &http.Client{Transport: &step.Transport{Reads: true, Header: "-"}}
	b.work(func(ctx context.Context, task job.Task[string]) error {
		s := b.step(step.AtMostOnce())
		s.Provider, s.Timeout = "payments", 20*time.Second
		_, err := step.Run(ctx, b.pool, task.Job, s, func(ctx context.Context, c step.Call) (pawltest.Charge, error) {
			return b.charge(ctx, "100 EUR")
		})
		return err
	})
	b.enqueue("x")
	inDoubt := func(calls int) func() bool {
		return func() bool {
			return b.count(`select count(*) from pawl.job as j where j.status = 'unknown'
  and (select count(*) from pawl.step_call as c where c.outcome = 'ambiguous') = $1`, calls) == 1
		}
	}
	settled := func() { // the deadline has passed
		b.Helper()
		_, err := b.pool.Exec(b.Context(), "update pawl.step_call set not_after = now() - interval '1 minute'")
		b.must(err)
	}
	b.until("call 1 is in doubt", inDoubt(1))
	settled()

	asked, release := make(chan struct{}), make(chan struct{})
	slow := make(chan step.Reconciled, 1)
	reconcile := func(between func()) step.Reconciled {
		got, err := step.Reconcile(b.Context(), b.pool, step.Reconciliation{Settle: time.Millisecond, Providers: map[string]step.Probe{
			"payments": func(ctx context.Context, c step.Call) (step.ProbeResult, any, error) {
				if c.Fence == 0 {
					t.Error("the probe does not know the fence of the call it is asked about")
				}
				verdict, result, err := b.found("100 EUR")(ctx, c)
				between()
				return verdict, result, err
			}}})
		if err != nil {
			t.Error(err)
		}
		return got
	}
	go func() { slow <- reconcile(func() { close(asked); <-release }) }()
	<-asked
	if got := reconcile(func() {}); got != (step.Reconciled{NotExecuted: 1}) {
		t.Errorf("the first verdict: %+v", got)
	}
	b.until("call 2 is in doubt", inDoubt(2))
	settled()
	close(release)
	if got := <-slow; got != (step.Reconciled{Moved: 1}) {
		t.Errorf("the verdict on call 1: %+v", got)
	}
	if got := reconcile(func() {}); got != (step.Reconciled{Executed: 1}) {
		t.Errorf("the verdict on call 2: %+v", got)
	}
	b.until("the job has ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantCharges(1)
}
