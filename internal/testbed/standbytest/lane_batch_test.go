package standbytest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/internal/contract"
	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/outbox"
)

// A batch contains only replicated events. lane_batch returns when the standby has what lane_run
// has seen. That also holds if an operator cancels the wait of the append that it saw, and its own
// wait.
func TestLaneBatch_AnswersWhatIsReplicated(t *testing.T) {
	t.Parallel()
	p := pair(t)
	pool := poolOf(t, p.URL(), watch)
	add := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := outbox.Append(ctx, tx, outbox.Event{Type: "made", AggregateType: "order", AggregateID: "1"})
			return err
		})
	}
	if err := add(t.Context()); err != nil {
		t.Fatal(err)
	}
	var head contract.Holding
	if err := pool.QueryRow(t.Context(), "select c.id, c.fence from pawl_v1.job_claim($1, null) as c", outbox.QueueOf(outbox.DefaultSink)).Scan(&head.ID, &head.Fence); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Synchronous("") })
	p.Cut()
	go func() { _ = add(context.Background()) }()
	until(t, "the second event is visible", func() bool {
		p.CancelWaiting()
		return isTrue(t, pool, "exists (select from pawl.job as j where j.status = 'waiting')")
	})
	var answered atomic.Int32
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for {
			if rows, err := contract.LaneBatch(context.Background(), pool, []contract.Holding{head}, 10); err == nil {
				answered.Store(int32(len(rows)))
				return
			}
		}
	}()
	patience.Watch(holdFor, func() {
		p.CancelWaiting()
		if n := answered.Load(); n > 0 {
			t.Fatalf("%d events were answered before the standby had them", n)
		}
	})
	p.Join()
	<-asked
	if n := answered.Load(); n != 1 {
		t.Errorf("a batch of %d events, want 1", n)
	}
}
