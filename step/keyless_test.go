package step_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
	"github.com/pawl-go/pawl/step"
)

// A keyed step does not send its key, so the provider cannot recognize a second request. The reply
// to the first call is lost. The step must not be called again.
func TestKeyed_ACallWithoutItsKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, lies(pawltest.CutAfter))
	b.client = &http.Client{} // no step.Transport, and Call.Key is not called
	b.work(func(_ context.Context, task job.Task[string]) error {
		_, err := step.Run(b.Context(), b.pool, task.Job, b.step(step.Keyed(time.Hour)), func(ctx context.Context, _ step.Call) (pawltest.Charge, error) {
			return b.charge(ctx, "100 EUR")
		})
		return err
	})
	b.enqueue("x")
	b.until("the job has ended, or waits", func() bool {
		return b.count("select count(*) from pawl.job where status <> 'unknown'") == 0
	})
	b.wantCharges(1)
	b.wantStatus("unknown")
}

// The same call, with its reply. The result is stored, but the error is final, so that a test shows
// it. Another attempt gets the stored result without a call.
func TestKeyed_AForgottenKeyIsAnErrorThoughTheCallWasExecuted(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	b.client = &http.Client{}
	j := b.claim()
	_, err := b.pay(j, b.step(step.Keyed(time.Hour)))
	if !pawl.IsFinal(err) || !errors.Is(err, pawl.ErrArgumentInvalid) || !strings.Contains(err.Error(), "send Call.Key") {
		t.Errorf("%v", err)
	}
	b.wantStatus("succeeded")
	if made, err := b.pay(b.reclaim(j.ID), b.step(step.Keyed(time.Hour))); err != nil || made.ID != "ch_1" {
		t.Errorf("%+v, %v", made, err)
	}
	b.wantCharges(1)
}

// A call of Key counts as sending it. A call that was not sent needs no key.
func TestKeyed_ReadingTheKeyCountsAsSendingIt(t *testing.T) {
	t.Parallel()
	b := setup(t, time.Hour, nil)
	b.client = &http.Client{}
	j := b.claim()
	tries := 0
	do := func() (string, error) {
		return step.Run(b.Context(), b.pool, j, b.step(step.Keyed(time.Hour)), func(_ context.Context, c step.Call) (string, error) {
			if tries++; tries == 1 {
				return "", step.NotSent(errors.New("no connection"))
			}
			return "sent with " + c.Key(), nil
		})
	}
	if _, err := do(); err == nil || pawl.IsFinal(err) {
		t.Errorf("%v", err)
	}
	if got, err := do(); err != nil || !strings.HasPrefix(got, "sent with ") {
		t.Errorf("%s, %v", got, err)
	}
}
