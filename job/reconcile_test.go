package job_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/wireproxy"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A claim whose reply is lost has claimed all the same. The worker that made it is alive, so no sweep ever takes those
// jobs back: it must notice itself.
func TestWorker_GivesBackClaimsItNeverHeardOf(t *testing.T) {
	t.Parallel()
	url := pawltest.URL(t)
	proxy, through := wireproxy.Start(t, url)
	pool, err := pgxpool.New(t.Context(), through+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := &bed{T: t, pool: pool}
	for range 3 {
		b.enqueue(job.Request{Queue: "q", Kind: "k"})
	}
	proxy.LoseReply("pawl_v1.job_claim", 2)

	var done atomic.Int32
	w, err := job.NewWorker(pool, job.Config{Queue: "q", Lease: time.Second, Concurrency: 1, Poll: 10 * time.Millisecond,
		Handler: func(context.Context, pgx.Tx, job.Job) error { done.Add(1); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	b.until("jobs are stuck", "select count(*) from pawl.job", 0)
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if proxy.Cuts() != 2 || done.Load() != 3 {
		t.Errorf("%d replies lost, %d jobs done, want 2 and 3", proxy.Cuts(), done.Load())
	}
}

// Reconciling is not a way to lose work: what the worker names stays, and so does what others hold.
func TestReconcile_KeepsWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.enqueue(job.Request{Queue: "q", Kind: "k"})
	}
	kept, lost := b.claim(), b.claim()
	mine := b.worker
	b.register()
	others := b.claim()
	if _, err := b.pool.Exec(t.Context(), "select pawl_v1.worker_reconcile($1, $2)", mine, []int64{kept.ID}); err != nil {
		t.Fatal(err)
	}
	b.mustFinish(kept)
	b.mustFinish(others)
	b.wantCount("select count(*) from pawl.job where status = 'pending' and attempts = 0", 1)
	b.wantDetail(lost.Finish(t.Context(), b.begin()), "superseded")
}
