package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
)

// After a worker has stopped, the database has its counts.
func TestWorker_AddsItsCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	work := job.Handle("k", func(_ context.Context, j job.Task[[]byte]) error {
		if string(j.Payload) == "bad" {
			return pawl.Final(errors.New("no"))
		}
		return nil
	})
	for _, body := range []string{"a", "b", "bad", "c"} {
		b.enqueue(job.Request{Queue: "counted", Kind: "k", Payload: []byte(body)})
	}
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "counted"}}, Handlers: []job.Handler{work}})
	b.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	b.until("jobs are left", "select count(*) from pawl.job as j where j.status <> 'dead_letter'", 0)
	cancel()
	b.must(<-over)
	b.wantCount("select sum(r.value) from pawl.rollup as r where r.span = 'hour' and r.scope = 'counted' and r.name = 'succeeded'", 3)
	b.wantCount("select sum(r.value) from pawl.rollup as r where r.span = 'hour' and r.scope = 'counted' and r.name = 'failed'", 1)
}

// With many queues, those most in need are measured by name, and the rest are counted.
func TestWorker_MeasuresManyQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "q"}}, Handlers: []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { return nil })}})
	b.must(err)
	b.exec("insert into pawl.queue (name, mode) select 'empty' || n, 'paused' from generate_series(1, 60) as n")
	for _, c := range []struct{ dead, named, left int64 }{{50, 50, 0}, {10, 50, 10}} {
		b.exec(fmt.Sprintf(`insert into pawl.job (queue, kind, payload, status) select 'd' || q.many + n, 'k', '', 'dead_letter'
  from generate_series(1, %d) as n, (select count(*) as many from pawl.job) as q`, c.dead))
		levels, err := w.Measure(t.Context())
		b.must(err)
		var named, left int64
		for i, name := range levels.Names {
			switch {
			case name == "queues_left_out":
				left = levels.Values[i]
			case name == "dead_letters" && levels.Scopes[i] != "":
				named++
			}
		}
		if named != c.named || left != c.left {
			t.Errorf("%d queues by name and %d left out, want %d and %d", named, left, c.named, c.left)
		}
	}
}

// The levels are sums of all queues, and each queue's levels that are not 0.
func TestWorker_MeasuresLevels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into pawl.job (queue, kind, payload, status, available_at)
select 'q' || n % 2, 'k', '', (array['pending', 'dead_letter', 'unknown'])[1 + n % 3], clock_timestamp() - n * interval '1 minute'
  from generate_series(1, 12) as n;
insert into pawl.worker (name, seen_at) values ('silent', clock_timestamp() - interval '1 hour')`)
	w, err := job.NewWorker(b.pool, job.Config{Queues: []job.Queue{{Name: "q0"}}, Handlers: []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { return nil })}})
	b.must(err)
	levels, err := w.Measure(t.Context())
	b.must(err)
	var got []string
	for i, name := range levels.Names {
		value := levels.Values[i]
		if name == "oldest_due_ms" {
			name, value = "oldest_due_minutes", value/time.Minute.Milliseconds()
		}
		got = append(got, fmt.Sprintf("%s/%s=%d", levels.Scopes[i], name, value))
	}
	slices.Sort(got)
	want := []string{"/dead_letters=4", "/due=4", "/oldest_due_minutes=12", "/processing=0", "/unknown=4", "/workers=1", "/workers_silent=1",
		"q0/dead_letters=2", "q0/due=2", "q0/oldest_due_minutes=12", "q0/unknown=2", "q1/dead_letters=2", "q1/due=2", "q1/oldest_due_minutes=9", "q1/unknown=2"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
