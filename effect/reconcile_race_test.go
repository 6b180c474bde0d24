package effect_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/pawl-go/pawl/effect"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// Two reconcilers ask about call 1, which did not land. One settles it, and the job makes call 2, which lands and whose answer is lost. The
// verdict of the slow reconciler is about call 1: it must not settle call 2, or the customer is charged twice.
func TestReconcile_AVerdictOnAnEarlierCallSettlesNoLaterOne(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.CutBefore, pawltest.CutAfter))
	b.client = &http.Client{Transport: &effect.Transport{Reads: true, Header: "-"}} // a provider without keys
	b.work(func(ctx context.Context, task job.Task[string]) error {
		s := b.step(effect.AtMostOnce())
		s.Provider, s.Timeout = "payments", 20*time.Second
		_, err := effect.Do(ctx, b.pool, task.Job, s, func(ctx context.Context, c effect.Call) (pawltest.Charge, error) {
			return b.charge(ctx, "100 EUR")
		})
		return err
	})
	b.enqueue("x")
	inDoubt := func(calls int) func() bool {
		return func() bool {
			return b.count(`select count(*) from pawl.job as j where j.status = 'unknown'
  and (select count(*) from pawl.effect_call as c where c.outcome = 'ambiguous') = $1`, calls) == 1
		}
	}
	settled := func() { // the time to send is over
		b.Helper()
		_, err := b.pool.Exec(b.Context(), "update pawl.effect_call set not_after = now() - interval '1 minute'")
		b.must(err)
	}
	b.until("call 1 is in doubt", inDoubt(1))
	settled()

	asked, release := make(chan struct{}), make(chan struct{})
	slow := make(chan effect.Reconciled, 1)
	reconcile := func(between func()) effect.Reconciled {
		got, err := effect.Reconcile(b.Context(), b.pool, effect.Reconciliation{Settle: time.Millisecond, Providers: map[string]effect.Probe{
			"payments": func(ctx context.Context, c effect.Call) (effect.Verdict, any, error) {
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
	if got := reconcile(func() {}); got != (effect.Reconciled{NotLanded: 1}) {
		t.Errorf("the first verdict: %+v", got)
	}
	b.until("call 2 is in doubt", inDoubt(2))
	settled()
	close(release)
	if got := <-slow; got != (effect.Reconciled{Moved: 1}) {
		t.Errorf("the verdict on call 1: %+v", got)
	}
	if got := reconcile(func() {}); got != (effect.Reconciled{Landed: 1}) {
		t.Errorf("the verdict on call 2: %+v", got)
	}
	b.until("the job has ended", func() bool { return b.count("select count(*) from pawl.job") == 0 })
	b.wantCharges(1)
}
