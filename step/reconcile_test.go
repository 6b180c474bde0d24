package step_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// Reconcile settles a step that was executed and one that was not, and their jobs continue. It
// leaves three: the probe cannot tell, the probe fails, or there is no probe.
func TestReconcile(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.CutAfter, pawltest.CutBefore, pawltest.CutAfter, pawltest.CutAfter, pawltest.CutAfter))
	names := []string{"executed", "not executed", "unclear", "out of order", "of another"}
	b.work(func(ctx context.Context, task job.Task[string]) error {
		s := b.step(step.AtMostOnce())
		s.Request, s.Provider = task.Value, "payments"
		// A busy machine does not reach this timeout, because the connections are cut at once.
		s.Timeout = 20 * time.Second
		if task.Value == "of another" {
			s.Provider = "another"
		}
		_, err := step.Run(ctx, b.pool, task.Job, s, func(ctx context.Context, c step.Call) (pawltest.Charge, error) {
			return b.charge(ctx, task.Value)
		})
		return err
	})
	for n, name := range names {
		b.enqueue(name)
		b.until("it waits", func() bool { return b.count("select count(*) from pawl.job where status = 'unknown'") == n+1 })
	}
	asked := map[string]string{}
	byKey := map[string]string{}
	for _, c := range b.provider.Charges() {
		byKey[c.Key] = c.Body
	}
	probe := func(ctx context.Context, c step.Call) (step.ProbeResult, any, error) {
		if c.Owner.Scope != "job/pay" || c.Owner.JobID == 0 || c.Step != "charge" || c.Number != 1 {
			t.Errorf("asked about %+v", c)
		}
		body := byKey[c.Key()]
		asked[body] = c.Key()
		switch body {
		case "":
			return step.NotExecuted, nil, nil
		case "unclear":
			return step.CannotTell, nil, nil
		case "out of order":
			return "", nil, errors.New("out of order")
		}
		c.Reference("ch_1")
		return b.found(body)(ctx, c)
	}
	r := step.Reconciliation{Providers: map[string]step.Probe{"payments": probe}, Actor: "the night watch", Settle: time.Hour, Hooks: b.counters.Hooks()}
	if got, err := step.Reconcile(t.Context(), b.pool, r); err != nil || got != (step.Reconciled{Early: 4}) || len(asked) > 0 {
		t.Errorf("too early: %+v, %v", got, err)
	}
	_, err := b.pool.Exec(t.Context(), "update pawl.step_call set not_after = now() - interval '2 hours'")
	b.must(err)
	got, err := step.Reconcile(t.Context(), b.pool, r)
	if err != nil || got != (step.Reconciled{Executed: 1, NotExecuted: 1, CannotTell: 1, Failed: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	b.until("two go on", func() bool { return b.count("select count(*) from pawl.job") == 3 })
	b.wantCharges(5) // the call that had not been executed was repeated
	if n := b.count("select count(*) from pawl.step where status = 'unknown'"); n != 3 {
		t.Errorf("%d are unknown", n)
	}
	if n := b.count("select count(*) from pawl.audit as a where a.actor = 'the night watch' and a.verb = 'step_settle'"); n != 2 {
		t.Errorf("%d records", n)
	}
	if n := b.counters.Count(pawl.EventError); n != 1 {
		t.Errorf("%d errors", n)
	}
	if _, err := step.Reconcile(t.Context(), b.pool, step.Reconciliation{}); pawl.CodeOf(err) != pawl.CodeArgumentInvalid {
		t.Errorf("%v", err)
	}
}
