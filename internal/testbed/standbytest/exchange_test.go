package standbytest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/testbed/patience"
	"github.com/pawl-go/pawl/job"
)

// No handler starts before the exchange that claimed its job is durable. While its COMMIT waits
// for the standby none starts, even if an operator cancels the wait. When the standby is back, each
// job ends.
func TestExchange_StartsNothingBeforeItIsReplicated(t *testing.T) {
	t.Parallel()
	p := pair(t)
	pool := poolOf(t, p.URL(), watch)
	const jobs = 20
	for range jobs {
		if _, err := job.Enqueue(t.Context(), pool, job.Request{Queue: "q", Kind: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	var begun atomic.Int32
	first, goOn := make(chan struct{}), make(chan struct{})
	w, err := job.NewWorker(pool, job.Config{Name: "exchanges", Lease: time.Minute, Poll: 10 * time.Millisecond, Hooks: logTo(t, "worker"),
		Queues: []job.Queue{{Name: "q", Concurrency: 2}},
		Handlers: []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error {
			if begun.Add(1) == 2 {
				close(first)
			}
			<-goOn
			return nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	t.Cleanup(func() { p.Synchronous("") })
	<-first
	p.Cut()
	close(goOn)
	p.Until("select exists (select from pg_stat_activity as a where a.wait_event = 'SyncRep' and a.query like '%job_exchange%')")
	patience.Watch(holdFor, func() {
		if n := begun.Load(); n != 2 {
			t.Fatalf("%d handlers have begun while the exchange waits", n)
		}
	})
	p.CancelWaiting()
	patience.Watch(holdFor, func() {
		if n := begun.Load(); n != 2 {
			t.Fatalf("%d handlers have begun after the wait was cancelled", n)
		}
	})
	p.Join()
	untilTrue(t, pool, "not exists (select from pawl.job)")
	untilTrue(t, poolOf(t, p.StandbyURL(), nil), "not exists (select from pawl.job)")
	if n := begun.Load(); n < jobs {
		t.Errorf("%d handlers have begun for %d jobs", n, jobs)
	}
}
