package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/job"
	"github.com/pawl-go/pawl/pawltest"
)

// A worker purges keys in batches, about once a minute. A key whose job has a row stays.
func TestKeyKeeper(t *testing.T) {
	t.Parallel()
	pool := pawltest.DB(t, `
insert into pawl.job (queue, kind, payload) values ('q', 'k', '');
insert into pawl.job_key (queue, key, hash, job_id, created_at, expires_at)
select 'q', n::text, sha256(''), n, now() - interval '3 days', now() - interval '2 days' from generate_series(1, 1500) as n`)
	left := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "select count(*) from pawl.job_key").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	keep, due := job.NewKeyKeeper(pool, job.Config{Hooks: pawl.Hooks{OnEvent: func(_ context.Context, e pawl.Event) { t.Errorf("%+v", e) }}})
	keep(t.Context())
	if left() != 1500 {
		t.Fatal("purged before it was due")
	}
	*due = time.Time{}
	keep(t.Context())
	if n := left(); n > 501 || time.Until(*due) > job.KeyPurgeEvery/2 {
		t.Errorf("%d left, the next batch is due in %v", n, time.Until(*due))
	}
	for left() > 1 { // the batch size depends on the time of the last batch
		*due = time.Time{}
		keep(t.Context())
	}
	*due = time.Time{}
	keep(t.Context())
	if n := left(); n != 1 || time.Until(*due) < job.KeyPurgeEvery/2 {
		t.Errorf("%d left, the next batch is due in %v", n, time.Until(*due))
	}
}
