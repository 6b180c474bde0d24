package job_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// Workers of one process have different names, by their first queue, however long.
func TestWorker_NamesTellWorkersOfOneProcessApart(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t)
	for _, queue := range []string{"mail", "payments", strings.Repeat("ä", 127)} {
		w, err := job.NewWorker(pool, job.Config{
			Queues: []job.Queue{{Name: queue}}, Presence: job.Presence{Off: true},
			Handlers: []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { return nil })},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-w.Ready():
		case err := <-done:
			t.Fatalf("the worker ended: %v", err)
		}
	}
	var names, told int
	err := pool.QueryRow(t.Context(), `select count(distinct w.name), count(*) filter (where w.name like '% mail' or w.name like '% payments' or w.name like '% ää%')
  from pawl.worker as w`).Scan(&names, &told)
	if err != nil || names != 3 || told != 3 {
		t.Errorf("%d names, %d of them with their queue: %v", names, told, err)
	}
}
