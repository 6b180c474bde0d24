//go:build proof

package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/job"
)

// The claim after the announcement finds a job that committed just before it and did not notify.
func TestWake_LooksOnceMore(t *testing.T) {
	t.Parallel()
	c := setupCrew(t, `create table once (); alter function pawl_v1.worker_asleep(text[]) rename to worker_asleep_itself;
create function pawl_v1.worker_asleep(p_queues text[]) returns table (outcome text, queue text, signal text, detail jsonb) language plpgsql as $$
begin
  return query select * from pawl_v1.worker_asleep_itself(p_queues);
  if exists (select from pg_locks as l where l.classid = 1885435767 and l.pid = pg_backend_pid()) and not exists (select from public.once) then
    insert into public.once default values;
    insert into pawl.job (queue, kind, payload) values ('q', 'k', '');
  end if;
end $$`)
	c.config.Poll = time.Hour
	other, err := pgx.Connect(t.Context(), c.url)
	c.must(err)
	_, err = other.Exec(t.Context(), "select pawl_v1.worker_asleep_itself('{q}')")
	c.must(err)
	c.hire()
	time.Sleep(3 * time.Second) // it asks again after 5.1 s of idleness, and polls again at 10.2 s
	c.must(other.Close(t.Context()))
	c.until("never announced", "select count(*) from once", 1)
	began := time.Now()
	c.untilDone()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v, as long as to the next poll", took)
	}
	c.wantEffects(1)
}

// When the announced worker takes a long job, another is announced, because both were notified.
func TestWake_TheNextIsAnnounced(t *testing.T) {
	t.Parallel()
	c := setupCrew(t)
	release := make(chan struct{})
	c.handlers = []job.Handler{job.Handle("k", func(context.Context, job.Task[[]byte]) error { <-release; return nil })}
	c.config.Poll, c.concurrency = time.Hour, 1
	c.hire()
	c.hire()
	defer close(release)
	// It has polled after 10, 20, … 2560 ms, and does not poll for another 5 s.
	time.Sleep(5300 * time.Millisecond)
	c.untilAnnounced(1)
	for running := range 2 {
		began := time.Now()
		c.enqueueMany(1, job.Request{})
		c.until("not running", "select count(*) from pawl.job where status = 'processing'", running+1)
		if running == 0 {
			c.until("not announced", asleep, 1)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v, as long as to the next poll", took)
		}
	}
}
